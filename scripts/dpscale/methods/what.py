"""What was compared, on which machine, with which software, and what was trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpscale.methods.study import Section, Study, Table, different, number, options_text
from dpscale.strategies import STRATEGIES
from dpscale.trial import LARGEST, PLACEBO, Trial
from dpscale.words import counted, listed
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.models import MODELS
from dpscale.workloads.samples import described

GIB, MIB = 2**30, 2**20
PACKAGES = {  # facts of the environment -> names of what they are the versions of
    "python": "Python",
    "torch": "PyTorch",
    "torchvision": "torchvision",
    "numpy": "NumPy",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "cudnn": "cuDNN",
    "driver": "the NVIDIA driver",
}
OF_A_STRATEGY = {"deepspeed": "DeepSpeed", "horovod": "Horovod", "apex": "NVIDIA apex"}
OPTIMIZERS = {"adadelta": "Adadelta", "adam": "Adam", "adamw": "AdamW", "sgd": "stochastic gradient descent"}


def design(study: Study) -> Section:
    cells = different(trial.cell for trial in study.trials)
    repeats = sorted({sum(trial.cell == cell for trial in study.trials) for cell in cells})
    times = (
        "once"
        if repeats == [1]
        else f"{' to '.join(number(count) for count in different((repeats[0], repeats[-1])))} times"
    )
    strategies = different(trial.strategy for trial in study.trials if trial.strategy != PLACEBO)
    sentences = [
        f"The experiment {study.name} compares {counted(len(strategies), 'strategy', 'strategies')} of data-parallel training, "
        f"started by {listed(study.of_trials('launcher'))}, on {listed(different(str(trial.topology) for trial in study.trials))} "
        f"(nodes x devices per node).",
        f"{counted(len(cells), 'cell')} of strategy, launcher and topology {'is' if len(cells) == 1 else 'are'} launched "
        f"{times}{'' if len(cells) == 1 else ' each'}: {_launches(len(study.trials), len(study.measured))}.",
        *_for_prediction(study),
    ]
    sentences += [
        f"The placebo measures {trial.base} on {trial.topology} once more, under another name."
        for trial in study.trials
        if trial.strategy == PLACEBO and trial.repeat == 0
    ]
    header = ("strategy", "what it does", "options", "precision", "launchers", "topologies")
    rows = [_row_of(study, strategy) for strategy in strategies]
    return Section("Design", [sentences], [Table(header, rows)])


def _launches(planned: int, measured: int) -> str:
    return (
        f"{counted(planned, 'launch', 'launches')}, of which {measured:,} {'was' if measured == 1 else 'were'} measured"
    )


def _for_prediction(study: Study) -> Iterator[str]:
    if not study.for_prediction:
        return
    batches = different(
        f"{trial.strategy} with {counted(trial.batch_size_per_device or 0, 'sample')}"
        for trial, _ in study.for_prediction
    )
    launches = _launches(len(study.for_prediction), len(study.measured_for_prediction))
    yield f"For the prediction alone, one device is given other batches per step, which are in no table: {listed(batches)}; {launches}."


def _row_of(study: Study, strategy: str) -> tuple[str, ...]:
    mine = [trial for trial in study.trials if trial.strategy == strategy]
    first = mine[0]
    more = [name for name, is_on in (("torch.compile", first.compile), ("channels last", first.channels_last)) if is_on]
    return (
        strategy,
        STRATEGIES[first.base].summary,
        "; ".join(filter(None, [options_text(first.options), *more])) or "as the library's defaults",
        first.precision,
        listed(different(trial.launcher for trial in mine)),
        listed(different(str(trial.topology) for trial in mine)),
    )


def machine(study: Study) -> Section:
    return Section("Machine", [list(_machine(study))])


def _machine(study: Study) -> Iterator[str]:
    if not study.machines:
        return
    nodes = study.facts("node")
    yield (
        f"Measured on {counted(len(nodes), 'node')}: {listed(nodes)}."
        if len(nodes) <= 8
        else (f"Measured on {len(nodes)} nodes.")
    )
    for model in study.facts("cpu_model"):
        cpus = listed(study.facts("usable_cpus"))
        yield f"Processor: {model}, of which {cpus} logical CPUs were usable by the ranks."
    if sizes := study.facts("memory_bytes"):
        yield f"Memory: {listed(f'{size / GIB:.1f} GiB' for size in sizes)}."
    if numa := study.facts("numa_nodes"):
        yield f"NUMA nodes: {listed(numa)}."
    if clocks := study.facts("max_clock_MHz"):
        yield f"Highest clock of the processor: {listed(clocks)} MHz."
    if governors := study.facts("governor"):
        yield f"Frequency governor: {listed(governors)}."
    for gpu in study.facts("device_model"):
        yield f"GPUs: {listed(study.facts('devices_per_machine'))} x {gpu} on a node."
    if sizes := study.facts("device_memory_bytes"):
        yield f"Memory of a GPU: {listed(f'{size / GIB:.1f} GiB' if isinstance(size, int) else size for size in sizes)}."
    if limits := study.facts("device_power_limit_w"):
        yield f"Power limit of a GPU: {listed(limits)} W."
    if ecc := study.facts("device_ecc"):
        yield f"Error correction (ECC) of its memory: {listed('on' if on is True else on for on in ecc)}."
    yield f"System: {listed(study.facts('os') or study.facts('kernel'))}."
    if containers := study.facts("container"):
        yield f"Ran inside a container ({listed(containers)})."
    began, ended = (sorted(record.launch[edge] for record in study.measured) for edge in ("started_at", "ended_at"))
    yield f"Measured from {began[0][:16].replace('T', ' ')} to {ended[-1][:16].replace('T', ' ')} UTC."


def software(study: Study) -> Section:
    bases = {trial.base for trial in study.trials}
    names = PACKAGES | {fact: name for fact, name in OF_A_STRATEGY.items() if fact in bases}
    versions = [f"{name} {listed(found)}" for fact, name in names.items() if (found := study.facts(fact))]
    sentences = [f"{listed(versions)}."] if versions else []
    if backends := study.of_trials("backend"):
        sentences.append(f"Ranks communicated through torch.distributed's backend {listed(backends)}.")
    settings = different(machine["settings"] for machine in study.machines if machine.get("settings"))
    if settings:
        shared = {name: value for name, value in settings[0].items() if all(one.get(name) == value for one in settings)}
        text = ", ".join(f"{name}={value}" for name, value in shared.items())
        sentences += [f"Environment of all ranks: {text}."] if text else []
    codes, commits = study.facts("code_digest"), study.facts("commit")
    at = f", commit {listed(commits)}" if commits else ""
    if codes:
        sentences.append(f"The measuring code is dpscale's{at}; the digest of its syntax trees is {listed(codes)}.")
    return Section("Software", [sentences])


def workload(study: Study) -> Section:
    return Section("Workload", [list(_data(study)), list(_training(study))])


def _data(study: Study) -> Iterator[str]:
    trial = study.trial
    model = MODELS.get(trial.model)
    options = f" ({options_text(trial.model_options)})" if trial.model_options else ""
    yield f"Model: {trial.model}{options}{f', {model.summary}' if model else ''}."
    dataset = DATASETS.get(study.manifest.dataset if study.manifest else trial.dataset)
    yield f"Data: {trial.dataset}{f', {dataset.summary}' if dataset else ''}."
    if study.manifest is not None:
        what = described(study.manifest.kind, tuple(study.manifest.sample_shape))
        counts = study.manifest.counts
        yield (
            f"It holds {counts['train']:,} training and {counts['test']:,} test samples, {what}, of "
            f"{study.manifest.classes:,} classes."
        )
    parts = [
        f"the first {count:,} {split} samples"
        for split, count in (("training", trial.train_samples), ("test", trial.test_samples))
        if count is not None
    ]
    if parts:
        yield f"Of these, {listed(parts)} are used."


def _training(study: Study) -> Iterator[str]:
    trial = study.trial
    yield from _batch(study)
    yield from _optimizer(study)
    precisions = different(
        ", ".join(f"{what} {dtype}" for what, dtype in record.effective_precision.items()) for record in study.measured
    )
    asked = study.of_trials("precision")
    seen = f"; number formats that were seen: {'; or '.join(precisions)}" if any(precisions) else ""
    yield f"Precision of compute as asked for: {listed(asked)}{seen}."
    if trial.epochs is not None:
        yield f"Each launch trains for {counted(trial.epochs, 'epoch')}."
    else:
        yield f"Each launch trains for {counted(trial.steps or 0, 'optimiser step')}."
    yield (
        f"Weights and the order of the data are drawn from the seed {study.settings.seed} of the first repeat, and one more "
        "for each further one."
    )
    workers = counted(trial.loader_workers, "loader process", "loader processes")
    loads = f"has {workers}" if trial.loader_workers else "loads its own batches"
    yield f"Each rank computes with {counted(trial.threads_per_rank, 'CPU thread')} and {loads}."


def _batch(study: Study) -> Iterator[str]:
    trial = study.trial
    if trial.scaling == LARGEST:
        yield (
            f"Batch: for each cell the largest that fits into the device's memory, found by doubling and bisection, less "
            f"{number(trial.headroom_percent or 0)} %."
        )
    elif trial.scaling == "weak":
        yield f"Batch: {counted(trial.batch_size_per_device or 0, 'sample')} per device and step (weak scaling)."
    else:
        yield f"Batch: {counted(trial.global_batch_size or 0, 'sample')} per step over all devices (strong scaling)."


def _optimizer(study: Study) -> Iterator[str]:
    settings: dict[str, Any] = study.trial.optimizer
    more = [f"momentum {settings['momentum']:g}"] if settings.get("momentum") else []
    more += [f"weight decay {settings['weight_decay']:g}"] if settings.get("weight_decay") else []
    more += [f"gradients clipped to a norm of {settings['clip_norm']:g}"] if settings.get("clip_norm") else []
    yield f"Optimiser: {listed([OPTIMIZERS[settings['name']], *more])}, learning rate {settings['lr']:g}."
    if reference := settings.get("lr_reference_batch"):
        yield (
            f"The learning rate is meant for {counted(reference, 'sample')} per step and grows in proportion with the global "
            f"batch: {_rates(study)}."
        )
    yield from _schedule(settings.get("schedule") or {"kind": "constant"})


def _rates(study: Study) -> str:
    def rate(trial: Trial) -> str | None:
        return None if trial.learning_rate is None else f"{trial.learning_rate:g} on {counted(trial.devices, 'device')}"

    return listed(different(rate(trial) for trial in sorted(study.trials, key=lambda trial: trial.devices)))


def _schedule(schedule: dict[str, Any]) -> Iterator[str]:
    if warmup := schedule.get("warmup_epochs"):
        yield f"The rate rises in proportion to the step over the first {counted(warmup, 'epoch')}."
    if schedule["kind"] == "step":
        gamma = schedule["gamma"] or 0.1
        yield f"The rate is multiplied by {gamma:g} after epochs {listed(number(one) for one in schedule['milestones'])}."
    elif schedule["kind"] == "cosine":
        yield "The rate then falls to 0 along a half cosine."
    elif not warmup:
        yield "The rate is constant."
