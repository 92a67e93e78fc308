"""A score, and the files of the step that ends each problem: scores.json and sentences.arrow."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job


@dataclass(frozen=True)
class Score:
    """A value in its usual unit, a signature that says how it was computed, and the number of sentences."""

    value: float
    signature: str
    sentences: int


def write_scores(
    job: Job, scores: Mapping[str, Score], sentences: pa.Table, test_set: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write scores.json, and sentences.arrow with the statistics of each sentence; return the meta of the artifact.

    test_set: what identifies the rows that were scored, such as the shards of the test split. Systems are compared only
    on the same test set.
    """
    plain = {name: asdict(score) for name, score in scores.items()}
    write_shard(job.out / "sentences.arrow", sentences)
    write_durably(job.out / "scores.json", json.dumps(plain, indent=1))
    return {"scores": plain, "test_set": test_set}
