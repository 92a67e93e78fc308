"""The problem of parsing: sentences with trees as batches, their loss, and the errors that weights are chosen by."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.models.parser import GROUP_LABEL, Decode, GoldTrees, Jointly, JointParser, ParsedTrees, ParserConfig
from phrasemodels.tasks.problems.parsing.data import UNKNOWN
from phrasemodels.tasks.train.batches import Batch, Columns, Rows

COLUMNS = ("words", "characters", "tags", "pieces", "last", "cells", "heads", "relations")


@dataclass(frozen=True)
class ParseBatch(Batch):
    """Sentences, and their trees where they are known."""

    sentences: ParserInput
    gold: GoldTrees


class ParseExamples:
    """Rows of phrasemodels.tasks.problems.parsing.data.NUMBERS."""

    def __init__(self, columns: Columns, tagged: bool = True) -> None:
        self.columns, self.tagged = columns, tagged
        self.lengths = self.columns.lengths("words")[:, None]

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> ParseBatch:
        """The given rows, padded to the longest of them."""
        words, tags = self.columns.padded("words", rows), self.columns.padded("tags", rows)
        lengths = torch.from_numpy(self.lengths[rows, 0] - 2)
        pieces = torch.tensor([len(self.columns.row("pieces", row)) for row in rows])
        forms, characters = _forms(self.columns.padded("characters", rows).numpy())
        sentences = ParserInput(
            words,
            forms,
            characters,
            tags if self.tagged else torch.full_like(tags, UNKNOWN),
            lengths,
            self.columns.padded("pieces", rows),
            pieces,
            self.columns.padded("last", rows),
        )
        heads, relations = (_after_root(self.columns.padded(name, rows, -1), words) for name in ("heads", "relations"))
        position = torch.arange(words.shape[1] - 1)
        inside = (position > 0) & (position <= lengths[:, None])
        gold = GoldTrees(
            self.columns.padded("cells", rows, -1),
            heads,
            relations,
            tags[:, :-1].masked_fill(~inside | (tags[:, :-1] == UNKNOWN), -1),
        )
        return ParseBatch(sentences, gold)


def _forms(characters: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Characters (B, N, c) -> rows (B, N) of the different ones, and these."""
    flat = np.ascontiguousarray(characters.astype(np.int32)).reshape(-1, characters.shape[2])
    keys = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1]))).ravel()
    _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
    different = flat[first]
    longest = int((different > 0).sum(1).max(initial=1))
    return torch.from_numpy(rows.reshape(characters.shape[:2])), torch.from_numpy(
        different[:, :longest].astype(np.int64)
    )


def _after_root(values: Tensor, words: Tensor) -> Tensor:
    """(B, n) or narrower -> (B, n+1), -1 at the root and where there is nothing."""
    out = values.new_full((len(words), words.shape[1] - 1), -1)
    out[:, 1 : values.shape[1] + 1] = values
    return out


@dataclass(frozen=True)
class Parsing:
    """Sentences to joint trees. tagged: whether tags of the corpus are read, or found."""

    decode: Decode = field(default_factory=Jointly)
    tagged: bool = True

    def configure(self, model: ParserConfig, vocabulary: Artifact) -> ParserConfig:
        """The model with the sizes of the vocabularies."""
        return model.sized(vocabulary.meta["sizes"])

    def examples(self, paths: Sequence[Path]) -> ParseExamples:
        """Rows of numbers."""
        return ParseExamples(Columns(paths, COLUMNS), self.tagged)

    def loss(self, model: JointParser, batch: ParseBatch, smoothing: float) -> Tensor:
        """Margin and cross entropies, which are not smoothed: forbidden heads have no probability."""
        return model.loss(batch.sentences, batch.gold)

    def criterion(self, model: JointParser, batch: ParseBatch) -> Tensor:
        """What is missing from F1 + LAS, which paper 004 chooses weights by: 1 − F1 and 1 − LAS, (2, 2).

        Of all words, and of spans as they are learned, a chain of labels as one; those of `<H>` do not count.
        """
        found = model.parse(batch.sentences, self.decode)
        return torch.stack([_spans(found, batch.gold), _arcs(found, batch.gold)])

    def count(self, data: ParseExamples, rows: Rows) -> int:
        """Sentences."""
        return len(rows)


def _spans(found: ParsedTrees, gold: GoldTrees) -> Tensor:
    """Spans that are in one of both trees alone, of those in both: 1 − F1."""
    n = gold.heads.shape[1]
    keys = [
        (((torch.arange(len(cells), device=cells.device)[:, None] * n + i) * n + j) * 65536 + label)[
            label > GROUP_LABEL
        ]
        for cells in (found.cells, gold.cells)
        for i, j, label in [cells.unbind(-1)]
    ]
    both = torch.isin(*keys).sum()
    total = both.new_tensor(len(keys[0]) + len(keys[1]))
    return torch.stack([total - 2 * both, total])


def _arcs(found: ParsedTrees, gold: GoldTrees) -> Tensor:
    """Words with another head or relation, of all: 1 − LAS."""
    word = gold.heads >= 0
    wrong = word & ((found.heads != gold.heads) | (found.relations != gold.relations))
    return torch.stack([wrong.sum(), word.sum()])
