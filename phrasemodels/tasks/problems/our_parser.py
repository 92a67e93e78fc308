"""The project's own parser (paper 004) as a back end of the parse step, trees by it for corpora of other problems, and phrases
by it for treebanks of dependencies."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from phrasemodels.data.formats.shards import TREES, read_shard, write_shard
from phrasemodels.data.formats.trees import brackets, wh_phrases
from phrasemodels.data.store.artifacts import MANIFEST, Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.models.parser import LazyScores, ParserConfig
from phrasemodels.parsing.ids import Divide, Ids, no_pieces
from phrasemodels.parsing.parser import Limits, Parser, batches
from phrasemodels.parsing.splitter import on_threads
from phrasemodels.structs import joint
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    Folders,
    add_trees,
    in_batches,
    sentences,
    trees,
)
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards
from phrasemodels.tasks.problems.parse_data import ParsingObjective
from phrasemodels.tasks.problems.parsing import ParsingRecipe, trained_parser
from phrasemodels.tasks.problems.recipe import steps_of
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class OurParser:
    """A trained parser as a back end. Its folders are `weights`, a training, and `vocabulary`.

    batch: sentences to parse together. longest: longer sentences are not parsed.
    """

    objective: ParsingObjective
    model: ParserConfig
    divide: Divide = no_pieces
    batch: int = 100
    longest: int = sys.maxsize

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row."""
        with on_threads(1):
            parser = load(self, models["weights"], models["vocabulary"])

            def parse(some: list[list[str]]) -> list[Analysis]:
                return [
                    Analysis(p.tokens, p.tags, tree=p.brackets, heads=p.heads, relations=p.relations)
                    for p in parser.parse_tokens(some)
                ]

            return trees(table, in_batches(parse, sentences(table, column), self.batch, self.longest))


@cache
def load(of: OurParser, weights: Path, vocabulary: Path) -> Parser:
    """Load a parser, once in each process."""
    artifacts = {"model": _artifact(weights), "vocabulary": _artifact(vocabulary)}
    return trained_parser(of.objective, of.model, artifacts, of.divide)


def _artifact(path: Path) -> Artifact:
    return Artifact(path, json.loads((path / MANIFEST).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class ByOurParser:
    """Records with constituency trees by a parser of paper 004. The parser is trained first.

    Args:
        name: The experiment of the parser.
        seed: Seed of the parser's training.
    """

    name: str
    recipe: ParsingRecipe
    model: ParserConfig
    train: TrainConfig
    seed: int = 0

    @property
    def parser(self) -> OurParser:
        """The trained parser as a back end."""
        return OurParser(self.recipe.problem, self.model, self.recipe.divide)

    @property
    def models(self) -> dict[str, Step]:
        """The folders that the back end reads."""
        steps = steps_of(self.name, self.recipe, self.model, self.train, self.seed)
        return {"weights": steps["model"], "vocabulary": self.recipe.data()["vocabulary"]}

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives PAIRS or SENTENCES the parser's trees."""
        label = f"trees of {rows.label} by {self.name}"
        return Step(add_trees, label, AddTrees(self.parser), {"rows": rows, **self.models})


@dataclass(frozen=True)
class WithPhrases:
    """A treebank of dependencies with phrases in its training set, by a parser of paper 004. The parser is trained first.

    A sentence gets the best phrases among the joint trees with its arcs. Sentences with phrases keep their own.
    """

    corpus: Corpus | SampleCorpus
    by: ByOurParser

    @property
    def name(self) -> str:
        return self.corpus.name

    def split(self, split: str) -> Step:
        """Return the step that yields the records of train, dev or test."""
        rows = self.corpus.split(split)
        if split != "train":
            return rows
        label = f"phrases of {rows.label} by {self.by.name}"
        return Step(add_phrases, label, self.by.parser, {"rows": rows, **self.by.models})


def add_phrases(job: Job, settings: OurParser) -> dict[str, Any]:
    """Write the TREES job.inputs["rows"] with phrases where they have heads alone; also reads ["weights"] and ["vocabulary"].

    No joint tree has crossing arcs or several roots, so these sentences stay without phrases. So do sentences too long for
    joint decoding.
    """
    models = {name: job.inputs[name] for name in ("weights", "vocabulary")}
    return map_shards(job, add_phrases_to_shard, settings, None, **models)


def add_phrases_to_shard(job: Job, settings: OurParser) -> dict[str, Any]:
    """Write one shard of `add_phrases`."""
    table = read_shard(job.inputs["shard"].path)
    rows = table.to_pylist()
    asked = [row for row in rows if row["heads"] and not row["tree"] and len(row["tokens"]) <= Limits().max_joint_words]
    with on_threads(1):
        parser = load(settings, *(job.inputs[n].path for n in ("weights", "vocabulary")))
        bracketed = phrases_of_arcs(parser, asked)
    for row, tree in zip(asked, bracketed, strict=True):
        row["tree"] = tree
    return {"dropped": 0, **write_shard(job.out / SHARD, pa.Table.from_pylist(rows, schema=TREES))}


@dataclass(frozen=True, eq=False)
class WithGivenArcs:
    """A decoder of the best phrases among the joint trees with given arcs.

    heads (B, n+1) have -1 at the root and in padding. If no joint tree has the arcs, phrases and heads are -1.
    """

    heads: Tensor

    def __call__(self, labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        allowed = torch.full((*self.heads.shape, self.heads.shape[1]), -torch.inf)
        sentence, word = (self.heads >= 0).nonzero(as_tuple=True)
        allowed[sentence, self.heads[sentence, word], word] = 0
        best, cells, heads = joint.argmax(labels(), allowed, lengths)
        none = (best == -torch.inf)[:, None]
        return cells.masked_fill(none[..., None], -1), heads.masked_fill(none, -1)


def phrases_of_arcs(parser: Parser, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return bracketed trees with the rows' own tags, for rows of TREES with heads. A tree is empty if there is none."""
    tokens, ids, made = [row["tokens"] for row in rows], Ids(parser.entries), [""] * len(rows)
    for places in batches(list(map(len, tokens)), Limits()):
        some = ids.batch([tokens[place] for place in places], parser.divide).to(parser.device)
        heads = torch.full((len(places), int(some.lengths.max()) + 1), -1)
        for row, place in enumerate(places):
            heads[row, 1 : len(tokens[place]) + 1] = torch.tensor(rows[place]["heads"])
        trees = parser.original.parse(some, WithGivenArcs(heads)).cpu()
        for row, place in enumerate(places):
            tree = parser.names.parse(tokens[place], row, trees).tree
            if tree:
                tags = tuple(rows[place]["tags"]) or tree.tags
                made[place] = brackets(wh_phrases(tree._replace(tags=tags)))
    return made
