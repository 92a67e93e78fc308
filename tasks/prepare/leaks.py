"""How much of a test set a model has seen, beside its scores."""

from typing import Any

from phrasemodels.data.corpora.leakage import leakage
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import read_shards


def leaks(job: Job, settings: None) -> dict[str, Any]:
    """How many records of job.inputs["test"] stand verbatim in ["train"]: all that a record says but its label."""
    found = leakage(*(read_shards(job.inputs[name]).combine_chunks() for name in ("train", "test")))
    return {"leak": {"shared": found.shared, "rows": found.rows}}
