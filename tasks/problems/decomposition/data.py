"""Pairs of sentences as numbers: ids of words behind a root, and the heads of the words."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.head_rules import heads
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import BEGIN, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_words, write_words

ROOT = BEGIN
SIDES = ("premise", "hypothesis")
_NUMBERS = pa.list_(pa.field("item", pa.int32(), nullable=False))
_SENTENCES = {f"{side}_{kind}": _NUMBERS for side in SIDES for kind in ("ids", "heads")}
NUMBERED = required(id=pa.int64(), **_SENTENCES, label=_NUMBERS, group=pa.string())


@dataclass(frozen=True)
class PairVocabulary:
    """Words, in lower case, that occur fewer than min_count times in train are unknown."""

    min_count: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")


def pair_vocabulary(job: Job, settings: PairVocabulary) -> dict[str, Any]:
    """Write words.txt, the vocabulary of the PAIRS job.inputs["rows"]."""
    table = read_shards(job.inputs["rows"])
    counts = Counter(word for side in SIDES for text in table[side].to_pylist() for word in text.lower().split())
    return {"words": write_words(job.out, "words", by_frequency(counts, settings.min_count))}


def pairs(job: Job, settings: None) -> dict[str, Any]:
    """Write NUMBERED shards of the labelled PAIRS job.inputs["rows"], in a step for each shard; also reads
    ["vocabulary"]. Pairs without a label are dropped."""
    return map_shards(job, pair_shard, vocabulary=job.inputs["vocabulary"])


def pair_shard(job: Job, settings: None) -> dict[str, Any]:
    """Write ids and heads of one shard, and count the sentences without heads, which have no tree (`headless`)."""
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
    """Return the position of each word's head, with the root at 0; -1 for the root, and for all words without a tree."""
    tree = parse(brackets) if brackets else None
    return [-1, *(heads(tree) if tree and len(tree.tokens) == words else [-1] * words)]
