"""What a user sees of Snakemake: what runs, what runs again, what is refused, and what is left after an end by force."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from pipeline import ROOT, Checkout, Done, send, small_config, small_experiment, wait_until, whole_run

from dpscale import lock
from dpscale.config import load_config
from dpscale.errors import UserError
from dpscale.planning.order import measuring_order
from dpscale.planning.plan import plan_trials
from dpscale.record import Record
from dpscale.tables.schema import TABLES as SCHEMA
from dpscale.trial import Trial

CELLS = {
    "single/spawn/1x1",
    "ddp/spawn/1x2",
    "ddp/torchrun/1x2",
    "independent/spawn/1x2",
    "data_parallel/spawn/1x2",
}
ALL = {f"{cell}/r{repeat}" for cell in CELLS for repeat in (0, 1)}
COLLECT = {"collect", "collect_collectives", "collect_predictions", "advise"}
FIGURES = {"comparison", "speedup", "efficiency", "epoch_time", "differences", "loss", "evaluation", "startup"}
FIGURES |= {"utilization", "utilization_per_device", "utilization_over_time"}
PRINT_RULES = {f"plot_{name}_for_print" for name in FIGURES}
TABLES = set(SCHEMA)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return whole_run(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    return whole_run(tmp_path_factory.getbasetemp())[1].output


@pytest.fixture
def checkout(whole: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the whole run, to be changed."""
    return whole.copy(tmp_path / "dpscale")


def trials_of(*strategies: str) -> set[str]:
    return {trial for trial in ALL if trial.split("/")[0] in strategies}


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The config with one key set; `path` names it, from the top or (with a dot first) from the experiment."""
    config = copy.deepcopy(config)
    *parents, key = (f"experiments.small{path}" if path.startswith(".") else path).split(".")
    place = config
    for parent in parents:
        if place.get(parent) is None:
            place[parent] = {}
        place = place[parent]
    place[key] = value
    return config


# --- a whole run ---------------------------------------------------------------------------------------------------


def test_a_run_makes_every_table_and_every_figure_in_every_format(whole: Checkout) -> None:
    tables = {path.stem for path in whole.results("small/tables").iterdir()}
    figures = {path.name for path in whole.results("small/figures").iterdir()}
    assert tables >= TABLES
    assert "What to do: small" in whole.results("small/advice.html").read_text()
    assert figures >= {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "pdf")}
    assert whole.results("small/explore.html").exists()
    assert not list(whole.root.rglob("*.partial"))


def test_no_job_runs_beside_another(output: str) -> None:
    running: set[str] = set()
    started = 0
    for line in output.splitlines():
        if match := re.match(r"    jobid: (\d+)", line):
            running.add(match[1])
            started += 1
            assert len(running) == 1, f"{line} while another job runs"
        elif match := re.match(r"Finished jobid: (\d+)", line):
            running.remove(match[1])
    assert started > len(ALL)


def test_no_two_trials_overlap_in_time(whole: Checkout) -> None:
    times = sorted((record["launch"]["started_at"], record["launch"]["ended_at"]) for record in whole.records())
    assert len(times) == len(ALL)
    assert all(ended <= started for (_, ended), (started, _) in pairwise(times))


def test_repeats_are_interleaved_and_within_each_the_order_is_the_plans(whole: Checkout) -> None:
    records = sorted(whole.records(), key=lambda record: record["launch"]["started_at"])
    ran = [Path(Trial(**record["trial"]).folder) for record in records]
    planned = measuring_order(plan_trials(load_config(whole.config))["small"])
    assert ran == [Path(trial.folder) for trial in planned]
    assert [trial.repeat for trial in planned] == [0] * len(CELLS) + [1] * len(CELLS)


def test_the_one_slot_is_snakemakes_own_resource_and_the_command_line_can_widen_it(
    whole: Checkout, checkout: Checkout, output: str
) -> None:
    given = r"Provided resources: .*trial_slot\D+(\d+)"
    assert re.search(given, output)[1] == "1"  # type: ignore[index]
    wider = checkout.run("plan", "--resources", "trial_slot=3").output
    assert re.search(given, wider)[1] == "3"  # type: ignore[index]


def test_an_unavailable_trial_ends_well_and_is_shown_with_its_reason(whole: Checkout, output: str) -> None:
    summary = whole.table("summary").set_index("strategy")
    row = summary.loc["data_parallel"]
    assert row.status == "unavailable"
    assert "needs CUDA devices" in row.reason
    assert row[["epoch_time_s", "throughput_samples_per_s", "speedup"]].isna().all()
    assert "needs CUDA devices" in output
    for figure in ("comparison", "speedup"):
        assert "Unavailable: data_parallel/spawn/1x2" in whole.results(f"small/figures/{figure}.svg").read_text()


def test_make_reprobe_runs_what_was_unavailable_again_and_nothing_else(whole: Checkout, tmp_path: Path) -> None:
    copy = whole.copy(tmp_path / "copy")
    before = {record["launch"]["started_at"] for record in copy.records()}
    command = ["make", "reprobe", f"BIN={Path(sys.executable).parent}", "-o", ".venv/run-ready"]
    done = subprocess.run(command, cwd=copy.root, env=copy.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    again = [record["trial"] for record in copy.records() if record["launch"]["started_at"] not in before]
    assert [(trial["strategy"], trial["repeat"]) for trial in again] == [("data_parallel", 0), ("data_parallel", 1)]
    assert "Nothing to be done" in copy.dry_run().output


def test_make_reprobe_says_when_there_is_nothing_to_probe(whole: Checkout, tmp_path: Path) -> None:
    copy = whole.copy(tmp_path / "copy")
    config = copy.config
    del config["experiments"]["small"]["strategies"]["data_parallel"]
    copy.configure(config)
    command = ["make", "reprobe", f"BIN={Path(sys.executable).parent}", "-o", ".venv/run-ready"]
    done = subprocess.run(command, cwd=copy.root, env=copy.environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "no planned trial is unavailable\n")


def test_the_bases_speedup_is_one_and_the_control_has_no_accuracy(whole: Checkout) -> None:
    summary = whole.table("summary").set_index("strategy")
    assert summary.loc["single"].speedup == 1.0
    assert summary.loc["independent"].isna().final_accuracy
    assert summary.loc["ddp"].speedup.notna().all()


# --- what runs again -----------------------------------------------------------------------------------------------


def test_a_second_run_has_nothing_to_do(whole: Checkout) -> None:
    assert whole.dry_run().jobs == {}


def test_touching_the_config_and_all_code_runs_nothing(checkout: Checkout) -> None:
    for path in [checkout.root / "config.yaml", *(checkout.root / "scripts").rglob("*.py")]:
        path.touch()
    assert checkout.dry_run().jobs == {}


def test_a_comment_or_docstring_in_the_measuring_code_runs_nothing(checkout: Checkout) -> None:
    file = checkout.root / "scripts/dpscale/measure.py"
    file.write_text('"""Another docstring."""\n# a comment\n' + file.read_text().split('"""', 2)[2])
    assert checkout.dry_run().jobs == {}


