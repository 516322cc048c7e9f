"""Advice as one page to read: HTML that needs nothing else, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from dpscale.advice.sentences import PARTLY, QUESTIONS, SHOWN, WITHHELD, Sentence
from dpscale.pages import html_page

MARKS = {SHOWN: "●", PARTLY: "◐", WITHHELD: "○"}  # beside the word, for those who see no colours
STYLE = """\
:root { color-scheme: light dark; --faint: color-mix(in srgb, currentColor 70%, transparent); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .3rem; } p, dl { margin: .3rem 0; }
section { overflow-wrap: anywhere; }
.short { border: 1px solid var(--faint); border-radius: .4rem; padding: .2rem 1rem 1rem; }
.verdict { font-weight: 600; } .withheld .verdict { font-weight: 400; }
.support, dt, summary { color: var(--faint); font-size: .85rem; }
dl { display: grid; grid-template-columns: 5.5rem 1fr; gap: .1rem .8rem; } dd { margin: 0; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } }
"""


def page(experiment: str, sentences: Sequence[Sentence]) -> str:
    """The whole page, with what it comes to first."""
    sections = "\n".join(_sections(sentences))
    body = f"""\
<h1>What to do: {escape(experiment)}</h1>
<p class="support">A cell is strategy/launcher/topology, a topology nodes x devices per node. What intervals do not support is
withheld, with what is missing. The same, with numbers, is in tables/advice.csv.</p>
{sections}"""
    return html_page(f"Advice: {experiment}", STYLE, body)


def _sections(sentences: Iterable[Sentence]) -> Iterator[str]:
    for about, answers in groupby(sentences, key=lambda said: said.about):
        box = ' class="short"' if about == "in_short" else ""
        yield f"<section{box}>\n<h2>{QUESTIONS[about]}</h2>"
        yield from map(_answer, answers)
        yield "</section>"


def _answer(said: Sentence) -> str:
    rows = {
        "why": said.why,
        "next": " ".join(said.next_steps),
        "missing": said.missing,
        "warning": "; ".join(said.warnings),
    }
    lines = "\n".join(f"<dt>{name}</dt><dd>{_html(text)}</dd>" for name, text in rows.items() if text)
    evidence = "<br>".join(escape(str(row)) for row in said.follows_from)
    return f"""<div class="{said.support.replace(" ", "-")}">
<p class="verdict">{_html(said.verdict)}</p>
<p class="support">{MARKS[said.support]} {said.support}</p>
{f"<dl>{lines}</dl>" if lines else ""}
{f"<details><summary>follows from</summary><p>{evidence}</p></details>" if evidence else ""}
</div>"""


def _html(text: str) -> str:
    """Commands stand between backticks."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))
