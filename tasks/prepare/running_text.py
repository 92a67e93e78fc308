"""Sentences of running text as rows of a treebank without trees."""

from dataclasses import dataclass
from typing import Any

from phrasemodels.data.formats.schemas import TREES, build
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.prepare.tokenise import Tokeniser


@dataclass(frozen=True)
class WordRows:
    """How text is divided into words."""

    tokeniser: Tokeniser
    language: str = "en"


def word_rows(job: Job, settings: WordRows) -> dict[str, Any]:
    """TREES without trees, tags and heads, of the sources of BITEXT shards; one step a shard."""
    return map_shards(job, word_shard, settings)


def word_shard(job: Job, settings: WordRows) -> dict[str, Any]:
    """Words of one shard."""
    table = read_shard(job.inputs["shard"].path)
    tokens = [settings.tokeniser(text, settings.language) for text in table["source"].to_pylist()]
    columns = {"id": table["id"].combine_chunks(), "tokens": tokens, "group": table["group"].combine_chunks()}
    return {"dropped": 0, **write_shard(job.out / SHARD, build(TREES, "given text", columns, table.num_rows))}
