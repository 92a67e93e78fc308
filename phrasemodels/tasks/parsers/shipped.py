"""The English parser of this package as a back end of the parse step: 0.6 to 1.1 CPU hours a million sentences."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Tokeniser, spaces
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ENGLISH
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    Folders,
    add_trees,
    in_batches,
    sentences,
    trees,
)

NAME = "english"  # in commands and overrides
FILES = ("parser.json", "model.safetensors", "splitter.safetensors")


@dataclass(frozen=True)
class ShippedParser:
    """A saved parser, in the folder `models`.

    batch: sentences of one batch. longest: longer sentences are not parsed.
    """

    batch: int = 256
    longest: int = 300

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row."""
        parser = load(models["models"])

        def parse(some: list[list[str]]) -> list[Analysis]:
            return [
                Analysis(p.tokens, p.tags, p.universal or (), p.brackets, p.heads, p.relations)
                for p in parser.parse_tokens(some)
            ]

        return trees(table, in_batches(parse, sentences(table, column), self.batch, self.longest))


@cache
def load(folder: Path) -> Parser:
    """Load a saved parser, once in each process."""
    return Parser.load(folder)


@cache
def shipped_card() -> Mapping[str, Any]:
    """Return the card of the parser of this package: its name, licences and scores."""
    card: dict[str, Any] = json.loads((ENGLISH / FILES[0]).read_text(encoding="utf-8"))["card"]
    return card


@dataclass(frozen=True)
class CopyParser:
    """A parser of this package by the name of its card and the digests of its files."""

    name: str
    digests: tuple[str, ...]


def copy_parser(job: Job, settings: CopyParser) -> dict[str, Any]:
    """Copy the parser of this package into the store. Its digests and its terms go with all of its trees."""
    for name in FILES:
        shutil.copyfile(ENGLISH / name, job.out / name)
    card = shipped_card()
    terms = {name: card[name] for name in ("licences", "redistributable", "stand_in")}
    return {"parser": settings.name, **terms}


@cache
def shipped() -> Step:
    """Return the step that yields the parser of this package."""
    digests = tuple(sha256_of(ENGLISH / name) for name in FILES)
    return Step(copy_parser, f"copy parser {NAME}", CopyParser(shipped_card()["name"], digests))


@dataclass(frozen=True)
class ByShippedParser:
    """PAIRS or SENTENCES with constituency trees by the parser of this package, over the words of a tokeniser.

    Args:
        divide: The tokeniser.
    """

    divide: Tokeniser = spaces

    @property
    def card_name(self) -> str:
        """The name of the parser in reasons why a number is not comparable."""
        return str(shipped_card()["name"])

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives records the parser's trees."""
        settings = AddTrees(ShippedParser(), self.divide)
        return Step(
            add_trees, f"trees of {rows.label} by the {self.card_name}", settings, {"rows": rows, "models": shipped()}
        )


by_shipped_parser = ByShippedParser()
