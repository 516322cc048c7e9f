"""An experiment's methods, in words fit for a paper: every sentence from its plan, its records and its tables.

study.py holds what is known; what.py, how.py and absent.py say it, section by section; page.py shows it. A sentence stands only
where its fact does: what a record does not tell is not told.
"""

from __future__ import annotations

from dpscale.methods.absent import excluded, not_measured
from dpscale.methods.how import measuring, statistics
from dpscale.methods.sources import sources
from dpscale.methods.study import Section, Study
from dpscale.methods.what import design, machine, software, workload


def sections_of(study: Study) -> list[Section]:
    """All that there is to say."""
    parts = (design, machine, software, workload, measuring, statistics, excluded, not_measured, sources)
    return [section for part in parts if not (section := part(study)).is_empty]
