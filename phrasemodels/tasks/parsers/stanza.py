"""Stanza as a back end of the parse step: its pipeline and its models from a folder or fetched."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import torch

from phrasemodels.data.download.manifest import load_parser
from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.trees import Span, Tree, brackets, plain
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Tokeniser, spaces
from phrasemodels.parsing.splitter import on_threads
from phrasemodels.tasks.parsers.parse import (
    AddTrees,
    Analysis,
    Folders,
    add_trees,
    in_batches,
    sentences,
    trees,
)

PROCESSORS = ("pos", "lemma", "depparse", "constituency")
BATCH_WORDS = 1000  # words that the parser of dependencies takes together


@dataclass(frozen=True)
class FetchParser:
    """A parser by name, the digests of its files and its terms: licence, redistributable, stand_in.

    Mirrors do not change the bytes. So they are no part of it.
    """

    name: str
    digests: Mapping[str, str]
    terms: tuple[str, bool, bool]


def fetch_parser(job: Job, settings: FetchParser) -> dict[str, Any]:
    """Download all models of a parser of data/manifests/parsers, and verify them. OSError: a file cannot be had."""
    from phrasemodels.data.download.fetch import obtain_parser  # here, as training on prepared data needs no httpx

    manifest = load_parser(settings.name)
    origins = obtain_parser(manifest, job.out, job.executor.sources)
    return {
        "parser": manifest.name,
        "from": {name: origin if "://" in origin else "a folder" for name, origin in origins.items()},
        "licences": [settings.terms[0]],
        "redistributable": settings.terms[1],
        "stand_in": settings.terms[2],
    }


def fetched(name: str) -> Step:
    """Return the step that yields the models of a parser by name."""
    manifest = load_parser(name)
    terms = (manifest.licence, manifest.redistributable, manifest.stand_in)
    return Step(fetch_parser, f"fetch parser {name}", FetchParser(name, manifest.digests, terms))


@dataclass(frozen=True)
class ByStanza:
    """PAIRS or SENTENCES with constituency trees by Stanza (the models `gum`), over the words of a tokeniser.

    Args:
        divide: The tokeniser.
    """

    divide: Tokeniser = spaces

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives records Stanza's trees."""
        settings = AddTrees(Stanza(processors=("pos", "constituency")), self.divide)
        return Step(add_trees, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})


by_stanza = ByStanza()


@dataclass(frozen=True)
class Stanza:
    """Stanza's pipeline with the models in the folder `models`.

    Sentences go through it in the order of the corpus, `batch` at a time. The padding of a batch affects results. So
    `batch` is part of the key. processors: a tree needs constituency, heads need lemma and depparse, both need pos.
    longest: longer sentences are not parsed.
    """

    processors: tuple[str, ...] = PROCESSORS
    batch: int = 100
    longest: int = 300

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row. ValueError: there is no folder of models."""
        if "models" not in models:
            raise ValueError("Stanza needs models: give the step an input `models` (phrasemodels parsers --help)")
        folder = models["models"]
        with on_threads(1):
            pipeline = load_pipeline("en", self.processors, self.batch, str(folder))
            return trees(
                table,
                in_batches(lambda some: _parse(pipeline, some), sentences(table, column), self.batch, self.longest),
            )


@cache
def load_pipeline(language: str, processors: tuple[str, ...], batch: int, folder: str) -> Any:
    """Load a pipeline, once in each process. OSError: the folder lacks a model."""
    import stanza

    try:
        return stanza.Pipeline(
            language,
            dir=folder,
            processors=",".join(("tokenize", *processors)),
            download_method=None,
            use_gpu=torch.cuda.is_available(),
            logging_level="ERROR",
            tokenize_pretokenized=True,
            pos_batch_size=batch,
            depparse_batch_size=BATCH_WORDS,
        )
    except (FileNotFoundError, KeyError, stanza.resources.common.UnknownLanguageError) as error:
        raise OSError(
            f"{folder} has no models of {language!r} for {', '.join(processors)} ({error}): "
            "fetch them with `phrasemodels parsers fetch`"
        ) from error


def _parse(pipeline: Any, tokens: list[list[str]]) -> list[Analysis]:
    """Return the analyses of sentences, none of them empty."""
    found = pipeline(tokens).sentences
    if [len(sentence.words) for sentence in found] != [len(words) for words in tokens]:
        raise ValueError("Stanza changed the tokens")
    return [_analysis(words, sentence) for words, sentence in zip(tokens, found, strict=True)]


def _analysis(tokens: list[str], sentence: Any) -> Analysis:
    """Return Stanza's sentence as an analysis. Heads that make no tree are left out, with the reason."""
    words = sentence.words
    tags, universal = ([getattr(word, name) or "" for word in words] for name in ("xpos", "upos"))
    heads = [word.head for word in words] if words[0].head is not None else []
    reason = flaw(heads) if heads else ""
    relations = [word.deprel for word in words] if heads else []
    if reason:
        heads, relations = [], []
    tree = "" if sentence.constituency is None else brackets(_tree(sentence.constituency, tokens, tags))
    return Analysis(tokens, tags, universal, tree, heads, relations, reason)


def _tree(top: Any, tokens: list[str], tags: list[str]) -> Tree:
    """Return Stanza's tree with our tokens and tags."""
    spans: list[Span] = []

    def visit(node: Any, start: int) -> int:
        if node.is_preterminal():
            return start + 1
        place, end = len(spans), start
        spans.append(Span(node.label, start, start))
        for child in node.children:
            end = visit(child, end)
        spans[place] = Span(node.label, start, end)
        return end

    if visit(top, 0) != len(tokens):
        raise ValueError("Stanza changed the tokens")
    return plain(Tree(tuple(tokens), tuple(tags), tuple(spans)))