@pytest.mark.parametrize("limit", ["timeout_s", "collective_timeout_s", "checkpoint_interval_s"])
def test_raising_a_time_limit_measures_nothing_again(checkout: Checkout, limit: str) -> None:
    checkout.configure(changed(checkout.config, f".{limit}", 5000))
    assert "trial" not in checkout.dry_run().jobs


@pytest.mark.parametrize(
    ("path", "value", "pages"),
    [("figures.font_size_pt", 11, set()), ("figures.palette", "deep", {"explore"}), ("figures.png_dpi", 100, set())],
)
def test_a_figures_setting_makes_figures_and_what_shares_it_only(
    checkout: Checkout, path: str, value: Any, pages: set[str]
) -> None:
    checkout.configure(changed(checkout.config, path, value))
    again = checkout.dry_run()
    assert again.figures == FIGURES
    assert again.jobs.keys() == {"all", *(f"plot_{figure}" for figure in FIGURES), *pages}


@pytest.mark.parametrize(
    ("path", "value", "new"),
    [
        (".strategies.ddp.topologies", ["1x2", "1x4"], {"ddp/spawn/1x4", "ddp/torchrun/1x4"}),
        (".strategies.independent", {"topologies": ["1x2", "1x4"]}, {"independent/spawn/1x4"}),
        (
            ".strategies.small_buckets",
            {"base": "ddp", "topologies": ["1x2"], "bucket_cap_MiB": 1},
            {"small_buckets/spawn/1x2"},
        ),
        (".strategies.half", {"base": "single", "precision": "bf16"}, {"half/spawn/1x1"}),
    ],
)
def test_what_is_added_is_all_that_runs(checkout: Checkout, path: str, value: Any, new: set[str]) -> None:
    checkout.configure(changed(checkout.config, path, value))
    again = checkout.dry_run()
    assert again.measured == {f"{cell}/r{repeat}" for cell in new for repeat in (0, 1)}
    assert again.jobs["collect"] == 1
    assert again.figures == FIGURES


@pytest.mark.parametrize(
    ("path", "value", "more", "fewer"),
    [
        (".strategies.ddp.explain", True, {"causes", "causes_by_rank", "stragglers"}, set()),
        (".collectives", {"operations": "all"}, {"bus_bandwidth", "collective_time"}, set()),
        (".monitor_interval_s", None, set(), {"utilization_per_device", "utilization_over_time"}),
    ],
)
def test_an_experiment_has_the_figures_that_it_can_fill(
    path: str, value: Any, more: set[str], fewer: set[str], tmp_path: Path
) -> None:
    copy = Checkout.fresh(tmp_path / "copy", changed(small_config(), path, value))
    assert copy.dry_run("figures").figures == (FIGURES | more) - fewer


