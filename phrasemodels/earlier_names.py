"""Earlier names of modules, classes and functions: saved configurations and code that use them still work.

`earlier_names.tsv` has a line for each module that was renamed or joined with others, `OLD.MODULE <tab> MODULE`, and one for each
name that did not move with its module, `OLD.MODULE:NAME <tab> MODULE:NAME`. `present_name` follows them; after `install`, an
import of an earlier module gives the present names with a DeprecationWarning. Who moves or renames a part adds a line.
"""

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

TABLE = Path(__file__).with_name("earlier_names.tsv")


@cache
def earlier_names() -> dict[str, str]:
    """Return the table: present modules, or names, by earlier ones."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


def present_name(name: str) -> str:
    """Return the present name of a part, "module:name"; a name that never changed is returned as it is."""
    table, seen = earlier_names(), {name}
    while True:
        module, _, attribute = name.partition(":")
        newer = table.get(name) or (f"{table[module]}:{attribute}" if module in table else name)
        if newer in seen:
            return name
        seen.add(newer)
        name = newer


@cache
def _earlier_packages() -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in earlier_names() if ":" not in name)


class _EarlierModule(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        module, _, present = present_name(f"{self.__name__}:{attribute}").partition(":")
        if attribute.startswith("__") or module == self.__name__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(module), present)


class _PresentModule(ModuleType):
    """Keeps its own names: after an import Python sets a module as an attribute of its parent."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, _EarlierModule) or name not in vars(self):
            super().__setattr__(name, value)


class _EarlierModules(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("phrasemodels."):
            return None
        # as Python would find it: with the hooks of debuggers and others, and without hooks of a kind that it passes over
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is None:
            if fullname not in earlier_names():
                return None
            package = fullname in _earlier_packages()
            return importlib.machinery.ModuleSpec(fullname, self, origin=str(TABLE), is_package=package)
        if spec.submodule_search_locations is None and fullname in _earlier_packages():
            spec.submodule_search_locations = []  # a module that was a package: Python looks for modules in packages alone
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {earlier_names()[spec.name]}", DeprecationWarning, stacklevel=2)
        return _EarlierModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Let the import of a module leave what its parent, now a module itself, has under the same name."""
        parent, _, child = module.__name__.rpartition(".")
        present = sys.modules[parent]
        if type(present) is ModuleType and child in vars(present):
            present.__class__ = _PresentModule


def install() -> None:
    """Let imports of earlier modules succeed."""
    if not any(isinstance(finder, _EarlierModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EarlierModules())
