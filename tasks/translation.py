"""The problem of translation: its loss, its decoding, its scores."""

from dataclasses import dataclass, replace
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
from tasks.batches import Batch, PhraseData, Rows, in_order
from tasks.checkpoints import load_tensors
from tasks.stages import shards, stage_table
from tasks.vocabulary import read_words


@dataclass(frozen=True)
class Translation:
    """Sentences to sentences."""

    def configure(self, model: TranslationConfig, vocabulary: Artifact) -> TranslationConfig:
        """The model with the sizes of the vocabularies."""
        return replace(model, source_vocabulary=vocabulary.meta["source"], target_vocabulary=vocabulary.meta["target"])

    def loss(self, model: Translator, batch: Batch, smoothing: float) -> Tensor:
        """Summed cross entropy of each target token after BEGIN."""
        scores = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1])
        return model.loss(scores, batch.target[:, 1:], smoothing)

    def count(self, data: PhraseData, rows: Rows) -> int:
        """Target tokens, END counted, BEGIN not."""
        return int((data.target_lengths[rows] - 1).sum())


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
    data = PhraseData([shard.path for shard in shards(job.inputs["phrases"])])
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