def test_another_repeat_runs_alone(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, ".repeats", 3))
    assert checkout.dry_run().measured == {f"{cell}/r2" for cell in CELLS}


def test_more_repeats_of_a_cell_run_alone_and_stay_in_the_tables(checkout: Checkout) -> None:
    more = checkout.root / "more.yaml"
    more.write_text(yaml.safe_dump({"more_repeats": {"small": {"single/spawn/1x1": 3}}}))
    again = checkout.run("tables")
    assert again.measured == {"single/spawn/1x1/r2"}
    assert dict(checkout.table("summary").groupby("strategy").repeats.max()) == {
        "single": 3,
        "ddp": 2,
        "independent": 2,
        "data_parallel": 0,
    }
    assert "trial" not in checkout.dry_run().jobs
    more.unlink()
    assert checkout.dry_run("tables").jobs == dict.fromkeys(("tables", "collect", "collect_predictions", "advise"), 1)


def test_a_price_makes_the_advice_again_and_nothing_else(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, "advice.price_per_device_hour", 2.5))
    assert checkout.dry_run().jobs == {"all": 1, "advise": 1}


def test_a_peak_has_the_models_operations_counted_and_advice_says_its_share(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, "advice.peak_TFLOP_per_s", {"fp32": 1000.0}))
    assert checkout.run().jobs == {"all": 1, "advise": 1, "count_flops": 1}
    row = checkout.table("advice").set_index("about").loc["peak"]
    assert 0 < row.value < 100
    assert "of its devices' peak, 1,000 TFLOP/s each in fp32" in row.verdict


def test_a_placebo_runs_alone(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, ".placebo", True))
    assert checkout.dry_run().measured == {"placebo/spawn/1x2/r0", "placebo/spawn/1x2/r1"}


def test_make_more_measures_what_it_raised(checkout: Checkout) -> None:
    """With two launches no cell has an interval; three are allowed at most. What is unavailable stays so."""
    command = [
        "make",
        "more",
        "MOST=3",
        "ARGS=--dry-run",
        f"BIN={Path(sys.executable).parent}",
        "-o",
        ".venv/run-ready",
    ]
    done = subprocess.run(
        command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    measured = Done(done.returncode, done.stdout + done.stderr).measured
    assert measured == {f"{cell}/r2" for cell in CELLS if not cell.startswith("data_parallel")}


def test_another_experiment_leaves_this_one_alone(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, "experiments.other", small_experiment()))
    again = checkout.dry_run()
    assert again.measured == {"single/spawn/1x1/r0"}
    assert set(again.jobs.values()) == {1}


@pytest.mark.parametrize(
    ("file", "trials"),
    [
        ("dpscale/measure.py", ALL),
        ("dpscale/workloads/models/convnet.py", ALL),
        ("train.py", ALL),
        ("dpscale/strategies/ddp.py", trials_of("ddp", "independent")),
        ("dpscale/strategies/independent.py", trials_of("independent")),
        ("spawn.py", {trial for trial in ALL if "/spawn/" in trial}),
        ("torchrun.py", {trial for trial in ALL if "/torchrun/" in trial}),
        ("dpscale/workloads/datasets/idx.py", set()),
    ],
)
def test_edited_code_runs_the_trials_that_use_it(checkout: Checkout, file: str, trials: set[str]) -> None:
    checkout.edit_code(file)
    assert checkout.dry_run().measured == trials


def test_the_datasets_code_makes_it_again_and_with_it_its_trials(checkout: Checkout) -> None:
    checkout.edit_code("dpscale/workloads/datasets/synthetic.py")
    again = checkout.dry_run()
    assert again.jobs["prepare_dataset"] == 1
    assert again.measured == ALL


# the explorer takes its colours from the figures
@pytest.mark.parametrize(("file", "pages"), [("dpscale/figures/scaling.py", {"explore"}), ("plot.py", set())])
def test_a_figures_code_makes_figures_and_what_imports_them_only(
    checkout: Checkout, file: str, pages: set[str]
) -> None:
    checkout.edit_code(file)
    again = checkout.dry_run()
    assert again.jobs.keys() == {"all", *(f"plot_{figure}" for figure in FIGURES), *pages}


@pytest.mark.parametrize("part", ["template.html", "style.css", "list.js"])
def test_a_part_of_the_page_makes_the_page_only(checkout: Checkout, part: str) -> None:
    file = checkout.root / "scripts/dpscale/explorer" / part
    file.write_text(file.read_text() + "\n")
    assert checkout.dry_run().jobs == {"all": 1, "explore": 1}


def test_a_tables_code_makes_tables_and_figures(checkout: Checkout) -> None:
    checkout.edit_code("dpscale/tables/summary.py")
    again = checkout.dry_run()
    assert again.measured == set()
    assert again.jobs["collect"] == 1


def test_a_new_row_in_the_table_of_strategies_runs_nothing(checkout: Checkout) -> None:
    checkout.edit("scripts/dpscale/strategies/__init__.py", '"ddp": ddp.ROW,', '"ddp": ddp.ROW,\n    "new": ddp.ROW,')
    assert checkout.dry_run().jobs == {}


