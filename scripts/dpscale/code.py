"""Which source files a script really runs, and a digest of them that ignores comments and docstrings.

Snakemake does not follow imports, and it would re-run a trial for a comment. So rules carry this digest as a param.
Of the table packages (STRATEGIES, MODELS, DATASETS) a trial's digest holds only its own row's module: adding a row
re-runs nothing. Of a model or dataset of the user's own it holds the module, and what that imports from beside it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dpscale import own
from dpscale.errors import UserError

SCRIPTS = Path(__file__).parents[1]
TABLES = ("dpscale.strategies", "dpscale.workloads.models", "dpscale.workloads.datasets")

BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # imports are statements: no expression has any


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
    return frozenset(module for module in _imports(_parsed(path)) if module_path(module))


def _imports(tree: ast.Module, package: str = "") -> Iterator[str]:
    """Modules that are imported, and what is imported from them, which may be modules too.

    Args:
        package: of the tree's module, for relative imports.
    """

    def found(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            if module := ".".join(filter(None, [*above, node.module])):  # else it fails when it runs
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
        for block in BLOCKS:
            for child in getattr(node, block, None) or ():
                yield from found(child)

    yield from found(tree)


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


def own_sources(name: str) -> dict[str, Path]:
    """Module -> file, of a factory of the user's own and of what it imports from beside it or from its own package.

    Raises:
        UserError: it is not found, or is no Python.
    """
    factory = name.partition(":")[0]
    found = {factory: own.source_file(name)}
    waiting = [factory]
    while waiting:
        module = waiting.pop()
        package = module if found[module].name == "__init__.py" else module.rpartition(".")[0]
        try:
            imports = set(_imports(_parsed(found[module]), package))
        except (SyntaxError, ValueError) as error:
            raise UserError(f"{found[module]}: {error}; mend it") from None
        for imported in {parent for target in {factory, *imports} for parent in _with_packages(target)} - found.keys():
            path = own.module_file(imported) if _is_beside(imported, factory) else None
            if path is not None:
                found[imported] = path
                waiting.append(imported)
    return found


def _is_beside(module: str, factory: str) -> bool:
    """Not a library's: of the factory's own package, or below a folder where modules of one's own are looked for."""
    top = module.partition(".")[0]
    if top == factory.partition(".")[0]:
        return True
    return any((folder / top).is_dir() or (folder / f"{top}.py").is_file() for folder in own.search_folders())


def digest(files: Collection[Path], own_files: Mapping[str, Path] = MappingProxyType({})) -> str:
    """Digest of what the files do: their syntax trees without docstrings; comments and layout don't matter.

    Args:
        own_files: module -> file, of the user's own, wherever they lie.
    """
    named = {path.relative_to(SCRIPTS).as_posix(): path for path in files}
    named |= {f"own:{module}": path for module, path in own_files.items()}
    whole = hashlib.sha256()
    for name, path in sorted(named.items()):
        whole.update(name.encode() + b"\0" + _tree_of(path).encode() + b"\0")
    return whole.hexdigest()[:16]


@cache
def _tree_of(path: Path) -> str:
    tree = _parsed(path)  # docstrings are taken out of it for good: nothing else here looks at them
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
def digest_of(scripts: tuple[str, ...], rows: tuple[str, ...] = (), own_names: tuple[str, ...] = ()) -> str:
    """`digest` of scripts in scripts/, by their file names, and of all that they import.

    Args:
        own_names: factories of the user's own that they import, as package.module:factory.
    """
    own_files = {module: path for name in own_names for module, path in own_sources(name).items()}
    return digest({path for script in scripts for path in source_files(SCRIPTS / script, rows)}, own_files)


@cache
def trial_code(base: str, model: str, launcher: str) -> str:
    """Digest of all code that one trial runs: launching, its launcher, training, its strategy's row, and its model."""
    rows, own_names = _code_of("dpscale.workloads.models", model)
    scripts = ("launch.py", f"{launcher}.py", "train.py", "sample.py", "tag.py")
    return digest_of(scripts, (row_module("dpscale.strategies", base), *rows), own_names)


@cache
def search_code(base: str, model: str, launcher: str) -> str:
    """Digest of all code that the search for a cell's largest batch runs: its own, and that of its launches."""
    rows, own_names = _code_of("dpscale.workloads.models", model)
    scripts = ("largest_batch.py", "launch.py", f"{launcher}.py", "train.py", "tag.py")
    return digest_of(scripts, (row_module("dpscale.strategies", base), *rows), own_names)


@cache
def collectives_code(launcher: str) -> str:
    """Digest of all code that times collectives under a launcher."""
    return digest_of(("launch_collectives.py", f"{launcher}.py", "time_collectives.py", "tag.py"))


def flops_code(model: str) -> str:
    """Digest of the code that counts a model's operations."""
    return digest_of(("count_flops.py",), *_code_of("dpscale.workloads.models", model))


def prepare_code(dataset: str) -> str:
    """Digest of the code that prepares one dataset."""
    return digest_of(("prepare.py",), *_code_of("dpscale.workloads.datasets", dataset))


def _code_of(table: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(modules of rows, factories of the user's own): where a model or a dataset lives."""
    return ((), (name,)) if own.is_own(name) else ((row_module(table, name),), ())
