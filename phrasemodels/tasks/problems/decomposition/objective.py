"""The objective of inference by decomposable attention: cross entropy of three labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.models.decomposable import Decomposable, DecomposableConfig
from phrasemodels.tasks.problems.decomposition.data import SIDES, vectors_of
from phrasemodels.tasks.train.batches import Batch, Columns, Rows
from phrasemodels.tasks.train.objective import Objective


@dataclass(frozen=True)
class HeadedPairBatch(Batch):
    """Ids and heads (B, n) of premises and hypotheses, -1 for no head; their lengths (B); labels (B) of the pairs."""

    premise: Tensor
    premise_lengths: Tensor
    premise_heads: Tensor
    hypothesis: Tensor
    hypothesis_lengths: Tensor
    hypothesis_heads: Tensor
    label: Tensor

    def sides(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Return the inputs of a model: (ids, lengths, heads) of premises and of hypotheses."""
        premise = (self.premise, self.premise_lengths, self.premise_heads)
        return premise, (self.hypothesis, self.hypothesis_lengths, self.hypothesis_heads)


class HeadedPairExamples:
    """Rows of NUMBERED shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = [f"{side}_{kind}" for side in SIDES for kind in ("ids", "heads")]
        self.columns = Columns(paths, (*names, "label"))
        self.lengths = np.stack([self.columns.lengths(f"{side}_ids") for side in SIDES], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> HeadedPairBatch:
        """Return some rows, padded to the longest of them."""
        tensors = {"label": self.columns.padded("label", rows)[:, 0]}
        for side, lengths in zip(SIDES, self.lengths[rows].T, strict=True):
            tensors[side] = self.columns.padded(f"{side}_ids", rows)
            tensors[f"{side}_lengths"] = torch.from_numpy(lengths.copy())
            tensors[f"{side}_heads"] = self.columns.padded(f"{side}_heads", rows, -1)
        return HeadedPairBatch(**tensors)


@dataclass(frozen=True)
class DecompositionObjective(Objective):
    """Two sentences to a label: mean loss a pair; the best weights have the fewest wrong labels on dev."""

    curve: ClassVar = "wrong labels on dev (share of pairs)"

    def configure(self, model: DecomposableConfig, vocabulary: Artifact) -> DecomposableConfig:
        return replace(model, vocabulary=vocabulary.meta["words"], labels=len(LABELS), vectors=vectors_of(vocabulary))

    def examples(self, paths: Sequence[Path]) -> HeadedPairExamples:
        return HeadedPairExamples(paths)

    def loss(self, model: Decomposable, batch: HeadedPairBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the labels."""
        return F.cross_entropy(model(*batch.sides()), batch.label, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: Decomposable, batch: HeadedPairBatch) -> Tensor:
        """Return the number of wrong labels."""
        return (model(*batch.sides()).argmax(-1) != batch.label).sum()
