"""Sentences to trees: one step a shard, and any back end that gives TREES row by row."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.corpora.readers import reasons
from phrasemodels.data.formats.schemas import TREES, build, check, columns
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import ROOT, Span, Tree, brackets
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job, digest_of
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.prepare.tokenise import Tokeniser, spaces
from phrasemodels.tasks.train.loop import HISTORY

NO_WORDS = "no words"
NO_TREE = "the corpus has no tree"
UNKNOWN_TAG = "X"
TREE_OF = {"text": "tree", "premise": "premise_tree", "hypothesis": "hypothesis_tree"}  # columns of records


Folders = Mapping[str, Path]


class Parser(Protocol):
    """A back end; what it is made of decides the key."""

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """TREES of the sentences in a column, row by row; `models` are the folders of what it needs, by name. What it
        cannot parse has a reason, and a flat tree."""


@dataclass(frozen=True)
class Models:
    """The models of a parser as the input of a step, named by what they hold."""

    path: Path
    meta: Mapping[str, Any]
    key: str


def models_of(artifact: Artifact) -> Models:
    """The models in an artifact; the digests of their files are the key, but for how long it took to train them."""
    digests = {name: file["sha256"] for name, file in artifact.manifest["files"].items() if name != HISTORY}
    return Models(artifact.path, artifact.meta, digest_of(digests)[:32])


@dataclass(frozen=True)
class Parse:
    """Which column is parsed, and by what: tokens, or text whose words are apart by spaces."""

    parser: Parser
    column: str = "tokens"


def parse(job: Job, settings: Parse) -> dict[str, Any]:
    """TREES shards of any records, by what else is in job.inputs if the parser needs models; counts what has no tree."""
    others = {name: models_of(given) for name, given in job.inputs.items() if name != "rows"}
    return {"record": "trees", **counted(job, map_shards(job, parse_shard, settings, None, **others))}


def parse_shard(job: Job, settings: Parse) -> dict[str, Any]:
    """TREES of one shard."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    if settings.column not in table.column_names:
        raise ValueError(f"{path}: no column {settings.column!r} to parse; there are {', '.join(table.column_names)}")
    models = {name: given.path for name, given in job.inputs.items() if name != "shard"}
    made = check(settings.parser.analyse(table, settings.column, models), TREES, str(path))
    if made.num_rows != table.num_rows:
        raise ValueError(f"{path}: {table.num_rows} sentences, but {made.num_rows} trees")
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


Wanted = Callable[[pa.ChunkedArray], pa.ChunkedArray]  # trees of a corpus to which ones are made


def where_missing(trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where a corpus has no tree."""
    return pc.equal(trees, "")


def everywhere(trees: pa.ChunkedArray) -> pa.ChunkedArray:
    """In place of the trees of a corpus, too."""
    return pc.is_valid(trees)


@dataclass(frozen=True)
class Plant:
    """What makes trees, and which ones. divide: text into words, which have to be those that are read beside the tree."""

    parser: Parser
    wanted: Wanted = where_missing
    divide: Tokeniser = spaces


def plant(job: Job, settings: Plant) -> dict[str, Any]:
    """The same PAIRS or SENTENCES with a parser's tree wherever one is wanted, by what else is in job.inputs if the
    parser needs models; what cannot be parsed keeps its row, with the reason."""
    others = {name: models_of(given) for name, given in job.inputs.items() if name != "rows"}
    return counted(job, map_shards(job, plant_shard, settings, None, **others))


def plant_shard(job: Job, settings: Plant) -> dict[str, Any]:
    """One shard with trees."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    columns_ = [
        column for column, tree in TREE_OF.items() if column in table.column_names and tree in table.column_names
    ]
    if not columns_:
        raise ValueError(f"{path}: there is nothing to give trees to among {', '.join(table.column_names)}")
    models = {name: given.path for name, given in job.inputs.items() if name != "shard"}
    for column in columns_:
        table = planted(table, column, settings, models)
    return {"dropped": 0, **write_shard(job.out / SHARD, table)}


