"""The plan: which trials a config means, what contradicts what, and how much it can take at most."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from factories import NEEDED_OPTIONS, a_config, changed
from test_config import LEVELS

from dpscale.collectives.settings import CollectivesConfig
from dpscale.config import ExperimentConfig, OptimizerConfig, load_config
from dpscale.errors import ConfigError
from dpscale.planning.plan import plan_trials, upper_bound_device_hours
from dpscale.scaling_model.settings import PredictionConfig
from dpscale.strategies import STRATEGIES, base
from dpscale.trial import Trial
from dpscale.workloads.datasets import DATASETS

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.json"


def planned(**changes: Any) -> list[Trial]:
    return plan_trials(load_config(a_config(**changes)))["quick"]


def cells(trials: list[Trial]) -> list[str]:
    return list(dict.fromkeys(trial.cell for trial in trials))


def errors_of(data: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        plan_trials(load_config(data))
    return str(refused.value).splitlines()


def problem(**changes: Any) -> str:
    """The one line that is said of a contradiction."""
    (line,) = errors_of(a_config(**changes))
    return line.removeprefix("config.yaml: ")


# What is planned


def test_every_strategy_meets_every_launcher_and_topology_that_apply_to_it():
    assert cells(planned(strategies={"single": None, "ddp": None, "independent": {"launchers": ["spawn"]}})) == [
        "single/spawn/1x1",
        "ddp/spawn/1x1",
        "ddp/torchrun/1x1",
        "ddp/spawn/1x2",
        "ddp/torchrun/1x2",
        "independent/spawn/1x2",
    ]


@pytest.mark.parametrize(
    ("strategy", "topologies"),
    [
        ("single", ["1x1"]),
        ("data_parallel", ["1x2", "1x4"]),
        ("ddp", ["1x1", "1x2", "1x4", "2x2"]),
        ("independent", ["1x2", "1x4", "2x2"]),
    ],
)
def test_a_strategy_runs_on_the_topologies_that_mean_something_for_it(strategy, topologies):
    trials = planned(strategies={strategy: None}, topologies=["2x2", "1x4", "1x2", "1x1"], launchers=["spawn"])
    assert [str(trial.topology) for trial in trials if trial.repeat == 0] == topologies


@pytest.mark.parametrize("strategy", [name for name, row in STRATEGIES.items() if row.single_process])
@pytest.mark.parametrize("launchers", [["spawn", "torchrun"], ["torchrun", "spawn"]])
def test_one_process_is_the_same_whoever_starts_it_so_the_first_launcher_does(strategy, launchers):
    trials = planned(strategies={strategy: None}, launchers=launchers)
    assert {trial.launcher for trial in trials} == {launchers[0]}


def test_a_single_process_strategy_has_one_rank_whatever_its_devices():
    (trial,) = planned(strategies={"data_parallel": None}, topologies=["1x4"], repeats=1)
    assert (trial.world_size, trial.devices, trial.batch_size_per_rank) == (1, 4, 128)


def test_ranks_are_as_many_as_devices_for_all_others():
    (trial,) = planned(strategies={"ddp": None}, topologies=["2x4"], launchers=["spawn"], repeats=1)
    assert (trial.world_size, trial.ranks_per_node) == (8, 4)


def test_the_order_is_repeat_by_repeat_so_that_a_drift_touches_all_cells_alike():
    trials = planned(repeats=4)
    by_repeat = [(repeat, [trial.cell for trial in those]) for repeat, those in groupby(trials, lambda t: t.repeat)]
    assert [repeat for repeat, _ in by_repeat] == [0, 1, 2, 3]
    assert all(those == by_repeat[0][1] for _, those in by_repeat)


def test_no_two_trials_share_a_folder():
    trials = planned(topologies=["1x1", "1x2", "2x1", "2x2", "1x4"], repeats=3)
    assert len({trial.folder for trial in trials}) == len(trials)


def test_every_repeat_has_a_seed_of_its_own():
    assert sorted({(trial.repeat, trial.seed) for trial in planned(seed=7, repeats=3)}) == [(0, 7), (1, 8), (2, 9)]


def test_weak_scaling_keeps_the_batch_per_device():
    trials = planned(batch={"per_device": 32}, topologies=["1x1", "1x2", "2x2"])
    assert {(t.scaling, t.batch_size_per_device, t.global_batch_size, t.devices) for t in trials} == {
        ("weak", 32, 32, 1),
        ("weak", 32, 64, 2),
        ("weak", 32, 128, 4),
    }


def test_strong_scaling_keeps_the_global_batch():
    trials = planned(batch={"global": 64}, topologies=["1x1", "1x2", "2x2"])
    assert {(t.scaling, t.batch_size_per_device, t.global_batch_size, t.devices) for t in trials} == {
        ("strong", 64, 64, 1),
        ("strong", 32, 64, 2),
        ("strong", 16, 64, 4),
    }


@pytest.mark.parametrize(
    ("device", "backend", "planned_backend"),
    [("cpu", "auto", "gloo"), ("cuda", "auto", "nccl"), ("cuda", "gloo", "gloo"), ("cpu", "gloo", "gloo")],
)
def test_auto_is_nccl_on_cuda_and_gloo_on_the_cpu(device, backend, planned_backend):
    assert {trial.backend for trial in planned(device=device, backend=backend)} == {planned_backend}


def test_the_plan_is_the_same_whether_or_not_this_machine_has_gpus():
    assert {trial.device for trial in planned(device="cuda", topologies=["4x8"], strategies={"ddp": None})} == {"cuda"}


@pytest.mark.parametrize(
    ("changes", "warmup"),
    [
        ({"epochs": 3}, (1, None)),
        ({"epochs": 3, "warmup_epochs": 2}, (2, None)),
        ({"epochs": None, "steps": 30}, (None, 10)),
        ({"epochs": None, "steps": 30, "warmup_steps": 5}, (None, 5)),
    ],
)
def test_warm_up_is_one_epoch_or_ten_steps_unless_said_otherwise(changes, warmup):
    assert {(trial.warmup_epochs, trial.warmup_steps) for trial in planned(**changes)} == {warmup}


def test_a_variant_carries_a_name_options_and_overrides_of_its_own():
    variant = {
        "base": "ddp",
        "bucket_cap_MiB": "1e-3",
        "precision": "bf16",
        "topologies": ["1x4"],
        "launchers": ["torchrun"],
    }
    (trial,) = planned(strategies={"small_buckets": variant}, repeats=1)
    assert (trial.strategy, trial.base, trial.options) == ("small_buckets", "ddp", {"bucket_cap_MiB": "1e-3"})
    assert (trial.precision, str(trial.topology), trial.launcher) == ("bf16", "1x4", "torchrun")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_row_can_be_planned(strategy):
    launchers = list(STRATEGIES[strategy].launchers or ["spawn"])
    variant = NEEDED_OPTIONS.get(strategy)
    assert planned(strategies={strategy: variant}, launchers=launchers, topologies=["1x1", "1x2", "2x2"])


def test_a_run_takes_at_most_every_trials_devices_for_its_time_limit():
    trials = planned(strategies={"ddp": None}, launchers=["spawn"], timeout_s=1800, repeats=2)
    assert upper_bound_device_hours(trials) == 2 * (1 + 2) * 0.5


# What contradicts what: each is refused, in one line, with the remedy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"workload": {"model": "convnett"}},
            "experiments.quick.workload.model: unknown model 'convnett'; did you mean 'convnet'?",
        ),
        (
            {"workload": {"dataset": "digit"}},
            "experiments.quick.workload.dataset: unknown dataset 'digit'; did you mean 'digits'?",
        ),
        (
            {"workload": {"model_options": {"dropuot": True}}},
            "experiments.quick.workload.model_options: unknown key 'dropuot': did you mean 'dropout'?",
        ),
        (
            {"workload": {"model_options": {"dropout": "no"}}},
            "experiments.quick.workload.model_options.dropout = 'no': input should be a valid boolean",
        ),
        (
            {"workload": {"train_samples": 1499}},
            "experiments.quick.workload.train_samples = 1499: digits has 1498; use at most that",
        ),
        (
            {"workload": {"test_samples": 300}},
            "experiments.quick.workload.test_samples = 300: digits has 299; use at most that",
        ),
        (
            {"workload": {"optimizer": {"name": "adam", "momentum": 0.9}}},
            "experiments.quick.workload.optimizer.momentum = 0.9: only sgd has it; remove it or use name: sgd",
        ),
        (
            {"backend": "nccl"},
            "experiments.quick.backend = 'nccl': NCCL moves data between GPUs; use auto or gloo with device: cpu",
        ),
        (
            {"epochs": 1},
            "experiments.quick.warmup_epochs = 1: leaves nothing of epochs = 1 to measure; raise epochs",
        ),
        (
            {"epochs": 3, "warmup_epochs": 3},
            "experiments.quick.warmup_epochs = 3: leaves nothing of epochs = 3 to measure; raise epochs",
        ),
        (
            {"epochs": None, "steps": 10},
            "experiments.quick.warmup_steps = 10: leaves nothing of steps = 10 to measure; raise steps",
        ),
        (
            {"topologies": ["1x1", "2"]},
            "experiments.quick.topologies: '2' is no topology; write nodes x devices_per_node, such as 1x1 or 2x4",
        ),
        (
            {"launchers": ["spwan"]},
            "experiments.quick.launchers: unknown launcher 'spwan'; did you mean 'spawn'?",
        ),
        (
            {"strategies": {"dpd": None}},
            "experiments.quick.strategies.dpd: unknown strategy 'dpd'; did you mean 'ddp'?",
        ),
        (
            {"strategies": {"mine": {"base": "dpd"}}},
            "experiments.quick.strategies.mine.base = 'dpd': unknown strategy 'dpd'; did you mean 'ddp'?",
        ),
        (
            {"strategies": {"ddp": {"bucket_cap_MB": 25}}},
            "experiments.quick.strategies.ddp: unknown key 'bucket_cap_MB': did you mean 'bucket_cap_MiB'?",
        ),
        (
            {"strategies": {"single": {"bucket_cap_MiB": 25}}},
            "experiments.quick.strategies.single: unknown key 'bucket_cap_MiB': valid: accumulation_steps, base, ",
        ),
        (
            {"precision": "fp16", "strategies": {"single": None}},
            "experiments.quick.strategies.single.precision = 'fp16': CPUs compute fp16 some 50 times slower than fp32; use "
            "bf16, or device: cuda",
        ),
        (
            {"strategies": {"ddp": {"precision": "tf32"}}},
            "experiments.quick.strategies.ddp.precision = 'tf32': a format of CUDA's tensor cores; use fp32",
        ),
        (
            {"device": "cuda", "precision": "fp16", "strategies": {"fsdp": None}},
            "experiments.quick.strategies.fsdp.precision = 'fp16': fsdp computes in fp32, tf32, bf16 only; set the "
            "variant's own precision",
        ),
        (
            {"device": "cuda", "compile": True, "strategies": {"data_parallel": None}},
            "experiments.quick.strategies.data_parallel.compile = True: torch.compile does not apply to data_parallel",
        ),
        (
            {"strategies": {"ddp": {"accumulation_steps": 5, "topologies": ["1x1"]}}},
            "experiments.quick.strategies.ddp.accumulation_steps = 5: does not divide the 32 samples per device of topology "
            "1x1; choose a divisor of 32",
        ),
        (
            {"strategies": {"ddp": {"powersgd_rank": 2}}},
            "experiments.quick.strategies.ddp: powersgd_rank: only comm_hook: powersgd has it; set that or remove it",
        ),
        (
            {"strategies": {"ddp": {"launchers": ["torchrum"]}}},
            "experiments.quick.strategies.ddp.launchers: unknown launcher 'torchrum'; did you mean 'torchrun'?",
        ),
        (
            {"strategies": {"ddp": {"topologies": ["0x1"]}}},
            "experiments.quick.strategies.ddp.topologies: '0x1' is no topology",
        ),
        (
            {"strategies": {"single": None}, "topologies": ["1x2", "2x1"]},
            "experiments.quick.strategies.single: single applies to none of the topologies 1x2, 2x1; it needs 1x1",
        ),
        (
            {"strategies": {"data_parallel": None}, "topologies": ["1x1", "2x2"]},
            "experiments.quick.strategies.data_parallel: data_parallel applies to none of the topologies 1x1, 2x2; it "
            "needs at least 2 devices on one node",
        ),
        (
            {"strategies": {"data_parallel": {"output_device": 2}}, "topologies": ["1x2", "1x4"]},
            "experiments.quick.strategies.data_parallel: output_device = 2: its smallest topology has devices 0 to 1; use "
            "one of them",
        ),
        (
            {"batch": {"global": 65}},
            "experiments.quick.batch.global = 65: does not divide by the 2 devices of topology 1x2; choose a multiple "
            "of 2",
        ),
        (
            {"batch": {"per_device": 800}},
            "experiments.quick.batch: 2 devices x 800 samples need 1600 training samples for one step on 1x2, digits "
            "has 1498 here; use a smaller batch or fewer devices",
        ),
        (
            {"workload": {"train_samples": 63}},
            "experiments.quick.batch: 2 devices x 32 samples need 64 training samples for one step on 1x2, digits has "
            "63 here",
        ),
    ],
)
def test_a_contradiction_is_refused_with_path_value_and_remedy(changes, said):
    assert problem(**changes).startswith(said)


def test_a_batch_rule_holds_for_a_variants_own_topologies_too():
    variant = {"topologies": ["1x3"]}
    assert "does not divide by the 3 devices of topology 1x3" in problem(
        strategies={"ddp": variant}, topologies=["1x1"], batch={"global": 64}
    )
    assert "3 devices x 500 samples need 1500" in problem(
        strategies={"ddp": variant}, topologies=["1x1"], batch={"per_device": 500}
    )


def test_a_row_that_none_of_the_launchers_can_start_is_refused(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "ddp", replace(STRATEGIES["ddp"], launchers=("torchrun",)))
    assert problem(launchers=["spawn"]) == (
        "experiments.quick.strategies.ddp: ddp is started by torchrun only; add it to launchers"
    )
    assert {trial.launcher for trial in planned(strategies={"ddp": None})} == {"torchrun"}


def test_a_launcher_that_reaches_one_node_only_is_planned_there():
    cells = {
        f"{trial.launcher}/{trial.topology}"
        for trial in planned(strategies={"ddp": None}, topologies=["1x2", "2x2"], launchers=["torchrun", "horovodrun"])
    }
    assert cells == {"torchrun/1x2", "torchrun/2x2", "horovodrun/1x2"}


def test_a_row_whose_launchers_reach_none_of_its_topologies_is_refused():
    variant = {"launchers": ["horovodrun"]}
    assert problem(strategies={"horovod": variant}, topologies=["2x2", "2x4"]) == (
        "experiments.quick.strategies.horovod: horovodrun starts ranks on one node only; add a topology such as 1x2, "
        "or another launcher"
    )


def test_what_a_row_refuses_depends_on_the_optimizer_too():
    assert problem(
        strategies={"apex": {"fused_sgd": True}},
        device="cuda",
        workload={"model": "convnet", "dataset": "digits", "optimizer": {"name": "adam"}},
    ).startswith("experiments.quick.strategies.apex: fused_sgd = True: the optimizer is adam")


@pytest.mark.parametrize(
    ("workload", "settings", "said"),
    [
        (
            {"dataset": "synthetic"},
            {"sample_shape": [3, 32, 32]},
            "images of (3, 32, 32), but model 'convnet' takes images of (1, 28, 28); choose another of the two",
        ),
        (
            {"dataset": "synthetic_tokens", "model": "resnet18"},
            {},
            "sequences of 64 tokens, but model 'resnet18' takes images; choose another of the two",
        ),
        (
            {"dataset": "digits", "model": "gpt"},
            {},
            "images of (1, 28, 28), but model 'gpt' takes tokens; choose another of the two",
        ),
        (
            {"dataset": "synthetic_tokens", "model": "gpt", "model_options": {"context": 32}},
            {},
            "sequences of 64 tokens, but model 'gpt' takes at most context = 32 tokens; choose another of the two",
        ),
    ],
)
def test_a_dataset_that_a_model_does_not_take_is_refused(workload, settings, said):
    name = workload["dataset"]
    (line,) = errors_of({**a_config(workload=workload), "datasets": {name: settings} if settings else {}})
    assert line == f"config.yaml: experiments.quick.workload.dataset = {name!r}: {said}"


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("mlp", {"sample_shape": [2, 9, 5], "classes": 3}),
        ("resnet50", {"sample_shape": [3, 224, 224], "classes": 1000}),
        ("convnet", {}),
    ],
)
def test_synthetic_images_are_made_for_any_model_that_takes_images(model, settings):
    data = {**a_config(workload={"model": model, "dataset": "synthetic"}), "datasets": {"synthetic": settings}}
    assert plan_trials(load_config(data))["quick"]


@pytest.mark.parametrize(
    ("dataset", "settings", "said"),
    [
        ("synthetic", {"sample_shape": [32, 32]}, "datasets.synthetic.sample_shape: list should have at least 3 items"),
        ("synthetic", {"sample_shape": [3, 0, 32]}, "datasets.synthetic.sample_shape.1 = 0: "),
        ("synthetic", {"classes": 1}, "datasets.synthetic.classes = 1: "),
        ("synthetic_tokens", {"vocabulary": 1}, "datasets.synthetic_tokens.vocabulary = 1: "),
        ("synthetic_tokens", {"context": 0}, "datasets.synthetic_tokens.context = 0: "),
    ],
)
def test_samples_that_can_not_be_made_are_refused(dataset, settings, said):
    (line,) = errors_of({**a_config(), "datasets": {dataset: settings}})
    assert line.startswith(f"config.yaml: {said}")


def test_options_that_contradict_each_other_are_refused_once():
    workload = {"dataset": "synthetic_tokens", "model": "gpt", "model_options": {"width": 64, "heads": 3}}
    assert problem(workload=workload) == (
        "experiments.quick.workload.model_options: width = 64 does not divide by heads = 3; choose a multiple of it"
    )


def test_channels_last_is_for_images():
    workload = {"dataset": "synthetic_tokens", "model": "gpt"}
    text = errors_of(a_config(workload=workload, channels_last=True))[0]
    assert text.endswith("channels_last = True: model 'gpt' takes no images; remove it")


def test_a_published_dataset_needs_no_source():
    assert planned(workload={"dataset": "cifar10", "model": "resnet18"})


def test_a_dataset_that_is_not_published_needs_one(monkeypatch):
    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], published=None))
    text = problem(workload={"dataset": "mnist"})
    assert text.endswith("workload.dataset = 'mnist': say where its files lie, in datasets.mnist.source")


@pytest.mark.parametrize("mirrors", [[], ["/a/folder"], ["ftp://x/"]], ids=str)
def test_mirrors_are_urls_and_there_is_one_at_least(mirrors):
    assert (
        "config.yaml: datasets.mnist.mirrors"
        in errors_of(a_config() | {"datasets": {"mnist": {"mirrors": mirrors}}})[0]
    )


@pytest.mark.parametrize(
    ("datasets", "said"),
    [
        ({"digit": {}}, "datasets.digit: unknown dataset; did you mean 'digits'?"),
        ({"digits": {"source": "/x"}}, "datasets.digits.source = '/x': digits takes no settings; remove this key"),
        (
            {"mnist": {"train_samples": 10}},
            "datasets.mnist.train_samples = 10: mnist takes source, mirrors only; remove this key; workload.train_samples uses a part",
        ),
        (
            {"mnist": {"source": "/x", "mirrors": ["https://x/"]}},
            "datasets.mnist.mirrors: nothing is fetched where source is given; remove one of the two",
        ),
        (
            {"synthetic": {"context": 10}},
            "datasets.synthetic.context = 10: synthetic takes train_samples, test_samples, sample_shape, classes only; remo",
        ),
    ],
)
def test_dataset_settings_that_nothing_would_read_are_refused(datasets, said):
    (line,) = errors_of({**a_config(), "datasets": datasets})
    assert line.startswith(f"config.yaml: {said}")


def test_every_contradiction_of_every_experiment_is_named_at_once():
    data = a_config(backend="nccl", batch={"global": 65})
    data["experiments"]["slow"] = a_config(epochs=1)["experiments"]["quick"]
    assert len(errors_of(data)) == 3


def test_synthetic_data_is_as_large_as_its_settings_say():
    workload = {"dataset": "synthetic", "train_samples": 100}
    assert "train_samples = 100: synthetic has 80" in problem_with_synthetic(80, workload)
    assert "has 80 here" in problem_with_synthetic(80, {"dataset": "synthetic"}, batch={"per_device": 64})


def problem_with_synthetic(samples: int, workload: dict[str, Any], **changes: Any) -> str:
    (line,) = errors_of(
        {**a_config(workload=workload, **changes), "datasets": {"synthetic": {"train_samples": samples}}}
    )
    return line


def test_only_what_has_a_switch_for_its_exchange_is_explained():
    strategies = {"single": None, "ddp": None, "ddp_plain": {"base": "ddp", "explain": False}, "zero": None}
    trials = planned(strategies=strategies, topologies=["1x1", "1x2"], explain=True)
    assert {trial.strategy for trial in trials if trial.explain} == {"ddp"}


def test_explaining_what_has_no_switch_is_refused():
    assert "strategies.zero.explain = True: zero exchanges elsewhere" in problem(
        strategies={"zero": {"explain": True}}, launchers=["spawn"]
    )
    assert "explain = True: none of the strategies single, zero can be; add one of these: ddp" in problem(
        strategies={"single": None, "zero": None}, explain=True
    )
    assert "find_unused_parameters = True: DDP then exchanges" in problem(
        strategies={"ddp": {"find_unused_parameters": True}}, explain=True
    )


# The plan needs no torch, and every key decides something

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # its import fails from here on
sys.path.insert(0, "scripts")
import yaml
from dpscale.config import load_config
from dpscale.planning.plan import plan_trials
from dpscale.figures import FIGURES
from dpscale.tables.schema import TABLES
from dpscale.code import trial_code
trials = plan_trials(load_config(yaml.safe_load(open("config.yaml"))))["quickstart"]
print(len(trials), *(trial_code(trial.base, trial.model, trial.launcher) for trial in trials[:1]))
print(*sorted({"pandas", "matplotlib", "seaborn", "sklearn", "pyarrow"} & sys.modules.keys()))
"""


