"""Sections -> one page that opens without a network, in light and dark, on paper too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dpscale.methods.study import Section, Table
from dpscale.pages import html_page

STYLE = """\
:root { color-scheme: light dark; --line: #8888; }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 Georgia, "Times New Roman", serif; }
h1, h2, th { font-family: system-ui, sans-serif; }
h2 { margin-top: 2rem; font-size: 1.15rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; }
th, td { padding: 0.3rem 0.6rem 0.3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
"""


def page(experiment: str, sections: Sequence[Section]) -> str:
    """HTML: the same for the same sections."""
    title = f"Methods of {experiment}"
    lines = [f"<h1>{escape(title)}</h1>", *(line for section in sections for line in _section(section))]
    return html_page(title, STYLE, "\n".join(lines))


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    yield from (f"<p>{escape(' '.join(sentences))}</p>" for sentences in section.paragraphs if sentences)
    for table in section.tables:
        if table.rows:
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield '<div class="wide" tabindex="0"><table>'
    header = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    yield f"<thead><tr>{header}</tr></thead>"
    yield "<tbody>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"
