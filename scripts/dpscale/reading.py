"""Files that a user writes, configurations and others of keys with values, as YAML has them, but for what YAML would pass over in silence: a key that is there twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from dpscale.errors import UserError, shown

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where it is there: ten times as fast
REMEDY = "mend it there or in the line before: quotes and brackets are closed, and lines indented with spaces alone"


def read_config(path: Path) -> dict[str, Any]:
    """As `read_keys`."""
    return read_keys(path, "experiments:")


def read_keys(path: Path, such_as: str) -> dict[str, Any]:
    """What is written in a file of keys with values; nothing where it is empty.

    Raises:
        UserError: it can't be read, is no YAML, has no keys or one twice, or holds itself; names the file and the place.
    """
    try:
        text = path.read_text()
        root = yaml.compose(text, Loader=LOADER)
        _refuse_repeated_keys(path, root)
        _refuse_what_holds_itself(path, root, set(), set())
        data = yaml.load(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        raise UserError(f"{path}: {_described(error)}; {REMEDY}") from None
    except UserError:
        raise
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; mend it") from None
    except ValueError as error:  # such as a date that is none, or bytes that are no text
        raise UserError(f"{path}: {error}; mend it") from None
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{path}: top level: keys with values are expected here, such as {such_as}")
    return data or {}


def merged_configs(paths: Iterable[Path]) -> dict[str, Any]:
    """As Snakemake merges them: what comes later goes over what was before, key by key."""
    from snakemake.utils import update_config

    merged: dict[str, Any] = {}
    for path in paths:
        update_config(merged, read_config(path))
    return merged


def _described(error: yaml.MarkedYAMLError) -> str:
    """Where the parser gave up, and in the midst of what, which may have begun far above."""
    place, begun = error.problem_mark or error.context_mark, error.context_mark
    if place is None:
        return f"no YAML: {error.problem}"
    said = f"line {place.line + 1}, column {place.column + 1}: no YAML: {error.problem}"
    if begun is None or begun.line == place.line or not error.context:
        return said
    return f"{said} ({error.context} that begins in line {begun.line + 1})"


def _refuse_repeated_keys(path: Path, root: yaml.Node | None) -> None:
    """YAML's own reader takes the last and forgets the others, an experiment as well as a number.

    Raises:
        UserError: names the first such key, with both lines.
    """
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))  # an anchor stands in several places
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            waiting.append(value)
            if not isinstance(key, yaml.ScalarNode):
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise UserError(f"{path}: line {line}: {shown(key.value)} is in line {lines[name]} already; keep one")
            lines[name] = line


def _refuse_what_holds_itself(path: Path, node: yaml.Node | None, within: set[int], done: set[int]) -> None:
    """An alias to what it stands in is YAML, and what follows it through goes on for ever.

    Raises:
        UserError: names the line in which the first such value begins.
    """
    if not isinstance(node, yaml.CollectionNode) or id(node) in done:
        return
    if id(node) in within:
        raise UserError(f"{path}: line {node.start_mark.line + 1}: an alias (*) puts this value into itself; remove it")
    children = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
    for child in children:
        _refuse_what_holds_itself(path, child, within | {id(node)}, done)
    done.add(id(node))
