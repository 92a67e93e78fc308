"""Sequences in, sequences out: batches of word ids with phrases, predictions as lists of tokens, and rows of attention weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job
from phrasemodels.layers.blocks import PAD
from phrasemodels.layers.ngrams import PhraseAttention
from phrasemodels.tasks.prepare.sharded import read_shards, required
from phrasemodels.tasks.train.batches import Batch, Columns, Rows

_TOKENS = pa.list_(pa.string())
PREDICTIONS = required(
    id=pa.int64(), group=pa.string(), source=_TOKENS, reference=_TOKENS, hypothesis=_TOKENS, score=pa.float64()
)


@dataclass(frozen=True)
class PhraseBatch(Batch):
    """Padded ids: source (B, n) and target (B, t), lengths (B) of the source, phrases (B, m, k) padded with -1."""

    source: Tensor
    lengths: Tensor
    members: Tensor
    target: Tensor

    def padded_to(self, size: Callable[[int], int]) -> "PhraseBatch":
        """Return the batch with its source, target and number of phrases padded to sizes."""
        n, m, t = (size(x.shape[1]) - x.shape[1] for x in (self.source, self.members, self.target))
        source, target = F.pad(self.source, (0, n), value=PAD), F.pad(self.target, (0, t), value=PAD)
        return PhraseBatch(source, self.lengths, F.pad(self.members, (0, 0, 0, m), value=-1), target)


class PhraseExamples:
    """Rows of phrase shards (tasks/prepare/phrases.py)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.columns = Columns(paths, ("source", "target", "phrases"))
        self.lengths = np.stack([self.columns.lengths(side) for side in ("source", "target")], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> PhraseBatch:
        """Return some rows, padded to the longest of them."""
        lengths = torch.from_numpy(self.lengths[rows, 0])
        source, target = (self.columns.padded(side, rows) for side in ("source", "target"))
        return PhraseBatch(source, lengths, self.columns.padded("phrases", rows, -1), target)


def write_predictions(job: Job, rows: Artifact, found: Mapping[int, tuple[list[str], float]]) -> dict[str, Any]:
    """Write predictions.arrow: the predicted tokens and their score, by row, beside the TOKENS `rows`."""
    table = read_shards(rows)
    order = range(table.num_rows)
    columns = {
        "id": table["id"],
        "group": table["group"],
        "source": table["source"],
        "reference": table["target"],
        "hypothesis": [found[row][0] for row in order],
        "score": [found[row][1] for row in order],
    }
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=PREDICTIONS))}


# weights (h, q, k) of a module: heads, rows that attend, columns that are attended to. Rows and columns are the tokens, then
# the phrases (positions of their tokens). If `written` is not null, it names the rows, and the columns are tokens alone.
ATTENTION = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("phrases", pa.list_(pa.list_(pa.int32())), nullable=False),
        pa.field("module", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.int32(), 3), nullable=False),
        pa.field("weights", pa.list_(pa.float32()), nullable=False),
        pa.field("written", pa.list_(pa.string())),
    ]
)


def attention_rows(
    model: nn.Module, found: Mapping[str, Tensor], tokens: Sequence[str], phrases: list[list[int]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of ATTENTION without id and group, of the recorded weights (1, h, q, k) of one sentence, by module."""
    modules = dict(model.named_modules())
    for name, (weights,) in found.items():
        module = modules.get(name)
        if isinstance(module, PhraseAttention):
            yield attention_row(name, tokens, *over_grams(weights, module.phrases.groups))
        else:
            yield attention_row(name, tokens, _apart(weights, len(tokens), len(phrases)), phrases)


def attention_row(module: str, tokens: Sequence[str], weights: Tensor, phrases: list[list[int]]) -> dict[str, Any]:
    """Return one row of ATTENTION without id and group."""
    numbers = {"shape": list(weights.shape), "weights": weights.flatten().tolist()}
    return {"tokens": tokens, "phrases": phrases, "module": module, **numbers, "written": None}


def over_grams(weights: Tensor, groups: Mapping[int, slice | list[int]]) -> tuple[Tensor, list[list[int]]]:
    """Return weights over words and n-grams, and the n-grams.

    The columns of `weights` (h, n, n) are n-grams by their last word; the result (h, n, n + m) has n words and m n-grams.
    groups: the heads of each n-gram size. An n-gram at the start has only the words there are.
    """
    h, n, _ = weights.shape
    ends = {size: [tuple(range(max(0, i + 1 - max(1, size)), i + 1)) for i in range(n)] for size in groups}
    grams = sorted({gram for found in ends.values() for gram in found if len(gram) > 1}, key=lambda g: (len(g), g))
    place = {(i,): i for i in range(n)} | {gram: n + i for i, gram in enumerate(grams)}
    spread = weights.new_zeros(h, n, n + len(grams))
    for size, heads in groups.items():
        for head in np.arange(h)[heads]:
            spread[head][:, [place[gram] for gram in ends[size]]] = weights[head]
    return spread, [list(gram) for gram in grams]


def _apart(weights: Tensor, n: int, m: int) -> Tensor:
    """Return weights (h, q, k) over n words and m phrases, where a module computed one row or column for all phrases of equal
    states.
    """
    if m > 1 and weights.shape[2] == n + 1:
        weights = torch.cat([weights[..., :n], (weights[..., n:] / m).expand(-1, -1, m)], 2)
        if weights.shape[1] == n + 1:
            weights = torch.cat([weights[:, :n], weights[:, n:].expand(-1, m, -1)], 1)
    return weights
