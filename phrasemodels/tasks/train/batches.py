"""Shards of numbers as padded tensors, and the division of rows into batches. B is the number of rows of a batch."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import pyarrow as pa
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.layers.blocks import on_device, padded
from phrasemodels.structs.dispatch import CACHED

Rows = NDArray[np.int64]
Arrange = Callable[[Rows, np.random.Generator], Rows]  # (lengths of all rows, random numbers) -> the order of rows


def stream(seed: int, *name: object) -> int:
    """Return the seed of a named stream of random numbers, for example the dropout of one step on one worker.

    A stream is a function of its name alone, so a training resumes without the state of a generator.
    """
    # not hash(): Python draws a new seed for the hashes of text in each process
    digest = hashlib.sha256(repr((seed, *name)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True)
class Batch:
    """Tensors of some rows. Each problem has its own subclass."""

    def to(self, device: torch.device) -> Self:
        """Return the batch on a device. A GPU copies it from pinned memory without a wait."""
        moved = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        moved = {name: on_device(device, x)[0] if isinstance(x, Tensor) else x.to(device) for name, x in moved.items()}
        return type(self)(**moved)

    def padded_to(self, size: Callable[[int], int]) -> Self:
        """Pad the batch's n rows, and sides of n tokens, to size(n), so few shapes occur. ValueError: this problem can't be padded."""
        raise ValueError(f"train.graphs: batches of {type(self).__name__} cannot be padded to a few shapes")


class Examples(Protocol):
    """Rows for batches. `lengths` (rows, sides) are the tokens counted by the token budget."""

    lengths: Rows

    def __len__(self) -> int: ...
    def batch(self, rows: Rows) -> Batch: ...


class ListExamples:
    """Rows of list columns of shards, mapped into memory. Rows are numbered through all shards.

    A list holds numbers, or lists of numbers of one length. The token budget counts the lists of the columns `counted`.
    """

    def __init__(self, paths: Sequence[Path], names: Sequence[str], counted: Sequence[str]) -> None:
        tables = [read_shard(path) for path in paths]
        self.first = np.cumsum([0, *(table.num_rows for table in tables)])
        self.lists = {name: [_ragged(table[name]) for table in tables] for name in names}
        lengths = [np.concatenate([np.diff(offsets) for offsets, _ in self.lists[name]]) for name in counted]
        self.lengths = np.stack(lengths, 1).astype(np.int64)

    def __len__(self) -> int:
        return int(self.first[-1])

    def row(self, name: str, row: int) -> NDArray[np.int32]:
        """Return the list of one row, as a view of the mapped file."""
        shard = int(np.searchsorted(self.first, row, "right")) - 1
        offsets, values = self.lists[name][shard]
        row -= int(self.first[shard])
        return values[offsets[row] : offsets[row + 1]]

    def padded(self, name: str, rows: Rows, fill: int = 0) -> Tensor:
        """Return the lists of some rows (B, longest, ...), padded with `fill`."""
        return padded([self.row(name, row) for row in rows], fill)


def _ragged(column: pa.ChunkedArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return offsets and values of a list column. Values of lists of lists are 2-D.

    They are views of the mapped file if the column is one chunk, as in shards. `combine_chunks` would copy it even then.
    """
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    values = lists.values
    if hasattr(values.type, "list_size"):
        return lists.offsets.to_numpy(), values.values.to_numpy().reshape(-1, values.type.list_size)
    return lists.offsets.to_numpy(), values.to_numpy()


def by_length(lengths: Rows, rng: np.random.Generator) -> Rows:
    """Put rows of similar length together, in random order among equal lengths."""
    return np.argsort(lengths + rng.random(len(lengths)), kind="stable")


def at_random(lengths: Rows, rng: np.random.Generator) -> Rows:
    """Put rows of any lengths together."""
    return rng.permutation(len(lengths))


