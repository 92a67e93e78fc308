"""Sentences that a user gives, as rows of a corpus of their own."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import BITEXT
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import write_shards


@dataclass(frozen=True)
class Given:
    """Sentences, one a text; the group of each, if there are groups."""

    texts: tuple[str, ...]
    groups: tuple[str, ...] = ()


def given(job: Job, settings: Given) -> dict[str, Any]:
    """BITEXT shards of sentences without a translation."""
    empty = [""] * len(settings.texts)
    groups = settings.groups or empty
    columns = [pa.array(range(len(empty)), pa.int64()), pa.array(settings.texts, pa.string()), empty, groups]
    terms: dict[str, Any] = {"licences": [], "redistributable": True, "stand_in": False}
    return {"corpus": "given", **terms, **write_shards(job.out, pa.table(columns, schema=BITEXT))}
