"""Sequences in, sequences out: batches of word ids with phrases, and predictions as lists of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
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
