"""Layers, encoders and models with attention to phrases, and `Parser`, a trained parser for text.

`phrasemodels.load(folder)` reads an exported model, `phrasemodels.results()` the results of runs. The subpackages `structs`,
`layers`, `encoders` and `models` are imported on first use. All but `results` needs torch, numpy, numba, safetensors and
sacremoses alone.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phrasemodels.inference.inputs import levels, members
    from phrasemodels.inference.loaded import LoadedModel
    from phrasemodels.parsing.parser import Parse, Parser

__all__ = [
    "LoadedModel", "Parse", "Parser", "__version__", "encoders", "layers", "levels", "load", "members", "models", "opened_results",
    "results", "structs",
]  # fmt: skip
_NAMES = {  # they need torch
    "LoadedModel": "inference.loaded", "Parse": "parsing.parser", "Parser": "parsing.parser",
    "levels": "inference.inputs", "members": "inference.inputs",
}  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    import importlib

    if name in _NAMES:  # imported when it is asked for
        return getattr(importlib.import_module(f"phrasemodels.{_NAMES[name]}"), name)
    if name in ("encoders", "layers", "models", "structs"):
        return importlib.import_module(f"phrasemodels.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load(folder: Any, *parts: type) -> Any:
    """Load a folder of `phrasemodels export`: a `LoadedModel`, or the `Parser` of a packed parser.

    Args:
        parts: Your own classes in the model's configuration.

    Raises:
        ValueError: The folder is neither, or damaged.
    """
    from phrasemodels.parsing.saved import ABOUT
    from phrasemodels.saved import LIBRARY

    place = Path(folder)
    if (place / ABOUT).is_file():
        return __getattr__("Parser").load(place)
    if not (place / LIBRARY).is_file():
        raise ValueError(
            f"{place}: neither {ABOUT} nor {LIBRARY} is there; write it with `phrasemodels export` or `pack`"
        )
    from phrasemodels.inference.loaded import load_folder

    return load_folder(place, *parts)


def results(question: str = "verdicts", kind: str = "") -> Any:
    """Return results as a DataFrame: a view of `phrasemodels sql`, or the answer to a query.

    They are the runs of the store and the kept results.

    Args:
        kind: polars, pandas or arrow. Default: the first installed one. Needs phrasemodels[pipeline].
    """
    with opened_results() as known:
        return known.ask(question, kind)


def opened_results() -> Any:
    """Return the results at this moment, for several questions: `with opened_results() as db: db.ask("from verdicts")`.

    A view is made when a question first names it, and kept for the next ones.
    """
    from phrasemodels.flows.results.records import open_to_read
    from phrasemodels.flows.results.sql import Answers

    return Answers(*open_to_read())
