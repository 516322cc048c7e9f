"""What knows what: the import rules of the code, read from its syntax trees, and that rules list the code they run."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from dpscale.code import TABLES, source_files

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
FILES = sorted(SCRIPTS.rglob("*.py"))
ENTRY_POINTS = sorted(SCRIPTS.glob("*.py"))


def name_of(path: Path) -> str:
    """`dpscale.workloads.loading` of its file; an entry point is `train`; a package is its folder."""
    return ".".join(path.relative_to(SCRIPTS).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in FILES}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


def imports(node: ast.AST, *, inside_functions: bool) -> Iterator[str]:
    """Names of modules that are imported, and of what is imported from them; not those for the type checker alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports(child, inside_functions=inside_functions)


@cache
def imported(name: str, inside_functions: bool = True) -> frozenset[str]:
    return frozenset(imports(tree_of(name), inside_functions=inside_functions))


def ours(name: str, inside_functions: bool = True) -> set[str]:
    """Our modules that a module imports. `from dpscale.strategies import ddp` is of ddp, not of the table."""
    found = set()
    for target in imported(name, inside_functions):
        parent = target.rpartition(".")[0]
        found |= {target} & MODULES.keys() or {parent} & MODULES.keys()
    return found - {"dpscale"}


def reached(name: str) -> set[str]:
    """Our modules that importing this one runs, at module level, by way of others too."""
    seen, waiting = set(), [name]
    while waiting:
        for target in ours(waiting.pop(), inside_functions=False) - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def touches(name: str, package: str, *, inside_functions: bool = True) -> bool:
    return any(f"{target}.".startswith(f"{package}.") for target in imported(name, inside_functions))


def strategy_modules() -> set[str]:
    return {name for name in MODULES if name.startswith("dpscale.strategies")}


# torch


WITHOUT_TORCH = [
    "config",
    "cluster",
    "typed",
    "errors",
    "disk",
    "files",
    "launched",
    "launching.launches",
    "trial",
    "schedule",
    "planning.plan",
    "planning.order",
    "planning.collectives",
    "launching.launchers",
    "launching.tasks",
    "launching.placement",
    "launching.slurm",
    "launching.attempt",
    "code",
    "record",
    "largest",
    "metrics",
    "statistics",
    "tables",
    "figures",
    "explorer",
    "references",
    "snapshots",
    "monitoring.monitor",
    "monitoring.sampling",
    "monitoring.nvml",
    "monitoring.hardware",
    "monitoring.usage",
    "published",
    "scaling_model",
    "environment",
    "collectives.operations",
    "collectives.settings",
    "collectives.run",
    "forecasting.forecasts",
    "forecasting.ledger",
    "forecasting.calibration_file",
    "forecasting.measured_parts",
    "methods",
    "bundles",
    "damage",
    "rerun",
    "advice",
]
READ_BY_SNAKEMAKE = [f"dpscale.{name}" for name in WITHOUT_TORCH] + sorted(
    name
    for name in MODULES
    if name.startswith(
        ("dpscale.strategies", "dpscale.workloads.models", "dpscale.workloads.datasets", "dpscale.scaling_model")
    )
)


@pytest.mark.parametrize("name", READ_BY_SNAKEMAKE)
def test_what_snakemake_reads_imports_no_torch(name):
    assert not touches(name, "torch", inside_functions=False)
    assert not [other for other in reached(name) if touches(other, "torch", inside_functions=False)]


@pytest.mark.parametrize(
    "name",
    [
        "trial",
        "planning.plan",
        "planning.order",
        "config",
        "launching.launchers",
        "metrics",
        "statistics",
        "monitoring.usage",
        "code",
    ],
)
def test_what_is_pure_has_no_use_for_torch_pandas_or_plots_at_all(name):
    packages = ["torch", "pandas", "matplotlib", "seaborn", "pyarrow"]
    assert not [package for package in packages if touches(f"dpscale.{name}", package)]


# Clocks

CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "now"}
READS_A_CLOCK = {
    "dpscale.measure": "the only clock of a training step",
    "dpscale.emulation.clock": "lets the time pass that an emulated device or network takes",
    "dpscale.monitoring.sampling": "stamps the monitor's samples, in a process beside the ranks",
    "dpscale.launching.attempt": "orders the failures of several ranks",
    "dpscale.launching.history": "when an attempt at a trial began and ended",
    "dpscale.launching.launches": "stamps the lines of a launch's log",
    "launch": "says when the launch began and ended",
    "launch_collectives": "says when the launch began and ended",
    "predict": "says when a prediction was made",
}


def reads_a_clock(name: str) -> bool:
    calls = [node.func for node in ast.walk(tree_of(name)) if isinstance(node, ast.Call)]
    methods = {ast.unparse(call) for call in calls if isinstance(call, ast.Attribute) and call.attr in CLOCKS}
    direct = {f"time.{clock}" for clock in CLOCKS} & imported(name)
    cuda_events = any(
        isinstance(call, ast.Attribute) and call.attr == "Event" for call in calls if "cuda" in ast.unparse(call)
    )
    return bool(methods or direct or cuda_events)


