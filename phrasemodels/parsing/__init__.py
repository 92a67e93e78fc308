"""A trained parser for use: text to sentences, words, trees, heads, relations and tags. Needs torch, numpy, numba and
safetensors alone."""

from phrasemodels.parsing.parse import Parse
from phrasemodels.parsing.parser import Parser

__all__ = ["Parse", "Parser"]
