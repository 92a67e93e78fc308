"""How often parses agree with a treebank's own, over the same tokens."""

from collections import Counter

import pyarrow as pa

from phrasemodels.data.formats.trees import parse
from phrasemodels.tasks.metrics.parseval import compare
from phrasemodels.tasks.parsers.parse import flat

TAGS = {"universal": "upos", "tags": "xpos"}


def treebank_scores(gold: pa.Table, found: pa.Table) -> dict[str, float]:
    """Percent of TREES that are the same: tags, heads (uas), heads with relations before any colon (las), brackets (f1,
    as EVALB counts them). Only rows in which the treebank has the analysis count, and those alone; a sentence that was
    not parsed counts as wrong. What no row has is left out."""
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for one, other in zip(gold.to_pylist(), found.to_pylist(), strict=True):
        if one["tokens"] != other["tokens"]:
            raise ValueError(f"row {one['id']}: other tokens were parsed than those of the treebank")
        for column, name in TAGS.items():
            total[name] += len(one[column])
            right[name] += sum(map(str.__eq__, one[column], other[column]))
        total["uas"] += len(one["heads"])
        total["las"] += len(one["heads"])
        arcs = list(zip(one["heads"], one["relations"], other["heads"], other["relations"], strict=False))
        right["uas"] += sum(head == own for head, _, own, _ in arcs)
        right["las"] += sum(h == own and _plain(r) == _plain(ours) for h, r, own, ours in arcs)
        if one["tree"]:
            ours = parse(other["tree"] or flat(one["tokens"], "").tree)
            tree = parse(one["tree"])  # what is punctuation, and so left out, is for the treebank to say
            counts = compare(tree, ours._replace(tags=tree.tags))
            right["f1"] += 2 * counts.matched
            total["f1"] += counts.gold + counts.found
    return {name: 100 * right[name] / count for name, count in total.items() if count}


def _plain(relation: str) -> str:
    return relation.partition(":")[0]
