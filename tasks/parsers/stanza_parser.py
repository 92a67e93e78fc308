"""Stanza as a back end of the parse step: its real pipeline, from a folder of models, never from a network."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from phrasemodels.data.formats.conllu import flaw
from phrasemodels.data.formats.trees import Span, Tree, brackets, plain
from phrasemodels.tasks.parsers.parse import NO_WORDS, Analysis, Folders, flat, sentences, trees

PROCESSORS = ("pos", "lemma", "depparse", "constituency")
Batch = Callable[[list[list[str]]], list[Analysis]]


@dataclass(frozen=True)
class Stanza:
    """Stanza's pipeline over tokens. Sentences go through it in the order of the corpus, `batch` at a time: which ones
    go together changes their padding, so it is part of the key.

    processors: a tree needs constituency, heads need lemma and depparse, both need pos. tokenise: divide text into
    tokens with Stanza's own model; otherwise it is split at spaces. longest: longer sentences are not parsed.
    """

    language: str = "en"
    processors: tuple[str, ...] = PROCESSORS
    tokenise: bool = False
    batch: int = 100
    batch_words: int = 1000
    longest: int = 300

    def analyse(self, table: pa.Table, column: str, models: Folders) -> pa.Table:
        if "models" not in models:
            raise ValueError("Stanza needs models: give the parse step an input `models` (phrasemodels parsers --help)")
        folder = models["models"]
        with one_thread():
            tokens = self.tokens(table[column].to_pylist(), folder) if self.tokenise else sentences(table, column)
            pipeline = load(self.language, self.processors, self.batch, self.batch_words, str(folder))
            return trees(table, in_batches(lambda some: _parse(pipeline, some), tokens, self.batch, self.longest))

    def tokens(self, texts: list[str], models: Path) -> list[list[str]]:
        """The tokens of texts, each one sentence."""
        from stanza import Document

        divider = load(self.language, ("tokenize",), self.batch, self.batch_words, str(models))
        found = divider.bulk_process([Document([], text=text) for text in texts if text.strip()])
        divided = iter([token.text for s in document.sentences for token in s.tokens] for document in found)
        return [next(divided) if text.strip() else [] for text in texts]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread: several spin at each other's barriers where the processor is shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def load(language: str, processors: tuple[str, ...], batch: int, batch_words: int, folder: str) -> Any:
    """A pipeline, once a process: an actor holds it. An OSError says what the folder lacks."""
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


def in_batches(parse: Batch, tokens: Sequence[Sequence[str]], size: int, longest: int) -> list[Analysis]:
    """The analysis of every sentence. What is empty or too long is not tried; where a batch fails, each of its
    sentences is tried alone, and one that fails alone is flat, with what was wrong as its reason."""
    found = [flat(words, NO_WORDS if not words else f"more than {longest} words") for words in tokens]
    rows = [row for row, words in enumerate(tokens) if 0 < len(words) <= longest]
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        for row, analysis in zip(some, _tried(parse, [list(tokens[row]) for row in some]), strict=True):
            found[row] = analysis
    return found


def _tried(parse: Batch, some: list[list[str]]) -> list[Analysis]:
    try:
        return parse(some)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if len(some) == 1:
            return [flat(some[0], f"the parser failed: {type(error).__name__}")]
        return [analysis for words in some for analysis in _tried(parse, [words])]


def _parse(pipeline: Any, tokens: list[list[str]]) -> list[Analysis]:
    """Analyses of non-empty sentences."""
    found = pipeline(tokens).sentences
    if [len(sentence.words) for sentence in found] != [len(words) for words in tokens]:
        raise ValueError("the parser has changed the tokens")
    return [_analysis(words, sentence) for words, sentence in zip(tokens, found, strict=True)]


def _analysis(tokens: list[str], sentence: Any) -> Analysis:
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
    """Stanza's tree with our tokens and tags."""
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
        raise ValueError("the parser has changed the tokens")
    return plain(Tree(tuple(tokens), tuple(tags), tuple(spans)))
