"""Vocabularies: files with one entry a line. The line number from 0 is the entry's id.

Byte-pair encoding (Sennrich et al. 2016) of both sides together is learned from train and applied to all splits.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import TOKENS, check, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Job
from phrasemodels.inference.inputs import Pieces
from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, shard_tables


@dataclass(frozen=True)
class VocabularySettings:
    """Words that occur fewer than min_count times are unknown. joint: one vocabulary for both sides."""

    min_count: int = 1
    joint: bool = False

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")


def vocabulary(job: Job, settings: VocabularySettings) -> dict[str, Any]:
    """Write source.txt and target.txt, the vocabularies of the TOKENS job.inputs["rows"]. Its meta has their sizes, and the
    number of tokens of the longest target."""
    counts, longest = word_counts(shard_tables(job.inputs["rows"]))
    if settings.joint:
        counts = dict.fromkeys(counts, counts["source"] + counts["target"])
    return {"longest": longest} | {
        side: write_words(job.out, side, by_frequency(own, settings.min_count)) for side, own in counts.items()
    }


def word_counts(tables: Iterable[pa.Table]) -> tuple[dict[str, Counter[str]], int]:
    """Return how often each word occurs on each side of TOKENS, and the number of tokens of the longest target."""
    counts: dict[str, Counter[str]] = {"source": Counter(), "target": Counter()}
    longest = 0
    for table in tables:
        for side, own in counts.items():
            words, numbers = pc.value_counts(pc.list_flatten(table[side])).flatten()
            own.update(dict(zip(words.to_pylist(), numbers.to_pylist(), strict=True)))
        longest = max(longest, pc.max(pc.list_value_length(table["target"])).as_py() or 0)
    return counts, longest


def by_frequency(counts: Mapping[str, int], min_count: int = 1, first: Sequence[str] = SPECIAL) -> list[str]:
    """Return the entries of a vocabulary by id.

    `first` come first. Then come entries with a count of at least min_count by frequency. Equally frequent ones are in
    alphabetical order.
    """
    kept = sorted((-count, entry) for entry, count in counts.items() if count >= min_count)
    return [*first, *(entry for _, entry in kept if entry not in first)]


def write_words(folder: Path, name: str, words: Sequence[str]) -> int:
    """Write NAME.txt, a vocabulary by id, and return its size."""
    write_durably(folder / f"{name}.txt", "".join(f"{word}\n" for word in words))
    return len(words)


def read_words(artifact: Artifact, name: str) -> list[str]:
    """Return the entries of a vocabulary by id. ValueError: their number differs from the manifest's."""
    words = artifact.file(f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
    if (size := artifact.manifest.get("meta", {}).get(name, len(words))) != len(words):
        raise ValueError(f"{artifact.file(name)}.txt: {len(words)} entries, but its manifest says {size}")
    return words


_ids_read: dict[tuple[Path, str, int], dict[str, int]] = {}  # of the last MOST_READ vocabularies
MOST_READ = 4


def read_ids(artifact: Artifact, name: str) -> Mapping[str, int]:
    """Return the id of each entry of a vocabulary. A worker with many shards reads each file once."""
    path = artifact.file(f"{name}.txt")
    which = (path, name, path.stat().st_mtime_ns)
    if which not in _ids_read:
        while len(_ids_read) >= MOST_READ:
            _ids_read.pop(next(iter(_ids_read)))
        _ids_read[which] = {word: i for i, word in enumerate(read_words(artifact, name))}
    return _ids_read[which]


def ids_of(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the ids of a sentence's tokens. What a vocabulary lacks is unknown, and so are its special entries."""
    ids = {word: i for i, word in enumerate(words) if word not in SPECIAL}
    return [ids.get(token, UNKNOWN) for token in tokens]


UNKNOWN_PIECE = "<unk>"


@dataclass(frozen=True)
class LearnBpe:
    """The number of merges. Pairs with fewer than min_count occurrences are not merged."""

    merges: int = 6000
    min_count: int = 2

    def __post_init__(self) -> None:
        at_least(self, 0, "merges")
        at_least(self, 1, "min_count")


def learn_bpe(job: Job, settings: LearnBpe) -> dict[str, Any]:
    """Learn merges of both sides of the TOKENS job.inputs["rows"]. Writes bpe.json: vocabulary and ordered merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    counts, _ = word_counts(shard_tables(job.inputs["rows"]))
    words = counts["source"] + counts["target"]
    # As special tokens, letters have fixed ids; ties between pairs are broken by ids, so results do not vary.
    alphabet = [UNKNOWN_PIECE, *sorted({c for w in words for c in w} | {w[-1] + Pieces.END for w in words})]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN_PIECE, end_of_word_suffix=Pieces.END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + settings.merges,
        min_frequency=settings.min_count,
        special_tokens=alphabet,
        end_of_word_suffix=Pieces.END,
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join([word] * count) for word, count in sorted(words.items())), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    write_durably(job.out / "bpe.json", json.dumps({"vocab": learned["vocab"], "merges": learned["merges"]}))
    return {"merges": len(learned["merges"])}


def apply_bpe(job: Job, settings: None) -> dict[str, Any]:
    """Write TOKENS shards of pieces of job.inputs["rows"] in a step for each shard.

    The rows are TOKENS. ["bpe"] are the merges.
    """
    return map_shards(job, apply_bpe_shard, bpe=job.inputs["bpe"])


def apply_bpe_shard(job: Job, settings: None) -> dict[str, Any]:
    """Write the pieces of one shard."""
    divide = Pieces(job.inputs["bpe"].file("bpe.json"))
    table = read_shard(job.inputs["shard"].path)
    for side in ("source", "target"):
        pieces = [divide(words) for words in table[side].to_pylist()]
        place = table.schema.get_field_index(side)
        table = table.set_column(place, table.schema.field(side), pa.array(pieces, table.schema.field(side).type))
    return {"dropped": 0, **write_shard(job.out / SHARD, check(table, TOKENS, str(job.inputs["shard"].path)))}


def joined(tokens: list[str]) -> str:
    """Return whole words as text."""
    return " ".join(tokens)
