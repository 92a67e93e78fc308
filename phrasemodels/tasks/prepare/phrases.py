"""Tokens as numbers: ids of words and phrases for attention as positions of words.

Phrases are adjacent words or connected parts of a dependency tree. Models see trees only as such positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import phrase_schema, read_shard, write_shard
from phrasemodels.data.store.store import Job
from phrasemodels.inference import inputs
from phrasemodels.layers.blocks import BEGIN, END, SPECIAL, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.prepare.vocabulary import read_ids

NO_HEAD = -1  # of a root, and of a token without a tree
Ints = NDArray[np.int64]
Members = NDArray[np.int32]


@dataclass(frozen=True)
class LengthsAndHeads:
    """Lengths (S) of sentences in tokens and the position of each token's head (tokens) if parsed.

    It is NO_HEAD for a root and for a token of a sentence without a tree.
    """

    lengths: Ints
    heads: Ints | None = None


# (sentences, longest) -> the number of phrases of each sentence (S), and the positions of their words (phrases, longest),
# -1 after the last one
Enumerate = Callable[[LengthsAndHeads, int], tuple[Ints, Members]]


def no_phrases(sentences: LengthsAndHeads, longest: int) -> tuple[Ints, Members]:
    """No phrases, as for a plain Transformer."""
    return np.zeros_like(sentences.lengths), np.zeros((0, longest), np.int32)


def adjacent(sentences: LengthsAndHeads, longest: int) -> tuple[Ints, Members]:
    """Spans of 2 to `longest` adjacent tokens by length and then by start.

    See Eq 1 of paper 000. Spans of one token are left out.
    """
    lengths = np.flatnonzero(np.bincount(sentences.lengths))
    values, counts = _all_spans(lengths, longest)
    # the spans of all sentences of one length are one value of bytes, which Arrow copies for each of them
    offsets = np.concatenate([[0], np.cumsum(counts) * longest * values.itemsize])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    which = np.searchsorted(lengths, np.arange(lengths.max(initial=0) + 1))[sentences.lengths]
    copied = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers).take(pa.array(which))
    return counts[which], np.frombuffer(copied.buffers()[2] or b"", np.int32).reshape(-1, longest)


def _all_spans(lengths: Ints, longest: int) -> tuple[Members, Ints]:
    """Return the spans of 2 to `longest` tokens of one sentence of each length, and how many each sentence has."""
    offset, sizes, most = np.arange(longest, dtype=np.int32), np.arange(2, longest + 1), int(lengths.max(initial=0))
    first = np.arange(most, dtype=np.int32)[:, None] + offset
    spans = np.where(offset < sizes[:, None, None], first, np.int32(-1)).reshape(-1, longest)
    # the spans of one size are the first of the longest sentence's
    counts = np.maximum(lengths[:, None] - sizes + 1, 0)
    runs = counts.ravel()
    rows = np.repeat(np.tile(np.arange(longest - 1) * most, len(lengths)) - (np.cumsum(runs) - runs), runs)
    return spans.take(rows + np.arange(len(rows)), axis=0), counts.sum(1)


def subtrees(sentences: LengthsAndHeads, longest: int) -> tuple[Ints, Members]:
    """Connected parts of a tree with 2 to `longest` words (2 or 3). An arc to the root is no edge.

    Edges come first by dependent. Then each word comes with its head and its head's head. Next it comes with its head
    and each later dependent of that head. Positions of a phrase ascend. ValueError: another `longest` or no trees.
    """
    if longest not in (2, 3):
        raise ValueError(f"subtrees of up to {longest} words: paper 000 has edges (2) and three connected words (3)")
    if sentences.heads is None:
        raise ValueError("subtrees need trees: give the phrases step an input `trees`, from a treebank or a parser")
    parts = np.split(sentences.heads, np.cumsum(sentences.lengths)[:-1])
    found = [inputs.phrases("subtrees", len(heads), longest, heads.tolist()) for heads in parts]
    counts = np.array([len(phrases) for phrases in found], np.int64)[: len(sentences.lengths)]
    return counts, np.concatenate(found)


@dataclass(frozen=True)
class Phrases:
    """The phrases to enumerate.

    Args:
        enumerate: The kind of phrases.
        longest: Words of the longest phrase.
        max_tokens: Drop longer sentences from train. Sentences of dev and test stay. 0: drop none.
        marks: The source stands between <s> and </s>.
    """

    enumerate: Enumerate = adjacent
    longest: int = 2
    max_tokens: int = 0
    marks: bool = True

    def __post_init__(self) -> None:
        at_least(self, 2, "longest")
        at_least(self, 0, "max_tokens")


def phrases(job: Job, settings: Phrases) -> dict[str, Any]:
    """Write shards of word ids and phrases of the TOKENS job.inputs["rows"] in a step for each shard.

    It also reads ["vocabulary"]. Phrases from trees need ["trees"], the TREES of the source row by row.
    """
    beside = {"trees": job.inputs["trees"]} if "trees" in job.inputs else {}
    return map_shards(job, phrase_shard, settings, beside, vocabulary=job.inputs["vocabulary"])


def phrase_shard(job: Job, settings: Phrases) -> dict[str, Any]:
    """Write word ids and phrases of one shard. Positions count the source's <s> and </s>, if it has them."""
    table = read_shard(job.inputs["shard"].path)
    before = table.num_rows
    if "trees" in job.inputs:
        table = table.append_column("heads", _heads(table, read_shard(job.inputs["trees"].path)))
    if settings.max_tokens:
        longer = pc.max_element_wise(pc.list_value_length(table["source"]), pc.list_value_length(table["target"]))
        table = table.filter(pc.less_equal(longer, settings.max_tokens))
    source, target = (
        _ids(table[side], read_ids(job.inputs["vocabulary"], side), marks)
        for side, marks in (("source", settings.marks), ("target", True))
    )
    lengths = np.diff(source.offsets.to_numpy()).astype(np.int64)
    placed = between_marks if settings.marks else parents
    heads = placed(table["heads"], lengths) if "heads" in table.column_names else None
    counts, members = settings.enumerate(LengthsAndHeads(lengths, heads), settings.longest)
    schema = phrase_schema(settings.longest)
    made = pa.Table.from_arrays([table["id"], source, target, lists(counts, members), table["group"]], schema=schema)
    _validate(lengths, counts, members, str(job.inputs["shard"].path))
    return {"dropped": before - table.num_rows, "phrases": len(members), **write_shard(job.out / SHARD, made)}


