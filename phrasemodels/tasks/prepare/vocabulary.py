"""Vocabularies: files of entries, one a line, whose line number, from 0, is the entry's id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import SPECIAL, UNKNOWN
from phrasemodels.tasks.prepare.sharded import read_shards


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
    table = read_shards(job.inputs["rows"])
    sides = {side: pc.list_flatten(table[side]) for side in ("source", "target")}
    if settings.joint:
        sides = dict.fromkeys(sides, pa.chunked_array([chunk for tokens in sides.values() for chunk in tokens.chunks]))
    sizes = {"longest": pc.max(pc.list_value_length(table["target"])).as_py() or 0}
    for side, tokens in sides.items():
        counts = {c["values"]: c["counts"] for c in pc.value_counts(tokens).to_pylist()}
        sizes[side] = write_words(job.out, side, by_frequency(counts, settings.min_count))
    return sizes


def by_frequency(counts: Mapping[str, int], min_count: int = 1, first: Sequence[str] = SPECIAL) -> list[str]:
    """Return the entries of a vocabulary by id: `first`, then those counted at least min_count times, the most frequent
    first, equally frequent ones in alphabetical order."""
    kept = sorted((-count, entry) for entry, count in counts.items() if count >= min_count)
    return [*first, *(entry for _, entry in kept if entry not in first)]


def write_words(folder: Path, name: str, words: Sequence[str]) -> int:
    """Write NAME.txt, a vocabulary by id; return its size."""
    write_durably(folder / f"{name}.txt", "".join(f"{word}\n" for word in words))
    return len(words)


def read_words(artifact: Artifact, name: str) -> list[str]:
    """Return the entries of a vocabulary by id. ValueError: their number is not that of the manifest."""
    words = artifact.file(f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
    if (size := artifact.manifest.get("meta", {}).get(name, len(words))) != len(words):
        raise ValueError(f"{artifact.file(name)}.txt: {len(words)} entries, but its manifest says {size}")
    return words


def ids_of(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the ids of a sentence's tokens. What a vocabulary lacks is unknown, and so are its special entries."""
    ids = {word: i for i, word in enumerate(words) if word not in SPECIAL}
    return [ids.get(token, UNKNOWN) for token in tokens]
