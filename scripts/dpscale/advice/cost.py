"""What an epoch costs: device time, and money at a price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpscale.advice.cells import Cell
from dpscale.advice.least import Least, least, withheld
from dpscale.advice.ranking import Candidate, Ranking, rank
from dpscale.advice.sentences import SHOWN, Evidence, Sentence
from dpscale.advice.settings import AdviceConfig
from dpscale.advice.words import amount, as_given
from dpscale.tables.cells import floats

SECONDS_PER_HOUR = 3600
DEVICE_HOURS = Least(
    about="device_hours",
    does="takes the least device time",
    did="took the least device time",
    noun="device time",
    unit="device-hours",
    file="timings.csv",
    columns=("devices", "epoch_time_s"),
    small=(SECONDS_PER_HOUR, "device-seconds"),
)
MONEY = replace(
    DEVICE_HOURS, about="money", does="costs the least money", did="cost the least money", noun="money", small=None
)


def _ranked(found: Sequence[Cell], price: float) -> Ranking | None:
    def costs(cell: Cell) -> list[float]:
        return [price * cell.devices * time_s / SECONDS_PER_HOUR for time_s in floats(cell.launches, "epoch_time_s")]

    return rank([Candidate(cell, costs(cell)) for cell in found])


def device_hours(found: Sequence[Cell], absent: Sequence[Cell], by_time: Ranking | None) -> Sentence:
    """Of cells that train one model; with the price of the fastest one's speed, which is that of `by_time`."""
    ranking = _ranked(found, price=1)
    said = least(DEVICE_HOURS, ranking, absent)
    if ranking is None or by_time is None:
        return said
    speed = next((duel for duel in ranking.won if duel.other.cell.name == by_time.best.cell.name), None)
    slower = {duel.other.cell.name for duel in by_time.won}
    if speed is None or ranking.best.cell.name not in slower:
        return said
    paid = f"The speed of {speed.other.cell.name} costs {amount(speed.versus.ratio, 'times')} as much device time."
    return replace(said, why=f"{said.why} {paid}", next_steps=said.next_steps or ("Choose: sooner, or cheaper.",))


def money(found: Sequence[Cell], absent: Sequence[Cell], settings: AdviceConfig) -> Sentence:
    price = settings.price_per_device_hour
    if price is None:
        key = "advice.price_per_device_hour"
        return withheld(MONEY, "no price is given", f"the price of a device-hour: {key}", f"Set {key}.")
    ranking = _ranked(found, price)
    said = least(replace(MONEY, unit=settings.currency), ranking, absent)
    if said.support == SHOWN:
        said = replace(said, next_steps=())
    given = Evidence("config.yaml", ("price_per_device_hour", "currency"), ("advice",))
    at_price = f"At {as_given(price)} {settings.currency} per device-hour."
    return replace(said, why=f"{said.why} {at_price}".strip(), follows_from=[*said.follows_from, given])
