"""Predict the rest of a published scaling table from its rows on few devices: what each family of rows would reach on more,
with an 80 % interval, and how that and simple laws compare with what was measured there. docs/published.md explains it."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median

from tabulate import tabulate

from dpscale.errors import UserError, entry_point
from dpscale.files import refuse_output, write_atomically
from dpscale.published import FACTS, HARDWARE, METRICS, Published, read_published, value_of
from dpscale.scaling_model.laws import LAWS
from dpscale.scaling_model.observed import Family, Layout, calibration
from dpscale.scaling_model.reduced import Form, Prior, fit_prior
from dpscale.scaling_model.validation import (
    CUTS,
    Group,
    Outcome,
    absolute_errors,
    accuracy,
    compare_forms,
    coverage,
    leave_out,
    predict_family,
    score,
    validate,
    validate_choice,
)

REFERENCES = Path(__file__).parents[1] / "workflow" / "references" / "published.csv"
LEFT_OUT: dict[str, Group] = {"leave-one-system-out": "system", "leave-one-source-out": "source"}


def targets_of(family: Family, up_to: int, asked: Sequence[Layout]) -> list[Layout]:
    """Measured beyond the calibration, and asked for; if there is neither, two and four times as many nodes."""
    beyond = [point for point in family.points if point.devices > up_to]
    known = {(point.nodes, point.devices) for point in beyond}
    targets = [*beyond, *(layout for layout in asked if (layout.nodes, layout.devices) not in known)]
    if targets:
        return targets
    last = calibration(family.points, up_to)[-1]
    return [Layout(last.nodes * times, last.devices * times) for times in (2, 4)]


def predict_all(
    families: Iterable[Family], up_to: int, asked: Sequence[Layout], prior: Callable[[Family], Prior]
) -> tuple[list[Outcome], list[tuple[Family, str]]]:
    """Outcomes, and the families of which nothing can be said, each with what is missing."""
    outcomes: list[Outcome] = []
    refused = []
    for family in families:
        try:
            calibration(family.points, up_to)
        except UserError as error:
            refused.append((family, str(error)))
            continue
        outcomes += predict_family(family, targets_of(family, up_to, asked), up_to, prior(family), Form())
    return outcomes, refused


def percent(part: float | None) -> str:
    return "n/a" if part is None else f"{100 * part:+.1f} %"


def show_family(family: Family, outcomes: Sequence[Outcome], up_to: int) -> None:
    used = ", ".join(map(str, calibration(family.points, up_to)))
    origin = ", ".join(filter(None, (family.source, family.gpu, family.interconnect)))
    print(f"\n{family.name}\n{origin}; {family.metric} in {family.unit}, from {used}")
    rows = []
    for outcome in outcomes:
        value, low, high = values_of(outcome)
        measured = None if outcome.measured is None else value_of(family, outcome.measured, outcome.target.devices)
        rows.append(
            [
                str(outcome.target),
                "n/a" if measured is None else f"{measured:.5g}",
                f"{value:.5g} [{low:.5g}, {high:.5g}]",
                "calibrated from" if outcome.is_calibrating else {None: "", True: "hit", False: "miss"}[outcome.hit],
                percent(outcome.error()),
                *(percent(outcome.error(law)) for law in LAWS),
            ]
        )
    print(tabulate(rows, ["nodes x gpus", "measured", "predicted [80 %]", "", "error", *LAWS], disable_numparse=True))


def values_of(outcome: Outcome) -> tuple[float, float, float]:
    """Predicted, low and high, in the table's own metric."""
    prediction = outcome.prediction
    value, *ends = (
        value_of(outcome.family, time, outcome.target.devices)
        for time in (prediction.step_time, prediction.low, prediction.high)
    )
    return value, min(ends), max(ends)


def summary(measured: Sequence[Outcome]) -> str:
    errors = absolute_errors(measured)
    return (
        f"mean {100 * mean(errors):.2f} %, median {100 * median(errors):.2f} %; "
        f"{100 * coverage(measured):.1f} % of the points in their 80 % intervals"
    )


def show_accuracy(outcomes: Sequence[Outcome]) -> None:
    """Of those that were measured, and not calibrated from."""
    measured = [outcome for outcome in outcomes if outcome.to_compare is not None]
    if not measured:
        print("\nno family has measured points beyond its calibration: nothing to compare with")
        return
    families = len({outcome.family for outcome in measured})
    print(f"\nabsolute error of the time per step, {families} families, {len(measured)} points: {summary(measured)}\n")
    rows = [
        [
            each.law,
            each.points,
            *(100 * part for part in (each.mean, each.median, each.predicted_mean, each.predicted_median)),
        ]
        for each in accuracy(measured)
    ]
    heads = ["law", "points", "mean, %", "median, %", "prediction: mean, %", "median, %"]
    print(tabulate(rows, heads, floatfmt=".2f"))


def show_validation(families: Sequence[Family], up_to: int, left_out: str) -> list[Outcome]:
    group = LEFT_OUT[left_out]
    outcomes = validate(families, group, up_to, Form())
    print(f"{left_out}, calibrated on up to {up_to} devices")
    show_accuracy(outcomes)
    rows = []
    for own in dict.fromkeys(getattr(outcome.family, group) for outcome in outcomes):
        of_it = [outcome for outcome in outcomes if getattr(outcome.family, group) == own]
        errors = absolute_errors(of_it)
        rows.append([own, len(of_it), 100 * mean(errors), 100 * median(errors), 100 * coverage(of_it)])
    print()
    print(tabulate(rows, [group, "points", "mean, %", "median, %", "in intervals, %"], floatfmt=".1f"))
    try:
        print(f"\nforms chosen without the {group}, too: {summary(validate_choice(families, group, up_to))}")
    except UserError as error:
        print(f"\nforms chosen without the {group}, too: n/a: {error}")
    print("\nforms, best first: mean / median absolute error, %, calibrated on up to so many devices")
    show_forms(families, left_out)
    return outcomes


