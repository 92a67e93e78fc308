"""Treebanks as numbers: vocabularies, and joint trees as ids. Positions are START, the words of a sentence, STOP."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.head_rules import heads as rule_heads
from phrasemodels.data.formats.joint_trees import GROUP, joint, misfits
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse, unescape
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.parsing.numbers import LETTERS, SIDES, Divide, Ids, no_pieces
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_words, write_words

ADVICE = (
    "give a corpus that has both brackets and dependencies, or train a row of the table `alone` of paper 004, `phrases`, "
    "`arcs` or `head-rules`, which need one of them"
)

_ids = pa.list_(pa.field("item", pa.int32(), nullable=False))


def _tuples(width: int) -> pa.DataType:
    return pa.list_(pa.field("item", pa.list_(pa.field("item", pa.int32(), nullable=False), width), nullable=False))


# N = n + 2 positions: words (N), characters (N, LETTERS), tags (N), pieces, last (N); cells (m, 3) are (i, j, label) of
# words i to j, both included; heads and relations (n), empty if the corpus has none
_IDS = dict.fromkeys(("words", "tags", "pieces", "last", "heads", "relations"), _ids)
NUMBERS = required(id=pa.int64(), **_IDS, characters=_tuples(LETTERS), cells=_tuples(3))


@dataclass(frozen=True)
class TreebankVocabulary:
    """Words, in lower case, and characters that occur fewer than min_count times are unknown. Labels that occur fewer than
    min_label times are never predicted, and spans with them are not learned. tags: the column of tags."""

    min_count: int = 2
    min_label: int = 1
    tags: str = "tags"

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count", "min_label")


def treebank_vocabulary(job: Job, settings: TreebankVocabulary) -> dict[str, Any]:
    """Write a vocabulary for each side of the TREES job.inputs["rows"]: words, characters, tags, labels, relations.

    Labels begin with the empty one and `<H>`; relations have no special entries; the others begin with SPECIAL.
    """
    found: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    table = read_shards(job.inputs["rows"])
    for row in table.select(["tokens", settings.tags, "tree", "heads", "relations"]).to_pylist():
        forms = [unescape(token) for token in row["tokens"]]  # as Ids looks them up
        found["words"].update(form.lower() for form in forms)
        found["characters"].update(character for form in forms for character in form)
        found["tags"].update(row[settings.tags])
        found["relations"].update(row["relations"])
        if row["tree"]:
            found["labels"].update(span.label for span in joint(parse(row["tree"]), row["heads"]))
    first: dict[str, tuple[str, ...]] = {"labels": ("", GROUP), "relations": ()}
    kept = dict.fromkeys(SIDES, 1) | dict.fromkeys(("words", "characters"), settings.min_count)
    kept["labels"] = settings.min_label
    entries = {side: by_frequency(counts, kept[side], first.get(side, SPECIAL)) for side, counts in found.items()}
    return {"sizes": {side: write_words(job.out, side, own) for side, own in entries.items()}}


Keep = Callable[[Mapping[str, Any]], bool]
"""Whether a row of TREES is learned from. The docstring of such a function says what its sentences have."""


def complete(row: Mapping[str, Any]) -> bool:
    """a tree and heads"""
    return bool(row["tree"] and row["heads"])


def with_tree(row: Mapping[str, Any]) -> bool:
    """a tree"""
    return bool(row["tree"])


def with_heads(row: Mapping[str, Any]) -> bool:
    """heads"""
    return bool(row["heads"])


def with_either(row: Mapping[str, Any]) -> bool:
    """a tree or heads"""
    return bool(row["tree"] or row["heads"])


def every_row(row: Mapping[str, Any]) -> bool:
    """anything"""
    return True


Heads = Callable[[Mapping[str, Any]], list[int]]
"""The heads of a row of TREES; an empty list if it has none."""


def annotated_heads(row: Mapping[str, Any]) -> list[int]:
    """Return the heads that the corpus has."""
    return list(row["heads"])


def heads_by_rules(row: Mapping[str, Any]) -> list[int]:
    """Return heads that the head rules of data/formats/head_rules.py find in the tree; their arcs have no relations."""
    return rule_heads(parse(row["tree"])) if row["tree"] else []


@dataclass(frozen=True)
class TreeNumbers:
    """keep: which sentences are kept; those with more than max_words words (0: any number) are dropped too. Test sets keep
    every_row, so that no sentence is left out of a score. divide: words into pieces of a pretrained encoder. tags: the
    column of tags. heads: where they come from."""

    keep: Keep = complete
    max_words: int = 0
    divide: Divide = no_pieces
    tags: str = "tags"
    heads: Heads = annotated_heads

    def __post_init__(self) -> None:
        at_least(self, 0, "max_words")


def tree_numbers(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Write shards of NUMBERS of the TREES job.inputs["rows"], in a step for each shard; also reads ["vocabulary"].

    ValueError: no sentence is complete.
    """
    made = map_shards(job, tree_shard, settings, vocabulary=job.inputs["vocabulary"])
    if settings.keep is not every_row and not made["rows"]:
        raise ValueError(f"no sentence has {settings.keep.__doc__} and few enough words: {ADVICE}")
    return made


def tree_shard(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Write the numbers of one shard, and count the trees that cannot be built from merges (joint_trees.misfits)."""
    table = read_shard(job.inputs["shard"].path)
    ids = Ids({side: read_words(job.inputs["vocabulary"], side) for side in SIDES})
    rows, unfit = [], 0
    for row in table.to_pylist():
        own = settings.heads(row)
        row |= {"heads": own, "relations": row["relations"] if own == row["heads"] else []}
        if settings.keep(row) and not 0 < settings.max_words < len(row["tokens"]):
            spans = joint(parse(row["tree"]), row["heads"]) if row["tree"] else []
            unfit += bool(spans and row["heads"] and misfits(spans, row["heads"]))
            rows.append(
                ids.sentence(row["tokens"], row[settings.tags])
                | {
                    "id": row["id"],
                    "cells": ids.cells(spans),
                    "heads": row["heads"],
                    "relations": [ids.of("relations", name, -1) for name in row["relations"]],
                    **settings.divide(row["tokens"]),
                }
            )
    made = pa.Table.from_pylist(rows, schema=NUMBERS)
    return {"dropped": table.num_rows - len(rows), "misfits": unfit, **write_shard(job.out / SHARD, made)}
