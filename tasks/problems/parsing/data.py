"""Treebanks to numbers: vocabularies, and joint trees as ids. Positions are START, the words of a sentence, STOP."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.joint_trees import GROUP, joint, misfits
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards

UNKNOWN, BEGIN, END = 1, 2, 3
LETTERS = 20  # of a longer word the first and last ten
SIDES = ("words", "characters", "tags", "labels", "relations")

_ids = pa.list_(pa.field("item", pa.int32(), nullable=False))


def _tuples(width: int) -> pa.DataType:
    return pa.list_(pa.field("item", pa.list_(pa.field("item", pa.int32(), nullable=False), width), nullable=False))


# N = n + 2 positions: words (N), characters (N, LETTERS), tags (N), pieces, last (N); cells (m, 3) are (i, j, label) of
# words i..j, both included; heads and relations (n), empty where there are none
NUMBERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(pa.field(name, _ids, nullable=False) for name in ("words", "tags", "pieces", "last", "heads", "relations")),
        pa.field("characters", _tuples(LETTERS), nullable=False),
        pa.field("cells", _tuples(3), nullable=False),
    ]
)


@dataclass(frozen=True)
class TreebankVocabulary:
    """Words, in lower case, and characters that occur fewer than min_count times are unknown; labels that occur fewer
    than min_label times are never found, and the spans that have them are not learned."""

    min_count: int = 2
    min_label: int = 1


def treebank_vocabulary(job: Job, settings: TreebankVocabulary) -> dict[str, Any]:
    """One file a side, one entry a line, whose number is its id; from TREES shards job.inputs["rows"].

    Labels begin with the empty one and `<H>`, relations with none; the others with <pad> <unk> <s> </s>.
    """
    found: dict[str, Counter[str]] = {side: Counter() for side in SIDES}
    table = read_shards(job.inputs["rows"])
    for row in table.select(["tokens", "tags", "tree", "heads", "relations"]).to_pylist():
        found["words"].update(token.lower() for token in row["tokens"])
        found["characters"].update(character for token in row["tokens"] for character in token)
        found["tags"].update(row["tags"])
        found["relations"].update(row["relations"])
        if row["tree"]:
            found["labels"].update(span.label for span in joint(parse(row["tree"]), row["heads"]))
    first = {"labels": ("", GROUP), "relations": ()}
    kept = dict.fromkeys(SIDES, 1) | dict.fromkeys(("words", "characters"), settings.min_count)
    kept["labels"] = settings.min_label
    sizes = {}
    for side, counts in found.items():
        begin = first.get(side, SPECIAL)
        entries = sorted((-count, entry) for entry, count in counts.items() if count >= kept[side])
        lines = [*begin, *(entry for _, entry in entries if entry not in begin)]
        write_durably(job.out / f"{side}.txt", "".join(f"{line}\n" for line in lines))
        sizes[side] = len(lines)
    return {"sizes": sizes}


def read_side(artifact: Artifact, side: str) -> list[str]:
    """The entries of one side, by id."""
    return artifact.file(f"{side}.txt").read_text(encoding="utf-8").split("\n")[:-1]


@dataclass(frozen=True)
class TreeNumbers:
    """complete: sentences without a tree or heads, or with more than max_words (0: any number), are dropped; that is for
    training and dev, nothing that is scored is ever dropped. divide: into pieces of a pretrained encoder."""

    complete: bool = True
    max_words: int = 0
    divide: Divide = no_pieces


def tree_numbers(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Shards of NUMBERS, of TREES shards job.inputs["rows"] and job.inputs["vocabulary"]; one step a shard.

    ValueError: nothing is left to learn from.
    """
    made = map_shards(job, tree_shard, settings, vocabulary=job.inputs["vocabulary"])
    if settings.complete and not made["rows"]:
        raise ValueError(
            "no sentence has a tree, heads and few enough words: give a corpus that has brackets and dependencies"
        )
    return made


def tree_shard(job: Job, settings: TreeNumbers) -> dict[str, Any]:
    """Numbers of one shard; says how many trees cannot be built from merges (phrasemodels.data.formats.joint_trees.misfits)."""
    table = read_shard(job.inputs["shard"].path)
    ids = Ids({side: read_side(job.inputs["vocabulary"], side) for side in SIDES})
    rows, unfit = [], 0
    for row in table.to_pylist():
        whole = row["tree"] and row["heads"] and not 0 < settings.max_words < len(row["tokens"])
        if whole or not settings.complete:
            spans = joint(parse(row["tree"]), row["heads"]) if row["tree"] else []
            unfit += bool(spans and row["heads"] and misfits(spans, row["heads"]))
            rows.append(
                ids.sentence(row["tokens"], row["tags"])
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


class Ids:
    """Ids of what is in a vocabulary (entries by id, of each side)."""

    def __init__(self, entries: Mapping[str, Sequence[str]]) -> None:
        self.ids = {side: {entry: number for number, entry in enumerate(own)} for side, own in entries.items()}

    def of(self, side: str, entry: str, otherwise: int = UNKNOWN) -> int:
        return self.ids[side].get(entry, otherwise)

    def sentence(self, tokens: Sequence[str], tags: Sequence[str] = ()) -> dict[str, Any]:
        """words, characters and tags of all positions; where there are no tags, they are unknown."""
        known = [self.of("tags", tag) for tag in tags] or [UNKNOWN] * len(tokens)
        return {
            "words": [BEGIN, *(self.of("words", token.lower()) for token in tokens), END],
            "tags": [BEGIN, *known, END],
            "characters": [_row([BEGIN]), *map(self._letters, tokens), _row([END])],
        }

    def _letters(self, token: str) -> list[int]:
        if len(token) > LETTERS:
            token = token[: LETTERS // 2] + token[-LETTERS // 2 :]
        return _row([self.of("characters", character) for character in token])

    def cells(self, spans: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
        """(i, j, label), without labels that are not in the vocabulary."""
        known = ((start, end - 1, self.of("labels", label, -1)) for label, start, end in spans)
        return [cell for cell in known if cell[2] >= 0]


def _row(ids: list[int]) -> list[int]:
    return ids + [0] * (LETTERS - len(ids))