def _heads(table: pa.Table, trees: pa.Table) -> pa.ChunkedArray:
    """Return the heads of TREES. ValueError: their rows differ from the rows of the TOKENS."""
    if not (trees["id"].equals(table["id"]) and trees["tokens"].equals(table["source"])):
        raise ValueError("the trees differ from the sources: parse the same tokens, without leaving any out")
    return trees["heads"]


def _ids(column: pa.ChunkedArray, ids_of: Mapping[str, int], marks: bool) -> pa.ListArray:
    """Return the ids of a column of token lists, each list between BEGIN and END if it has marks. An empty list without
    marks becomes END alone, so that a model has something to attend to. A token that spells a special entry is unknown."""
    lists = column.combine_chunks()
    tokens = lists.flatten().dictionary_encode()  # each word is looked up once, not a table of all words made
    known = np.array([ids_of.get(word, UNKNOWN) for word in tokens.dictionary.to_pylist()], np.int32)
    found = np.where(known < len(SPECIAL), np.int32(UNKNOWN), known)[tokens.indices.to_numpy()]
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    added = np.full(len(lengths), 2) if marks else (lengths == 0).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths + added)])
    ids, inner = np.full(offsets[-1], END, np.int32), np.ones(offsets[-1], bool)
    inner[offsets[1:][added > 0] - 1] = False
    if marks:
        ids[offsets[:-1]], inner[offsets[:-1]] = BEGIN, False
    ids[inner] = found
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(ids), type=phrase_schema(1).field("source").type
    )


def lists(counts: Ints, members: NDArray[Any]) -> pa.ListArray:
    """Return an Arrow list for each sentence, of the next counts[s] rows of `members`."""
    kind = phrase_schema(members.shape[1]).field("phrases").type
    values = pa.FixedSizeListArray.from_arrays(pa.array(members.ravel(), pa.int32()), type=kind.value_type)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)


def _validate(lengths: Ints, counts: Ints, members: Members, where: str) -> None:
    """Raise a ValueError if a phrase does not lie inside its sentence."""
    outside = (members < -1) | (members >= np.repeat(lengths, counts)[:, None])
    if wrong := np.flatnonzero(outside.any(1))[:1].tolist():
        row = int(np.searchsorted(np.cumsum(counts), wrong[0], "right"))
        raise ValueError(f"{where}: a phrase reaches beyond the sentence in row {row}")


def parents(heads: pa.ChunkedArray, lengths: Ints) -> Ints:
    """Return the position of each token's head in its sentence (tokens) or NO_HEAD for a root.

    The column of heads counts from 1 (TREES). Lengths (S) are in tokens. A sentence without heads has NO_HEAD
    everywhere. ValueError: a sentence has another number of heads than tokens. Or a head is outside of its sentence.
    """
    given = pc.list_value_length(heads).to_numpy().astype(np.int64)
    if wrong := np.flatnonzero((given != lengths) & (given > 0)).tolist():
        row = wrong[0]
        raise ValueError(f"row {row}: {given[row]} heads for {lengths[row]} tokens; parse the tokens that are used")
    out = np.full(int(lengths.sum()), NO_HEAD, np.int64)
    flat = pc.list_flatten(heads).to_numpy()
    if len(flat) and (flat.min() < 0 or (flat > np.repeat(given, given)).any()):
        raise ValueError("a head lies outside of its sentence: parse the tokens that are used")
    out[np.repeat(given > 0, lengths)] = flat.astype(np.int64) - 1
    return out


def between_marks(heads: pa.ChunkedArray, lengths: Ints) -> Ints:
    """Return `parents` for sentences between BEGIN and END, which have no head and which lengths (S) count."""
    found = np.full(int(lengths.sum()), NO_HEAD, np.int64)
    inner = np.ones(len(found), bool)
    inner[np.cumsum(lengths) - 1] = inner[np.cumsum(lengths) - lengths] = False
    within = parents(heads, lengths - 2)
    found[inner] = np.where(within < 0, NO_HEAD, within + 1)
    return found
