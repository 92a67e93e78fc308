"""The objective of parsing: margins and cross entropies of joint trees; weights are chosen by errors on dev."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.layers.ids import UNKNOWN
from phrasemodels.models.parser import (
    GROUP_LABEL,
    Decode,
    GoldTrees,
    Jointly,
    JointParser,
    ParsedTrees,
    ParserConfig,
    arcs_alone,
    phrases_alone,
)
from phrasemodels.parsing.numbers import different_forms
from phrasemodels.tasks.train.batches import Batch, Columns, Rows
from phrasemodels.tasks.train.objective import Objective

COLUMNS = ("words", "characters", "tags", "pieces", "last", "cells", "heads", "relations")


@dataclass(frozen=True)
class ParseBatch(Batch):
    """Sentences, and their gold trees as far as the corpus has them."""

    sentences: ParserInput
    gold: GoldTrees


class ParseExamples:
    """Rows of NUMBERS. tagged: whether the model reads the corpus's tags."""

    def __init__(self, columns: Columns, tagged: bool = True) -> None:
        self.columns, self.tagged = columns, tagged
        self.lengths = self.columns.lengths("words")[:, None]

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> ParseBatch:
        """Return some rows, padded to the longest of them."""
        words, tags = self.columns.padded("words", rows), self.columns.padded("tags", rows)
        lengths = torch.from_numpy(self.lengths[rows, 0] - 2)
        pieces = torch.tensor([len(self.columns.row("pieces", row)) for row in rows])
        forms, characters = different_forms(self.columns.padded("characters", rows).numpy())
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


def _after_root(values: Tensor, words: Tensor) -> Tensor:
    """Return values (B, n), or narrower ones, as (B, n+1) behind a root; -1 at the root and where there is no value."""
    out = values.new_full((len(words), words.shape[1] - 1), -1)
    out[:, 1 : values.shape[1] + 1] = values
    return out


@dataclass(frozen=True)
class ParsingObjective(Objective):
    """Sentences to joint trees. decode: how trees are found. tagged: whether tags are read from the corpus or predicted."""

    curve: ClassVar = "(1 − F1) + (1 − LAS) on dev"

    decode: Decode = field(default_factory=Jointly)
    tagged: bool = True

    def configure(self, model: ParserConfig, vocabulary: Artifact) -> ParserConfig:
        return model.sized(vocabulary.meta["sizes"])

    def examples(self, paths: Sequence[Path]) -> ParseExamples:
        return ParseExamples(Columns(paths, COLUMNS), self.tagged)

    def loss(self, model: JointParser, batch: ParseBatch, smoothing: float) -> Tensor:
        """Return the summed margins and cross entropies, without smoothing: heads that are excluded have probability 0."""
        return model.loss(batch.sentences, batch.gold)

    def criterion(self, model: JointParser, batch: ParseBatch) -> Tensor:
        """Return (errors, count) of 1 − F1 and of 1 − LAS (2, 2): paper 004 chooses weights by F1 + LAS.

        All words count. Spans are those that are learned: a chain of labels is one, and `<H>` is none. A decoder that finds
        phrases or arcs alone is measured by these alone.
        """
        found = model.parse(batch.sentences, self.decode)
        return torch.stack([errors(found, batch.gold) for errors in ERRORS.get(self.decode, (_spans, _arcs))])


def _spans(found: ParsedTrees, gold: GoldTrees) -> Tensor:
    """Return (spans in only one of the trees, spans of both trees): 1 − F1."""
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
    """Return (words with a wrong head or relation, words): 1 − LAS."""
    word = gold.heads >= 0
    named = gold.relations >= 0  # arcs may have no relations
    wrong = word & ((found.heads != gold.heads) | (named & (found.relations != gold.relations)))
    return torch.stack([wrong.sum(), word.sum()])


ERRORS: Mapping[Decode, tuple[Callable[[ParsedTrees, GoldTrees], Tensor], ...]] = {
    phrases_alone: (_spans,),
    arcs_alone: (_arcs,),
}