def test_clocks_are_read_in_few_places_each_with_its_reason():
    assert {name for name in MODULES if reads_a_clock(name)} == READS_A_CLOCK.keys()


def test_a_step_runs_through_no_other_clock_than_measures():
    around_a_step = reached("dpscale.training") | reached("dpscale.evaluation") | strategy_modules()
    assert {name for name in around_a_step if reads_a_clock(name)} <= {"dpscale.measure", "dpscale.launching.attempt"}


def test_no_strategy_knows_a_clock():
    assert not [name for name in strategy_modules() if touches(name, "time") or "dpscale.measure" in ours(name)]


# What is emulated

EMULATE = {"dpscale.strategies.emulated_ddp", "dpscale.workloads.models.emulated", "time_collectives"}


def test_nothing_but_ranks_emulates_so_that_a_prediction_sees_measurements_alone():
    users = {name for name in MODULES if any(other.startswith("dpscale.emulation") for other in ours(name))}
    assert {name for name in users if not name.startswith("dpscale.emulation.")} == EMULATE


def test_only_ranks_open_the_file_of_an_emulated_network():
    readers = {name for name in MODULES if "dpscale.emulation.network" in ours(name)}
    assert readers == {"dpscale.emulation.link", *EMULATE} - {"dpscale.workloads.models.emulated"}


# Who may know whom


@pytest.mark.parametrize(
    ("name", "must_not_know"),
    [
        ("figures", {"record", "metrics", "statistics", "tables", "planning", "trial"}),
        ("explorer", {"record", "metrics", "statistics", "tables", "planning", "trial"}),
        ("measure", {"strategies", "training", "record", "metrics", "workloads.models", "workloads.datasets"}),
        ("metrics", {"tables", "figures", "planning", "config", "strategies"}),
        ("statistics", {"record", "metrics", "tables", "trial"}),
        ("record", {"metrics", "statistics", "tables", "figures", "strategies", "planning", "config", "measure"}),
        ("trial", {"config", "planning", "record", "strategies", "workloads", "launching.launchers", "world"}),
        ("config", {"planning", "trial", "strategies", "workloads.models", "launching.launchers", "record"}),
        ("launching.launchers", {"world", "strategies", "workloads", "planning", "record", "launching.slurm"}),
        ("tables", {"figures", "planning", "measure", "training", "strategies"}),
        ("world", {"strategies", "workloads", "measure", "record"}),
        ("planning", {"world", "record", "measure", "training", "tables"}),
        ("checks", {"measure", "record", "metrics"}),
        ("monitoring.sampling", {"measure", "training", "world", "record", "trial"}),
        ("largest", {"config", "planning", "strategies", "launching.launchers", "metrics", "world"}),
        ("survey", {"strategies", "training", "record", "metrics", "collectives"}),
        ("collectives", {"strategies", "training", "metrics", "statistics", "tables", "figures"}),
        ("references", {"tables", "figures", "record", "config", "planning", "strategies"}),
        ("snapshots", {"figures", "config", "planning", "strategies"}),
        ("code", {"config", "planning", "trial", "record", "strategies", "workloads"}),
        (
            "scaling_model",
            {"config", "planning", "trial", "record", "metrics", "tables", "figures", "strategies", "workloads"},
        ),
        ("forecasting.forecasts", {"metrics", "tables", "figures", "world"}),
        ("advice", {"planning", "figures", "measure", "training", "world"}),
        ("forecasting.measured_parts", {"tables", "figures", "planning", "config", "strategies"}),
        ("methods", {"figures", "planning", "measure", "training", "world"}),
        ("damage", {"config", "planning", "strategies", "tables", "figures"}),
        ("bundles", {"planning", "strategies", "measure", "training", "world"}),
    ],
)
def test_a_module_knows_only_what_it_needs(name, must_not_know):
    parts = [module for module in MODULES if f"{module}.".startswith(f"dpscale.{name}.")]
    known = {other.removeprefix("dpscale.") for module in parts for other in ours(module) | reached(module)}
    assert {other for other in known for banned in must_not_know if f"{other}.".startswith(f"{banned}.")} == set()


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("dpscale.workloads")])
def test_workloads_know_no_strategy_and_no_clock(name):
    assert not {other for other in ours(name) if other.startswith("dpscale.strategies")}
    assert "dpscale.measure" not in ours(name)
    assert not touches(name, "time")


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("dpscale.scaling_model")])
def test_the_scaling_model_is_arithmetic_alone(name):
    packages = [
        "torch",
        "pandas",
        "matplotlib",
        "pyarrow",
        "os",
        "pathlib",
        "json",
        "io",
        "subprocess",
        "time",
        "datetime",
    ]
    assert not [package for package in packages if touches(name, package)]


