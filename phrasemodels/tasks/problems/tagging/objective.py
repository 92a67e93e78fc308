"""Tagging: treebanks as words and tags, and the objective, cross entropy of tags."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import PAD, SPECIAL
from phrasemodels.models.tagger import Tagger, TaggerConfig
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.problems.entailment.data import VECTORS
from phrasemodels.tasks.problems.sequences import PhraseBatch, PhraseExamples
from phrasemodels.tasks.train.batches import Rows
from phrasemodels.tasks.train.objective import Objective


@dataclass(frozen=True)
class TagColumn:
    """The column with the tags: `tags` (Penn's) or `universal`."""

    column: str = "tags"


def tag_tokens(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Write TOKENS of the TREES or TAGGED shards job.inputs["rows"]: words as the source, tags as the target."""
    return map_shards(job, tag_tokens_shard, settings)


def tag_tokens_shard(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Write the TOKENS of one shard. ValueError: there is no such column, or a word without a tag."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    if settings.column not in table.column_names:
        raise ValueError(f"{path}: no column {settings.column!r}; there are {', '.join(table.column_names)}")
    columns = {"id": table["id"], "source": table["tokens"], "target": table[settings.column], "group": table["group"]}
    made = check(pa.table(columns, schema=TOKENS), TOKENS, str(path))
    for row, words, tags in zip(made["id"], made["source"], made["target"], strict=True):
        if len(words) != len(tags):
            raise ValueError(f"{path}: row {row} has {len(words)} words and {len(tags)} tags in {settings.column!r}")
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


@dataclass(frozen=True)
class TaggingObjective(Objective):
    """Mean loss a word. The target of a row is its tags between BEGIN and END, which are not predicted."""

    curve: ClassVar = "dev loss (nats a word)"

    def configure(self, model: TaggerConfig, vocabulary: Artifact) -> TaggerConfig:
        file = str(vocabulary.file(VECTORS)) if vocabulary.meta.get("vectors") else ""
        return replace(model, vocabulary=vocabulary.meta["source"], tags=vocabulary.meta["target"], vectors=file)

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        return PhraseExamples(paths)

    def loss(self, model: Tagger, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the words' tags; a tag that train lacks is left out."""
        scores = model(batch.source, batch.lengths, batch.members).flatten(0, 1).float()
        gold = batch.target.masked_fill(batch.target < len(SPECIAL), PAD).flatten()
        return F.cross_entropy(scores, gold, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of words, without BEGIN and END."""
        return int((data.lengths[rows, 1] - 2).sum())