# --- targets -------------------------------------------------------------------------------------------------------


RESULTS, DATA = "it's my $(touch pwned) results", 'my "data"; touch pwned `touch pwned`'


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Spaces in the checkout's path; results and data lie outside it, in folders whose names a shell would run."""
    root = tmp_path_factory.mktemp("elsewhere")
    config = small_config(results_dir=str(root / RESULTS), data_dir=f"../{DATA}")
    return Checkout.fresh(root / "data parallel scaling", config)


def test_one_record_and_then_one_figure_work_on_their_own(elsewhere: Checkout) -> None:
    results = elsewhere.root.parent / RESULTS / "small"
    elsewhere.run(str(results / "trials/single/spawn/1x1/r0/record.json"))
    assert {path.name for path in results.iterdir()} == {"trials"}
    assert (elsewhere.root.parent / DATA / "synthetic/manifest.json").exists()

    done = elsewhere.run(str(results / "figures/speedup.svg"), MPLBACKEND="TkAgg", DISPLAY="")
    assert done.jobs == {"collect": 1, "plot_speedup": 1}
    drawn = {f"speedup.{kind}" for kind in ("svg", "png", "pdf")}
    assert {path.name for path in (results / "figures").iterdir()} == drawn | {f".{name}.sha256" for name in drawn}
    assert not list(elsewhere.root.parent.rglob("pwned"))


def test_commands_work_from_another_directory(elsewhere: Checkout, tmp_path: Path) -> None:
    snakefile = str(elsewhere.root / "Snakefile")
    done = elsewhere.dry_run("-s", snakefile, cwd=tmp_path)
    assert done.measured == set()  # results_dir is absolute: what was measured is found
    assert elsewhere.dry_run("-s", snakefile, "--directory", str(elsewhere.root), cwd=tmp_path).measured == set()


