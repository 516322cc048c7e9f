"""Models and datasets of the user's own, `package.module:factory`: their names, where their code lies, their import.

Ranks and prepare.py import them; Snakemake only looks for their source, so that a change of it measures again.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpscale.errors import UserError

FACTORY = re.compile(r"[a-z_]\w*(\.[a-z_]\w*)*:[a-z_]\w*", re.ASCII | re.IGNORECASE)
FOLDERS = "DPSCALE_MODULES"  # environment variable: where to look first, joined like a PATH
SCRIPTS = Path(__file__).parents[1]


def is_own(name: str) -> bool:
    """No row of a table has a colon in its name."""
    return ":" in name


def is_well_formed(name: str) -> bool:
    return FACTORY.fullmatch(name) is not None


def folder_name(dataset: str) -> str:
    """The name of a dataset's prepared folder. No Python name has a hyphen, and a colon would divide a PATH or a bind."""
    return dataset.replace(":", "-")


def dataset_of(folder_name: str) -> str:
    """The inverse of `folder_name`."""
    return folder_name.replace("-", ":")


def search_folders() -> list[Path]:
    """Where modules of one's own are looked for first: beside the configuration, then the current folder."""
    given = os.environ.get(FOLDERS)
    return [Path(folder) for folder in given.split(os.pathsep)] if given else [Path.cwd()]


def module_file(module: str) -> Path | None:
    """The source of a module, by its name alone: nothing is imported."""
    parts = module.split(".")
    for folder in search_folders():
        if found := _below(folder, parts):
            return found
    try:
        spec = importlib.util.find_spec(parts[0])  # of a top-level name: imports nothing
    except ValueError:  # such as __main__
        return None
    if spec is None:
        return None
    if len(parts) == 1 and spec.origin is not None and spec.origin.endswith(".py"):
        return Path(spec.origin)
    return next(filter(None, (_below(Path(place), parts[1:]) for place in spec.submodule_search_locations or ())), None)


def _below(folder: Path, parts: list[str]) -> Path | None:
    place = folder.joinpath(*parts)
    candidates = [place / "__init__.py", *([place.with_name(f"{parts[-1]}.py")] if parts else [])]
    return next((path for path in candidates if path.is_file()), None)


def source_file(name: str) -> Path:
    """The source of `package.module:factory`.

    Raises:
        UserError: there is none where ranks would look for it, or it would be one of ours.
    """
    module = name.partition(":")[0]
    path = module_file(module)
    if (SCRIPTS / f"{module.split('.')[0]}.py").is_file() or module.split(".")[0] == "dpscale":
        raise UserError(f"{module} is a module of dpscale itself, which would be taken; give yours another name")
    if path is None:
        folders = ", ".join(map(str, search_folders()))
        file = f"{module.replace('.', '/')}.py"
        raise UserError(f"no {file} in {folders}, nor is it installed here; put it there, beside the configuration")
    return path


def load(name: str) -> Callable[..., Any]:
    """Import a factory.

    Raises:
        UserError: no such module, or nothing of that name in it that can be called. Errors of its own code pass through.
    """
    module_name, _, attribute = name.partition(":")
    folders = [str(folder) for folder in search_folders()]
    sys.path[1:1] = [folder for folder in folders if folder not in sys.path]  # behind this script's own folder
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise UserError(f"{name}: no module {error.name!r} in {', '.join(folders)} and none installed") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise UserError(f"{name}: {module.__file__} has no function {attribute!r}; define it, or name another")
    return factory


def call(name: str, **arguments: Any) -> Any:
    """What a factory makes of these arguments.

    Raises:
        UserError: it does not take them.
    """
    factory = load(name)
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise UserError(f"{name}: {error}; it is called with ({given})") from None
    return factory(**arguments)
