"""Stanza as a back end of the parse step: its pipeline, with models from a folder, never from a network."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.trees import Span, Tree, brackets, plain
from phrasemodels.tasks.parsers.parse import Analysis, Folders, in_batches, sentences, trees

PROCESSORS = ("pos", "lemma", "depparse", "constituency")


@dataclass(frozen=True)
class Stanza:
    """Stanza's pipeline; its folder is `models`. Sentences go through it in the order of the corpus, `batch` at a time: the
    padding of a batch affects results, so `batch` is part of the key.

    processors: a tree needs constituency, heads need lemma and depparse, both need pos. tokenise: divide text with Stanza's
    own model instead of at spaces. longest: longer sentences are not parsed.
    """

    language: str = "en"
    processors: tuple[str, ...] = PROCESSORS
    tokenise: bool = False
    batch: int = 100
    batch_words: int = 1000
    longest: int = 300

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        """Return TREES of the sentences in a column, row by row. ValueError: there is no folder of models."""
        if "models" not in models:
            raise ValueError("Stanza needs models: give the parse step an input `models` (phrasemodels parsers --help)")
        folder = models["models"]
        with one_thread():
            tokens = self.tokens(table[column].to_pylist(), folder) if self.tokenise else sentences(table, column)
            pipeline = load(self.language, self.processors, self.batch, self.batch_words, str(folder))
            return trees(table, in_batches(lambda some: _parse(pipeline, some), tokens, self.batch, self.longest))

    def tokens(self, texts: list[str], models: Path) -> list[list[str]]:
        """Return the tokens of texts; each text is one sentence."""
        from stanza import Document

        divider = load(self.language, ("tokenize",), self.batch, self.batch_words, str(models))
        found = divider.bulk_process([Document([], text=text) for text in texts if text.strip()])
        divided = iter([token.text for s in document.sentences for token in s.tokens] for document in found)
        return [next(divided) if text.strip() else [] for text in texts]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of torch: on a shared processor several threads wait for one another in busy loops."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def load(language: str, processors: tuple[str, ...], batch: int, batch_words: int, folder: str) -> Any:
    """Load a pipeline, once in each process. OSError: the folder lacks a model."""
    import stanza

    division = processors == ("tokenize",)
    try:
        return stanza.Pipeline(
            language,
            dir=folder,
            processors=",".join(processors if division else ("tokenize", *processors)),
            download_method=None,
            use_gpu=torch.cuda.is_available(),
            logging_level="ERROR",
            tokenize_pretokenized=not division,
            tokenize_no_ssplit=division,
            pos_batch_size=batch,
            depparse_batch_size=batch_words,
        )
    except (FileNotFoundError, KeyError, stanza.resources.common.UnknownLanguageError) as error:
        raise OSError(
            f"{folder} has no models of {language!r} for {', '.join(processors)} ({error}): "
            "fetch or train them with `phrasemodels parsers`"
        ) from error


def _parse(pipeline: Any, tokens: list[list[str]]) -> list[Analysis]:
    """Return the analyses of sentences, none of them empty."""
    found = pipeline(tokens).sentences
    if [len(sentence.words) for sentence in found] != [len(words) for words in tokens]:
        raise ValueError("Stanza changed the tokens")
    return [_analysis(words, sentence) for words, sentence in zip(tokens, found, strict=True)]


def _analysis(tokens: list[str], sentence: Any) -> Analysis:
    """Return Stanza's sentence as an analysis; heads that make no tree are left out, with the reason."""
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
