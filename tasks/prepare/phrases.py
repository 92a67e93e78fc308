"""Tokens to numbers: word ids, and the phrases that a model may attend to.

Trees go no further than this: what a model is given is positions. There is no Python loop over sentences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from phrasemodels.data.formats.schemas import phrase_schema
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.heads import Ints, between_marks
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.prepare.vocabulary import read_words

UNKNOWN, BEGIN, END = 1, 2, 3
AT_ONCE = 16


@dataclass(frozen=True)
class Sentences:
    """S sentences: their lengths (S) in tokens and, where they are parsed, the position of each token's head (tokens),
    -1 for a root and for a token without a head."""

    lengths: Ints
    heads: Ints | None = None


Members = NDArray[np.int32]
Enumerate = Callable[[Sentences, int], tuple[Ints, Members]]


def no_phrases(sentences: Sentences, longest: int) -> tuple[Ints, Members]:
    """Words alone: what a plain Transformer is given."""
    return np.zeros_like(sentences.lengths), np.zeros((0, longest), np.int32)


def adjacent(sentences: Sentences, longest: int) -> tuple[Ints, Members]:
    """Spans of 2 to `longest` adjacent tokens (paper 000, Eq 1 without the spans of one), shorter first, then by start.

    Gives how many phrases each sentence has (S), and the positions of their words (phrases, longest), filled up with
    -1.
    """
    lengths, offset = sentences.lengths, np.arange(longest)
    sizes = np.minimum(lengths, longest)
    counts = (sizes - 1) * (lengths + 1) - (sizes * (sizes + 1) // 2 - 1)
    first = np.arange(lengths.max(initial=0))[:, None] + offset
    spans = np.where(offset < np.arange(2, longest + 1)[:, None, None], first, -1).reshape(longest - 1, first.size)
    total = int(counts.sum()) * longest
    members = np.empty(total + AT_ONCE, np.int32)
    _copy(lengths, np.pad(spans.astype(np.int32), ((0, 0), (0, AT_ONCE))), members)
    return counts, members[:total].reshape(-1, longest)


@njit(cache=True, nogil=True)
def _copy(lengths: Ints, spans: Members, members: Members) -> None:
    """Spans of a size are a prefix of those of the longest sentence: spans (sizes, values), members (values).

    Copies AT_ONCE values at a time, which is faster than to stop in time; what is too much is written over.
    """
    at, longest = 0, len(spans) + 1
    for n in lengths:
        for size in range(2, longest + 1):
            values = max((n - size + 1) * longest, 0)
            for i in range(0, values, AT_ONCE):
                for j in range(AT_ONCE):
                    members[at + i + j] = spans[size - 2, i + j]
            at += values


@dataclass(frozen=True)
class Phrases:
    """Which phrases, of at most how many words; and the longest sentence that is kept (0: any).

    A limit is for training only: nothing that is scored is ever dropped.
    """

    enumerate: Enumerate = adjacent
    longest: int = 2
    max_tokens: int = 0


def phrases(job: Job, settings: Phrases) -> dict[str, Any]:
    """Shards of word ids and phrases, of TOKENS shards and job.inputs["vocabulary"]; one step a shard.

    Where phrases are parts of trees, job.inputs["trees"] are TREES of the source, row by row.
    """
    beside = {"trees": job.inputs["trees"]} if "trees" in job.inputs else {}
    return map_shards(job, phrase_shard, settings, beside, vocabulary=job.inputs["vocabulary"])


def phrase_shard(job: Job, settings: Phrases) -> dict[str, Any]:
    """Word ids and phrases of one TOKENS shard. Phrases are over the source with its <s> and </s>."""
    table = read_shard(job.inputs["shard"].path)
    before = table.num_rows
    if "trees" in job.inputs:
        table = table.append_column("heads", _heads(table, read_shard(job.inputs["trees"].path)))
    if settings.max_tokens:
        longer = pc.max_element_wise(pc.list_value_length(table["source"]), pc.list_value_length(table["target"]))
        table = table.filter(pc.less_equal(longer, settings.max_tokens))
    source, target = (_ids(table[side], read_words(job.inputs["vocabulary"], side)) for side in ("source", "target"))
    lengths = np.diff(source.offsets.to_numpy()).astype(np.int64)
    heads = between_marks(table["heads"], lengths) if "heads" in table.column_names else None
    counts, members = settings.enumerate(Sentences(lengths, heads), settings.longest)
    schema = phrase_schema(settings.longest)
    made = pa.Table.from_arrays([table["id"], source, target, lists(counts, members), table["group"]], schema=schema)
    _validate(lengths, counts, members, str(job.inputs["shard"].path))
    return {"dropped": before - table.num_rows, "phrases": len(members), **write_shard(job.out / SHARD, made)}


def _heads(table: pa.Table, trees: pa.Table) -> pa.ChunkedArray:
    """Heads of TREES that belong to these TOKENS row by row."""
    if not (trees["id"].equals(table["id"]) and trees["tokens"].equals(table["source"])):
        raise ValueError("the trees are not those of the sources: parse the same tokens, with none left out")
    return trees["heads"]


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


def lists(counts: Ints, members: NDArray[Any]) -> pa.ListArray:
    """One list a sentence, of `counts` (S) rows of `members`, as Arrow."""
    kind = phrase_schema(members.shape[1]).field("phrases").type
    values = pa.FixedSizeListArray.from_arrays(pa.array(members.ravel(), pa.int32()), type=kind.value_type)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _validate(lengths: Ints, counts: Ints, members: Members, where: str) -> None:
    """Every phrase lies inside its sentence."""
    if (row := _outside(lengths, counts, members)) < len(lengths):
        raise ValueError(f"{where}: a phrase reaches beyond the sentence in row {row}")


@njit(cache=True, nogil=True)
def _outside(lengths: Ints, counts: Ints, members: Members) -> int:
    """The first row with a position that is none of its sentence, or the number of rows."""
    at = 0
    for row in range(len(lengths)):
        for phrase in members[at : at + counts[row]]:
            for word in phrase:
                if not -1 <= word < lengths[row]:
                    return row
        at += counts[row]
    return len(lengths)
