"""The parsing step for any back end. It adds trees to records."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.corpora.readers import reasons
from phrasemodels.data.formats.shards import TREES, build, check, columns, read_shard, write_shard
from phrasemodels.data.formats.trees import ROOT, Span, Tree, brackets
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, digest_of
from phrasemodels.inference.inputs import Tokeniser, spaces
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.train.trainer import HISTORY

NO_WORDS = "no words"
UNKNOWN_TAG = "X"
OF_THE_DEVICE = ("OutOfMemoryError", "AcceleratorError")  # errors of torch that say nothing about a sentence
TREE_OF = {"text": "tree", "premise": "premise_tree", "hypothesis": "hypothesis_tree"}  # columns of records

Folders = Mapping[str, Path]


class ParserBackend(Protocol):
    """A parser. Its fields are part of the key of its steps."""

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row.

        models: the parser's folders by name. An unparsed sentence has a flat tree, and the reason.
        """


@dataclass(frozen=True)
class ParserModels:
    """The models of a parser as the input of a step. Its key is a digest of their content."""

    path: Path
    meta: Mapping[str, Any]
    key: str


def models_of(artifact: Artifact) -> ParserModels:
    """Return the models in an artifact. Their key is the digests of all files but the history with its seconds."""
    digests = {name: file["sha256"] for name, file in artifact.manifest["files"].items() if name != HISTORY}
    return ParserModels(artifact.path, artifact.meta, digest_of(digests)[:32])


@dataclass(frozen=True)
class AddTrees:
    """A parser. divide: the tokeniser of the encoder."""

    parser: ParserBackend
    divide: Tokeniser = spaces


def add_trees(job: Job, settings: AddTrees) -> dict[str, Any]:
    """Give the PAIRS or SENTENCES job.inputs["rows"] a parser's trees, in place of the corpus's.

    All other inputs are models of the parser. An unparsed row stays, with the reason.
    """
    others = {name: models_of(given) for name, given in job.inputs.items() if name != "rows"}
    return counted(job, map_shards(job, add_trees_to_shard, settings, None, **others))


def add_trees_to_shard(job: Job, settings: AddTrees) -> dict[str, Any]:
    """Write one shard with trees. ValueError: it has no column of trees."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    columns_ = [
        column for column, tree in TREE_OF.items() if column in table.column_names and tree in table.column_names
    ]
    if not columns_:
        raise ValueError(f"{path}: no sentence with a tree among the columns {', '.join(table.column_names)}")
    models = {name: given.path for name, given in job.inputs.items() if name != "shard"}
    for column in columns_:
        table = with_trees(table, column, settings, models)
    return {"dropped": 0, **write_shard(job.out / SHARD, table)}


def with_trees(table: pa.Table, column: str, settings: AddTrees, models: Folders) -> pa.Table:
    """Put the parser's trees of a column into the table. The reason of an unparsed sentence is appended to the row's.

    ValueError: the parser gave no TREES, or another number of them.
    """
    texts = pa.array([" ".join(settings.divide(text, "en")) for text in table[column].to_pylist()], pa.string())
    places = texts.dictionary_encode().indices.to_numpy()
    first = np.unique(places, return_index=True)[1]  # equal sentences are parsed once
    asked = _set(table, column, texts).take(pa.array(first))
    made = check(settings.parser.analyse(asked, column, models), TREES, f"the parser's trees of {column}")
    if made.num_rows != asked.num_rows:
        raise ValueError(f"{column}: {asked.num_rows} sentences, but the parser gave {made.num_rows} trees")
    made = made.take(pa.array(places))
    why = pc.if_else(pc.equal(made["reason"], ""), "", pc.binary_join_element_wise(column, made["reason"], ": "))
    before = table["reason"]
    both = pc.binary_join_element_wise(before, why, "; ")
    joined = pc.if_else(pc.equal(before, ""), why, pc.if_else(pc.equal(why, ""), before, both))
    return _set(_set(table, TREE_OF[column], made["tree"]), "reason", joined)


def _set(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)


def counted(job: Job, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the meta of shards with the number of unusable rows by reason."""
    found: Counter[str] = Counter()
    for shard in meta["shards"]:
        found.update(reasons(read_shard(job.out / shard["file"])))
    return {**meta, "unusable": dict(sorted(found.items()))}


@dataclass(frozen=True)
class Analysis:
    """A row of TREES: n tokens, and their analysis. Unknown parts are empty. reason: why a sentence is not parsed."""

    tokens: Sequence[str]
    tags: Sequence[str] = ()
    universal: Sequence[str] = ()
    tree: str = ""
    heads: Sequence[int] = ()
    relations: Sequence[str] = ()
    reason: str = ""


def flat(tokens: Sequence[str], reason: str) -> Analysis:
    """Return the analysis of an unparsed sentence: a tree of one phrase."""
    tags = (UNKNOWN_TAG,) * len(tokens)
    tree = brackets(Tree(tuple(tokens), tags, (Span(ROOT, 0, len(tokens)),))) if tokens else ""
    return Analysis(tokens, tree=tree, reason=reason)


def sentences(table: pa.Table, column: str) -> list[list[str]]:
    """Return the tokens of a column of tokens or of text. Text is split at spaces."""
    values = table[column].to_pylist()
    return values if pa.types.is_list(table.schema.field(column).type) else [text.split() for text in values]


def trees(table: pa.Table, rows: Sequence[Analysis]) -> pa.Table:
    """Return analyses as TREES, with the ids and groups of the parsed table."""
    names = [field for field in TREES.names if field not in ("id", "group")]
    found = columns(names, ([getattr(row, name) for name in names] for row in rows))
    given = {"id": table["id"].combine_chunks(), "group": table["group"].combine_chunks()}
    return build(TREES, "a parser", found | given, table.num_rows)


ParseBatch = Callable[[list[list[str]]], list[Analysis]]


def in_batches(parse: ParseBatch, tokens: Sequence[Sequence[str]], size: int, longest: int) -> list[Analysis]:
    """Return the analysis of each sentence by a back end with batches of `size` sentences.

    A sentence is not parsed if it is empty or longer than `longest`. If a batch fails, its sentences are parsed one by
    one. A failing sentence is flat with the error as its reason. RuntimeError: the device fails.
    """
    analyses = [flat(words, NO_WORDS if not words else f"more than {longest} words") for words in tokens]
    rows = [row for row, words in enumerate(tokens) if 0 < len(words) <= longest]
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        for row, analysis in zip(some, _tried(parse, [list(tokens[row]) for row in some]), strict=True):
            analyses[row] = analysis
    return analyses


def _tried(parse: ParseBatch, some: list[list[str]]) -> list[Analysis]:
    try:
        return parse(some)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if type(error).__name__ in OF_THE_DEVICE:
            if len(some) == 1:
                raise RuntimeError(
                    f"a sentence of {len(some[0])} words cannot be parsed on this device: {error}"
                ) from error
        elif len(some) == 1:
            return [flat(some[0], f"the parser failed: {type(error).__name__}")]
        return [analysis for words in some for analysis in _tried(parse, [words])]
