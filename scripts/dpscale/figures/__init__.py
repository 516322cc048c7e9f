"""DataFrames -> figures. They read columns and compute no metric.

FIGURES is the table of figures. Each answers the question that is its title; every point carries its interval or range,
the number of repeats is stated, and what was not measured is named with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from dpscale.config import PRINT_WIDTHS, ExperimentConfig, FigureConfig
from dpscale.figures.causes import causes, causes_by_rank
from dpscale.figures.collectives import bus_bandwidth, collective_time
from dpscale.figures.comparison import comparison
from dpscale.figures.differences import differences
from dpscale.figures.drawing import (
    MM_PER_INCH,
    FigureRow,
    Tables,
    caption_of,
    entitle,
    height_mm,
    keep_to_page,
    style,
)
from dpscale.figures.loss import loss
from dpscale.figures.prediction import prediction
from dpscale.figures.references import published
from dpscale.figures.scaling import efficiency, epoch_time, evaluation, speedup
from dpscale.figures.snapshots import changes
from dpscale.figures.stragglers import stragglers
from dpscale.figures.usage import devices, startup, timeline, utilization

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
PRINT_FORMATS = ("svg", "pdf")
CAPTION = "txt"  # of a figure for print: what stands beside it
PRINTED = (*(f"{width}.{kind}" for width in PRINT_WIDTHS for kind in PRINT_FORMATS), CAPTION)  # endings of its files
SOURCE = {
    "svg": "Source",
    "pdf": "Keywords",
    "png": "Source",
}  # the field of each format that says what it was made from
UNDATED: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def is_explained(experiment: ExperimentConfig) -> bool:
    return experiment.explain or any(variant.explain for variant in experiment.strategies.values())


def is_monitored(experiment: ExperimentConfig) -> bool:
    return experiment.monitor_interval_s is not None


def has_references(experiment: ExperimentConfig) -> bool:
    return bool(experiment.references)


def has_collectives(experiment: ExperimentConfig) -> bool:
    return bool(experiment.collectives.operations)


def is_predicted(experiment: ExperimentConfig) -> bool:
    return experiment.prediction.calibrate_up_to is not None


FIGURES: dict[str, FigureRow] = {
    "comparison": FigureRow(question="What does each way to train cost?", tables=("summary",), draw=comparison),
    "speedup": FigureRow(question="How much faster do N devices train than one?", tables=("summary",), draw=speedup),
    "efficiency": FigureRow(question="What share of N devices is put to use?", tables=("summary",), draw=efficiency),
    "epoch_time": FigureRow(question="How long does an epoch take on N devices?", tables=("summary",), draw=epoch_time),
    "differences": FigureRow(
        question="Which way to train is faster, beyond noise?", tables=("summary", "comparisons"), draw=differences
    ),
    "published": FigureRow(
        question="What is measured here, and what have others published?",
        tables=("summary", "published"),
        draw=published,
        is_for=has_references,
    ),
    "loss": FigureRow(question="Does it learn the same?", tables=("summary", "losses"), draw=loss),
    "evaluation": FigureRow(question="How fast is the test set evaluated?", tables=("summary",), draw=evaluation),
    "causes": FigureRow(
        question="Where does a step's time go?", tables=("summary", "causes"), draw=causes, is_for=is_explained
    ),
    "causes_by_rank": FigureRow(
        question="Where does each rank's time go?",
        tables=("summary", "causes", "stragglers"),
        draw=causes_by_rank,
        is_for=is_explained,
    ),
    "stragglers": FigureRow(
        question="Which rank comes late?", tables=("summary", "stragglers"), draw=stragglers, is_for=is_explained
    ),
    "utilization": FigureRow(question="How busy are N devices?", tables=("summary",), draw=utilization),
    "utilization_per_device": FigureRow(
        question="Is one device busier than the others?",
        tables=("summary", "monitor"),
        draw=devices,
        is_for=is_monitored,
    ),
    "utilization_over_time": FigureRow(
        question="How busy is each device over time?",
        tables=("summary", "timeline"),
        draw=timeline,
        is_for=is_monitored,
    ),
    "startup": FigureRow(question="How long is it to the first step?", tables=("summary", "startup"), draw=startup),
    "bus_bandwidth": FigureRow(
        question="How much do collectives carry?", tables=("collectives",), draw=bus_bandwidth, is_for=has_collectives
    ),
    "collective_time": FigureRow(
        question="How long does a collective take?",
        tables=("collectives",),
        draw=collective_time,
        is_for=has_collectives,
    ),
    "prediction": FigureRow(
        question="What will more devices take?", tables=("prediction",), draw=prediction, is_for=is_predicted
    ),
}
# of two result sets and of no experiment: compare.py draws it
OF_TWO_SETS: dict[str, FigureRow] = {
    "changes": FigureRow(
        question="What became faster or slower, beyond noise?", tables=("changes", "environment_changes"), draw=changes
    ),
}


def render(
    name: str, tables: Tables, settings: FigureConfig, formats: Sequence[str] = FORMATS, source: str | None = None
) -> dict[str, bytes]:
    """Format -> the file of the figure of that name: the same bytes for the same tables.

    Args:
        source: kept in the file, for those who ask what it was made from.
    """
    from matplotlib import rc_context

    with rc_context(style(name, settings)):  # some of it is for drawing, some for saving
        return _saved(make_figure(name, tables, settings), settings, formats, source)


def render_for_print(name: str, tables: Tables, settings: FigureConfig, source: str | None = None) -> dict[str, bytes]:
    """Ending of a file -> its content: the figure in each width of print, without a title and a foot, and both as text."""
    from matplotlib import rc_context

    files: dict[str, bytes] = {}
    caption = ""
    for width, look in settings.printed.items():
        with rc_context(style(name, look)):
            figure = make_figure(name, tables, look, captioned=False)
            saved = _saved(figure, look, PRINT_FORMATS, source)
        files |= {f"{width}.{kind}": content for kind, content in saved.items()}
        caption = caption_of(figure)
    question = (FIGURES | OF_TWO_SETS)[name].question
    return files | {CAPTION: f"{question}\n\n{caption}\n".encode()}


def _saved(figure: Figure, settings: FigureConfig, formats: Sequence[str], source: str | None) -> dict[str, bytes]:
    files = {}
    for kind in formats:
        file = BytesIO()
        metadata = UNDATED[kind] | ({} if source is None else {SOURCE[kind]: source})
        figure.savefig(file, format=kind, dpi=settings.png_dpi, metadata=metadata)
        files[kind] = file.getvalue()
    return files


def make_figure(name: str, tables: Tables, settings: FigureConfig, captioned: bool = True) -> Figure:
    """The figure of that name, in the style that is set.

    Args:
        captioned: with its title and foot in it, as on a screen; in print they are a caption beside it.
    """
    from matplotlib.figure import Figure

    row = (FIGURES | OF_TWO_SETS)[name]
    size = (settings.width_mm / MM_PER_INCH, height_mm(settings) / MM_PER_INCH)
    figure = Figure(figsize=size, layout="constrained")
    if captioned:
        entitle(figure, row.question, settings)
    row.draw(figure, tables, settings)
    keep_to_page(figure)
    return figure
