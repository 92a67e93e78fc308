"""Structured inference: log Z, marginals, best structures, samples and entropy of chains, trees and spans.

Structures are modules (`structs.chain`, `structs.eisner`, ...), and distributions over them classes of `structs.distributions`, which are
names of this package, too. Both are imported at their first use.
"""

from typing import Any

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
_DISTRIBUTIONS = (
    "DependencyTree",
    "HiddenMarkov",
    "JointTree",
    "LabelledSpans",
    "LinearChain",
    "MonotoneAlignment",
    "Parse",
    "SemiMarkovChain",
)
_NAMES = {"CRF": "crf", "TreeCRF": "crf", "warm": "dispatch", **dict.fromkeys(_DISTRIBUTIONS, "distributions")}


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted((*_MODULES, *_NAMES))


def __getattr__(name: str) -> Any:
    """Import a module, or a name of one, at its first use."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(__dir__())}")
