"""The documentation is true: its commands run, its links lead somewhere, its tables are those of the code."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from factories import a_config
from pipeline import ROOT, Checkout, small_config, small_experiment

import reference
from dpscale.cluster import ClusterConfig
from dpscale.config import Config, load_config
from dpscale.planning.plan import plan_trials
from dpscale.record import SAMPLE_COLUMNS, STEP_COLUMNS, Record
from dpscale.strategies import STRATEGIES
from dpscale.tables.schema import TABLES

README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "README.md"]

RECORD = "results/quickstart/trials/ddp/spawn/1x2/r0/record.json"

# Every command in a shell block of a page is in exactly one of these. Those that run do so in this order, in a copy of
# the checkout with a quickstart of seconds.
RUN = [
    "snakemake --cores 2 -n",
    "snakemake --cores 2 plan",
    f"snakemake --cores 2 {RECORD}",
    "snakemake --cores 2 tables --config partial=true",
    "python scripts/show.py results/quickstart/tables/summary.csv",
    "snakemake --unlock",
    "python scripts/predict_published.py workflow/references/published.csv",
]
DRY_RUN = [
    "snakemake --cores 2",
    "snakemake --cores 2 --rerun-incomplete",
    "snakemake --cores 2 quickstart",
    "snakemake --cores 2 tables",
    "snakemake --cores 2 pages",
    "snakemake --cores 2 print_figures",
    "snakemake --cores 2 advice",
    "snakemake --cores 2 results/quickstart/figures/speedup.svg",
    "snakemake --cores 2 results/quickstart/explore.html",
    "snakemake --cores 2 figures --config partial=true",
    "snakemake --cores 2 --forcerun trial",
    f"snakemake --cores 2 --forcerun trial -- {RECORD}",
    "snakemake --cores 2 --config results_dir=elsewhere/results data_dir=elsewhere/data",
    "snakemake --cores 2 every_strategy --configfile workflow/experiments/every_strategy.yaml",
    "snakemake --cores 2 collectives --configfile workflow/experiments/every_collective.yaml",
    "snakemake --cores 2 why_it_stops --configfile workflow/experiments/why_it_stops.yaml",
    "snakemake --cores 2 emulated_communication_bound --configfile workflow/experiments/emulated_communication_bound.yaml",
    "snakemake --cores 2 mnist_convnet_cpu --configfile workflow/experiments/mnist_convnet_cpu.yaml "
    "workflow/experiments/reduced/mnist_convnet_cpu.yaml",
    "snakemake --cores 2 --forcerun largest_batch",
    "snakemake --cores 1 imagenet_resnet50 --config partial=true --configfile workflow/experiments/imagenet_resnet50.yaml",
    "snakemake --cores 1 -n -p results/wide/trials/ddp/torchrun/2x1/r0/record.json",
]
DRY_RUN_WITHOUT_SLURM = [
    "snakemake --profile slurm",
    "snakemake --profile slurm -n -p results/quickstart/trials/ddp/torchrun/1x2/r0/record.json",
]
AS_ANOTHER = {  # only as far as an argument
    "snakemake --cores 1 plan": "snakemake --cores 2 plan",
    "snakemake --cores 1 figures --config partial=true": "snakemake --cores 2 figures --config partial=true",
    "snakemake --profile slurm -n": "snakemake --profile slurm",
    "snakemake --profile slurm results/quickstart/trials/ddp/torchrun/1x2/r0/record.json": "snakemake --profile slurm "
    "-n -p results/quickstart/trials/ddp/torchrun/1x2/r0/record.json",
}
STRATEGY_EXAMPLE = "snakemake --cores 2 results/quickstart/trials/one_exchange/spawn/1x2/r0/record.json"
MAKE = [
    "make run",
    "make test",
    "make CPU_ONLY=1 run",
    "make .venv/run-ready",
    "make more",
    "make MORE=2 MOST=50 more",
    "make snapshot NAME=before",
    "make compare",
    "make compare BEFORE=before AFTER=after",
    "make bundle",
    "make bundle NAME=resnet50 TARGETS=quickstart",
]  # CI runs the first two for real
STEP_OF_MAKE_RUN = "snakemake --cores 2 --report results/report.html"
NOT_RUN = {
    ". .venv/bin/activate": "the tests' own environment is on the PATH instead",
    "python scripts/compare.py before after": "tests/test_snapshots.py",
    "snakemake --cores 1 results/comparisons/before/after/changes.svg": "tests/test_snapshots.py",
    "python scripts/launch.py ... --node-rank=0 --master-addr=host-a --master-port=23456 --log=node0.log": "tests/slurm",
    "snakemake -s dpscale/Snakefile --cores 2 --forceall": "tests/test_bundle.py, in an unpacked bundle",
    "sha256sum -c SHA256SUMS": "tests/test_bundle.py, in an unpacked bundle",
    **dict.fromkeys(
        (
            "python scripts/what_if.py results/<experiment>/predictions/calibration.json workflow/topologies/*.yaml",
            "python scripts/what_if.py results/<experiment>/predictions/calibration.json "
            "workflow/topologies/a100_nvlink_ib_hdr.yaml --batch 32 64 128 --bytes-factor 1 0.5 --csv answers.csv",
        ),
        "tests/test_what_if.py",
    ),
    "python scripts/launch.py ... --node-rank=1 --master-addr=host-a --master-port=23456 --log=node1.log": "tests/slurm",
    "python scripts/predict_published.py TABLE.csv --calibrate-up-to 8 --at 16x8 64x8 --out predictions.csv": "tests/"
    "test_published.py",
    "scontrol show config | grep -E 'Preempt|KillWait'": "asks a site's SLURM",
    "scontrol show partition gpu | grep -E 'PreemptMode|GraceTime'": "asks a site's SLURM",
}


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """Fenced blocks of a page."""
    for language, content in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield content


def commands() -> list[str]:
    """Every line of every shell block, without its comment."""
    lines = [line for page in PAGES for block in blocks(page, "bash", "console", "sh") for line in block.splitlines()]
    return [command for line in lines if (command := re.sub(r"(^|\s+)# .*", "", line).strip())]


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **changes}


def in_shell(command: str, copy: Checkout, **changes: str) -> subprocess.CompletedProcess[str]:
    """As somebody types it, in the copy."""
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, "-c", command],
        cwd=copy.root,
        env={**copy.environment(), **environment(**changes)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    quickstart = small_experiment(strategies={"single": None, "ddp": None}, launchers=["spawn", "torchrun"])
    config = small_config(quickstart, name="quickstart")
    config["experiments"]["wide"] = small_experiment(
        strategies={"ddp": None}, launchers=["torchrun"], topologies=["2x1"]
    )
    return Checkout.fresh(tmp_path_factory.mktemp("readme") / "dpscale", config)


@pytest.fixture(scope="module")
def ran(copy: Checkout) -> dict[str, subprocess.CompletedProcess[str]]:
    """The commands of RUN, one after another."""
    return {command: in_shell(command, copy) for command in RUN}


def test_every_command_is_run_or_says_why_not() -> None:
    known = [*RUN, *DRY_RUN, *DRY_RUN_WITHOUT_SLURM, *AS_ANOTHER, STRATEGY_EXAMPLE, *MAKE, STEP_OF_MAKE_RUN, *NOT_RUN]
    assert len(known) == len(set(known))
    assert sorted(set(commands())) == sorted(known)
    assert {*AS_ANOTHER.values()} <= {*RUN, *DRY_RUN, *DRY_RUN_WITHOUT_SLURM}


@pytest.mark.parametrize("command", RUN)
def test_a_command_runs(command: str, ran: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = ran[command]
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dry_runs(
    copy: Checkout, ran: object, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, subprocess.CompletedProcess[str]]:
    """The other commands with -n, two at a time; those for SLURM where there is none of its programs."""
    programs = tmp_path_factory.mktemp("bin")
    programs.joinpath("which").symlink_to(shutil.which("which") or "/bin/which")
    without_slurm = os.pathsep.join([str(Path(sys.executable).parent), str(programs)])

    def dry_run(command: str) -> subprocess.CompletedProcess[str]:
        if command in DRY_RUN:
            return in_shell(command.replace("snakemake", "snakemake -n", 1), copy)
        return in_shell(command.replace("slurm", "slurm -n", 1), copy, PATH=without_slurm)

    commands = [*DRY_RUN, *DRY_RUN_WITHOUT_SLURM]
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(commands, pool.map(dry_run, commands), strict=True))


@pytest.mark.parametrize("command", DRY_RUN)
def test_a_command_would_run(command: str, dry_runs: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = dry_runs[command]
    assert done.returncode == 0, done.stdout + done.stderr
    for target in re.findall(r"(?:elsewhere|results)/[\w./]+$|(?<=results_dir=)\S+", command):
        assert target in done.stdout


@pytest.mark.parametrize("command", DRY_RUN_WITHOUT_SLURM)
def test_a_command_for_slurm_would_run_where_there_is_none(
    command: str, dry_runs: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    done = dry_runs[command]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mem_mb=0" in done.stdout  # Snakemake itself would ask for 1 GB
    assert "slurm_extra=--ntasks-per-node=1 --exclusive" in done.stdout


@pytest.mark.parametrize("command", NOT_RUN)
def test_a_command_that_is_not_run_is_at_least_one(command: str) -> None:
    subprocess.run(["bash", "-n", "-c", command], check=True)


def test_every_make_target_that_a_page_names_exists(copy: Checkout) -> None:
    named = {match for page in PAGES for match in re.findall(r"`(make [^`\n]+)`", page.read_text())}
    for command in sorted({*named, *MAKE}):
        done = in_shell(command.replace("make", "make -n", 1), copy)
        assert done.returncode == 0, command + done.stderr


def test_the_report_is_made_as_make_run_does(copy: Checkout) -> None:
    """Which gives it its name when it is whole."""
    draft = STEP_OF_MAKE_RUN.replace("report.html", "report.partial.html")
    assert draft in in_shell("make -n run", copy).stdout


# --- the example of a strategy -------------------------------------------------------------------------------------


def test_the_example_of_a_strategy_is_measured_and_nothing_else_is(
    copy: Checkout, ran: dict[str, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    changed = copy.copy(tmp_path / "dpscale")
    module, row = blocks(README, "python")
    (changed.root / "scripts/dpscale/strategies/one_exchange.py").write_text(module)
    table = "scripts/dpscale/strategies/__init__.py"
    changed.edit(
        table,
        "\nfrom dpscale.strategies.base",
        "\nfrom dpscale.strategies import one_exchange\nfrom dpscale.strategies.base",
    )
    changed.edit(table, "Strategy] = {\n", "Strategy] = {\n" + row)
    config = changed.config
    config["experiments"]["quickstart"]["strategies"]["one_exchange"] = None
    changed.configure(config)
    assert "Nothing to be done" in in_shell(f"snakemake --cores 2 -n {RECORD}", changed).stdout
    done = in_shell(STRATEGY_EXAMPLE, changed)
    assert done.returncode == 0, done.stdout + done.stderr
    record = Record.read(changed.root / STRATEGY_EXAMPLE.split()[-1])
    assert record.status == "ok"
    assert record.weights_max_difference == 0
    figure = "results/quickstart/figures/speedup.svg"
    done = in_shell(f"snakemake --cores 2 {figure} --config partial=true", changed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one_exchange" in (changed.root / "results/quickstart/tables/summary.csv").read_text()
    assert "one_exchange" in (changed.root / figure).read_text()


# --- the table of strategies ------------------------------------------------------------------------------------------


def test_the_readme_says_of_every_strategy_where_it_has_been_run() -> None:
    section = README.read_text().split("\n## Strategies\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(STRATEGIES)


# --- links, names, tables ------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:docs|envs|scripts|slurm|tests|workflow)/[\w./-]*)`", page.read_text())
    missing = {path for path in named if not (ROOT / path).exists()}
    assert missing <= {"scripts/dpscale/strategies/one_exchange.py"}  # the example


def test_modules_on_the_map_are_there() -> None:
    rows = re.findall(r"^\| (`(?:\w+\.py|\w+/)`[^|]*) \|", README.read_text(), re.MULTILINE)
    modules = [name for row in rows for name in re.findall(r"`([\w.]+/?)`", row)]
    assert len(modules) > 15
    for name in modules:
        assert (ROOT / "scripts" / "dpscale" / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_generated_tables_are_those_of_the_code(page: Path) -> None:
    """If not: python scripts/reference.py README.md docs/reference.md"""
    assert reference.filled(page.read_text()) == page.read_text()


def test_no_generated_table_is_left_out() -> None:
    found = {match["name"] for page in PAGES for match in reference.BLOCK.finditer(page.read_text())}
    assert found == set(reference.BLOCKS)


def test_every_result_column_is_explained() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    assert [column for columns in TABLES.values() for column in columns if f"`{column}`" not in text] == []


def first_column(page: Path, heading: str) -> list[str]:
    """Names in backticks from the first column of the table whose header follows the text."""
    after = page.read_text().split(heading, 1)[1]
    table = after[after.index("\n|") + 1 :].split("\n\n", 1)[0]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", line.split("|")[1])]


def test_the_fields_of_a_record_are_explained() -> None:
    page = ROOT / "docs" / "reference.md"
    assert first_column(page, "`steps.parquet` has a row") == list(STEP_COLUMNS)
    assert first_column(page, "`monitor.parquet` has a row") == list(SAMPLE_COLUMNS)
    fields = [field.name for field in dataclasses.fields(Record)]
    assert first_column(page, "`record.json` holds the rest") == ["format_version", *fields]


def test_the_settings_of_a_cluster_are_explained() -> None:
    names = first_column(ROOT / "docs" / "clusters.md", "below `cluster`")
    assert names == list(ClusterConfig.model_fields)


def test_pieces_of_configuration_can_be_planned() -> None:
    pieces = [yaml.safe_load(block) for page in PAGES for block in blocks(page, "yaml")]
    assert len(pieces) >= 4
    for piece in pieces:
        whole = piece.keys() <= Config.model_fields.keys()  # else keys of an experiment
        config = {**a_config(), **piece} if whole else a_config(**piece)
        assert plan_trials(load_config(config))


def test_dependencies_of_the_changelog_are_those_that_are_installed() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    pins = [
        line
        for name in ("requirements", "requirements-dev")
        for line in (ROOT / f"envs/{name}.in").read_text().splitlines()
    ]
    for package, pinned in (line.split("==") for line in pins if "==" in line):
        stubs = package.startswith("types-") or package.endswith("-stubs")
        assert package in text if stubs else f"| {package} | {pinned} |" in text, package
