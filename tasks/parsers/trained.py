"""The project's own parser (paper 004) as a back end of the parse step."""

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.formats.trees import brackets
from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.models.parser import ParserConfig
from phrasemodels.tasks.parsers.parse import Analysis, Folders, sentences, trees
from phrasemodels.tasks.parsers.stanza_parser import in_batches, one_thread
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.problems.parsing.objective import Parsing
from phrasemodels.tasks.problems.parsing.predict import TreeParser


@dataclass(frozen=True)
class Trained:
    """A parser of a training: models are its `weights` and `vocabulary`. longest: of the sentences that are parsed."""

    problem: Parsing
    model: ParserConfig
    divide: Divide = no_pieces
    batch: int = 100
    longest: int = sys.maxsize

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        with one_thread():
            parser = load(self.problem, self.model, models["weights"], models["vocabulary"])

            def parse(some: list[list[str]]) -> list[Analysis]:
                return [
                    Analysis(
                        tokens=p.tokens,
                        tags=p.tags,
                        tree=brackets(p.tree) if p.tree else "",
                        heads=p.heads,
                        relations=p.relations,
                    )
                    for p in parser.parse(some, self.divide)
                ]

            return trees(table, in_batches(parse, sentences(table, column), self.batch, self.longest))


@cache
def load(problem: Parsing, model: ParserConfig, weights: Path, vocabulary: Path) -> TreeParser:
    """A parser, once a process."""
    return TreeParser(problem, model, _artifact(weights), _artifact(vocabulary))


def _artifact(path: Path) -> Artifact:
    return Artifact(path, json.loads((path / MANIFEST).read_text(encoding="utf-8")))
