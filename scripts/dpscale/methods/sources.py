"""Where the methods that were used come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpscale.methods.study import Section, Study

if TYPE_CHECKING:
    import pandas as pd

CONOVER = "W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2: intervals of medians by order statistics."
BOOTSTRAP = "B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13: intervals of ratios."
TUKEY = "J. W. Tukey, Exploratory Data Analysis, 1977: fences beyond which a launch is marked as an outlier."
KENDALL = "R. M. Hirsch, J. R. Slack and R. A. Smith, Water Resources Research 18, 1982: the seasonal Kendall test of a drift."
RANKS = "H. B. Mann and D. R. Whitney's rank test, with S. Holm's adjustment for many pairs and N. Cliff's delta."
LINEAR_SCALING = (
    "P. Goyal et al., Accurate, large minibatch SGD, 2017: the learning rate in proportion to the global batch."
)
NCCL_TESTS = "NVIDIA nccl-tests: algorithm and bus bandwidth of collectives."


def sources(study: Study) -> Section:
    return Section("Sources of the methods", [[text] for text in _sources(study)])


def _sources(study: Study) -> Iterator[str]:
    good = study.tables["summary"][study.tables["summary"].status == "ok"]
    if _has_intervals(good.spread):
        yield CONOVER
    if _has_intervals(good.speedup_spread):
        yield BOOTSTRAP
    if len(good):
        yield TUKEY
    if (good.repeats > 1).any():
        yield KENDALL
    if study.tables["comparisons"].p_value_holm.notna().any():
        yield RANKS
    if study.trial.optimizer.get("lr_reference_batch"):
        yield LINEAR_SCALING
    if (study.tables["collectives"].status == "ok").any():
        yield NCCL_TESTS


def _has_intervals(spreads: pd.Series) -> bool:
    return any("interval" in str(spread) for spread in spreads.dropna())
