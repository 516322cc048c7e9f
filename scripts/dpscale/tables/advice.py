"""Rows that say what to do, with what each follows from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpscale.advice.sentences import QUESTIONS, Sentence
from dpscale.tables.schema import frame

if TYPE_CHECKING:
    import pandas as pd


def make_table(experiment: str, sentences: Sequence[Sentence]) -> pd.DataFrame:
    """The table `advice` of one experiment: a row for each sentence."""
    return frame(
        "advice",
        [
            {
                "experiment": experiment,
                "about": said.about,
                "question": QUESTIONS[said.about],
                "support": said.support,
                "verdict": said.verdict,
                "why": said.why,
                "next_step": " ".join(said.next_steps),
                "missing": said.missing,
                "cell": said.cell,
                **({} if said.estimate is None else _numbers(said)),
                "follows_from": "; ".join(map(str, said.follows_from)),
                "warnings": "; ".join(said.warnings),
            }
            for said in sentences
        ],
    )


def _numbers(said: Sentence) -> dict[str, float | str]:
    assert said.estimate is not None
    return {
        "value": said.estimate.value,
        "value_low": said.estimate.low,
        "value_high": said.estimate.high,
        "spread": said.estimate.spread,
        "unit": said.unit,
    }