def test_a_plan_is_made_where_torch_is_missing_and_without_slow_imports():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True, cwd=ROOT)
    assert re.fullmatch(r"18 \w{16}\n\n", done.stdout)


OTHER_VALUES: dict[str, Any] = {
    "workload.model": "mlp",
    "workload.model_options": {"dropout": False},
    "workload.dataset": "synthetic",
    "workload.train_samples": 640,
    "workload.test_samples": 100,
    "workload.optimizer.name": "adam",
    "workload.optimizer.lr": 0.1,
    "workload.optimizer.lr_reference_batch": 64,
    "workload.optimizer.schedule.kind": "cosine",
    "workload.optimizer.schedule.warmup_epochs": 0.5,
    "workload.optimizer.momentum": 0.9,
    "workload.optimizer.weight_decay": 0.01,
    "workload.optimizer.clip_norm": 1.0,
    "device": "cpu",
    "backend": "gloo",
    "precision": "bf16",
    "compile": True,
    "channels_last": True,
    "strategies": {"single": None},
    "strategies.ddp.base": "independent",
    "strategies.ddp.precision": "bf16",
    "strategies.ddp.compile": True,
    "strategies.ddp.channels_last": True,
    "strategies.ddp.explain": True,
    "strategies.ddp.launchers": ["torchrun"],
    "strategies.ddp.topologies": ["1x4"],
    "launchers": ["torchrun"],
    "topologies": ["1x1", "1x2", "1x4"],
    "batch.per_device": 16,
    "epochs": 4,
    "warmup_epochs": 2,
    "evaluate": False,
    "explain": True,
    "threads_per_rank": 2,
    "loader_workers": 2,
    "repeats": 1,
    "placebo": True,
    "seed": 1,
    "timeout_s": 60.0,
    "collective_timeout_s": 60.0,
    "checkpoint_interval_s": 60.0,
    "monitor_interval_s": 1.0,
}
# not by themselves: the other halves of either-or; and what decides tables, not trials
SHOWN_ELSEWHERE = {
    "workload",
    "workload.optimizer",
    "workload.optimizer.schedule",
    "workload.optimizer.schedule.milestones",
    "workload.optimizer.schedule.gamma",
    "batch",
    "batch.global",
    "batch.headroom_percent",
    "steps",
    "warmup_steps",
}
SHOWN_ELSEWHERE |= {"mixed_nodes", "references", "collectives"} | {
    f"collectives.{name}" for name in CollectivesConfig.model_fields
}
SHOWN_ELSEWHERE |= {"prediction"} | {f"prediction.{name}" for name in PredictionConfig.model_fields}
EXPERIMENT_KEYS = {
    ".".join([*path[2:], field.alias or name])
    for path, model in LEVELS
    if path[:2] == ("experiments", "quick")
    for name, field in model.model_fields.items()
}


