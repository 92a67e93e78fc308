"""Layers, encoders and models that attend to phrases: tensors in, tensors out; and `Parser`, a trained parser for text."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phrasemodels.parsing.parser import Parser

__all__ = ["Parser"]


def __getattr__(name: str) -> Any:
    if name == "Parser":  # imported when it is asked for, as it needs torch
        from phrasemodels.parsing.parser import Parser

        return Parser
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
