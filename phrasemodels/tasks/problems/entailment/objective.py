"""The objective of natural language inference by sentence vectors: cross entropy of three labels, with an L2 penalty."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.models.sentence_pair import SentencePairClassifier, SentencePairConfig
from phrasemodels.tasks.problems.entailment.data import vectors_of
from phrasemodels.tasks.train.batches import Batch, Columns, Rows
from phrasemodels.tasks.train.objective import Objective

PAIR = ("premise", "hypothesis")


@dataclass(frozen=True)
class SentenceBatch(Batch):
    """B sentences: tokens (B, n), lengths (B), structure (B, k, n) with -1 for none."""

    tokens: Tensor
    lengths: Tensor
    structure: Tensor


@dataclass(frozen=True)
class PairBatch(SentenceBatch):
    """2B sentences, all premises first, and the labels (B) of the pairs."""

    labels: Tensor


class SentenceExamples:
    """Rows of numbered shards, with one side or two."""

    def __init__(self, paths: Sequence[Path], sides: Sequence[str]) -> None:
        self.sides = tuple(sides)
        self.columns = Columns(paths, [f"{side}_{kind}" for side in sides for kind in ("ids", "structure")])
        self.lengths = np.stack([self.columns.lengths(f"{side}_ids") for side in sides], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> SentenceBatch:
        """Return the sentences of some rows, all of the first side before those of the second."""
        columns, sides = self.columns, self.sides
        parts = [(columns.padded(f"{s}_ids", rows), columns.padded(f"{s}_structure", rows, -1)) for s in sides]
        n = max(tokens.shape[1] for tokens, _ in parts)
        tokens = torch.cat([F.pad(t, (0, n - t.shape[1])) for t, _ in parts])
        structure = torch.cat([F.pad(s, (0, 0, 0, n - s.shape[1]), value=-1) for _, s in parts]).transpose(1, 2)
        lengths = np.concatenate([[len(columns.row(f"{side}_ids", row)) for row in rows] for side in sides])
        return SentenceBatch(tokens, torch.from_numpy(lengths), structure)


class PairExamples(SentenceExamples):
    """Rows of numbered pairs, with their labels (rows). ValueError: a label is not one of LABELS."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, PAIR)
        table = pa.concat_tables([read_shard(path).select(["label"]) for path in paths])
        found = pc.index_in(table["label"], value_set=pa.array(("", *LABELS)))
        if found.null_count:
            raise ValueError(f"{paths[0]}: a label is none of {', '.join(LABELS)}; read the corpus again")
        self.labels: NDArray[np.int64] = found.to_numpy().astype(np.int64) - 1  # -1: a pair that a user asks about

    def batch(self, rows: Rows) -> PairBatch:
        sentences = super().batch(rows)
        return PairBatch(**vars(sentences), labels=torch.from_numpy(self.labels[rows]))


Penalised = Callable[[nn.Module], list[nn.Linear]]
SCORES = ("own", "other")  # names of the maps whose sum is the attention of one token to another


def every_map(model: nn.Module) -> list[nn.Linear]:
    """Return all linear maps."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def all_but_scores(model: nn.Module) -> list[nn.Linear]:
    """Return all linear maps but the two whose sum is the attention of one word to another, on which the released program
    of DiSAN has no penalty."""
    named = ((name.rpartition(".")[2], module) for name, module in model.named_modules())
    return [module for name, module in named if isinstance(module, nn.Linear) and name not in SCORES]


@dataclass(frozen=True)
class EntailmentObjective(Objective):
    """Pairs of sentences to a label: mean loss a pair; the best weights have the fewest wrong labels on dev.

    penalty: λ of ½λ‖W‖² on the matrices of linear maps, without biases and word vectors. penalised: which maps, every_map or
    all_but_scores.
    """

    curve: ClassVar = "wrong labels on dev (share of pairs)"

    penalty: float = 5e-5
    penalised: Penalised = every_map

    def configure(self, model: SentencePairConfig, vocabulary: Artifact) -> SentencePairConfig:
        return replace(model, words=vocabulary.meta["words"], vectors=vectors_of(vocabulary), classes=len(LABELS))

    def examples(self, paths: Sequence[Path]) -> PairExamples:
        return PairExamples(paths)

    def loss(self, model: SentencePairClassifier, batch: PairBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the labels, plus the penalty for each pair."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        error = F.cross_entropy(scores.float(), batch.labels, reduction="sum", label_smoothing=smoothing)
        squares = sum(module.weight.square().sum() for module in self.penalised(model))
        return error + self.penalty / 2 * len(batch.labels) * squares

    def criterion(self, model: SentencePairClassifier, batch: PairBatch) -> Tensor:
        """Return the number of wrong labels."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        return (scores.argmax(-1) != batch.labels).sum().float()
