"""Published results to lay over ours: numbers of somebody else's machines, as their sources give them.

workflow/references/*.csv hold one number to a row, with its source; a set is what belongs to one experiment of the field.
REFERENCES is the table of sets, QUANTITIES says which of our quantities each of their metrics is.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parents[2] / "workflow" / "references"

# what a metric says of speed: s for all samples, s for one step, samples per s, or the same of one device
Kind = Literal["epoch", "step", "rate", "rate of a device"]


@dataclass(frozen=True)
class Quantity:
    """What a published metric is in our words."""

    name: str  # a column of our tables where we measure the same
    measured: bool  # whether we do
    kind: Kind | None = None  # None: it says nothing of speed


QUANTITIES = {
    "epoch_time_train_plus_val": Quantity("epoch_with_evaluation_s", True, "epoch"),
    "epoch_time": Quantity("epoch_with_evaluation_s", True, "epoch"),  # their script's clock spans train and validate
    "step_time_p50": Quantity("step_time_s", True, "step"),
    "step_time_p75": Quantity("step_time_p75_s", False, "step"),
    "throughput": Quantity("throughput_samples_per_s", True, "rate"),
    "throughput_per_gpu": Quantity("throughput_per_device_tokens_per_s", False, "rate of a device"),
    "gpu_util_avg": Quantity("utilization_percent", True),
    "gpu_mem_avg": Quantity("mean_memory_GB", True),
    "gpu_mem_share": Quantity("mean_memory_percent", False),
    "peak_mem": Quantity("peak_reserved_GiB", True),
}
STRATEGIES = {  # as sources name them -> our row of strategies
    "single": "single",
    "noDDP": "single",
    "nn.DataParallel": "data_parallel",
    "DDP": "ddp",
    "DDP (torch.nn.parallel, mp.spawn)": "ddp",
    "DDP (torchrun via srun)": "ddp",
    "apex.amp + apex DDP": "apex",
    "apex.amp + apex DDP, 4 nodes": "apex",
    "apex DDP+amp": "apex",
    "DeepSpeed (torchrun via srun)": "deepspeed",
    "Horovod": "horovod",
    "Horovod (torchrun via srun)": "horovod",
}
PRECISIONS = {  # as sources name them -> ours that may be the same
    "fp32": ("fp32",),
    "FP32": ("fp32",),
    "fp32/tf32 default": ("fp32", "tf32"),
    "AMP": ("fp16",),
    "AMP-fp16": ("fp16",),
    "bf16": ("bf16",),
    "float8": (),
}


@dataclass(frozen=True)
class Published:
    """One number, as its source has it."""

    source: str
    system: str
    gpu: str
    model: str
    precision: str
    strategy: str
    batch_per_gpu: int | None
    nodes: int
    gpus: int
    metric: str
    value: float
    unit: str
    note: str

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.metric]

    @property
    def base(self) -> str | None:
        """The row of our strategies that it is; None for one that we do not have."""
        return STRATEGIES.get(self.strategy)

    @property
    def cell(self) -> str:
        return f"{self.strategy}, {self.precision}, {self.nodes}x{self.gpus // self.nodes}"

    @property
    def speed(self) -> float | None:
        """In proportion to samples per second, within one set and metric; None if it says nothing of speed."""
        match self.quantity.kind:
            case "epoch":
                return 1 / self.value
            case "step":
                assert self.batch_per_gpu is not None, self
                return self.batch_per_gpu * self.gpus / self.value
            case "rate":
                return self.value
            case "rate of a device":
                return self.value * self.gpus
        return None


@dataclass(frozen=True, kw_only=True)
class ReferenceSet:
    """Numbers that belong together, and our experiment that they are of."""

    summary: str
    sources: tuple[str, ...]  # beginnings of their names
    of_model: str = ""  # beginning of the model's name in the source, where that has several
    model: str | None  # ours; None if we have none that is the same
    dataset: str | None = None  # ours; None if any does
    reference: tuple[str, str, int] | None = None  # (strategy, precision, GPUs) of what speed-ups are over

    def has(self, row: Published) -> bool:
        return row.source.startswith(self.sources) and row.model.startswith(self.of_model)

    def is_reference(self, row: Published) -> bool:
        return (row.strategy, row.precision, row.gpus) == self.reference


PYTORCH = "pytorch/pytorch@"
CSC = "mvsjober/ml-benchmarks@"
NO_DDP = ("noDDP", "fp32", 1)
DDP_ON_ONE = ("DDP (torchrun via srun)", "fp32/tf32 default", 1)
REFERENCES = {
    "hfai_resnet50": ReferenceSet(
        summary="ResNet-50 on ImageNet, 400 images per GPU, on A100s: the repository's figure, and its article's text",
        sources=("HFAiLab/pytorch_distributed@", "High-Flyer AI: "),
        model="resnet50",
        dataset="imagenet",
        reference=("single", "fp32/tf32 default", 1),
    ),
    "tczhangzhi_resnet18": ReferenceSet(
        summary="ResNet-18 on ImageNet on four V100s by nn.DataParallel, DDP, Horovod and apex",
        sources=("tczhangzhi/pytorch-distributed@",),
        model="resnet18",
        dataset="imagenet",
        reference=("nn.DataParallel", "fp32", 4),
    ),
    **{
        f"pytorch_ddp_{model}": ReferenceSet(
            summary=f"PyTorch's own benchmark of DDP: {model} on 1 to 16 V100s, 32 images each",
            sources=(PYTORCH,),
            of_model=model,
            model=model,
            reference=NO_DDP,
        )
        for model in ("resnet50", "resnet101", "resnext50_32x4d", "resnext101_32x8d")
    },
    "dlperf_resnet50": ReferenceSet(
        summary="ResNet-50 v1.5 under several frameworks on up to 32 V100s",
        sources=("Oneflow-Inc/DLPerf@",),
        of_model="resnet50",
        model="resnet50",
    ),
    "dlperf_bert": ReferenceSet(
        summary="BERT-base under several frameworks on up to 32 V100s",
        sources=("Oneflow-Inc/DLPerf@",),
        of_model="bert",
        model=None,
    ),
    "csc_resnet50_synthetic": ReferenceSet(
        summary="ResNet-50 on synthetic images on Mahti, Puhti and LUMI",
        sources=(CSC,),
        of_model="resnet50 (synthetic)",
        model="resnet50",
        dataset="synthetic",
        reference=DDP_ON_ONE,
    ),
    "csc_resnet50_imagenet": ReferenceSet(
        summary="ResNet-50 on ImageNet on Mahti, Puhti and LUMI",
        sources=(CSC,),
        of_model="resnet50 (ImageNet)",
        model="resnet50",
        dataset="imagenet",
        reference=DDP_ON_ONE,
    ),
    "csc_gpt": ReferenceSet(
        summary="fine-tuning of a GPT on synthetic text on Mahti, Puhti and LUMI",
        sources=(CSC,),
        of_model="GPT",
        model=None,
        reference=("run_clm (torchrun via srun)", "fp32/tf32 default", 1),
    ),
    "torchtitan_llama3_8b": ReferenceSet(
        summary="Llama 3.1 8B by torchtitan on 8 to 128 H100s, and on 32 and 64 H200s",
        sources=("pytorch/torchtitan@",),
        model=None,
        reference=("FSDP", "bf16", 8),
    ),
}


def published(folder: Path = FOLDER) -> list[Published]:
    """Every number of every file, in their order."""
    found = []
    for path in files(folder):
        with path.open(newline="") as file:
            found += [_row(line) for line in csv.DictReader(file)]
    return found


def files(folder: Path = FOLDER) -> list[Path]:
    """The repository's tables before what articles say of the same."""
    return sorted(folder.glob("*.csv"), reverse=True)


def _row(line: dict[str, str]) -> Published:
    texts = {
        name: line[name]
        for name in ("source", "system", "gpu", "model", "precision", "strategy", "metric", "unit", "note")
    }
    batch = int(line["batch_per_gpu"]) if line["batch_per_gpu"] else None
    return Published(
        **texts, batch_per_gpu=batch, nodes=int(line["nodes"]), gpus=int(line["gpus"]), value=float(line["value"])
    )


def sets_of(names: Sequence[str], rows: Sequence[Published]) -> dict[str, list[Published]]:
    """Set -> its numbers."""
    return {name: [row for row in rows if REFERENCES[name].has(row)] for name in names}
