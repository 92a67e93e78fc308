"""Pairs of sentences to numbers: word ids behind a root, and the heads of the words."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.head_rules import heads
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards
from phrasemodels.tasks.prepare.vocabulary import read_words

UNKNOWN, ROOT = 1, 2  # the root is <s>
SIDES = ("premise", "hypothesis")


@dataclass(frozen=True)
class PairWords:
    """Words in lower case, seen at least min_count times in training."""

    min_count: int = 1


def pair_vocabulary(job: Job, settings: PairWords) -> dict[str, Any]:
    """words.txt of PAIRS, one word a line; the line number, from 0, is the id."""
    table = read_shards(job.inputs["rows"])
    counts = Counter(word for side in SIDES for text in table[side].to_pylist() for word in text.lower().split())
    kept = sorted((-n, word) for word, n in counts.items() if n >= settings.min_count and word not in SPECIAL)
    write_durably(job.out / "words.txt", "".join(f"{word}\n" for word in (*SPECIAL, *(word for _, word in kept))))
    return {"words": len(SPECIAL) + len(kept)}


_NUMBERS = pa.list_(pa.field("item", pa.int32(), nullable=False))
NUMBERED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(pa.field(f"{side}_{kind}", _NUMBERS, nullable=False) for side in SIDES for kind in ("ids", "heads")),
        pa.field("label", _NUMBERS, nullable=False),
        pa.field("group", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Pairs:
    """Nothing to choose: pairs without a label are dropped, and nothing else."""


def pairs(job: Job, settings: Pairs) -> dict[str, Any]:
    """NUMBERED shards, of PAIRS shards and job.inputs["vocabulary"]; one step a shard."""
    return map_shards(job, pair_shard, settings, vocabulary=job.inputs["vocabulary"])


def pair_shard(job: Job, settings: Pairs) -> dict[str, Any]:
    """Ids and heads of one PAIRS shard. Without brackets no word has a head, which is counted (`headless`)."""
    ids = {word: i for i, word in enumerate(read_words(job.inputs["vocabulary"], "words"))}
    rows, headless = [], 0
    found = read_shard(job.inputs["shard"].path)
    for row in found.to_pylist():
        if not row["label"]:
            continue
        made = {"id": row["id"], "label": [LABELS.index(row["label"])], "group": row["group"]}
        for side in SIDES:
            words = row[side].lower().split()
            positions = _positions(row[f"{side}_tree"], len(words))
            headless += not any(p >= 0 for p in positions)
            made |= {f"{side}_ids": [ROOT, *(ids.get(w, UNKNOWN) for w in words)], f"{side}_heads": positions}
        rows.append(made)
    meta = write_shard(job.out / SHARD, pa.Table.from_pylist(rows, schema=NUMBERED))
    return {"dropped": found.num_rows - len(rows), "headless": headless, **meta}


def _positions(brackets: str, words: int) -> list[int]:
    """The position of each word's head, with the root at 0; -1 for the root, and for all words without a tree."""
    tree = parse(brackets) if brackets else None
    return [-1, *(heads(tree) if tree and len(tree.tokens) == words else [-1] * words)]
