"""Stanza's training program for constituency parsers, with our scores in place of CoreNLP's, which need Java.

Run it as `python -m phrasemodels.tasks.parsers.stanza_constituency`, with the options of stanza.models.constituency_parser.
"""

import sys
from collections.abc import Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from phrasemodels.data.formats.trees import parse
from phrasemodels.tasks.metrics.parseval import match_brackets


class Evaluator:
    """Takes the place of stanza.server.parser_eval.EvaluateParser."""

    def __init__(self, **options: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def process(self, results: Sequence[Any]) -> SimpleNamespace:
        """Return F1 over all trees, and of each tree; a result has `gold` and `predictions`."""
        counts = [match_brackets(parse(str(r.gold)), parse(str(_tree(r.predictions[0])))) for r in results]
        sums = [sum(getattr(c, name) for c in counts) for name in ("matched", "gold", "predicted")]
        each = [2 * c.matched / max(1, c.gold + c.predicted) for c in counts]
        whole = 2 * sums[0] / max(1, sums[1] + sums[2])
        return SimpleNamespace(f1=whole, kbestF1=None, treeF1=each, HasField=lambda name: False)


def _tree(prediction: Any) -> Any:
    return prediction[0] if isinstance(prediction, tuple) else prediction


def main(arguments: Sequence[str]) -> None:
    """Train with these options."""
    from stanza.models import constituency_parser
    from stanza.models.constituency import parser_training

    parser_training.EvaluateParser = Evaluator
    constituency_parser.main(list(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