def token_batches(
    data: Examples,
    max_tokens: int,
    seed: int,
    epoch: int,
    max_rows: int | None = None,
    arrange: Arrange = by_length,
    equal_sides: int | None = None,
) -> list[Rows]:
    """Return the batches of one epoch, in random order. They are the same for any number of workers.

    Each worker takes its rows of a batch by `rows_of_worker`.

    Args:
        arrange: Order of the rows before they are cut into batches.
        equal_sides: Rows of a batch have equal lengths on the first `equal_sides` sides. The rows are then arranged by them.
    """
    rng = np.random.default_rng(stream(seed, "order", epoch))
    order = arrange(data.lengths.sum(1), rng)
    if equal_sides:
        # lexsort is stable: rows of equal lengths stay in the order of `arrange`
        order = order[np.lexsort(data.lengths[order, :equal_sides].T)]
    batches = cut(data, order, max_tokens, max_rows, equal_sides)
    return [batches[i] for i in rng.permutation(len(batches))]


def batches_from(
    data: Examples,
    epoch: int,
    done: int,
    max_tokens: int,
    seed: int,
    max_rows: int | None = None,
    arrange: Arrange = by_length,
    equal_sides: int | None = None,
) -> Iterator[tuple[int, int, Rows]]:
    """Yield (epoch, number of the batch in it, batch) without end after `done` batches of an epoch.

    If the epoch has fewer batches, go on with later epochs. Earlier epochs are not ordered. Skipped batches are not read.
    """
    while True:
        batches = token_batches(data, max_tokens, seed, epoch, max_rows, arrange, equal_sides)
        yield from ((epoch, place, batches[place]) for place in range(done, len(batches)))
        epoch, done = epoch + 1, max(0, done - len(batches))


def cut(
    data: Examples, order: Rows, max_tokens: int, max_rows: int | None = None, equal_sides: int | None = None
) -> list[Rows]:
    """Divide ordered rows into batches of at most `max_tokens` padded tokens of all sides and `max_rows` rows.

    Rows of a batch have the same lengths on the first `equal_sides` sides. A batch has at least one row.
    """
    if not len(order):
        return [order]
    lengths = np.ascontiguousarray(data.lengths, np.int64)
    most = len(order) if max_rows is None else max_rows
    return np.split(order, _ends(lengths, order.astype(np.int64), float(max_tokens), most, equal_sides or 0)[:-1])


@njit(cache=CACHED, nogil=True)
def _ends(lengths: Rows, order: Rows, max_tokens: float, max_rows: int, equal_sides: int) -> Rows:
    """Return the end of each batch in `order` (batches)."""
    ends = np.empty(len(order), np.int64)
    longest = np.zeros(lengths.shape[1], np.int64)
    count = first = 0
    for index, row in enumerate(order):
        rows = index - first + 1
        full = rows > max_rows
        tokens = 0
        for side in range(len(longest)):
            longest[side] = max(longest[side], lengths[row, side])
            tokens += longest[side]
            full |= side < equal_sides and lengths[row, side] != lengths[order[first], side]
        if index > first and (full or rows * tokens > max_tokens):
            ends[count] = index
            count += 1
            first = index
            longest[:] = lengths[row]
    ends[count] = len(order)
    return ends[: count + 1]


def in_order(data: Examples, max_tokens: int, rows: Rows | None = None, least: int = 1) -> list[Rows]:
    """Return some rows (None: all) once each, in batches of at most `max_tokens` padded tokens.

    Similar lengths are together and nothing is shuffled. least: minimal number of batches, while each has a row.
    """
    rows = np.arange(len(data)) if rows is None else rows
    ordered = rows[np.argsort(data.lengths[rows].sum(1), kind="stable")]
    parts = np.array_split(ordered, max(1, min(least, len(rows))))
    return [batch for part in parts for batch in cut(data, part, max_tokens)]


def rows_of_worker(rows: Rows, rank: int, world: int) -> Rows:
    """Return the rows of a batch for one of `world` workers. There may be none."""
    return rows[rank::world]
