"""Pairs of sentences as numbers: ids of words behind a root, and the heads of the words."""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import save_file

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.head_rules import heads
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import parse
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import BEGIN, SPECIAL, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_words, write_words
from phrasemodels.tasks.problems.entailment.data import VECTORS, VectorFile

ROOT = BEGIN
OUTSIDE = 100  # vectors that words without one share (Parikh et al. 2016)
Words = Callable[[str], list[str]]
SIDES = ("premise", "hypothesis")
_NUMBERS = pa.list_(pa.field("item", pa.int32(), nullable=False))
_SENTENCES = {f"{side}_{kind}": _NUMBERS for side in SIDES for kind in ("ids", "heads")}
NUMBERED = required(id=pa.int64(), **_SENTENCES, label=_NUMBERS, group=pa.string())


def lower_case(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return text.lower().split()


def as_written(text: str) -> list[str]:
    """Return the words of a text as they are written."""
    return text.split()


@dataclass(frozen=True)
class PairVocabulary:
    """How a text becomes words: `lower_case` or `as_written`. Words that occur fewer than min_count times in train are
    unknown; or, if there is a file of word vectors, all words without one, which share OUTSIDE random ones."""

    min_count: int = 1
    words: Words = lower_case
    vectors: VectorFile | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")


def pair_vocabulary(job: Job, settings: PairVocabulary) -> dict[str, Any]:
    """Write words.txt, the vocabulary of the PAIRS job.inputs, and, if there are word vectors, vectors.safetensors: those of
    all its entries, each of norm 1, as in the released code of paper 003."""
    tables = [read_shards(rows) for _, rows in sorted(job.inputs.items())]
    texts = (text for table in tables for side in SIDES for text in table[side].to_pylist())
    counts = Counter(word for text in texts for word in settings.words(text))
    if settings.vectors is None:
        return {"words": write_words(job.out, "words", by_frequency(counts, settings.min_count)), "outside": 0}
    known = dict(settings.vectors.read(counts.keys(), job.executor.sources.mirrors))
    words = by_frequency({word: counts[word] for word in known}) + [f"outside {i}" for i in range(OUTSIDE)]
    table = np.random.default_rng(0).normal(size=(len(words), settings.vectors.d)).astype(np.float32)
    for place, word in enumerate(words):
        table[place] = known.get(word, table[place]) if word not in SPECIAL else table[place]
    save_file({"vectors": table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-12)}, job.out / VECTORS)
    return {"words": write_words(job.out, "words", words), "outside": OUTSIDE}


def vectors_of(vocabulary: Artifact) -> str:
    """Return the path of the word vectors of a vocabulary, or an empty string."""
    return str(vocabulary.file(VECTORS)) if vocabulary.meta.get("outside") else ""


def numbers_of(vocabulary: Artifact) -> Callable[[Sequence[str]], list[int]]:
    """Return a function from words to ids; a word outside of the vocabulary is unknown, or, if it has vectors, gets one of
    the shared ones by a hash of its letters."""
    entries, outside = read_words(vocabulary, "words"), vocabulary.meta.get("outside", 0)
    ids = {word: place for place, word in enumerate(entries) if word not in SPECIAL}

    def unknown(word: str) -> int:
        return len(entries) - outside + zlib.crc32(word.encode()) % outside if outside else UNKNOWN

    return lambda words: [ids[word] if word in ids else unknown(word) for word in words]


@dataclass(frozen=True)
class PairNumbers:
    """How a text becomes words."""

    words: Words = lower_case


def pairs(job: Job, settings: PairNumbers) -> dict[str, Any]:
    """Write NUMBERED shards of the labelled PAIRS job.inputs["rows"], in a step for each shard; also reads
    ["vocabulary"]. Pairs without a label are dropped."""
    return map_shards(job, pair_shard, settings, vocabulary=job.inputs["vocabulary"])


def pair_shard(job: Job, settings: PairNumbers) -> dict[str, Any]:
    """Write ids and heads of one shard, and count the sentences without heads, which have no tree (`headless`)."""
    ids = numbers_of(job.inputs["vocabulary"])
    rows, headless = [], 0
    found = read_shard(job.inputs["shard"].path)
    for row in found.to_pylist():
        if not row["label"]:
            continue
        made = {"id": row["id"], "label": [LABELS.index(row["label"])], "group": row["group"]}
        for side in SIDES:
            words = settings.words(row[side])
            positions = _positions(row[f"{side}_tree"], len(words))
            headless += not any(p >= 0 for p in positions)
            made |= {f"{side}_ids": [ROOT, *ids(words)], f"{side}_heads": positions}
        rows.append(made)
    meta = write_shard(job.out / SHARD, pa.Table.from_pylist(rows, schema=NUMBERED))
    return {"dropped": found.num_rows - len(rows), "headless": headless, **meta}


def _positions(brackets: str, words: int) -> list[int]:
    """Return the position of each word's head, with the root at 0; -1 for the root, and for all words without a tree."""
    tree = parse(brackets) if brackets else None
    return [-1, *(heads(tree) if tree and len(tree.tokens) == words else [-1] * words)]
