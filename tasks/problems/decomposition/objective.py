"""Natural language inference by decomposable attention: the loss, labels, accuracy."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.models.decomposable import Decomposable, DecomposableConfig
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.decomposition.data import SIDES
from phrasemodels.tasks.train.batches import Batch, Columns, Rows, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors


@dataclass(frozen=True)
class PairBatch(Batch):
    """Ids and heads (B, n) of premises and hypotheses, -1 for no head, their lengths (B), and labels (B)."""

    premise: Tensor
    premise_lengths: Tensor
    premise_heads: Tensor
    hypothesis: Tensor
    hypothesis_lengths: Tensor
    hypothesis_heads: Tensor
    label: Tensor

    def sides(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """What a model takes."""
        premise = (self.premise, self.premise_lengths, self.premise_heads)
        return premise, (self.hypothesis, self.hypothesis_lengths, self.hypothesis_heads)


class PairExamples:
    """Rows of numbered pairs."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = [f"{side}_{kind}" for side in SIDES for kind in ("ids", "heads")]
        self.columns = Columns(paths, (*names, "label"))
        self.lengths = np.stack([self.columns.lengths(f"{side}_ids") for side in SIDES], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> PairBatch:
        """The given rows, padded to the longest of them."""
        found = {"label": self.columns.padded("label", rows)[:, 0]}
        for side, lengths in zip(SIDES, self.lengths[rows].T, strict=True):
            found[side] = self.columns.padded(f"{side}_ids", rows)
            found[f"{side}_lengths"] = torch.from_numpy(lengths.copy())
            found[f"{side}_heads"] = self.columns.padded(f"{side}_heads", rows, -1)
        return PairBatch(**found)


@dataclass(frozen=True)
class Decomposition:
    """Two sentences to one of three labels."""

    def configure(self, model: DecomposableConfig, vocabulary: Artifact) -> DecomposableConfig:
        """The model with the size of the vocabulary."""
        return replace(model, vocabulary=vocabulary.meta["words"], labels=len(LABELS))

    def examples(self, paths: Sequence[Path]) -> PairExamples:
        """Rows of numbered pairs."""
        return PairExamples(paths)

    def loss(self, model: Decomposable, batch: PairBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of the labels."""
        return F.cross_entropy(model(*batch.sides()), batch.label, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: Decomposable, batch: PairBatch) -> Tensor:
        """Wrong labels."""
        return (model(*batch.sides()).argmax(-1) != batch.label).sum()

    def count(self, data: PairExamples, rows: Rows) -> int:
        """Pairs."""
        return len(rows)


LABELLED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("gold", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class LabelSettings:
    """A model's configuration; batch_tokens bounds memory and does not change the result."""

    problem: Decomposition
    model: DecomposableConfig
    batch_tokens: int = 4096


@torch.inference_mode()
def label(job: Job, settings: LabelSettings) -> dict[str, Any]:
    """predictions.arrow: the label of every pair of job.inputs["pairs"]."""
    model = settings.problem.configure(settings.model, job.inputs["vocabulary"]).build().eval()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    paths = [shard.path for shard in shards(job.inputs["pairs"])]
    data = settings.problem.examples(paths)
    found: dict[int, int] = {}
    for rows in in_order(data, settings.batch_tokens):
        best = model(*data.batch(rows).sides()).argmax(-1)
        found |= dict(zip(rows.tolist(), best.tolist(), strict=True))
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    gold = table["label"].combine_chunks().flatten().to_pylist()
    columns = [table["id"], table["group"], [LABELS[i] for i in gold], [LABELS[found[row]] for row in range(len(data))]]
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=LABELLED))}


@dataclass(frozen=True)
class Accuracy:
    """Nothing to choose."""


def score_labels(job: Job, settings: Accuracy) -> dict[str, Any]:
    """scores.json and sentences.arrow (per pair: right, 1) of job.inputs["predictions"]: accuracy in %, also of groups."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = np.array(table["gold"].to_pylist()) == np.array(table["label"].to_pylist())
    groups = np.array(table["group"].to_pylist())
    parts = {"accuracy": right, **{f"accuracy/{g}": right[groups == g] for g in sorted(set(groups) - {""})}}
    scores = {k: asdict(Score(100 * float(v.mean()), "accuracy of three labels, %", len(v))) for k, v in parts.items()}
    statistics = pa.array([[int(r), 1] for r in right])
    write_shard(
        job.out / "sentences.arrow", pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    )
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {"scores": scores, "test_set": job.inputs["pairs"].meta["shards"]}
