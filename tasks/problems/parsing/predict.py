"""A trained parser: sentences to parses, and parses as text."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.conllu import sentence_to_conllu
from phrasemodels.data.formats.joint_trees import restore
from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.formats.trees import Span, Tree, brackets
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.models.parser import ParsedTrees, ParserConfig
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.prepare.sharded import read_shards, required, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.parsing.data import NUMBERS, SIDES, Ids
from phrasemodels.tasks.problems.parsing.objective import COLUMNS, ParseExamples, ParsingObjective
from phrasemodels.tasks.train.batches import Columns, in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained

_WORDS = pa.list_(pa.string())
PARSES = required(
    id=pa.int64(), group=pa.string(), tokens=_WORDS, tags=_WORDS, tree=pa.string(), heads=pa.list_(pa.int32()),
    relations=_WORDS,
)  # fmt: skip


@dataclass(frozen=True)
class ParsedSentence:
    """A parse of n tokens; what was not decoded is empty: tree, or heads (n) from 1 with 0 for the root and relations (n)."""

    tokens: list[str]
    tags: list[str]
    tree: Tree | None
    heads: list[int]
    relations: list[str]

    @property
    def brackets(self) -> str:
        """The tree in Penn brackets on one line, or an empty string."""
        return brackets(self.tree) if self.tree else ""


@dataclass(frozen=True)
class Names:
    """The entries of a parser's vocabularies that it predicts, by id."""

    labels: Sequence[str]
    relations: Sequence[str]
    tags: Sequence[str]

    def parse(self, tokens: list[str], row: int, found: ParsedTrees) -> ParsedSentence:
        """Return one row of predicted ids as a parse."""
        n = len(tokens)
        tags = [self.tags[tag] for tag in found.tags[row, 1 : n + 1].tolist()]
        spans = [Span(self.labels[k], i, j + 1) for i, j, k in found.cells[row].tolist() if k > 0]
        heads, relations = (x[row, 1 : n + 1].tolist() for x in (found.heads, found.relations))
        tree = restore(tokens, tags, spans) if int(found.cells[row, 0, 0]) >= 0 else None
        if heads[0] < 0:
            return ParsedSentence(tokens, tags, tree, [], [])
        return ParsedSentence(tokens, tags, tree, heads, [self.relations[k] for k in relations])


class TreeParser:
    """A trained parser in memory. artifacts: the training (`model`) and its `vocabulary`."""

    def __init__(
        self, objective: ParsingObjective, config: ParserConfig, model: Artifact, vocabulary: Artifact
    ) -> None:
        words = {side: read_words(vocabulary, side) for side in SIDES}
        self.objective, self.ids = objective, Ids(words)
        self.names = Names(words["labels"], words["relations"], words["tags"])
        self.device = best_device()
        self.model = load_trained(objective, config, {"model": model, "vocabulary": vocabulary}, self.device)

    def numbers(self, sentences: Sequence[list[str]], divide: Divide = no_pieces) -> pa.Table:
        """Return NUMBERS of sentences."""
        rows = [
            {**self.ids.sentence(tokens), **divide(tokens), "id": row, "cells": [], "heads": [], "relations": []}
            for row, tokens in enumerate(sentences)
        ]
        return pa.Table.from_pylist(rows, schema=NUMBERS)

    def parse(
        self, sentences: Sequence[list[str]], divide: Divide = no_pieces, batch_tokens: int = 2000
    ) -> list[ParsedSentence]:
        """Return the parses of sentences, in order; no sentence may be empty."""
        columns = Columns.of_table(self.numbers(sentences, divide), COLUMNS)
        return self.parse_rows(ParseExamples(columns, self.objective.tagged), sentences, batch_tokens)

    def parse_rows(
        self, data: ParseExamples, sentences: Sequence[list[str]], batch_tokens: int
    ) -> list[ParsedSentence]:
        """Return the parses of numbered sentences, in order. batch_tokens bounds memory and does not change the result."""
        found: dict[int, ParsedSentence] = {}
        for rows in in_order(data, batch_tokens) if len(data) else []:
            parses = self.model.parse(data.batch(rows).to(self.device).sentences, self.objective.decode)
            cpu = ParsedTrees(*(x.cpu() for x in parses))
            found |= {row: self.names.parse(sentences[row], place, cpu) for place, row in enumerate(rows.tolist())}
        return [found[row] for row in range(len(sentences))]


def parse_sentences(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Parse the numbered sentences job.inputs["numbers"], whose tokens are ["rows"]; also reads ["model"] and
    ["vocabulary"]. Writes predictions.arrow."""
    parser = TreeParser(settings.objective, settings.model, job.inputs["model"], job.inputs["vocabulary"])
    table = read_shards(job.inputs["rows"])
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["numbers"])])
    parses = parser.parse_rows(data, table["tokens"].to_pylist(), settings.batch_tokens)
    columns = {
        "id": table["id"],
        "group": table["group"],
        "tokens": table["tokens"],
        "tags": [parse.tags for parse in parses],
        "tree": [parse.brackets for parse in parses],
        "heads": [parse.heads for parse in parses],
        "relations": [parse.relations for parse in parses],
    }
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=PARSES))}


def bracketed(parse: ParsedSentence) -> str:
    """Return the tree in Penn brackets on one line."""
    return parse.brackets


def conllu(parse: ParsedSentence) -> str:
    """Return a parse as CoNLL-U with Penn tags in the fifth column, and an empty line at the end."""
    sentence = sentence_to_conllu(parse.tokens, parse.tags, (), parse.heads, parse.relations)
    return f"# text = {' '.join(parse.tokens)}\n{sentence}"


def as_json(parse: ParsedSentence) -> str:
    """Return a parse as a JSON object on one line."""
    values = {"tokens": parse.tokens, "tags": parse.tags, "tree": parse.brackets}
    return json.dumps(values | {"heads": parse.heads, "relations": parse.relations}, ensure_ascii=False)


FORMATS: dict[str, Callable[[ParsedSentence], str]] = {"brackets": bracketed, "conllu": conllu, "json": as_json}
