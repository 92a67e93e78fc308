"""The problem of translation: its loss, its decoding, its scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor

from data.shards import write_shard
from data.store import Artifact, Job
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.search import translate as search_batch
from phrasemodels.models.translation import TranslationConfig, Translator
from tasks.batches import Batch, Columns, Rows, in_order
from tasks.checkpoints import load_tensors
from tasks.stages import shards, stage_table
from tasks.vocabulary import read_words


@dataclass(frozen=True)
class PhraseBatch(Batch):
    """Padded ids: source (B, n) and target (B, t), lengths (B) of the source, phrases (B, m, k) filled up with -1."""

    source: Tensor
    lengths: Tensor
    members: Tensor
    target: Tensor


class PhraseExamples:
    """Rows of phrase shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.columns = Columns(paths, ("source", "target", "phrases"))
        self.lengths = np.stack([self.columns.lengths(side) for side in ("source", "target")], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> PhraseBatch:
        """The given rows, padded to the longest of them."""
        lengths = torch.from_numpy(self.lengths[rows, 0])
        source, target = (self.columns.padded(side, rows) for side in ("source", "target"))
        return PhraseBatch(source, lengths, self.columns.padded("phrases", rows, -1), target)


@dataclass(frozen=True)
class Translation:
    """Sentences to sentences."""

    def configure(self, model: TranslationConfig, vocabulary: Artifact) -> TranslationConfig:
        """The model with the sizes of the vocabularies."""
        return replace(model, source_vocabulary=vocabulary.meta["source"], target_vocabulary=vocabulary.meta["target"])

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        """Rows of phrase shards."""
        return PhraseExamples(paths)

    def loss(self, model: Translator, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of each target token after BEGIN."""
        scores = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1])
        return model.loss(scores, batch.target[:, 1:], smoothing)

    def criterion(self, model: Translator, batch: PhraseBatch) -> Tensor:
        """The same without smoothing."""
        return self.loss(model, batch, 0.0)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Target tokens, END counted, BEGIN not."""
        return int((data.lengths[rows, 1] - 1).sum())


PREDICTIONS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("source", pa.list_(pa.string()), nullable=False),
        pa.field("reference", pa.list_(pa.string()), nullable=False),
        pa.field("hypothesis", pa.list_(pa.string()), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class TranslateSettings:
    """A model's configuration and how to search; batch_tokens bounds memory and does not change the result."""

    problem: Translation
    model: TranslationConfig
    search: BeamSearch
    batch_tokens: int = 4096


def translate(job: Job, settings: TranslateSettings) -> dict[str, Any]:
    """predictions.arrow: the translation of every row of job.inputs["phrases"], beside the tokens of ["rows"]."""
    vocabulary = job.inputs["vocabulary"]
    model = settings.problem.configure(settings.model, vocabulary).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().to(device)
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = np.array(read_words(vocabulary, "target"), dtype=object)
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        answers = search_batch(model, batch.source, batch.lengths, batch.members, settings.search)
        found |= {int(row): (list(words[ids]), score) for row, (ids, score) in zip(rows, answers, strict=True)}
    return {"predictions": write_shard(job.out / "predictions.arrow", _predictions(job.inputs["rows"], found))}


def _predictions(rows: Artifact, found: dict[int, tuple[list[str], float]]) -> pa.Table:
    table = stage_table(rows)
    order = range(table.num_rows)
    columns = {
        "id": table["id"],
        "group": table["group"],
        "source": table["source"],
        "reference": table["target"],
        "hypothesis": [found[row][0] for row in order],
        "score": [found[row][1] for row in order],
    }
    return pa.table(columns, schema=PREDICTIONS)
