"""The project's own parser (paper 004) as a back end of the parse step, and trees by it for corpora of other problems."""

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.store import Step
from phrasemodels.models.parser import ParserConfig
from phrasemodels.parsing.parser import Divide, no_pieces
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    Folders,
    add_trees,
    in_batches,
    replace_all,
    sentences,
    trees,
)
from phrasemodels.tasks.parsers.stanza import one_thread
from phrasemodels.tasks.problems.parse_data import ParsingObjective
from phrasemodels.tasks.problems.parsing import ParsingRecipe, TreeParser
from phrasemodels.tasks.problems.recipe import steps_of
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class OurParser:
    """A trained parser as a back end; its folders are `weights`, a training, and `vocabulary`.

    batch: sentences that are parsed together. longest: longer sentences are not parsed.
    """

    objective: ParsingObjective
    model: ParserConfig
    divide: Divide = no_pieces
    batch: int = 100
    longest: int = sys.maxsize

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row."""
        with one_thread():
            parser = load(self.objective, self.model, models["weights"], models["vocabulary"])

            def parse(some: list[list[str]]) -> list[Analysis]:
                return [
                    Analysis(p.tokens, p.tags, tree=p.brackets, heads=p.heads, relations=p.relations)
                    for p in parser.parse(some, self.divide)
                ]

            return trees(table, in_batches(parse, sentences(table, column), self.batch, self.longest))


@cache
def load(objective: ParsingObjective, model: ParserConfig, weights: Path, vocabulary: Path) -> TreeParser:
    """Load a parser, once in each process."""
    return TreeParser(objective, model, _artifact(weights), _artifact(vocabulary))


def _artifact(path: Path) -> Artifact:
    return Artifact(path, json.loads((path / MANIFEST).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class ByOurParser:
    """Records with constituency trees by a parser of paper 004, which is trained first.

    name: the experiment that trains the parser; recipe, model, train and seed are the experiment's.
    """

    name: str
    recipe: ParsingRecipe
    model: ParserConfig
    train: TrainConfig
    seed: int = 0

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives PAIRS or SENTENCES the parser's trees."""
        steps = steps_of(self.name, self.recipe, self.model, self.train, self.seed)
        parser = OurParser(self.recipe.problem, self.model, self.recipe.divide)
        models = {"weights": steps["model"], "vocabulary": self.recipe.data()["vocabulary"]}
        label = f"trees of {rows.label} by {self.name}"
        return Step(add_trees, label, AddTrees(parser, replace_all), {"rows": rows, **models})
