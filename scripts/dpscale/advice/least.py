"""A ranking in words: which cell has the least of what is asked for, which may have, or why that can't be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpscale.advice.cells import Cell, evidence_of, other_precision, reasons_of, to_measure, warnings_of
from dpscale.advice.ranking import Ranking
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import AT_MOST, FIRST, amount, cells_named, decimals, number
from dpscale.statistics import Estimate
from dpscale.words import counted

SET_REPEATS = "Set repeats:"
MAKE_MORE = "Run `make more`, which repeats the cells that need it."
NEAR = 1.05  # times the best median: up to there fewer devices are advised
AT_LEAST = 6  # launches that it makes of each
NARROWER = "Run `make MORE=1 more`, for narrower intervals."


@dataclass(frozen=True)
class Least:
    """What is asked for, as the sentences say it."""

    about: str
    does: str  # `trains fastest`
    did: str  # `trained fastest`
    noun: str  # `time`: what an epoch takes
    unit: str
    file: str  # that the costs are from
    columns: tuple[str, ...]
    small: tuple[float, str] | None = (
        None  # how many make one of `unit`, and what they are: for what is less than a hundredth
    )

    def shown(self, costs: Estimate) -> str:
        if self.small is not None and costs.value < 0.01:
            return amount(costs.times(self.small[0]), self.small[1])
        return amount(costs, self.unit)


def least(asked: Least, ranking: Ranking | None, absent: Sequence[Cell]) -> Sentence:
    """The answer. Where it is shown, the next step is left to who asks."""
    if ranking is None:
        because = "no cell that trains a model was measured"
        said = withheld(asked, because, "launches of at least two cells", to_measure(absent))
        return replace(said, why=reasons_of(absent), follows_from=evidence_of(absent))
    name, costs = ranking.best.cell.name, asked.shown(ranking.best.estimate)
    shared = Sentence(
        about=asked.about,
        support=WITHHELD,
        verdict="",
        cell=name,
        estimate=ranking.best.estimate,
        unit=asked.unit,
        follows_from=[Evidence(asked.file, asked.columns, _names(ranking))],
        warnings=_cautions(ranking),
    )
    if not ranking.duels:
        return replace(
            shared,
            verdict=f"Which cell {asked.does} can't be said: {name} is the only one; an epoch took {costs}.",
            why=reasons_of(absent),
            missing="launches of another strategy, launcher or topology",
            next_steps=(to_measure(absent) if absent else "Add strategies or topologies to the experiment.",),
            follows_from=[*shared.follows_from, *evidence_of(absent)],
        )
    if not ranking.open:
        return replace(
            shared,
            support=SHOWN,
            verdict=f"{name} {asked.does}: an epoch takes {costs}.",
            why=_beyond_noise(asked, ranking),
        )
    undecided = replace(shared, missing=_missing(ranking), next_steps=_next_steps(ranking))
    if _are_equal(ranking):
        equal = f"all launches of {cells_named([cell.name for cell in ranking.contenders])} are equal"
        return replace(undecided, verdict=f"Which cell {asked.does} can't be said: {equal}, {costs} an epoch.")
    if not ranking.won:
        return replace(
            undecided,
            verdict=f"Which cell {asked.does} can't be said. So far {name} {asked.did}: {costs} an epoch.",
            why=" ".join(_open(asked, ranking)),
        )
    names = [cell.name for cell in ranking.contenders]
    return replace(
        undecided,
        support=PARTLY,
        verdict=f"{cells_named(names, last='or')} {asked.does}, which of them is open: in {name} an epoch takes {costs}.",
        why=" ".join([*_open(asked, ranking), _beyond_noise(asked, ranking)]),
    )


def withheld(asked: Least, because: str, missing: str, *next_steps: str) -> Sentence:
    verdict = f"Which cell {asked.does} can't be said: {because}."
    return Sentence(about=asked.about, support=WITHHELD, verdict=verdict, missing=missing, next_steps=next_steps)


def _cautions(ranking: Ranking) -> tuple[str, ...]:
    """Of all that is compared; and that they may not be the same training."""
    compared = [ranking.best.cell, *(duel.other.cell for duel in ranking.duels)]
    return (*warnings_of(compared), *filter(None, [other_precision(ranking.best.cell, compared)]))


def _names(ranking: Ranking) -> tuple[str, ...]:
    return (ranking.best.cell.name, *(duel.other.cell.name for duel in ranking.duels))


def _beyond_noise(asked: Least, ranking: Ranking) -> str:
    """Which others are shown to take more, and how much more the nearest of them takes."""
    nearest = ranking.won[0]
    name, much = nearest.other.cell.name, _as_much(nearest.versus.ratio)
    if len(ranking.won) == 1:
        return f"{name} takes {much} {asked.noun}, which is beyond noise."
    others = f"{len(ranking.won)} other cells" if ranking.open else f"All {len(ranking.won)} other cells"
    return f"{others} take more {asked.noun}, beyond noise: the nearest, {name}, {much}."


def _as_much(ratio: Estimate) -> str:
    """Of very little more, how much that is: three digits of a ratio would show none of it."""
    if ratio.low < 1.01:
        value, low, high = (100 * (end - 1) for end in (ratio.value, ratio.low, ratio.high))
        return amount(Estimate(value, low, high, ratio.spread), "% more")
    return f"{amount(ratio, 'times')} as much"


def _open(asked: Least, ranking: Ranking) -> Iterator[str]:
    """What is known of those that the best is not shown to be better than."""
    few = [(duel, duel.versus.fewest_repeats) for duel in ranking.too_few]
    if few:
        fewest = min(count for _, count in few)
        yield f"With {counted(fewest, 'launch', 'launches')} a difference can't be told from chance: it takes {ranking.needed} of each."
    if apart := [duel.other.cell.name for duel, _ in few if duel.separated]:
        yield f"All launches of {cells_named(apart)} took more."
    if among := [duel.other.cell.name for duel, _ in few if not duel.separated]:
        yield f"Launches of {cells_named(among)} lie among its own."
    undecided = [duel for duel in ranking.open if not duel.too_few]
    shown = undecided if len(undecided) <= AT_MOST else undecided[:FIRST]
    for duel in shown:
        yield _undecided(duel.other.cell.name, duel.versus.ratio, asked.noun)
    if more := len(undecided) - len(shown):
        yield f"{more} other cells are as undecided."


def _undecided(name: str, ratio: Estimate, noun: str) -> str:
    if ratio.low == ratio.high == 1:
        return f"All launches of {name} took as much {noun}."
    between = f"from {_percent(ratio.low)} to {_percent(ratio.high)} {noun} ({ratio.spread})"
    if ratio.low > 1:
        return f"{name} takes {between}, but the rank test does not show it."
    return f"{name} may take {between}."


def _percent(ratio: float) -> str:
    """`3.2 % less` of 0.968."""
    percent = 100 * abs(ratio - 1)
    return f"{number(percent, max(1, decimals(percent)) if percent < 0.1 else 1)} % {'less' if ratio < 1 else 'more'}"


def _are_equal(ranking: Ranking) -> bool:
    """All cells, in all launches, of which there are enough."""
    ratios = [duel.versus.ratio for duel in ranking.open]
    return not ranking.won and not ranking.too_few and all(ratio.low == ratio.high == 1 for ratio in ratios)


def _missing(ranking: Ranking) -> str:
    names = cells_named([cell.name for cell in ranking.contenders])
    if ranking.too_few:
        return f"launches: {ranking.needed} of each of {names}"
    if _are_equal(ranking):
        return f"a difference between {names}: all launches are equal"
    return f"launches of {names}: so many that their intervals part"


def _next_steps(ranking: Ranking) -> tuple[str, ...]:
    if ranking.too_few:
        return (MAKE_MORE if ranking.needed <= AT_LEAST else f"{SET_REPEATS} {ranking.needed}.",)
    best = ranking.best.cell
    times = {best.name: 1.0, **{duel.other.cell.name: duel.versus.ratio.value for duel in ranking.open}}
    near = [cell for cell in ranking.contenders if times[cell.name] <= NEAR]
    fewest = min(near, key=lambda cell: (cell.devices, times[cell.name]))
    if len(near) == 1:
        why = "which has the best median by far"
    elif any(cell.devices == fewest.devices and cell is not fewest for cell in near):
        why = "with the best median of those on the fewest devices"
    else:
        why = "of these the one with the fewest devices"
    if times[fewest.name] > 1:
        why += f": its median is {number(times[fewest.name])} times that of {best.name}"
    if _are_equal(ranking):
        return (f"Take {fewest.name}, {why}: all launches are equal.",)
    return (f"Take {fewest.name}, {why}; more launches may tell them apart.", NARROWER)
