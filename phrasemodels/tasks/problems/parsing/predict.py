"""A trained parser: sentences to parses, and parses as text."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.models.parser import ParsedTrees, ParserConfig
from phrasemodels.parsing.numbers import SIDES, Divide, Ids, no_pieces
from phrasemodels.parsing.parse import Parse
from phrasemodels.parsing.parser import Limits, Names, Parser, bounded
from phrasemodels.parsing.words import Sentences, sentences
from phrasemodels.tasks.prepare.sharded import read_shards, required, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.parsing.data import NUMBERS
from phrasemodels.tasks.problems.parsing.objective import ParseExamples, ParsingObjective
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained

_WORDS = pa.list_(pa.string())
PARSES = required(
    id=pa.int64(), group=pa.string(), tokens=_WORDS, tags=_WORDS, tree=pa.string(), heads=pa.list_(pa.int32()),
    relations=_WORDS,
)  # fmt: skip


class TreeParser:
    """A trained parser in memory. artifacts: the training (`model`) and its `vocabulary`."""

    def __init__(
        self, objective: ParsingObjective, config: ParserConfig, model: Artifact, vocabulary: Artifact
    ) -> None:
        self.entries = {side: read_words(vocabulary, side) for side in SIDES}
        self.objective, self.ids = objective, Ids(self.entries)
        self.names = Names(self.entries["labels"], self.entries["relations"], self.entries["tags"])
        self.device = best_device()
        self.config = objective.configure(config, vocabulary)
        self.model = load_trained(objective, config, {"model": model, "vocabulary": vocabulary}, self.device)

    def parser(self, divide: Divide = no_pieces, split: Sentences = sentences) -> Parser:
        """Return the parser for text."""
        return Parser(self.model, self.entries, self.objective.decode, divide, split=split)

    def numbers(self, sentences: Sequence[list[str]], divide: Divide = no_pieces) -> pa.Table:
        """Return NUMBERS of sentences."""
        rows = [
            {**self.ids.sentence(tokens), **divide(tokens), "id": row, "cells": [], "heads": [], "relations": []}
            for row, tokens in enumerate(sentences)
        ]
        return pa.Table.from_pylist(rows, schema=NUMBERS)

    def parse(self, sentences: Sequence[list[str]], divide: Divide = no_pieces) -> list[Parse]:
        """Return the parses of sentences, in order."""
        return list(self.parser(divide).parse_tokens(sentences))

    def parse_rows(self, data: ParseExamples, sentences: Sequence[list[str]], batch_tokens: int) -> list[Parse]:
        """Return the parses of numbered sentences, in order. batch_tokens bounds memory and does not change the result."""
        found: dict[int, Parse] = {}
        limits = Limits(together=batch_tokens)
        for rows in in_order(data, batch_tokens) if len(data) else []:
            batch = data.batch(rows).to(self.device).sentences
            parses = self.model.parse(batch, bounded(self.objective.decode, int(batch.lengths.max()), limits))
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


FORMATS: dict[str, Callable[[Parse, str], str]] = {
    "brackets": lambda parse, sent_id: parse.brackets,
    "conllu": Parse.conllu,
    "json": lambda parse, sent_id: parse.json(),
}
