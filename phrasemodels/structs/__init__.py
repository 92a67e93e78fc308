"""Structured inference: log Z, marginals, best structures, samples and entropy of chains, trees and spans."""

import importlib
from typing import Any

from phrasemodels.structs.calls import warm as warm

_MODULES = (
    "alignment",
    "chain",
    "crf",
    "distributions",
    "eisner",
    "joint",
    "nonprojective",
    "pcfg",
    "second_order",
    "semimarkov",
    "semiring",
    "spans",
    "sparsemap",
)


def __getattr__(name: str) -> Any:
    """Import a module at its first use: `from phrasemodels import structs; structs.chain`."""
    if name in _MODULES:
        return importlib.import_module(f"phrasemodels.structs.{name}")
    raise AttributeError(f"phrasemodels.structs has no {name!r}; its modules are {', '.join(_MODULES)}")
