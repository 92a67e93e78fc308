"""Arrow to tensors, in this one place; and which rows make a batch.

Shapes: B batch, n source tokens, t target tokens, m phrases, k words of the longest phrase.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.shards import read_shard

Rows = NDArray[np.int64]


def stream(seed: int, *name: object) -> int:
    """The seed of a named stream of random numbers: init, order, or the dropout of one step on one worker.

    Because every stream is a function of its name, resuming needs no state of a generator.
    """
    digest = hashlib.sha256(repr((seed, *name)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class Batch:
    """Padded ids: source (B, n) and target (B, t) with their lengths (B), phrases (B, m, k) filled up with -1."""

    source: Tensor
    lengths: Tensor
    members: Tensor
    target: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(x.to(device, non_blocking=True) for x in (self.source, self.lengths, self.members, self.target)))


class PhraseData:
    """The rows of phrase shards, mapped into memory."""

    def __init__(self, paths: list[Path]) -> None:
        tables = [read_shard(path) for path in paths]
        self.first = np.cumsum([0, *(table.num_rows for table in tables)])
        self.columns = {name: [_ragged(table[name]) for table in tables] for name in ("source", "target", "phrases")}
        self.width = self.columns["phrases"][0][1].shape[1]
        self.source_lengths = self._lengths("source")
        self.target_lengths = self._lengths("target")

    def __len__(self) -> int:
        return int(self.first[-1])

    def _lengths(self, name: str) -> Rows:
        return np.concatenate([np.diff(offsets) for offsets, _ in self.columns[name]]).astype(np.int64)

    def _row(self, name: str, row: int) -> NDArray[np.int32]:
        shard = int(np.searchsorted(self.first, row, "right")) - 1
        offsets, values = self.columns[name][shard]
        row -= int(self.first[shard])
        return values[offsets[row] : offsets[row + 1]]

    def batch(self, rows: Rows) -> Batch:
        """The given rows, padded to the longest of them."""
        source = [self._row("source", row) for row in rows]
        target = [self._row("target", row) for row in rows]
        members = [self._row("phrases", row) for row in rows]
        return Batch(
            _pad(source, (), 0),
            torch.tensor([len(x) for x in source]),
            _pad(members, (self.width,), -1),
            _pad(target, (), 0),
        )


def _ragged(column: object) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Offsets and values of a list column, as views of the mapped file; a list of lists has two-dimensional values."""
    lists = column.combine_chunks()  # type: ignore[attr-defined]
    values = lists.values
    if hasattr(values.type, "list_size"):
        return lists.offsets.to_numpy(), values.values.to_numpy().reshape(-1, values.type.list_size)
    return lists.offsets.to_numpy(), values.to_numpy()


def _pad(rows: list[NDArray[np.int32]], tail: tuple[int, ...], fill: int) -> Tensor:
    longest = max(len(row) for row in rows)
    out = np.full((len(rows), longest, *tail), fill, np.int64)
    for padded, row in zip(out, rows, strict=True):
        padded[: len(row)] = row
    return torch.from_numpy(out)


def token_batches(data: PhraseData, budget: int, seed: int, epoch: int) -> list[Rows]:
    """The batches of one epoch: rows of similar length, at most `budget` padded tokens of both sides, in random order.

    The same for every number of workers; each takes its share of a batch with `share`.
    """
    rng = np.random.default_rng(stream(seed, "order", epoch))
    length = data.source_lengths + data.target_lengths
    order = np.argsort(length + rng.random(len(length)), kind="stable")  # random among equal lengths
    batches = cut(data, order, budget)
    return [batches[i] for i in rng.permutation(len(batches))]


def cut(data: PhraseData, order: Rows, budget: int) -> list[Rows]:
    """Divide rows, in the given order, into batches of at most `budget` padded tokens, but at least one row."""
    batches, first, source, target = [], 0, 0, 0
    for index, row in enumerate(order):
        source, target = max(source, data.source_lengths[row]), max(target, data.target_lengths[row])
        if index > first and (index - first + 1) * (source + target) > budget:
            batches.append(order[first:index])
            first, source, target = index, data.source_lengths[row], data.target_lengths[row]
    return [*batches, order[first:]]


def in_order(data: PhraseData, budget: int) -> list[Rows]:
    """Every row once, similar lengths together, nothing shuffled: for evaluation."""
    return cut(data, np.argsort(data.source_lengths + data.target_lengths, kind="stable"), budget)


def share(rows: Rows, rank: int, world: int) -> Rows:
    """The rows of a batch that belong to one of `world` workers; may be empty."""
    return rows[rank::world]


def from_step(data: PhraseData, budget: int, seed: int, step: int) -> Iterator[tuple[int, Rows]]:
    """Endless (epoch, batch), from the batch of the given step on: what has been seen is skipped, not read."""
    epoch, skip = 0, step
    while True:
        batches = token_batches(data, budget, seed, epoch)
        yield from ((epoch, rows) for rows in batches[skip:])
        epoch, skip = epoch + 1, max(0, skip - len(batches))
