"""Agreement of parses with a treebank over the same tokens: tags, heads, relations, brackets."""

from collections import Counter

import pyarrow as pa

from phrasemodels.data.formats.trees import Tree, parse
from phrasemodels.tasks.metrics.parseval import match_brackets

TAGS = {"universal": "upos", "tags": "xpos"}


def treebank_scores(gold: pa.Table, predicted: pa.Table) -> dict[str, float]:
    """Return percentages of agreement of two tables of TREES: upos, xpos, uas, las (relations before any colon), f1 (as
    EVALB counts it).

    A metric counts only the rows that have its annotation in the treebank; without any such row it is left out. A
    sentence that was not parsed counts as wrong. ValueError: the tables have different tokens.
    """
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for own, other in zip(gold.to_pylist(), predicted.to_pylist(), strict=True):
        if own["tokens"] != other["tokens"]:
            raise ValueError(f"row {own['id']}: other tokens were parsed than those of the treebank; parse its tokens")
        for column, name in TAGS.items():
            total[name] += len(own[column])
            right[name] += sum(map(str.__eq__, own[column], other[column]))
        total["uas"] += len(own["heads"])
        right["uas"] += sum(head == guess for head, guess in zip(own["heads"], other["heads"], strict=False))
        total["las"] += len(own["relations"])
        arcs = zip(own["heads"], own["relations"], other["heads"], other["relations"], strict=False)
        right["las"] += sum(h == guess and _main(r) == _main(name) for h, r, guess, name in arcs)
        if own["tree"]:
            tree = parse(own["tree"])
            found = parse(other["tree"]) if other["tree"] else Tree(tree.tokens, tree.tags, ())
            counts = match_brackets(tree, found._replace(tags=tree.tags))  # the treebank's tags say what is punctuation
            right["f1"] += 2 * counts.matched
            total["f1"] += counts.gold + counts.predicted
    return {name: 100 * right[name] / count for name, count in total.items() if count}


def _main(relation: str) -> str:
    """Return a relation without its subtype."""
    return relation.partition(":")[0]