def test_the_list_of_other_values_is_complete():
    assert OTHER_VALUES.keys() | SHOWN_ELSEWHERE == EXPERIMENT_KEYS


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_every_key_of_an_experiment_decides_something(key):
    data = a_config(device="cuda", workload={"optimizer": {"name": "sgd"}})
    other = changed(data, ("experiments", "quick", *key.split(".")), OTHER_VALUES[key])
    assert commands(other) != commands(data)


def commands(data):
    """The command line of every trial: it holds the limits too, which decide nothing of a record."""
    return [trial.to_args() for trial in plan_trials(load_config(data))["quick"]]


def test_every_key_of_the_config_is_read_somewhere():
    sources = [*(ROOT / "scripts").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk"), ROOT / "Snakefile"]
    text = "\n".join(path.read_text() for path in sources)
    # the optimizer's go to torch_optimizer as they are, the schedule's to schedule.py
    read_whole = {"name", "lr", "weight_decay", "lr_reference_batch", "gamma"}
    names = {name for _, model in LEVELS for name in model.model_fields} - read_whole
    assert {name for name in names if not re.search(rf"\.{name}\b", text)} == set()


def test_the_optimizers_keys_reach_torchs_but_for_clipping_which_training_does():
    settings = OptimizerConfig(name="sgd", lr=0.1, momentum=0.9, weight_decay=0.01, clip_norm=1.0).model_dump()
    factory, arguments = base.torch_optimizer(settings)
    assert factory.__name__ == "SGD"
    assert arguments == {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


def test_the_default_config_shows_every_key_but_those_that_exclude_each_other():
    shown = yaml.safe_load((ROOT / "config.yaml").read_text())["experiments"]["quickstart"]
    assert ExperimentConfig.model_fields.keys() - shown.keys() == {"steps", "warmup_steps"}


# The schema that editors read


def config_schema() -> dict[str, Any]:
    return json.loads(SCHEMA.read_text())


def test_the_schema_file_is_what_schema_py_prints():
    done = subprocess.run([sys.executable, ROOT / "scripts/schema.py"], capture_output=True, text=True, check=True)
    assert done.stdout == SCHEMA.read_text(), "make schema"


def test_the_schema_is_a_json_schema_that_takes_the_default_config():
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((ROOT / "config.yaml").read_text()), schema)


@pytest.mark.parametrize("path", [path for path, model in LEVELS if model.model_config["extra"] == "forbid"], ids=str)
def test_the_schema_refuses_an_unknown_key_at_every_level(path):
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(changed(a_config(), (*path, "colour"), 1), config_schema())


@pytest.mark.parametrize("key", ["timeout_s", "epochs", "topologies"])
def test_the_schema_refuses_a_wrong_type(key):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed(a_config(), ("experiments", "quick", key), {}), config_schema())
