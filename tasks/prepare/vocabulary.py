"""Tokens to vocabularies: the words of the training split, most frequent first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import read_shards

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # ids 0-3: PAD, UNKNOWN, BEGIN, END of phrasemodels.models.translation


@dataclass(frozen=True)
class VocabularySettings:
    """Words seen fewer than min_count times become <unk>. joint: one list of words for both sides."""

    min_count: int = 1
    joint: bool = False


def vocabulary(job: Job, settings: VocabularySettings) -> dict[str, Any]:
    """source.txt and target.txt, one word a line; the line number, from 0, is the id."""
    table = read_shards(job.inputs["rows"])
    sides = {side: pc.list_flatten(table[side]) for side in ("source", "target")}
    if settings.joint:
        sides = dict.fromkeys(sides, pa.chunked_array([chunk for tokens in sides.values() for chunk in tokens.chunks]))
    return {side: _write(job.out / f"{side}.txt", tokens, settings.min_count) for side, tokens in sides.items()}


def _write(path: Path, tokens: pa.ChunkedArray, min_count: int) -> int:
    counts = pc.value_counts(tokens).to_pylist()
    kept = sorted((-c["counts"], c["values"]) for c in counts if c["counts"] >= min_count)
    words = [*SPECIAL, *(word for _, word in kept if word not in SPECIAL)]
    write_durably(path, "".join(f"{word}\n" for word in words))
    return len(words)


def read_words(artifact: Artifact, side: str) -> list[str]:
    """The words of one side, by id."""
    return artifact.file(f"{side}.txt").read_text(encoding="utf-8").split("\n")[:-1]