@pytest.mark.parametrize("name", ["metrics", "statistics", "monitoring.usage"])
def test_metrics_do_no_input_and_no_output(name):
    calls = {ast.unparse(node.func) for node in ast.walk(tree_of(f"dpscale.{name}")) if isinstance(node, ast.Call)}
    assert not calls & {"open", "print", "input"}
    packages = ["os", "pathlib", "json", "io", "subprocess", "socket", "sys"]
    assert not [package for package in packages if touches(f"dpscale.{name}", package)]


def test_only_world_reads_the_launch_environment_but_for_the_signature_of_a_failing_rank():
    names = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT"
    read = re.compile(rf'environ(\.get\(|\[)"({names})"')
    assert {name for name in MODULES if read.search(MODULES[name].read_text())} == {
        "dpscale.world",
        "dpscale.launching.attempt",
    }


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {name_of(path) for path in ENTRY_POINTS}))
def test_no_module_of_the_library_imports_an_entry_point(name):
    assert not [path.stem for path in ENTRY_POINTS if touches(name, path.stem)]


@pytest.mark.parametrize("name", [path.stem for path in ENTRY_POINTS])
def test_no_entry_point_imports_another(name):
    assert not {path.stem for path in ENTRY_POINTS if touches(name, path.stem)}


def test_imports_run_downward_only():
    order = list(TopologicalSorter({name: ours(name) for name in MODULES}).static_order())  # raises on a cycle
    below = {"trial": "record", "record": "metrics", "metrics": "tables", "world": "measure", "measure": "evaluation"}
    assert all(order.index(f"dpscale.{low}") < order.index(f"dpscale.{high}") for low, high in below.items())


def test_imports_are_absolute_for_code_digests_follow_no_others():
    assert not [
        (name, node.lineno)
        for name in MODULES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom) and node.level
    ]


# The code that a rule lists is the code that it runs

IMPORT_AND_LIST = """
import json, sys
sys.path.insert(0, sys.argv[1])
__import__(sys.argv[2])
print(json.dumps([module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]))
"""

ROWS = {  # as rules give them; for the other scripts tables are names and shapes, whatever their rows do
    "train": ("dpscale.strategies.ddp", "dpscale.workloads.models.convnet"),
    "fetch": ("dpscale.workloads.datasets.digits",),
    "prepare": ("dpscale.workloads.datasets.digits",),
    "count_flops": ("dpscale.workloads.models.convnet",),
}


@pytest.mark.parametrize("script", ENTRY_POINTS, ids=lambda path: path.stem)
def test_the_code_of_a_rule_is_what_its_script_really_imports(script):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_LIST, str(SCRIPTS), script.stem], capture_output=True, text=True, check=True
    )
    really = {Path(file) for file in json.loads(done.stdout) if Path(file).is_relative_to(SCRIPTS)}
    rows = ROWS.get(script.stem, ())
    known = {row.rpartition(".")[0] for row in rows}  # of these tables one row counts; of the others nothing does
    beside = {
        path
        for table in TABLES
        for path in MODULES[table].parent.glob("*.py")
        if table not in known or path.stem not in ("base", "settings")
    }
    beside |= {
        path for table in TABLES for path in source_files(MODULES[table].parent / "base.py") if table not in known
    }
    assert script in really
    assert really - set(source_files(script, rows)) <= beside


@pytest.mark.parametrize("script", ["train", "prepare"])
def test_what_ranks_run_and_what_prepares_can_download_nothing(script):
    reads = {name_of(path) for path in source_files(SCRIPTS / f"{script}.py", ROWS[script])}
    assert not [name for name in reads for package in ("pooch", "requests", "urllib") if touches(name, package)]


def test_a_trials_own_rows_are_in_its_code():
    rows = ["dpscale.strategies.independent", "dpscale.workloads.models.convnet"]
    files = {name_of(path) for path in source_files(SCRIPTS / "train.py", rows)}
    assert files >= {*rows, "dpscale.strategies.ddp", "dpscale.strategies.base", "dpscale.measure"}
    assert not files & {"dpscale.strategies", "dpscale.strategies.single", "dpscale.strategies.data_parallel"}


RULES = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))


@pytest.mark.parametrize(
    "rule",
    [
        "prepare_dataset",
        "collect",
        "explore",
        "trial",
        "asked_of_trial",
        "largest_batch",
        "time_collectives",
        "collect_collectives",
        "compare",
        "predict",
        "collect_predictions",
        "count_flops",
        "advise",
    ],
)
def test_every_rule_that_makes_something_carries_the_digest_of_its_code(rule):
    text = RULES.split(f"rule {rule}:")[1].split("\nrule ")[0]
    assert "code=" in text.split("params:")[1].split("shell:")[0]


@pytest.mark.parametrize("strategy", ["ddp"])
def test_a_rows_module_is_not_imported_by_others_than_its_table_and_rows_built_on_it(strategy):
    users = {name for name in MODULES if f"dpscale.strategies.{strategy}" in ours(name)}
    assert users <= strategy_modules()
