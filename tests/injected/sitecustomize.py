"""Read at the start of every Python process of a launch that a test makes with `inject=...`.

Each change waits for the import of the module it belongs to, so that a process which never needs torch never loads it.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport:
    """Runs `change` when `module` has been imported."""

    def __init__(self, module: str, change: Callable[[], None]) -> None:
        self.module, self.change = module, change

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            self.change()

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


for name in filter(None, os.environ.get("DPSCALE_TEST_INJECT", "").split(",")):
    import armed  # noqa: F401 - its changes are among them
    from changes import CHANGES

    sys.meta_path.insert(0, AfterImport(*CHANGES[name]))
