"""Whatever is written into a configuration, it is planned or refused in words, by its path and with a remedy.

Two thousand changed presets in this process, the same each time (`make fuzz` tries others), and what only a file of YAML can hold by
Snakemake itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline import ROOT, Checkout
from snakemake.utils import update_config
from test_config import KEYS

from dpscale.collectives.run import Run
from dpscale.config import Config, load_config
from dpscale.errors import ConfigError
from dpscale.launched import Launched
from dpscale.launching import slurm
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.order import measuring_order
from dpscale.planning.plan import plan_trials
from dpscale.trial import Trial

CONFIGS = int(os.environ.get("DPSCALE_FUZZ_CONFIGS", 2000))
EXPERIMENTS = ROOT / "workflow/experiments"
FILES = [
    (),
    *((path,) for path in sorted(EXPERIMENTS.glob("*.yaml"))),
    *((EXPERIMENTS / path.name, path) for path in sorted(EXPERIMENTS.glob("reduced/*.yaml"))),
]
Path_ = tuple[Any, ...]


def whole(files: tuple[Path, ...]) -> dict[str, Any]:
    """As Snakemake lays them over config.yaml."""
    data: dict[str, Any] = {}
    for path in (ROOT / "config.yaml", *files):
        update_config(data, yaml.safe_load(path.read_text()))
    return data


# What is put where something else was

HOSTILE = [
    *("", " ", "~", "-", "--help", "-rf", ".", "..", "../../etc/passwd", "/", "/dev/null", "a/b", "a//b/", "C:\\x"),
    *(
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "| cat",
        "a'b",
        'a"b',
        "a\nb",
        "a\tb",
        "a\0b",
        "\\",
        "*",
        "?",
    ),
    *(
        "{experiment}",
        "{0}",
        "%s",
        "\u202e",
        "é",
        "ß" * 300,
        "😀",
        "\ud800",
        "x" * 5000,
        "null",
        "nan",
        "1e999",
        "0x10",
    ),
    *(
        "https://user:secret@host/",
        "http://[",
        "a:b",
        "os:system",
        "__main__:x",
        "a.b:c.d",
        "1x1",
        "01x1",
        "9x99999999",
    ),
    *("single", "ddp", "spawn", "srun", "largest", "all", "trial", "placebo", "downloads", "digits", "imagenet"),
]
NUMBERS = [
    *(0, 1, 2, 3, 4, 7, 8, 16, 32, 64, 100, 1000, -1, 2**31, 2**63, 10**30, -(10**30)),
    *(0.0, -0.0, 0.5, 1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan"), True, False),
]
SCALARS = st.one_of(
    st.none(),
    st.sampled_from(NUMBERS),
    st.sampled_from(HOSTILE),
    st.integers(-5, 50),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
)
HASHABLE = st.one_of(SCALARS, st.tuples(st.integers()), st.sampled_from(KEYS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(HASHABLE, inner, max_size=3), st.sets(HASHABLE, max_size=2)
    ),
    max_leaves=5,
)


def misspelt(draw: st.DrawFn, key: str) -> str:
    at = draw(st.integers(0, len(key) - 1)) if key else 0
    return draw(
        st.sampled_from(
            [key[:at] + key[at + 1 :], key[:at] + key[at:] * 2, key.upper(), f" {key}", f"{key}\n", key[::-1]]
        )
    )


def places(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Of every value in it, however deep."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def at(data: Any, path: Path_) -> Any:
    for key in path:
        data = data[key]
    return data


@st.composite
def changed(draw: st.DrawFn, original: dict[str, Any]) -> dict[str, Any]:
    """One to four changes of a configuration, anywhere in it."""
    data = copy.deepcopy(original)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 4]))):
        paths = list(places(data))
        if not paths:
            break
        *way, key = draw(st.sampled_from(paths))
        parent = at(data, tuple(way))
        value = parent[key]
        how = draw(st.integers(0, 9))
        if how == 0:
            del parent[key]
        elif how == 1 and isinstance(parent, dict):
            parent[misspelt(draw, str(key))] = parent.pop(key)
        elif how == 2 and isinstance(parent, dict):
            parent[draw(HASHABLE)] = parent.pop(key)
        elif how == 3:
            parent[key] = copy.deepcopy(at(data, draw(st.sampled_from(paths))))
        elif how == 4:
            parent[key] = draw(st.sampled_from([[value], {"key": value}, [value, value], [[value]], str(value)]))
        elif how == 5 and isinstance(value, dict):
            value[draw(st.one_of(st.sampled_from(KEYS), HASHABLE))] = draw(VALUES)
        elif how == 6:
            parent[key] = draw(st.sampled_from(NUMBERS))
        elif how == 7:
            parent[key] = draw(st.sampled_from(HOSTILE))
        elif how == 8 and isinstance(value, int) and not isinstance(value, bool):
            parent[key] = draw(st.sampled_from([value + 1, value - 1, 2 * value, -value, float(value), str(value)]))
        else:
            parent[key] = draw(VALUES)
    return data


# What must hold then

PLACE = re.compile(rf"config\.yaml: (top level|{'|'.join(Config.model_fields)})(\.|: | = )")
REMEDY = re.compile(
    r"valid: |should |expected|required|give |choose |remove|use |write |set |add |keep one|raise |lower |names are |mend|"
    r"say where|make |takes |needs |only|leave "
)


def is_planned_or_refused(data: dict[str, Any]) -> None:
    try:
        config = load_config(data)
        plans, collectives = plan_trials(config), plan_collectives(config)
    except ConfigError as refusal:
        refused_well(str(refusal))
    else:
        planned_well(config, plans, collectives)


def refused_well(text: str) -> None:
    """Each line names a place, and says what to do."""
    lines = text.splitlines()
    assert lines
    assert [line for line in lines if not (PLACE.match(line) and REMEDY.search(line))] == []
    assert "secret" not in text


def planned_well(config: Config, plans: dict[str, list[Trial]], collectives: dict[str, list[Run]]) -> None:
    """What is planned survives all the ways that it has to go before a rank runs."""
    assert all(plans.values())
    trials = [trial for planned in plans.values() for trial in planned]
    runs = [run for planned in collectives.values() for run in planned]
    assert sorted(trial.id for trial in measuring_order(trials)) == sorted(trial.id for trial in trials)
    again = load_config(json.loads(config.plan_json(config.experiments)))  # what collect.py is given
    assert (plan_trials(again), plan_collectives(again)) == (plans, collectives)
    for launched in [*{(trial.experiment, trial.cell): trial for trial in trials}.values(), *runs]:
        assert from_command_line(launched) == launched
        assert re.fullmatch(r"[a-z][\w/]*", str(launched.folder), re.ASCII)
        json.dumps(slurm.resources(launched, config.cluster), allow_nan=False)


def from_command_line(launched: Launched) -> Launched:
    parser = argparse.ArgumentParser()
    type(launched).add_arguments(parser)
    return type(launched).from_args(parser.parse_args(launched.to_args()))


@pytest.mark.parametrize("files", FILES, ids=lambda files: "/".join(path.stem for path in files[:2]) or "config")
def test_a_changed_preset_is_planned_or_refused_by_its_path(files: tuple[Path, ...]) -> None:
    original = whole(files)
    is_planned_or_refused(original)

    def refuse(*command: Any, **how: Any) -> None:
        raise AssertionError(f"planning has started {command}")

    @settings(
        max_examples=CONFIGS // len(FILES) + 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(changed(original))
    def check(data: dict[str, Any]) -> None:
        is_planned_or_refused(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        patch.setattr("os.fork", refuse)
        check()


# What only a file can hold, by Snakemake itself

PLAIN = """\
results_dir: results
experiments:
  quick:
    workload: {model: convnet, dataset: digits, model_options: {dropout: false}}
    strategies: {single: , ddp: }
    topologies: [1x1, 1x2]
    batch: {per_device: 8}
    epochs: 2