def show_forms(families: Sequence[Family], left_out: str) -> None:
    found = compare_forms(families, LEFT_OUT[left_out])
    rows = [
        [
            form.spread,
            f"{form.half_counted:g}",
            f"{form.misfit:g}",
            "system" if form.by_system else "point",
            *(
                f"{100 * mean(by_cut[cut]):.2f} / {100 * median(by_cut[cut]):.2f}" if cut in by_cut else "n/a"
                for cut in CUTS
            ),
            f"{100 * score(by_cut):.3f}",
        ]
        for form, by_cut in sorted(found.items(), key=lambda item: score(item[1]))
    ]
    heads = ["spread", "half_counted", "misfit", "equal weights of", *map(str, CUTS), "mean over the cuts"]
    print(tabulate(rows, heads, disable_numparse=True))


def write_outcomes(path: Path, outcomes: Iterable[Outcome], up_to: int) -> None:
    """One row for each prediction, in the table's own metric; errors are of the time per step."""
    heads = [
        *FACTS,
        *HARDWARE,
        "software",
        "metric",
        "unit",
        "calibrated_up_to",
        "nodes",
        "gpus",
        "predicted",
        "low",
        "high",
    ]
    heads += ["measured", "hit", "step_time_error_percent", *(f"{law}_step_time_error_percent" for law in LAWS)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for outcome in outcomes:
        family, target = outcome.family, outcome.target
        measured = None if outcome.measured is None else value_of(family, outcome.measured, target.devices)
        errors = [outcome.error(), *(outcome.error(law) for law in LAWS)]
        facts = [getattr(family, fact) for fact in (*FACTS, *HARDWARE, "software", "metric", "unit")]
        writer.writerow(
            [
                *facts,
                up_to,
                target.nodes,
                target.devices,
                *(f"{value:.6g}" for value in values_of(outcome)),
                "" if measured is None else f"{measured:.6g}",
                "" if outcome.hit is None else str(outcome.hit).lower(),
                *("" if error is None else f"{100 * error:.4f}" for error in errors),
            ]
        )
    write_atomically(path, text.getvalue().encode())


def layout(text: str) -> Layout:
    """4x8: four nodes of eight devices."""
    found = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no nodes x devices, such as 4x8")
    nodes, per_node = map(int, found.groups())
    return Layout(nodes, nodes * per_node)


def devices(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of devices")
    return int(text)


def show_ignored(table: Published) -> None:
    if table.other_metrics:
        rows = ", ".join(f"{metric} ({count})" for metric, count in table.other_metrics.items())
        print(f"rows that tell no time (known: {', '.join(METRICS)}) are left out: {rows}")


def show_refused(refused: Iterable[tuple[Family, str]]) -> None:
    by_reason: dict[str, list[Family]] = {}
    for family, reason in refused:
        by_reason.setdefault(reason, []).append(family)
    for reason, families in by_reason.items():
        print(f"\nnot predicted, {reason}:")
        for family in families:
            print(f"  {family.name} ({', '.join(filter(None, (family.metric, family.gpu, family.interconnect)))})")


def show_predictions(table: Published, args: argparse.Namespace) -> list[Outcome]:
    known = read_published(args.prior).families
    outcomes, refused = predict_all(table.families, args.calibrate_up_to, args.at, leave_out(known, "system", Form()))
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        show_family(family, [each for each in outcomes if each.family == family], args.calibrate_up_to)
    show_refused(refused)
    if not outcomes:
        raise UserError(f"{args.table}: no family can be predicted, for the reasons above")
    show_accuracy(outcomes)
    prior = fit_prior(known, Form())
    print(
        f"\nprior of all of {args.prior.name} (a family's own system is left out of its prior): a doubling costs "
        f"{prior.per_overhead:.3f} of the counted overhead, a second node {prior.node_factor:.3f} doublings, deviations from "
        f"{prior.low:.3f} to {prior.high:.3f}; systems: {', '.join(prior.systems)}"
    )
    return outcomes


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="CSV with the columns of workflow/references/published.csv")
    parser.add_argument("--calibrate-up-to", type=devices, default=8, metavar="N", help="devices; default: %(default)s")
    parser.add_argument(
        "--at", type=layout, nargs="+", default=[], metavar="NxG", help="predict also N nodes of G devices"
    )
    parser.add_argument("--prior", type=Path, default=REFERENCES, help="the table that the prior is learnt from")
    parser.add_argument(
        "--validate", choices=LEFT_OUT, help="learn the prior from the table itself, and compare all forms"
    )
    parser.add_argument("--out", type=Path, help="a CSV file for the predictions")
    args = parser.parse_args()
    if args.out:
        refuse_output(args.out, [args.table, args.prior])
    table = read_published(args.table)
    show_ignored(table)
    if args.validate:
        outcomes = show_validation(table.families, args.calibrate_up_to, args.validate)
    else:
        outcomes = show_predictions(table, args)
    if args.out:
        write_outcomes(args.out, outcomes, args.calibrate_up_to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
