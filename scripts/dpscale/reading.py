"""The file of a configuration, as YAML has it, but for what YAML would pass over in silence: a key that is there twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dpscale.errors import UserError, shown

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where it is there: ten times as fast


def read_config(path: Path) -> dict[str, Any]:
    """What is written in it; nothing where it is empty.

    Raises:
        UserError: it can't be read, is no YAML, has no keys, or has one twice.
    """
    try:
        text = path.read_text()
        refuse_repeated_keys(path)
        data = yaml.load(text, Loader=LOADER)
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}; mend it") from None
    except ValueError as error:  # such as a date that is none, or bytes that are no text
        raise UserError(f"{path}: {error}; mend it") from None
    if data is not None and not isinstance(data, dict):
        raise UserError(f"{path}: top level: keys with values are expected here, such as experiments:")
    return data or {}


def refuse_repeated_keys(path: Path) -> None:
    """YAML's own reader takes the last and forgets the others, an experiment as well as a number. What is no YAML is left
    to who reads it.

    Raises:
        UserError: names the first such key, with both lines.
    """
    try:
        waiting, seen = [yaml.compose(path.read_text(), Loader=LOADER)], set()
    except yaml.YAMLError:
        return
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