@pytest.mark.parametrize(
    ("target", "rules"),
    [
        ("prepare", {"prepare", "prepare_dataset"}),
        ("tables", {"tables", "prepare_dataset", "trial", *COLLECT}),
        ("figures", {"figures", "prepare_dataset", "trial", "collect", *(f"plot_{name}" for name in FIGURES)}),
        ("collectives", {"collectives", "collect_collectives", "plot_bus_bandwidth", "plot_collective_time"}),
        (
            "small",
            {
                "small",
                "prepare_dataset",
                "trial",
                *COLLECT,
                "methods",
                "explore",
                *(f"plot_{name}" for name in FIGURES),
            },
        ),
        (
            "pages",
            {"pages", "prepare_dataset", "trial", *COLLECT, "methods", "explore"},
        ),
        ("print_figures", {"print_figures", "prepare_dataset", "trial", "collect", *PRINT_RULES}),
        ("results/small/explore.html", {"prepare_dataset", "trial", "collect", "collect_predictions", "explore"}),
        ("results/small/figures/loss.png", {"prepare_dataset", "trial", "collect", "plot_loss"}),
        ("results/small/trials/single/spawn/1x1/r0/record.json", {"prepare_dataset", "trial"}),
    ],
)
def test_named_targets_and_files(fresh: Checkout, target: str, rules: set[str]) -> None:
    assert fresh.dry_run(target).jobs.keys() == rules


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Two experiments of which nothing was run: only dry runs, please."""
    config = small_config(small_experiment(strategies={"single": None, "ddp": None}))
    config["experiments"]["other"] = small_experiment(timeout_s=360)
    return Checkout.fresh(tmp_path_factory.mktemp("fresh") / "dpscale", config)


def nothing_was_run(checkout: Checkout) -> bool:
    return not (checkout.root / "data").exists() and not list(checkout.root.rglob("results/*/*"))


@pytest.mark.parametrize(
    "target",
    [
        "results/small/trials/single/spawn/1x2/r0/record.json",
        "results/small/trials/ddp/spawn/1x2/r7/record.json",
    ],
)
def test_a_trial_that_is_not_planned_is_refused_by_name(fresh: Checkout, target: str) -> None:
    said = fresh.refused("-n", target)
    assert str(Path(target).parent.relative_to("results")) in said
    assert "is not planned" in said
    assert "Traceback (most recent call last)" not in said


def test_plan_prints_device_hours_and_starts_nothing(tmp_path: Path, fresh: Checkout) -> None:
    checkout = fresh.copy(tmp_path / "dpscale")
    done = checkout.run("plan")
    assert done.jobs == {"plan": 1}
    assert "small: 3 trials in 3 cells" in done.output
    assert "At most 0.1 device-hours" in done.output
    assert {path.name for path in checkout.results().iterdir()} <= {"README.md", "logs"}


# --- what is there, and what is not --------------------------------------------------------------------------------


def test_partial_shows_the_missing_as_missing_and_a_plain_run_completes(checkout: Checkout) -> None:
    for record in checkout.results("small/trials").glob("independent/*/*/*/record.json"):
        record.unlink()
    checkout.results("small/trials/ddp/torchrun/1x2/r1/record.json").unlink()
    partial = checkout.run("--config", "partial=true")
    assert "trial" not in partial.jobs
    assert partial.figures == FIGURES
    summary = checkout.table("summary").set_index(["strategy", "launcher"])
    assert summary.loc["independent", "spawn"].status == "missing"
    assert summary.loc["independent", "spawn"].isna().epoch_time_s
    assert summary.loc["ddp", "torchrun"].repeats == 1
    assert summary.loc["ddp", "torchrun"].reason == "1 of 2 repeats missing"
    assert "Missing: independent/spawn/1x2" in checkout.results("small/figures/speedup.svg").read_text()
    assert checkout.dry_run("--config", "partial=true").jobs == {}

    whole_again = checkout.run()
    assert whole_again.measured == {*trials_of("independent"), "ddp/torchrun/1x2/r1"}
    assert whole_again.figures == FIGURES
    assert set(checkout.table("summary").status) == {"ok", "unavailable"}
    assert checkout.dry_run().jobs == {}


def test_partial_leaves_out_records_of_another_configuration(checkout: Checkout) -> None:
    checkout.configure(changed(checkout.config, ".batch.per_device", 8))
    done = checkout.run("tables", "--config", "partial=true")
    assert "trial" not in done.jobs
    assert "of another configuration" in done.output
    summary = checkout.table("summary")
    assert set(summary.status) == {"missing"}
    assert summary.epoch_time_s.isna().all()


def test_partial_works_where_nothing_was_measured_yet(checkout: Checkout) -> None:
    for record in checkout.results("small/trials").glob("*/*/*/*/record.json"):
        record.unlink()
    checkout.run("--config", "partial=true")
    assert set(checkout.table("summary").status) == {"missing"}


@pytest.mark.parametrize("name", ["record.json", "steps.parquet", "monitor.parquet"])
def test_a_cut_file_is_refused_by_name_with_a_remedy(checkout: Checkout, name: str) -> None:
    folder = checkout.results("small/trials/ddp/spawn/1x2/r0")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    said = checkout.refused("--forcerun", "collect")
    assert f"results/small/trials/ddp/spawn/1x2/r0/{name}" in said
    assert "delete" in said
    assert "run the same command again" in said
    assert not checkout.results("small/tables/summary.csv").exists()


# --- a config that can't be meant ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "place", "remedy"),
    [
        ("experimens", {}, "top level", "'experiments'"),
        ("figures.font_size", 9, "figures", "'font_size_pt'"),
        (".epohcs", 2, "experiments.small", "'epochs'"),
        (".workload.modl", "convnet", "experiments.small.workload", "'model'"),
        (".workload.dataset", "synthetik", "experiments.small.workload.dataset", "'synthetic'"),
        (".workload.model_options", {"dropuot": True}, "experiments.small.workload.model_options", "'dropout'"),
        (".workload.optimizer.learning_rate", 1, "experiments.small.workload.optimizer", "lr"),
        (".strategies.ddp.bucket_cap_MB", 1, "experiments.small.strategies.ddp", "'bucket_cap_MiB'"),
        (".strategies.dpd", None, "experiments.small.strategies.dpd", "'ddp'"),
        (".launchers", ["spwan"], "experiments.small.launchers", "'spawn'"),
        (".topologies", ["1by2"], "experiments.small.topologies", "nodes x devices_per_node"),
        (".batch.per_device", "many", "experiments.small.batch.per_device = 'many'", "integer"),
        (".repeats", 0, "experiments.small.repeats = 0", "greater than or equal to 1"),
        ("datasets.sintetic", {}, "datasets.sintetic", "'synthetic'"),
        ("experiments.figures", small_experiment(), "experiments", "choose another"),
    ],
)
def test_a_slip_in_the_config_is_refused_with_its_place_and_a_remedy(
    fresh: Checkout, tmp_path: Path, path: str, value: Any, place: str, remedy: str
) -> None:
    checkout = fresh.copy(tmp_path / "dpscale")
    checkout.configure(changed(checkout.config, path, value))
    said = checkout.refused("-n")
    assert f"config.yaml: {place}" in said
    assert remedy in said
    assert "Traceback" not in said
    assert nothing_was_run(checkout)


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("experiments=quickstart", "experiments"),
        ("partial=maybe", "partial"),
        ("resuls_dir=here", "'results_dir'"),
        ("experiments={small: {epohcs: 3}}", "'epochs'"),
    ],
)
def test_a_slip_on_the_command_line_is_refused_too(fresh: Checkout, setting: str, place: str) -> None:
    said = fresh.refused("-n", "--config", setting)
    assert place in said
    assert "Traceback" not in said
    assert nothing_was_run(fresh)


# --- four ranks on two cores ---------------------------------------------------------------------------------------


def test_more_ranks_than_cores_run_as_asked_and_are_called_oversubscribed(tmp_path: Path) -> None:
    ranks = max(4, 2 * len(psutil.Process().cpu_affinity()))
    experiment = small_experiment(strategies={"ddp": None}, topologies=[f"1x{ranks}"], batch={"per_device": 4})
    checkout = Checkout.fresh(tmp_path / "dpscale", small_config(experiment))
    done = checkout.run("tables")
    (record,) = checkout.records()
    assert len(record["ranks"]) == ranks
    assert record["oversubscribed"] is True
    assert "oversubscribed" in checkout.table("timings").warnings[0]
    assert f"oversubscribed: {ranks} ranks x 1 threads" in done.output


# --- an end by force -----------------------------------------------------------------------------------------------


class LongTrial:
    """Two ranks that train for some seconds."""

    target = "results/small/trials/ddp/{launcher}/1x2/r0/record.json"

    def __init__(self, root: Path, launcher: str = "spawn") -> None:
        experiment = small_experiment(strategies={"ddp": None}, topologies=["1x2"], launchers=[launcher])
        experiment |= {"epochs": None, "steps": 300, "warmup_steps": 5}
        self.checkout = Checkout.fresh(root / "dpscale", small_config(experiment))
        self.target = self.target.format(launcher=launcher)
        self.record = self.checkout.root / self.target
        self.log = self.record.with_name("trial.log")
        self.process = self.checkout.start("--cores", "2", self.target)
        wait_until(lambda: self.log.exists() and "steps begin" in self.log.read_text(), 120, "steps begin")

    def ended(self, timeout_s: float) -> Done:
        """Snakemake and whatever it had started are gone."""
        output, _ = self.process.communicate(timeout=timeout_s)
        wait_until(lambda: not self.checkout.processes(), 15, f"{self.checkout.processes()} are gone")
        return Done(self.process.returncode, output)

    def finishes(self, *arguments: str) -> None:
        self.checkout.run(self.target, *arguments)
        assert self.record.exists()
        assert self.checkout.dry_run(self.target).jobs == {}


@pytest.fixture
def long_trial(tmp_path: Path) -> Any:
    trial = LongTrial(tmp_path)
    yield trial
    trial.checkout.end()


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_a_killed_rank_ends_the_rule_and_is_named(tmp_path: Path, launcher: str) -> None:
    trial = LongTrial(tmp_path, launcher)
    try:
        first, *_ = trial.checkout.ranks()
        first.kill()
        done = trial.ended(30)
        assert done.returncode != 0
        assert re.search(r"rank \d was killed by SIGKILL", done.output)
        assert not trial.record.exists()
        trial.finishes()
    finally:
        trial.checkout.end()


def test_after_ctrl_c_nothing_survives_and_the_same_command_finishes(long_trial: LongTrial) -> None:
    send(long_trial.process, signal.SIGINT, to_group=True)
    assert long_trial.ended(30).returncode != 0
    assert not long_trial.record.exists()
    long_trial.finishes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_snakemake_alone_leaves_nothing_behind(long_trial: LongTrial, number: signal.Signals) -> None:
    send(long_trial.process, number, to_group=False)
    assert long_trial.ended(120).returncode != 0  # it waits for the trial
    long_trial.finishes("--rerun-incomplete")


PYTHON_STAND_IN = """\
#!/bin/bash
trap 'echo TERM >> {heard}' TERM
trap 'echo USR1 >> {heard}; exit 0' USR1
echo "$$ $1" > {heard}
for second in 0 1 2 3 4 5 6 7 8 9; do [ -n "$STAYS" ] && sleep 1; done
exit 0
"""


def test_the_printed_command_hears_a_schedulers_signals_and_leaves_a_shell_that_it_is_pasted_into(
    fresh: Checkout, tmp_path: Path
) -> None:
    heard, python = tmp_path / "heard", tmp_path / "python"
    python.write_text(PYTHON_STAND_IN.replace("{heard}", str(heard)))
    python.chmod(0o755)
    printed = fresh.dry_run("-p", "results/small/trials/single/spawn/1x1/r0/record.json").output
    (line,) = re.findall(r"^ *Shell command: (.* python scripts/launch.py .*)$", printed, re.MULTILINE)
    environment = fresh.environment(PATH=f"{tmp_path}:{os.environ['PATH']}")

    pasted = subprocess.run(
        ["bash", "--norc", "-i"],
        input=f"{line}\necho the shell lives on\n",
        cwd=fresh.root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,  # it would take this terminal for its own
        check=False,
    )
    assert "scripts/launch.py" in heard.read_text()
    assert "the shell lives on" in pasted.stdout

    heard.unlink()
    job = subprocess.Popen(
        ["bash", "-c", f"set -euo pipefail; {line}"], cwd=fresh.root, env=environment | {"STAYS": "1"}
    )
    wait_until(lambda: heard.exists() and heard.read_text().endswith("\n"), 30, "the start")
    assert heard.read_text() == f"{job.pid} scripts/launch.py\n"  # no shell is left between the job and it
    job.terminate()
    wait_until(lambda: "TERM" in heard.read_text(), 10, "TERM")
    job.send_signal(signal.SIGUSR1)
    assert job.wait(10) == 0
    assert "USR1" in heard.read_text()


def test_a_killed_snakemake_takes_its_trial_with_it_and_unlock_is_all_the_recovery(long_trial: LongTrial) -> None:
    send(long_trial.process, signal.SIGKILL, to_group=False)
    assert long_trial.ended(30).returncode != 0
    assert not long_trial.record.exists()
    assert "LockException" in long_trial.checkout.refused(long_trial.target)
    recovery = re.search(r"```bash\n(snakemake --unlock\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert recovery is not None
    for command in recovery[1].splitlines():
        arguments = command.split()[1:]
        done = long_trial.checkout.snakemake(*arguments, *[long_trial.target] * ("--unlock" not in arguments))
        assert done.returncode == 0, done.output
    assert long_trial.record.exists()
    assert long_trial.checkout.dry_run(long_trial.target).jobs == {}


def unlock(checkout: Checkout) -> Done:
    """What `make run` does first."""
    command = [sys.executable, "scripts/unlock.py"]
    done = subprocess.run(
        command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    return Done(done.returncode, done.stdout + done.stderr)


def test_make_run_unlocks_what_a_killed_snakemake_has_left_and_nothing_that_lives(long_trial: LongTrial) -> None:
    checkout = long_trial.checkout
    living = unlock(checkout)
    assert living.returncode == 1
    assert f"process {long_trial.process.pid} works in this folder; wait or end it" in living.output
    send(long_trial.process, signal.SIGKILL, to_group=False)
    long_trial.ended(30)
    assert "LockException" in checkout.refused(long_trial.target)
    assert unlock(checkout).returncode == 0
    long_trial.finishes("--rerun-incomplete")
    assert unlock(checkout).output == ""
    makefile = (ROOT / "Makefile").read_text()
    assert "scripts/unlock.py\n\t@$(BIN)/python scripts/set_aside.py $(RESULTS)\n\t$(BIN)/snakemake" in makefile


def test_a_lock_of_another_machine_or_of_nobody_known_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not lock.is_left_behind()
    lock.LOCKS.mkdir(parents=True)
    (lock.LOCKS / "0.input.lock").touch()
    with pytest.raises(
        UserError, match="left no word of itself; wait or end it; if it is gone for sure: snakemake --unlock"
    ):
        lock.is_left_behind()
    lock.say_who_may_hold()
    with pytest.raises(UserError, match=f"process {os.getpid()} works in this folder"):
        lock.is_left_behind()
    (path,) = lock.HOLDERS.iterdir()
    holder = json.loads(path.read_text())
    path.write_text(json.dumps(holder | {"host": "elsewhere"}))
    with pytest.raises(UserError, match="on elsewhere has locked this folder"):
        lock.is_left_behind()
    path.write_text(json.dumps(holder)[:-9])
    with pytest.raises(UserError, match="nobody can tell from it who has locked this folder"):
        lock.is_left_behind()
    path.write_text(json.dumps(holder | {"started_s": holder["started_s"] - 100}))  # the pid was given again
    assert lock.is_left_behind()
    assert not list(lock.HOLDERS.iterdir())


def test_a_dead_holder_does_not_hide_a_living_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lock.LOCKS.mkdir(parents=True)
    (lock.LOCKS / "0.input.lock").touch()
    lock.say_who_may_hold()
    (mine,) = lock.HOLDERS.iterdir()
    dead = json.loads(mine.read_text()) | {"pid": 2**22 + 1}
    (lock.HOLDERS / "a.json").write_text(json.dumps(dead))
    (lock.HOLDERS / "z.json").write_text(json.dumps(dead))
    with pytest.raises(UserError, match=f"process {os.getpid()} works in this folder"):
        lock.is_left_behind()


def test_a_dead_holder_that_nobody_waits_for_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie: in a container whose first process is no init, every orphan that ends stays one."""
    monkeypatch.chdir(tmp_path)
    lock.LOCKS.mkdir(parents=True)
    (lock.LOCKS / "0.input.lock").touch()
    lock.say_who_may_hold()
    (path,) = lock.HOLDERS.iterdir()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        holder = {"pid": process.pid, "started_s": psutil.Process(process.pid).create_time()}
        path.write_text(json.dumps(json.loads(path.read_text()) | holder))
        with pytest.raises(UserError, match=f"process {process.pid} works in this folder"):
            lock.is_left_behind()
        process.kill()
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, 10, "its end")
        assert lock.is_left_behind()


