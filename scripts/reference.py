"""Fill in the marked blocks of the documentation from the code: the config's keys, result columns, rows of tables.

python scripts/reference.py README.md docs/reference.md
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpscale.collectives.operations import OPERATIONS, Operation
from dpscale.config import Config
from dpscale.figures import FIGURES
from dpscale.launching.launchers import LAUNCHERS
from dpscale.references import REFERENCES
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import PRECISIONS
from dpscale.tables.schema import OF_TWO_SETS, TABLES
from dpscale.typed import Strict
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.models import MODELS
from dpscale.workloads.samples import described

Row = tuple[str, ...]
# as JSON schema names them, and as pydantic does where a limit stands beside null
LIMITS = {
    "≥": ("minimum", "ge"),
    ">": ("exclusiveMinimum", "gt"),
    "≤": ("maximum", "le"),
    "<": ("exclusiveMaximum", "lt"),
}
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) .*?-->\n).*?(<!-- end of generated -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text with every marked block made anew.

    Raises:
        KeyError: a block's name is none of BLOCKS.
    """
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def table(header: Row, rows: Iterable[Row]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


def config_keys() -> str:
    return table(("key", "values", "default", "meaning"), _keys(Config))


def _keys(model: type[Strict], place: str = "") -> Iterator[Row]:
    """A row for each key that holds a value; levels only lend their name to those below."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})

    def walk(properties: Mapping[str, Any], required: list[str], place: str) -> Iterator[Row]:
        for name, item in properties.items():
            level, path = _level(item, definitions), f"{place}{name}"
            if level is None:
                default = "required" if name in required else _default(item)
                yield f"`{path}`", _values(item), default, item.get("description", "")
            else:
                named = "additionalProperties" in item or "patternProperties" in item
                below = f"{path}.<name>." if named else f"{path}."
                yield from walk(level["properties"], level.get("required", []), below)

    yield from walk(schema["properties"], schema.get("required", []), place)


def _level(item: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The model behind a key, if there is one: its own, or that of each name below it."""
    below = [item.get("additionalProperties"), *item.get("patternProperties", {}).values()]
    for candidate in (item, *below):
        if isinstance(candidate, dict) and "$ref" in candidate:
            return definitions[candidate["$ref"].rpartition("/")[2]]
    return None


def _default(item: Mapping[str, Any]) -> str:
    if "default" not in item:  # made by a factory: an empty level
        return "empty"
    default = item["default"]
    if default == "":
        return "empty"
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    if default is None or isinstance(default, bool):
        return f"`{json.dumps(default)}`"
    return f"`{_plain(default)}`"


def _plain(value: object) -> str:
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _values(item: Mapping[str, Any]) -> str:
    if "anyOf" in item:
        return " or ".join(_values(one) for one in item["anyOf"])
    if "const" in item:
        return f"`{item['const']}`"
    if "enum" in item:
        return ", ".join(f"`{value}`" for value in item["enum"])
    if item["type"] == "array":
        length = f"{item['minItems']} x " if item.get("minItems") == item.get("maxItems", "any") else ""
        return f"list of {length}{_values(item['items'])}"
    limits = [f"{sign} {_plain(item[key])}" for sign, keys in LIMITS.items() for key in keys if key in item]
    names = {
        "integer": "whole number",
        "number": "number",
        "boolean": "`true`, `false`",
        "string": "text",
        "object": "keys and values",
        "null": "null",
    }
    return " ".join([names[item["type"]], " and ".join(limits)]).strip()


def options_of(rows: Mapping[str, Any]) -> str:
    """A row for each option of each row of a table; rows with the same options share theirs."""
    by_model: dict[type[Strict], list[str]] = {}
    for name, row in rows.items():
        if row.options.model_fields:
            by_model.setdefault(row.options, []).append(name)
    found = [
        (", ".join(f"`{name}`" for name in names), *cells)
        for model, names in by_model.items()
        for cells in _keys(model)
    ]
    return table(("row", "option", "values", "default", "meaning"), found)


def result_columns(name: str) -> str:
    """The columns of one table of the results; a value, its low and its high share a row."""
    columns = (TABLES | OF_TWO_SETS)[name]
    rows = []
    for column, meaning in columns.items():
        if column.endswith(("_low", "_high")) and column.rpartition("_")[0] in columns:
            continue
        ends = [f"`{column}_{end}`" for end in ("low", "high") if f"{column}_{end}" in columns]
        rows.append((", ".join([f"`{column}`", *ends]), meaning))
    return table(("column", "meaning"), rows)


def models() -> str:
    rows = [(f"`{name}`", row.summary, described(row.takes, row.sample_shape)) for name, row in MODELS.items()]
    return table(("name", "what it is", "takes"), rows)


def datasets() -> str:
    def cells(row: Dataset) -> Row:
        usual = row.samples(DatasetConfig())
        classes = "as found" if row.counts(DatasetConfig()) is None else str(usual.classes)
        settings = ", ".join(f"`{key}`" for key in row.settings)
        return row.summary, str(usual), classes, settings or "none"

    header = ("name", "what it is", "samples", "classes", "settings")
    return table(header, [(f"`{name}`", *cells(row)) for name, row in DATASETS.items()])


def published_files() -> str:
    """A row for each file that is fetched; datasets share no file."""
    rows = [
        (f"`{name}`", f"`{file}`", f"`{sha256}`")
        for name, row in DATASETS.items()
        if row.published is not None
        for file, sha256 in row.published.sha256.items()
    ]
    return table(("dataset", "file", "SHA-256"), rows)


def mirrors() -> str:
    rows = [
        (f"`{name}`", "<br>".join(f"<{mirror}>" for mirror in row.published.mirrors))
        for name, row in DATASETS.items()
        if row.published is not None
    ]
    return table(("dataset", "places, in the order in which they are asked"), rows)


def strategies() -> str:
    return table(
        ("name", "what it is", "devices", "precision", "launchers", "needs"),
        [
            (
                f"`{name}`",
                row.summary,
                _devices(row.min_devices, row.max_devices),
                "all" if row.precisions == PRECISIONS else ", ".join(row.precisions),
                "all" if row.launchers is None else ", ".join(row.launchers),
                row.requires or "torch",
            )
            for name, row in STRATEGIES.items()
        ],
    )


def _devices(fewest: int, most: int | None) -> str:
    if most is None:
        return f"{fewest} or more"
    return str(fewest) if most == fewest else f"{fewest} to {most}"


def launchers() -> str:
    def first_paragraph(function: Callable[..., Any]) -> str:
        return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")

    return table(("name", "what it is"), [(f"`{name}`", first_paragraph(row.argv)) for name, row in LAUNCHERS.items()])


def operations() -> str:
    def factor(row: Operation) -> str:
        known = {(1.0, 1.0): "1", (0.5, 0.75): "(n - 1) / n", (1.0, 1.5): "2 (n - 1) / n"}
        return known[row.busbw_factor(2), row.busbw_factor(4)]

    rows = [(f"`{name}`", row.summary, factor(row)) for name, row in OPERATIONS.items()]
    return table(("operation", "what it does", "busbw / algbw on n ranks"), rows)


def references() -> str:
    rows = [
        (f"`{name}`", row.summary, ", ".join(f"`{source}`" for source in row.sources))
        for name, row in REFERENCES.items()
    ]
    return table(("set", "what it is", "sources that begin with"), rows)


def figures() -> str:
    rows = [
        (f"`{name}`", row.question, ", ".join(f"`{table}`" for table in row.tables)) for name, row in FIGURES.items()
    ]
    return table(("figure", "question that it answers", "made from"), rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "config": config_keys,
    "strategies": strategies,
    "strategy-options": lambda: options_of(STRATEGIES),
    "models": models,
    "model-options": lambda: options_of(MODELS),
    "datasets": datasets,
    "mirrors": mirrors,
    "published-files": published_files,
    "launchers": launchers,
    "figures": figures,
    "references": references,
    "operations": operations,
    **{f"columns-{name}": lambda name=name: result_columns(name) for name in [*TABLES, *OF_TWO_SETS]},  # type: ignore[misc]
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, nargs="+", help="a page with marked blocks, to be rewritten")
    args = parser.parse_args()
    for path in args.page:
        path.write_text(filled(path.read_text()))


if __name__ == "__main__":
    main()