"""
Change = Callable[[str], str]


def instead(old: str, new: str) -> Change:
    assert old in PLAIN
    return lambda text: text.replace(old, new, 1)


def results(folder: str) -> Change:
    return instead("results_dir: results", f"results_dir: {json.dumps(folder)}")


def named(experiment: str) -> Change:
    return instead("  quick:", f"  {experiment}:")


PLANNED: dict[str, Change] = {
    "as it is": lambda text: text,
    "lines of Windows": lambda text: text.replace("\n", "\r\n"),
    "a mark of the byte order": lambda text: "\ufeff" + text,
    "JSON": lambda text: json.dumps(yaml.safe_load(text)),
    "an anchor": lambda text: (
        text.replace("strategies:", "strategies: &all")
        + "  again:\n    <<: {epochs: 3}\n    strategies: *all\n    topologies: [1x1]\n    batch: {per_device: 8}\n"
    ),
    "eight in octal": instead("epochs: 2", "epochs: 010"),
    "a folder above": results("../above"),
    "a home folder": results("~/results"),
    "a slash at the end": results("results/"),
    "a command": results("$(touch pwned) `touch pwned` ; touch pwned"),
    "quotes": results('it\'s "here"'),
}
REFUSED: dict[str, tuple[Change, str]] = {  # what is said of it
    "a key twice": (instead("    epochs: 2", "    epochs: 2\n    epochs: 3"), "line 9: 'epochs' is in line 8 already"),
    "an experiment twice": (lambda text: text + text.split("experiments:\n")[1], "'quick' is in line 3 already"),
    "a date for a key": (instead("single: ", "2024-01-01: "), "a name is text; write it in quotes"),
    "yes for a key": (instead("single: ", "yes: "), "experiments.quick.strategies.1 = True: a name is text"),
    "null for a key": (instead("    epochs: 2", "    epochs: 2\n    ~: 2"), "experiments.quick: unknown key None"),
    "bytes": (instead("dropout: false", "dropout: !!binary aGVsbG8="), "experiments.quick.workload.model_options"),
    "an object of Python": (
        instead("epochs: 2", 'epochs: !!python/object/apply:os.system ["touch pwned"]'),
        "config.yaml: line 8, column 13: no YAML: could not determine a constructor",
    ),
    "a tab": (instead("    epochs", "\tepochs"), "config.yaml: line 8, column 1: no YAML: found character that cannot"),
    "a bracket that nothing closes": (
        instead("[1x1, 1x2]", "[1x1, 1x2"),
        "config.yaml: line 7, column 10: no YAML: did not find expected ',' or ']' (while parsing a flow sequence that "
        "begins in line 6)",
    ),
    "a value that holds itself": (
        lambda text: text.replace("experiments:", "experiments: &all") + "  again: *all\n",
        "config.yaml: line 2: an alias (*) puts this value into itself",
    ),
    "a text at the top": (lambda text: "text\n", "config.yaml: top level: keys with values are expected"),
    "nothing for the strategies": (instead("{single: , ddp: }", "~"), "experiments.quick.strategies"),
    "a name that leads out": (named("../quick"), "names are two or more of a-z"),
    "a name too long": (named("x" * 300), "at most 100 characters"),
    "a strategy that is a command": (
        instead("single: ", '"`touch pwned`": {base: ddp}, single: '),
        "names are two or more",
    ),
    "a dataset that leads out": (
        lambda text: text + "datasets:\n  ../out: {base: image_folder, source: x}\n",
        "datasets.../out",
    ),
    "a wildcard": (results("{experiment}"), "results_dir"),
    "an option": (results("-rf"), "results_dir"),
    "a password": (
        lambda text: text + "datasets: {mnist: {mirrors: ['https://me:secret@host/']}}\n",
        "datasets.mnist.mirrors",
    ),
}

DRY_RUNS = """
import os, sys
from snakemake.cli import main  # its import takes longer than a plan: it is forked for each
for case in sys.argv[1:]:
    os.replace(f"{case}.yaml", "config.yaml")
    child = os.fork()
    if child == 0:
        said = os.open(f"{case}.said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.exit(main(["-n", "--cores", "1", "prepare", "quick" if "quick" in open("config.yaml").read() else "prepare"]))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.replace(f"{case}.said", f"{case}.{status}")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Case -> what a dry run ended with and said."""
    copy_ = Checkout.fresh(tmp_path_factory.mktemp("fuzz") / "checkout", {})
    changes = PLANNED | {name: change for name, (change, _) in REFUSED.items()}
    for number, change in enumerate(changes.values()):
        (copy_.root / f"{number}.yaml").write_bytes(change(PLAIN).encode())
    command = [sys.executable, "-c", DRY_RUNS, *map(str, range(len(changes)))]
    environment = copy_.environment(HOME=str(copy_.root.parent / "home"))
    subprocess.run(command, cwd=copy_.root, env=environment, check=True, timeout=300)
    found = {}
    for number, name in enumerate(changes):
        (path,) = (path for path in copy_.root.glob(f"{number}.*"))
        found[name] = int(path.suffix[1:]), path.read_text()
    places = [copy_.root, copy_.root.parent, copy_.root.parent / "home"]
    made = {path.name for folder in places for path in folder.iterdir()}
    found["left"] = 0, " ".join(made & {"pwned", "results", "data", "above", "out"})
    return found


@pytest.mark.parametrize("case", PLANNED)
def test_a_file_is_planned_by_snakemake(case: str, said: dict[str, tuple[int, str]]) -> None:
    status, text = said[case]
    assert status == 0, text
    assert re.search(r"^trial +\d+$", text, re.MULTILINE), text


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_is_refused_by_snakemake_in_words(case: str, said: dict[str, tuple[int, str]]) -> None:
    status, text = said[case]
    assert status == 1, text
    assert REFUSED[case][1] in text
    assert "Traceback" not in text
    assert "secret" not in text


def test_nothing_has_been_started_by_any_of_them(said: dict[str, tuple[int, str]]) -> None:
    assert said["left"] == (0, "")
