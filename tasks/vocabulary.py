"""Tokens to vocabularies: the words of the training split, most frequent first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from data.store import Artifact, Job, write_durably
from tasks.stages import stage_table

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # ids 0-3: PAD, UNKNOWN, BEGIN, END of phrasemodels.models.translation


@dataclass(frozen=True)
class VocabularySettings:
    """Words seen fewer than min_count times become <unk>."""

    min_count: int = 1


def vocabulary(job: Job, settings: VocabularySettings) -> dict[str, Any]:
    """source.txt and target.txt, one word a line; the line number, from 0, is the id."""
    table = stage_table(job.inputs["rows"])
    return {side: _write(job.out / f"{side}.txt", table[side], settings.min_count) for side in ("source", "target")}


def _write(path: Path, tokens: Any, min_count: int) -> int:
    counts = pc.value_counts(pc.list_flatten(tokens)).to_pylist()
    kept = sorted((-c["counts"], c["values"]) for c in counts if c["counts"] >= min_count)
    words = [*SPECIAL, *(word for _, word in kept if word not in SPECIAL)]
    write_durably(path, "".join(f"{word}\n" for word in words))
    return len(words)


def read_words(artifact: Artifact, side: str) -> list[str]:
    """The words of one side, by id."""
    return artifact.file(f"{side}.txt").read_text(encoding="utf-8").split("\n")[:-1]
