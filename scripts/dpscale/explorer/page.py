"""What goes into the page: one JSON payload, our style and scripts, and the plotting library, so that it asks nobody for more."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpscale.explorer.cells import cells_of, looks_of, trials_of
from dpscale.explorer.marks import DASHES, MARKS
from dpscale.explorer.views import Views
from dpscale.figures.causes import PARTS

if TYPE_CHECKING:
    from dpscale.config import FigureConfig
    from dpscale.figures.drawing import Tables

TABLES = ("summary", "timings", "records", "causes", "prediction")  # that it is made from
HERE = Path(__file__).parent
SCRIPTS = (
    "data",
    "theme",
    "views",
    "filters",
    "list",
    "details",
    "main",
)  # in the order in which they build on each other


def render(experiment: str, tables: Tables, settings: FigureConfig, rerun: str, source: str) -> str:
    """The page, the same bytes for the same tables.

    Args:
        rerun: the command that measures a trial again, without its record, which follows it.
        source: what it was made from, with a digest.
    """
    library, ours = _library(), "\n".join((HERE / f"{name}.js").read_text() for name in SCRIPTS)
    parts = {
        "policy": _policy(library, ours),
        "experiment": escape(experiment),
        "source": escape(source),
        "style": (HERE / "style.css").read_text(),
        "payload": embedded(_payload(experiment, tables, settings, rerun)),
        "library": library,
        "scripts": ours,
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda mark: parts[mark[1]], (HERE / "template.html").read_text())


def digest_of_parts() -> str:
    """Of what is no Python in a page of ours, which a digest of code leaves out."""
    parts = [HERE / "template.html", HERE / "style.css", *(HERE / f"{name}.js" for name in SCRIPTS)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in parts)).hexdigest()[:16]


def _payload(experiment: str, tables: Tables, settings: FigureConfig, rerun: str) -> dict[str, Any]:
    cells = cells_of(tables)
    return {
        "experiment": experiment,
        "rerun": rerun,
        "cells": cells,
        "trials": trials_of(tables),
        "looks": looks_of(tables["summary"], settings),
        "signs": {mark.name: mark.sign for mark in MARKS},
        "dashes": dict(zip(dict.fromkeys(cells["launcher"]), DASHES * len(cells["launcher"]), strict=False)),
        "parts": PARTS,
        "document": _document(Views(tables["summary"].devices.tolist(), cells["devices"], settings)),
    }


def _document(views: Views) -> dict[str, Any]:
    """The views as Bokeh embeds them: each in the element of its name."""
    from bokeh.document import Document

    document, plots = Document(), views.all()
    for plot in plots.values():
        document.add_root(plot)
    places = {plot.id: f"view-{name}" for name, plot in plots.items()}
    item = {"docid": "views", "roots": places, "root_ids": list(places)}
    return {"documents": {"views": document.to_json(deferred=False)}, "items": [item]}


def _library() -> str:
    """Bokeh's, as its package brings it."""
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="error").js_raw)


def embedded(payload: Any) -> str:
    """JSON that no text within can break out of: `</script>` or `<!--` would end or hide what follows."""
    return json.dumps(payload, allow_nan=False, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _policy(*scripts: str) -> str:
    """Content-Security-Policy: these scripts and no others, and no network. Bokeh styles its own elements."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