KILLED_WITH_THE_LOCK = """
import os, signal
from snakemake import cli, workflow
workflow.JobScheduler = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
cli.main()
"""


def test_a_snakemake_killed_as_soon_as_it_has_the_lock_is_known(fresh: Checkout, tmp_path: Path) -> None:
    """Before it starts anything: in the very first run there is no other trace of it."""
    checkout = fresh.copy(tmp_path / "dpscale")
    shutil.rmtree(checkout.root / ".snakemake", ignore_errors=True)
    command = [sys.executable, "-c", KILLED_WITH_THE_LOCK, "--cores", "2", "prepare"]
    killed = subprocess.run(command, cwd=checkout.root, env=checkout.environment(), capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert any((checkout.root / lock.LOCKS).iterdir())
    assert unlock(checkout).returncode == 0
    checkout.run("prepare")
    assert not list((checkout.root / lock.HOLDERS).iterdir())


@pytest.mark.parametrize("target", ["all", "tables", "figures", "small"])
def test_a_record_that_was_deleted_is_measured_again_and_tables_follow(target: str, checkout: Checkout) -> None:
    """Whoever deletes one wants it measured anew; that tables are there does not stand against it."""
    checkout.results("small/trials/ddp/spawn/1x2/r1/record.json").unlink()
    again = checkout.dry_run(target)
    assert again.measured == {"ddp/spawn/1x2/r1"}
    assert again.jobs["collect"] == 1
    assert not checkout.dry_run(target, "--config", "partial=true").measured


@pytest.mark.parametrize("target", ["collectives", "small"])
def test_times_of_collectives_that_were_deleted_are_measured_again(target: str, fresh: Checkout, tmp_path) -> None:
    checkout = fresh.copy(tmp_path / "dpscale")
    checkout.configure(changed(small_config(), ".collectives", {"operations": "all"}))
    for path in ("tables/collectives.csv", "figures/bus_bandwidth.svg", "figures/collective_time.svg"):
        checkout.results(f"small/{path}").parent.mkdir(parents=True, exist_ok=True)
        checkout.results(f"small/{path}").touch()
    assert checkout.dry_run(target).jobs["time_collectives"] == 1


def test_a_table_that_was_cut_is_set_aside_and_made_again_with_nothing_measured(checkout: Checkout) -> None:
    for name in ("summary", "collectives", "prediction"):
        table = checkout.results(f"small/tables/{name}.csv")
        table.write_text(table.read_text() + "edited\n")
    command = [sys.executable, "scripts/set_aside.py", "results"]
    subprocess.run(command, cwd=checkout.root, env=checkout.environment(), check=True)
    again = checkout.dry_run()
    assert again.measured == set()
    assert again.jobs.keys() >= COLLECT


def test_make_run_measures_again_what_is_cut(whole: Checkout, tmp_path: Path) -> None:
    checkout = whole.copy(tmp_path / "dpscale")
    record = checkout.results("small/trials/single/spawn/1x1/r0/record.json")
    steps = checkout.results("small/trials/ddp/spawn/1x2/r1/steps.parquet")
    table = checkout.results("small/tables/startup.csv")
    for path in (record, steps):
        os.truncate(path, path.stat().st_size // 2)
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))  # it parses still
    command = ["make", "run", f"BIN={Path(sys.executable).parent}", "-o", ".venv/run-ready", "ARGS=tables"]
    made = subprocess.run(
        command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True, check=False
    )
    done = Done(made.returncode, made.stdout + made.stderr)
    assert done.returncode == 0, done.output
    assert f"{record.relative_to(checkout.root)}: not a whole record" in done.output
    assert f"{steps.relative_to(checkout.root)}: missing, cut or not of this record" in done.output
    assert f"{table.relative_to(checkout.root)}: cut or changed since it was made; set aside as" in done.output
    assert done.measured == {"single/spawn/1x1/r0", "ddp/spawn/1x2/r1"}
    assert record.with_name("record.damaged.json").exists()
    assert Record.read(steps.with_name("record.json")).status == "ok"
    assert len(checkout.table("startup")) == len(whole.table("startup"))


# --- what must not be there ----------------------------------------------------------------------------------------


def test_no_profile_shadows_the_one_for_slurm() -> None:
    assert not (ROOT / "profiles/default").exists()
    assert not (ROOT / "workflow/profiles/default").exists()


def test_no_rule_takes_snakemakes_benchmark_for_a_measurement() -> None:
    for path in [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]:
        assert "benchmark:" not in path.read_text(), path


def test_nothing_recommends_to_keep_what_is_incomplete_or_to_go_without_a_lock() -> None:
    for path in [*ROOT.glob("*.md"), ROOT / "Makefile", *ROOT.glob("*/config.yaml")]:
        assert not re.search(r"--?(keep-incomplete|nolock)", path.read_text()), path


def test_documented_commands_run_again_what_was_cut_off() -> None:
    assert "--rerun-incomplete" in (ROOT / "Makefile").read_text()


def test_every_config_file_is_read_by_the_typed_config() -> None:
    for path in [ROOT / "config.yaml", *(ROOT / "workflow/experiments").glob("*.yaml")]:
        load_config(yaml.safe_load(path.read_text()), str(path))
