"""Parses: what a trained parser finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file

from phrasemodels.data.formats.joint_trees import restore
from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.formats.trees import Span, Tree, brackets
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.models.parser import ParserConfig, Parses
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.parsing.data import NUMBERS, SIDES, Ids, read_side
from phrasemodels.tasks.problems.parsing.objective import COLUMNS, ParseExamples, Parsing
from phrasemodels.tasks.train.batches import Columns, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors

PARSES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("tree", pa.string(), nullable=False),
        pa.field("heads", pa.list_(pa.int32()), nullable=False),
        pa.field("relations", pa.list_(pa.string()), nullable=False),
    ]
)


@dataclass(frozen=True)
class Parse:
    """A sentence as it is written out; what was not asked for is empty."""

    tokens: list[str]
    tags: list[str]
    tree: Tree | None
    heads: list[int]
    relations: list[str]


@dataclass(frozen=True)
class Names:
    """What ids of a parser stand for."""

    labels: Sequence[str]
    relations: Sequence[str]
    tags: Sequence[str]

    @classmethod
    def read(cls, vocabulary: Artifact) -> "Names":
        return cls(*(read_side(vocabulary, side) for side in ("labels", "relations", "tags")))

    def parse(self, tokens: list[str], row: int, found: Parses) -> Parse:
        """One row of what a parser found."""
        n = len(tokens)
        tags = [self.tags[tag] for tag in found.tags[row, 1 : n + 1].tolist()]
        spans = [Span(self.labels[k], i, j + 1) for i, j, k in found.cells[row].tolist() if k > 0]
        heads, relations = (x[row, 1 : n + 1].tolist() for x in (found.heads, found.relations))
        tree = restore(tokens, tags, spans) if int(found.cells[row, 0, 0]) >= 0 else None
        if heads[0] < 0:
            return Parse(tokens, tags, tree, [], [])
        return Parse(tokens, tags, tree, heads, [self.relations[k] for k in relations])


class TreeParser:
    """A trained parser, ready for sentences of tokens: weights of a training, with its configuration and vocabulary."""

    def __init__(self, problem: Parsing, model: ParserConfig, weights: Artifact, vocabulary: Artifact) -> None:
        self.problem, self.names = problem, Names.read(vocabulary)
        self.ids = Ids({side: read_side(vocabulary, side) for side in SIDES})
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = problem.configure(model, vocabulary).build()
        load_tensors(self.model, load_file(weights.file("model.safetensors")))
        self.model.eval().to(self.device)

    def numbers(self, sentences: Sequence[list[str]], divide: Divide = no_pieces) -> pa.Table:
        """NUMBERS of sentences."""
        rows = [
            {**self.ids.sentence(tokens), **divide(tokens), "id": row, "cells": [], "heads": [], "relations": []}
            for row, tokens in enumerate(sentences)
        ]
        return pa.Table.from_pylist(rows, schema=NUMBERS)

    def parse(
        self, sentences: Sequence[list[str]], divide: Divide = no_pieces, batch_tokens: int = 2000
    ) -> list[Parse]:
        """The parses of sentences, none of them empty, in their order."""
        columns = Columns.of_table(self.numbers(sentences, divide), COLUMNS)
        return self.answer(ParseExamples(columns, self.problem.tagged), sentences, batch_tokens)

    def answer(self, data: ParseExamples, sentences: Sequence[list[str]], batch_tokens: int) -> list[Parse]:
        """The parses of rows that are numbers already; batch_tokens bounds memory and does not change the result."""
        found: dict[int, Parse] = {}
        for rows in in_order(data, batch_tokens) if len(data) else []:
            parses = self.model.parse(data.batch(rows).to(self.device).sentences, self.problem.decode)
            cpu = Parses(*(x.cpu() for x in parses))
            found |= {row: self.names.parse(sentences[row], place, cpu) for place, row in enumerate(rows.tolist())}
        return [found[row] for row in range(len(sentences))]


@dataclass(frozen=True)
class ParseSettings:
    """A model's configuration, and how many tokens are parsed at a time."""

    problem: Parsing
    model: ParserConfig
    batch_tokens: int = 2000


def parse_sentences(job: Job, settings: ParseSettings) -> dict[str, Any]:
    """predictions.arrow: the parse of every row of job.inputs["numbers"], beside the tokens of ["rows"]."""
    parser = TreeParser(settings.problem, settings.model, job.inputs["model"], job.inputs["vocabulary"])
    table = read_shards(job.inputs["rows"])
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["numbers"])])
    parses = parser.answer(data, table["tokens"].to_pylist(), settings.batch_tokens)
    return {"predictions": write_shard(job.out / "predictions.arrow", _predictions(table, parses))}


def _predictions(table: pa.Table, parses: list[Parse]) -> pa.Table:
    columns = {
        "id": table["id"],
        "group": table["group"],
        "tokens": table["tokens"],
        "tags": [parse.tags for parse in parses],
        "tree": [brackets(parse.tree) if parse.tree else "" for parse in parses],
        "heads": [parse.heads for parse in parses],
        "relations": [parse.relations for parse in parses],
    }
    return pa.table(columns, schema=PARSES)
