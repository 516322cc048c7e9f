"""What share of the devices' peak is reached: model FLOPs utilisation, as PaLM's authors define it.

Operations are those that the model's forward and backward pass asks for, of matrix products, convolutions and attention;
what is computed twice or lost does not count (Chowdhery et al., "PaLM", 2022, appendix B).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dpscale.advice.cells import INTERVAL, Cell, base_of, measure_again, text, to_measure, warnings_of
from dpscale.advice.least import MAKE_MORE
from dpscale.advice.peaks import peak_of
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.settings import AdviceConfig
from dpscale.advice.words import amount, as_given, number
from dpscale.statistics import Estimate

SEEN = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}  # dtype of compute -> precision
GIGA, TERA = 1e9, 1e12
NEARLY_ALL_PERCENT = 95  # of the peak, from which on there is nothing to look for on a device
KEY = "advice.peak_TFLOP_per_s"


@dataclass(frozen=True)
class Flops:
    """What counting a model's operations gave."""

    per_sample: float | None
    reason: str  # why there are none


def precision_of(cell: Cell) -> str:
    """In which it computed, as far as that was seen; a library may cast by itself."""
    seen = dict(item.rsplit(" ", 1) for item in text(cell.summary.effective_precision).split(", ") if item)
    found = SEEN.get(seen.get("compute", ""), cell.summary.precision)
    return "tf32" if (found, cell.summary.precision) == ("fp32", "tf32") else found


@dataclass(frozen=True)
class _Scale:
    """What throughput is held against."""

    precision: str
    peak_TFLOP_per_s: float  # of one device
    source: str
    GFLOP_per_sample: float

    def share(self, cell: Cell) -> Estimate | None:
        """In %; None where the row has no throughput."""
        throughput = cell.estimate("throughput_per_device_samples_per_s")
        if throughput is None:
            return None
        return throughput.times(100 * self.GFLOP_per_sample * GIGA / (self.peak_TFLOP_per_s * TERA))


def share_of_peak(
    found: Sequence[Cell], absent: Sequence[Cell], best: Cell | None, flops: Flops | None, settings: AdviceConfig
) -> Sentence:
    """Of the fastest cell, by the medians, and of its base."""
    unknown = "What share of the devices' peak is reached can't be said"
    said = Sentence(about="peak", support=WITHHELD, verdict=f"{unknown}.", unit="%")
    if best is None:
        return replace(
            said,
            verdict=f"{unknown}: nothing was measured.",
            missing="launches",
            next_steps=(to_measure(absent),),
        )
    rates = Evidence(
        "summary.csv", ("throughput_per_device_samples_per_s", "effective_precision", "base_cell"), (best.name,)
    )
    said = replace(said, follows_from=[rates])
    precision = precision_of(best)
    peak, source = _peak(best, precision, settings)
    if peak is None:
        return replace(
            said,
            verdict=f"{unknown}: the peak of {source} in {precision} is not known.",
            missing=f"the peak of one device: {KEY}",
            next_steps=(f"Set {KEY}: {{{precision}: ...}}, of one device.",),
        )
    if flops is None or flops.per_sample is None:
        because = "they were not counted" if flops is None else flops.reason
        return replace(
            said,
            verdict=f"{unknown}: of the operations that the model asks for, {because}.",
            missing="how many operations a sample takes",
            next_steps=("Use a model whose operations PyTorch's FlopCounterMode counts.",),
        )
    scale = _Scale(precision, peak, source, flops.per_sample / GIGA)
    base = base_of(best, found)
    if base is not None and precision_of(base) != precision:
        base = None
    those = [best] if base is None or base.name == best.name else [best, base]
    said = replace(said, follows_from=[replace(rates, rows=tuple(cell.name for cell in those))])
    shares = {cell.name: share for cell in those if (share := scale.share(cell)) is not None}
    if len(shares) < len(those):
        return replace(
            said,
            verdict=f"{unknown}: throughput is missing in its row.",
            missing="throughput per device",
            next_steps=(measure_again([cell.name for cell in those if cell.name not in shares]),),
        )
    share, above = shares[best.name], next((name for name in shares if shares[name].value > 100), best.name)
    if shares[above].value > 100:
        return replace(
            said,
            verdict=f"{unknown}: {above} would reach {number(shares[above].value)} % of {as_given(peak)} TFLOP/s, so that is not "
            "its peak.",
            missing=f"the right peak of one device in {precision}: {KEY}",
            next_steps=(f"Correct {KEY}.",),
        )
    interval = share.spread == INTERVAL
    return replace(
        said,
        support=SHOWN if interval else PARTLY,
        verdict=f"{best.name} reaches {amount(share, '%')} of its devices' peak, {as_given(peak)} TFLOP/s each in {precision}.",
        why=_why(best, base, shares, scale),
        missing="" if interval else f"launches: 6 of {best.name}, for an interval",
        next_steps=(
            *([] if interval else [MAKE_MORE]),
            *([] if base is None else [_next_step(best, share, shares[base.name])]),
        ),
        cell=best.name,
        estimate=share,
        follows_from=[
            *said.follows_from,
            Evidence("flops.json", ("flops_per_sample",), ("the model",)),
        ],
        warnings=warnings_of(those),
    )


def _peak(cell: Cell, precision: str, settings: AdviceConfig) -> tuple[float | None, str]:
    """(TFLOP/s of one device, where they are from; or None, and what has no known peak)."""
    given = {str(name): value for name, value in (settings.peak_TFLOP_per_s or {}).items()}
    if precision in given:
        return given[precision], f"{KEY} of the config"
    model = text(cell.launches.iloc[0].device_model)
    if not model:
        return None, "a CPU"
    known = peak_of(model)
    if known is None or precision not in known.TFLOP_per_s:
        return None, model
    return known.TFLOP_per_s[precision], known.source


def _why(best: Cell, base: Cell | None, shares: Mapping[str, Estimate], scale: _Scale) -> str:
    asked = (
        f"A sample takes {number(scale.GFLOP_per_sample)} GFLOP, forward and backward; the peak is from {scale.source}."
    )
    if base is None or base.name == best.name:
        return asked
    return f"{base.name} reaches {amount(shares[base.name], '%')}. {asked}"


def _next_step(best: Cell, share: Estimate, on_one: Estimate) -> str:
    """Where more is lost: on each device, or by their number."""
    if best.devices > 1 and on_one.value / share.value > 100 / on_one.value:
        return "More is lost by scaling than on each device: see what limits it, below."
    lost = (
        "More is lost on each device than by their number" if best.devices > 1 else "What is lost is lost on the device"
    )
    if on_one.value >= NEARLY_ALL_PERCENT:
        return "Little is lost on each device, and not more by their number: there is little to gain."
    open_to_it = {
        "compile": not best.summary["compile"],
        "channels_last": not best.summary.channels_last,
        "bf16": precision_of(best) not in ("bf16", "fp16"),
    }
    return f"{lost}: try {', '.join(['larger batches', *(name for name, is_open in open_to_it.items() if is_open)])}."
