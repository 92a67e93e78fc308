"""Tokens to numbers: word ids, and the phrases that a model may attend to.

Everything is offset arithmetic over Arrow's columns; there is no Python loop over sentences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.schemas import phrase_schema
from data.shards import read_shard, write_shard
from data.store import Job
from tasks.stages import SHARD, map_shards
from tasks.vocabulary import read_words

UNKNOWN, BEGIN, END = 1, 2, 3
Ints = NDArray[np.int64]
Enumerate = Callable[[Ints, int], tuple[Ints, Ints]]


def no_phrases(lengths: Ints, longest: int) -> tuple[Ints, Ints]:
    """Words alone: what a plain Transformer is given."""
    return np.zeros_like(lengths), np.zeros((0, longest), np.int64)


def adjacent(lengths: Ints, longest: int) -> tuple[Ints, Ints]:
    """Spans of 2 to `longest` adjacent tokens (paper 000, Eq 1 without the spans of one), shorter first, then by start.

    lengths (S) tokens per sentence -> how many phrases each sentence has (S), and the positions of their words
    (phrases, longest), filled up with -1.
    """
    sizes = np.arange(2, longest + 1)
    counts = np.maximum(lengths[:, None] - sizes + 1, 0)
    flat = counts.ravel()
    size = np.repeat(np.tile(sizes, len(lengths)), flat)
    first = np.arange(flat.sum()) - np.repeat(np.cumsum(flat) - flat, flat)
    offset = np.arange(longest)
    return counts.sum(1), np.where(offset < size[:, None], first[:, None] + offset, -1)


@dataclass(frozen=True)
class Phrases:
    """Which phrases, of at most how many words; and the longest sentence that is kept (0: any).

    A limit is for training only: nothing that is scored is ever dropped.
    """

    enumerate: Enumerate = adjacent
    longest: int = 2
    max_tokens: int = 0


def phrases(job: Job, settings: Phrases) -> dict[str, Any]:
    """Shards of word ids and phrases, of TOKENS shards and job.inputs["vocabulary"]; one step a shard."""
    return map_shards(job, phrase_shard, settings, vocabulary=job.inputs["vocabulary"])


def phrase_shard(job: Job, settings: Phrases) -> dict[str, Any]:
    """Word ids and phrases of one TOKENS shard. Phrases are over the source with its <s> and </s>."""
    table = read_shard(job.inputs["shard"].path)
    before = table.num_rows
    if settings.max_tokens:
        longer = pc.max_element_wise(pc.list_value_length(table["source"]), pc.list_value_length(table["target"]))
        table = table.filter(pc.less_equal(longer, settings.max_tokens))
    source, target = (_ids(table[side], read_words(job.inputs["vocabulary"], side)) for side in ("source", "target"))
    lengths = np.diff(source.offsets.to_numpy()).astype(np.int64)
    counts, members = settings.enumerate(lengths, settings.longest)
    schema = phrase_schema(settings.longest)
    made = pa.Table.from_arrays([table["id"], source, target, _lists(counts, members), table["group"]], schema=schema)
    _validate(lengths, counts, members, str(job.inputs["shard"].path))
    return {"dropped": before - table.num_rows, "phrases": len(members), **write_shard(job.out / SHARD, made)}


def _ids(column: pa.ChunkedArray, words: list[str]) -> pa.ListArray:
    """Ids of a column of token lists, each list between BEGIN and END."""
    lists = column.combine_chunks()
    found = pc.index_in(lists.flatten(), value_set=pa.array(words)).fill_null(UNKNOWN).to_numpy()
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths + 2)])
    ids = np.empty(offsets[-1], np.int32)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = BEGIN, END
    inner = np.ones(len(ids), bool)
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    ids[inner] = found
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(ids), type=phrase_schema(1).field("source").type
    )


def _lists(counts: Ints, members: Ints) -> pa.ListArray:
    """Phrases as one list a sentence."""
    kind = phrase_schema(members.shape[1]).field("phrases").type
    values = pa.FixedSizeListArray.from_arrays(pa.array(members.ravel(), pa.int32()), type=kind.value_type)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _validate(lengths: Ints, counts: Ints, members: Ints, where: str) -> None:
    """Every phrase lies inside its sentence."""
    inside = members < np.repeat(lengths, counts)[:, None]
    if not inside.all():
        row = int(np.repeat(np.arange(len(lengths)), counts)[~inside.all(1)][0])
        raise ValueError(f"{where}: a phrase reaches beyond the sentence in row {row}")
