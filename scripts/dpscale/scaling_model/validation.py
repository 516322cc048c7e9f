"""How good predictions for published tables are: each is made without the system (or source) that it is for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Literal

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model.laws import LAWS
from dpscale.scaling_model.observed import Family, Layout, Point, calibration, spelt_alike
from dpscale.scaling_model.reduced import SPREADS, Form, Prediction, Prior, fit_prior, predict

Group = Literal["system", "source"]
CUTS = (2, 4, 8, 16)  # devices up to which a family is calibrated, to choose the form
FORMS = tuple(
    Form(spread=spread, half_counted=half_counted, by_system=by_system)
    for spread, half_counted, by_system in itertools.product(SPREADS, (0.3, 0.5, 1.0, math.inf), (True, False))
) + tuple(Form(misfit=misfit) for misfit in (0.015, 0.03, 0.08, 0.15))


@dataclass(frozen=True)
class Outcome:
    """A prediction, the points that it was made from, and what was measured, if it was."""

    family: Family
    calibration: tuple[Point, ...]
    target: Layout
    prediction: Prediction
    measured: float | None

    @property
    def is_calibrating(self) -> bool:
        """Whether it was made from what was measured there: then it predicts nothing."""
        return any(
            (point.nodes, point.devices) == (self.target.nodes, self.target.devices) for point in self.calibration
        )

    @property
    def to_compare(self) -> float | None:
        """What it can be held against: a measured time that it was not made from."""
        return None if self.is_calibrating else self.measured

    @property
    def hit(self) -> bool | None:
        """Whether that time lies in the interval."""
        found = self.to_compare
        return None if found is None else self.prediction.low <= found <= self.prediction.high

    def error(self, law: str | None = None) -> float | None:
        """Of the time per step, as a part of the measured one: of the prediction, or of a law through the same points."""
        time, found = self.prediction.step_time if law is None else self.said_by(law), self.to_compare
        return None if found is None or time is None else time / found - 1

    def said_by(self, law: str) -> float | None:
        """A law's time per step; None where the points are too few for it, or where it falls below zero."""
        try:
            curve = LAWS[law](*zip(*((point.devices, point.step_time) for point in self.calibration), strict=True))
        except UserError:
            return None
        time = float(curve(np.array([self.target.devices]))[0])
        return time if time > 0 else None


@dataclass(frozen=True)
class Accuracy:
    """Mean and median absolute error of a law, and of the predictions for the same points. In parts of 1."""

    law: str
    points: int
    mean: float
    median: float
    predicted_mean: float
    predicted_median: float


def leave_out(known: Sequence[Family], group: Group, form: Form) -> Callable[[Family], Prior]:
    """The prior for a family, from those of other systems (or sources) alone: of other names, whatever their case and blanks.
    Raises UserError where they are too few."""
    fitted: dict[str, Prior] = {}

    def prior(family: Family) -> Prior:
        own = spelt_alike(getattr(family, group))
        if own not in fitted:
            fitted[own] = fit_prior([other for other in known if spelt_alike(getattr(other, group)) != own], form)
        return fitted[own]

    return prior


def predict_family(family: Family, targets: Iterable[Layout], up_to: int, prior: Prior, form: Form) -> list[Outcome]:
    """Of these targets, from the family's points on at most so many devices.

    Raises:
        UserError: those are too few.
    """
    points = calibration(family.points, up_to)
    measured = {(point.nodes, point.devices): point.step_time for point in family.points}
    return [
        Outcome(
            family,
            tuple(points),
            target,
            predict(points, target, prior, form),
            measured.get((target.nodes, target.devices)),
        )
        for target in targets
    ]


def validate(families: Sequence[Family], group: Group, up_to: int, form: Form) -> list[Outcome]:
    """Of every measured point beyond the calibration of its family, if that has two numbers of devices."""
    prior = leave_out(families, group, form)
    outcomes = []
    for family in families:
        beyond = [point for point in family.points if point.devices > up_to]
        try:
            calibration(family.points, up_to)
        except UserError:
            continue
        if beyond:
            outcomes += predict_family(family, beyond, up_to, prior(family), form)
    return outcomes


def accuracy(outcomes: Iterable[Outcome]) -> list[Accuracy]:
    """Of every law that says something of a measured point."""
    outcomes = list(outcomes)
    found = []
    for law in LAWS:
        pairs = [(law_error, outcome.error()) for outcome in outcomes if (law_error := outcome.error(law)) is not None]
        if pairs:
            errors, predicted = ([abs(error) for error in column] for column in zip(*pairs, strict=True))
            found.append(Accuracy(law, len(pairs), mean(errors), median(errors), mean(predicted), median(predicted)))
    return found


def absolute_errors(outcomes: Iterable[Outcome]) -> list[float]:
    return [abs(error) for outcome in outcomes if (error := outcome.error()) is not None]


def coverage(outcomes: Iterable[Outcome]) -> float:
    """The share of measured points in their intervals. Raises statistics.StatisticsError if there is none."""
    return mean(float(outcome.hit) for outcome in outcomes if outcome.hit is not None)


def compare_forms(
    families: Sequence[Family], group: Group, forms: Iterable[Form] = FORMS, cuts: Sequence[int] = CUTS
) -> dict[Form, dict[int, list[float]]]:
    """Form -> cut -> absolute errors. Cuts beyond which nothing was measured are left out."""
    found = {form: {cut: absolute_errors(validate(families, group, cut, form)) for cut in cuts} for form in forms}
    return {form: {cut: errors for cut, errors in by_cut.items() if errors} for form, by_cut in found.items()}


def validate_choice(families: Sequence[Family], group: Group, up_to: int) -> list[Outcome]:
    """As validate, but a system's (or source's) form is the one of the least error on the others, too.

    Raises:
        UserError: the others are too few to choose by.
    """
    outcomes = []
    for own in dict.fromkeys(getattr(outcome.family, group) for outcome in validate(families, group, up_to, Form())):
        others = [family for family in families if getattr(family, group) != own]
        scores = {form: score(by_cut) for form, by_cut in compare_forms(others, "system").items()}
        chosen = validate(families, group, up_to, min(scores, key=scores.__getitem__))
        outcomes += [outcome for outcome in chosen if getattr(outcome.family, group) == own]
    return outcomes


def score(by_cut: Mapping[int, Sequence[float]]) -> float:
    """What a form is chosen by: its mean absolute error, averaged over the cuts."""
    return mean(mean(errors) for errors in by_cut.values())
