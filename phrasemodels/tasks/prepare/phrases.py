"""Tokens as numbers: ids of words and phrases for attention as positions of words.

Phrases are adjacent words or connected parts of a dependency tree. Models see trees only as such positions.
"""

from collections.abc import Mapping, Sequence
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
from phrasemodels.inference.inputs import Enumerate, adjacent, subtrees
from phrasemodels.layers.blocks import BEGIN, END, SPECIAL, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.prepare.vocabulary import read_ids

NO_HEAD = -1  # of a root, and of a token without a tree
Ints = NDArray[np.int64]
Members = NDArray[np.int32]


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
    counts, members = enumerated(settings, lengths, heads)
    schema = phrase_schema(settings.longest)
    made = pa.Table.from_arrays([table["id"], source, target, lists(counts, members), table["group"]], schema=schema)
    _validate(lengths, counts, members, str(job.inputs["shard"].path))
    return {"dropped": before - table.num_rows, "phrases": len(members), **write_shard(job.out / SHARD, made)}


def enumerated(settings: Phrases, lengths: Ints, heads: Ints | None) -> tuple[Ints, Members]:
    """Return the number of phrases of each sentence, and the positions of all phrases' words (phrases, longest).

    heads: the position of each token's head (tokens). ValueError: there are none, and phrases are subtrees.
    """

    def of(n: int, own: Sequence[int] = ()) -> Members:
        return inputs.phrases(settings.enumerate, n, settings.longest, own)

    if heads is None:
        if settings.enumerate is subtrees:
            raise ValueError("subtrees need trees: give the phrases step an input `trees`, from a treebank or a parser")
        same = {n: of(n) for n in set(lengths.tolist())}  # one array for all sentences of a length
        found = [same[n] for n in lengths.tolist()]
    else:
        ends = np.cumsum(lengths).tolist()
        found = [of(n, heads[end - n : end].tolist()) for n, end in zip(lengths.tolist(), ends, strict=True)]
    counts = np.array([len(own) for own in found], np.int64)
    return counts, np.concatenate([np.zeros((0, settings.longest), np.int32), *found])


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
