"""Which cell has the least of something that launches cost (time, device time, energy), as far as launches can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpscale import statistics
from dpscale.advice.cells import Cell
from dpscale.statistics import Estimate
from dpscale.tables.cells import FASTER, TOO_FEW, Versus


@dataclass(frozen=True)
class Candidate:
    """A cell, and what each of its launches costs per epoch."""

    cell: Cell
    costs: list[float]

    @property
    def samples(self) -> float:
        """Of an epoch: cells of other batches drop other remainders."""
        return float(self.cell.summary.train_samples_per_epoch)

    @property
    def estimate(self) -> Estimate:
        return statistics.estimate(self.costs)

    def versus(self, other: Candidate) -> Versus:
        """By samples per cost, so that more is better, as with throughput."""
        ratio = statistics.ratio(other.costs, self.costs).times(self.samples / other.samples)
        mine, others = ([one.samples / cost for cost in one.costs] for one in (self, other))
        return Versus(ratio, statistics.rank_test(mine, others), min(len(self.costs), len(other.costs)))


@dataclass(frozen=True)
class Duel:
    """The best against another candidate; the ratio is how many times as much the other one costs."""

    other: Candidate
    versus: Versus
    verdict: str

    @property
    def won(self) -> bool:
        return self.verdict == FASTER

    @property
    def too_few(self) -> bool:
        return self.verdict.startswith(TOO_FEW)

    @property
    def separated(self) -> bool:
        """Whether every launch of the best cost less than every one of the other, which may be chance."""
        return self.versus.test.cliffs_delta == 1


@dataclass(frozen=True)
class Ranking:
    best: Candidate  # by the medians
    duels: list[Duel]
    needed: int  # launches of each from which on a difference could be shown at all

    @property
    def won(self) -> list[Duel]:
        """In the order of their costs."""
        return sorted((duel for duel in self.duels if duel.won), key=lambda duel: duel.versus.ratio.value)

    @property
    def open(self) -> list[Duel]:
        """In the order of their costs."""
        return sorted((duel for duel in self.duels if not duel.won), key=lambda duel: duel.versus.ratio.value)

    @property
    def too_few(self) -> list[Duel]:
        return [duel for duel in self.duels if duel.too_few]

    @property
    def contenders(self) -> list[Cell]:
        """Of which one is the best, and which it is is open."""
        return [self.best.cell, *(duel.other.cell for duel in self.open)]


def rank(candidates: Sequence[Candidate]) -> Ranking | None:
    """The best by the medians against each other one; None without any.

    p-values are adjusted for as many pairs as there are others (Bonferroni). That the best was chosen by the same data is
    no harm: to name a wrong one is to find it faster than the true best, and of the pairs with that one there are no more
    (Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with the best", Annals of Statistics 12,
    1984).
    """
    if not candidates:
        return None
    best = min(candidates, key=lambda one: one.estimate.value / one.samples)
    others = [one for one in candidates if one is not best]
    needed = statistics.repeats_needed(max(1, len(others)))
    duels = []
    for other in others:
        versus = best.versus(other)
        duels.append(Duel(other, versus, versus.verdict(min(1.0, versus.test.p_value * len(others)), needed)))
    return Ranking(best, duels, needed)