def planted(table: pa.Table, column: str, settings: Plant, models: Folders) -> pa.Table:
    """The table with trees of a column where they are wanted; a sentence that cannot be parsed adds to the row's
    reason."""
    name = TREE_OF[column]
    chosen = settings.wanted(table[name])
    asked = table.filter(chosen)
    texts = pa.array([" ".join(settings.divide(text, "en")) for text in asked[column].to_pylist()], pa.string())
    places = texts.dictionary_encode().indices.to_numpy()
    first = np.unique(places, return_index=True)[1]  # a premise of several pairs is parsed once
    asked = asked.set_column(asked.schema.get_field_index(column), column, texts).take(pa.array(first))
    made = settings.parser.analyse(asked, column, models).take(pa.array(places))
    why = pc.if_else(pc.equal(made["reason"], ""), "", pc.binary_join_element_wise(column, made["reason"], ": "))
    before = table["reason"].filter(chosen)
    joined = pc.if_else(pc.equal(before, ""), why, pc.if_else(pc.equal(why, ""), before, _and(before, why)))
    return _set(_set(table, name, chosen, made["tree"]), "reason", chosen, joined)


def _and(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(first, second, "; ")


def _set(table: pa.Table, name: str, where: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.Table:
    place = table.schema.get_field_index(name)
    column = pc.replace_with_mask(table[name].combine_chunks(), where.combine_chunks(), values.combine_chunks())
    return table.set_column(place, table.schema.field(name), column)


def counted(job: Job, meta: dict[str, Any]) -> dict[str, Any]:
    """A stage's meta with how many rows cannot be used, by reason."""
    found: Counter[str] = Counter()
    for shard in meta["shards"]:
        found.update(reasons(read_shard(job.out / shard["file"])))
    return {**meta, "unusable": dict(sorted(found.items()))}


@dataclass(frozen=True)
class Gold:
    """The trees that the corpus has."""

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        if table.schema.equals(TREES):
            return table
        name = TREE_OF.get(column, "")
        if name not in table.column_names:
            raise ValueError(f"{column!r} has no trees in this corpus: parse it with models")
        rows = [
            Analysis(tokens, tree=tree, reason="" if tree else NO_TREE if tokens else NO_WORDS)
            for tokens, tree in zip(sentences(table, column), table[name].to_pylist(), strict=True)
        ]
        return trees(table, rows)


@dataclass(frozen=True)
class Analysis:
    """A row of TREES in the making: n tokens, and what is known of them."""

    tokens: Sequence[str]
    tags: Sequence[str] = ()
    universal: Sequence[str] = ()
    tree: str = ""
    heads: Sequence[int] = ()
    relations: Sequence[str] = ()
    reason: str = ""


def flat(tokens: Sequence[str], reason: str) -> Analysis:
    """A sentence that cannot be parsed: its words side by side."""
    tags = (UNKNOWN_TAG,) * len(tokens)
    tree = brackets(Tree(tuple(tokens), tags, (Span(ROOT, 0, len(tokens)),))) if tokens else ""
    return Analysis(tokens, tree=tree, reason=reason)


def sentences(table: pa.Table, column: str) -> list[list[str]]:
    """The tokens of a column: as they are, or text at its spaces."""
    values = table[column].to_pylist()
    return values if pa.types.is_list(table.schema.field(column).type) else [text.split() for text in values]


def trees(table: pa.Table, rows: Sequence[Analysis]) -> pa.Table:
    """TREES of analyses, with the ids and groups of the table that they are of."""
    names = [field for field in TREES.names if field not in ("id", "group")]
    found = columns(names, ([getattr(row, name) for name in names] for row in rows))
    given = {"id": table["id"].combine_chunks(), "group": table["group"].combine_chunks()}
    return build(TREES, "a parser", found | given, table.num_rows)
