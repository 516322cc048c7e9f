"""Which source files a script really runs, and a digest of them that ignores comments and docstrings.

Snakemake does not follow imports, and it would re-run a trial for a comment. So rules carry this digest as a param.
Of the table packages (STRATEGIES, MODELS, DATASETS) a trial's digest holds only its own row's module: adding a row
re-runs nothing.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).parents[1]
TABLES = ("dpscale.strategies", "dpscale.workloads.models", "dpscale.workloads.datasets")


def module_path(module: str) -> Path | None:
    """The file of one of our modules; None for anybody else's."""
    if module.partition(".")[0] != "dpscale":
        return None
    base = SCRIPTS.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def imported_modules(path: Path) -> frozenset[str]:
    """Our modules that a file imports anywhere outside `if TYPE_CHECKING:`, inside functions too."""

    def found(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from found(child)

    return frozenset(module for module in found(_parsed(path)) if module_path(module))


def _with_packages(module: str) -> Iterator[str]:
    """Importing a.b.c runs a and a.b first."""
    parts = module.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def source_files(script: Path, rows: Collection[str] = ()) -> list[Path]:
    """The script and every module of ours that it runs. Tables themselves are left out; of their rows, only `rows`.

    Args:
        rows: modules of rows, such as "dpscale.strategies.ddp".
    """
    files: set[Path] = {script}
    waiting = [*rows, *imported_modules(script)]
    seen: set[str] = set()
    while waiting:
        for module in _with_packages(waiting.pop()):
            if module in seen:
                continue
            seen.add(module)
            path = module_path(module)
            if path is None or module in TABLES:
                continue
            files.add(path)
            waiting.extend(imported_modules(path))
    return sorted(files)


def row_module(table: str, name: str) -> str:
    """The module that a row of a table lives in, from the table's own source.

    Raises:
        LookupError: the table has no row of that name, or not as `name: module.ROW`.
    """
    path = module_path(table)
    assert path is not None, table
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name and isinstance(value, ast.Attribute):
                    return f"{table}.{ast.unparse(value.value)}"
    raise LookupError(f"{path}: no row {name!r} written as {name!r}: module.ROW")


def digest(files: Collection[Path]) -> str:
    """Digest of what the files do: their syntax trees without docstrings; comments and layout don't matter."""
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(path.relative_to(SCRIPTS).as_posix().encode() + b"\0" + _tree_of(path).encode() + b"\0")
    return whole.hexdigest()[:16]


@cache
def _tree_of(path: Path) -> str:
    tree = ast.parse(path.read_text(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


@cache
def digest_of(scripts: tuple[str, ...], rows: tuple[str, ...] = ()) -> str:
    """`digest` of scripts in scripts/, by their file names, and of all that they import."""
    return digest({path for script in scripts for path in source_files(SCRIPTS / script, rows)})


@cache
def trial_code(base: str, model: str, launcher: str) -> str:
    """Digest of all code that one trial runs: launching, its launcher, training, its strategy's and model's rows."""
    rows = (row_module("dpscale.strategies", base), row_module("dpscale.workloads.models", model))
    return digest_of(("launch.py", f"{launcher}.py", "train.py"), rows)


@cache
def search_code(base: str, model: str, launcher: str) -> str:
    """Digest of all code that the search for a cell's largest batch runs: its own, and that of its launches."""
    rows = (row_module("dpscale.strategies", base), row_module("dpscale.workloads.models", model))
    return digest_of(("largest_batch.py", "launch.py", f"{launcher}.py", "train.py"), rows)


def prepare_code(dataset: str) -> str:
    """Digest of the code that prepares one dataset."""
    return digest_of(("prepare.py",), (row_module("dpscale.workloads.datasets", dataset),))
