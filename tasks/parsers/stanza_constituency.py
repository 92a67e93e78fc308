"""Stanza's trainer of constituency parsers, with scores of our own: its own ones come from CoreNLP, in Java.

Run as a program, `python -m phrasemodels.tasks.parsers.stanza_constituency ...`, with the options of stanza.models.constituency_parser.
"""

import sys
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from phrasemodels.data.formats.trees import parse
from phrasemodels.tasks.metrics.parseval import compare


class Evaluator:
    """In place of stanza.server.parser_eval.EvaluateParser."""

    def __init__(self, **options: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def process(self, results: Sequence[Any]) -> SimpleNamespace:
        """F1 over all trees, and of each: (gold, predictions)."""
        counts = [compare(parse(str(r.gold)), parse(str(_tree(r.predictions[0])))) for r in results]
        sums = [sum(getattr(c, name) for c in counts) for name in ("matched", "gold", "found")]
        each = [2 * c.matched / max(1, c.gold + c.found) for c in counts]
        whole = 2 * sums[0] / max(1, sums[1] + sums[2])
        return SimpleNamespace(f1=whole, kbestF1=None, treeF1=each, HasField=lambda name: False)


def _tree(prediction: Any) -> Any:
    return prediction[0] if isinstance(prediction, tuple) else prediction


def main(arguments: Sequence[str]) -> None:
    """Train."""
    from stanza.models import constituency_parser
    from stanza.models.constituency import parser_training

    parser_training.EvaluateParser = Evaluator
    constituency_parser.main(list(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
