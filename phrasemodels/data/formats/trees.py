"""Phrase structure trees: read from brackets, written to brackets, held as spans of token positions.

All kinds of brackets are read: Penn `( (S ...) )` over several lines, one tree a line, sentiment trees. Reading is one
pass without recursion, so depth and length are not limited.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phrasemodels.data.formats.lines import Line

ROOT = "ROOT"
TRACE = "-NONE-"
_PIECE = re.compile(r"[()]|[^ \t\r\n\f\v()]+")  # other Unicode spaces are parts of words
_FUNCTION = re.compile(r"(?<=.)[-=].*")
_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"} | dict.fromkeys(" \t\r\n\f\v", "\u2423"))
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"', "’": "'", "‘": "'", "`": "'"}


class Span(NamedTuple):
    """A phrase: tokens [start, end)."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """A sentence of n tokens, their n tags, and its phrases in pre-order; part-of-speech tags are no phrases."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[Span, ...]


class _Open:
    """A bracket that has not been closed yet."""

    __slots__ = ("index", "label", "start", "word", "wordless")

    def __init__(self, index: int, start: int) -> None:
        self.index, self.start = index, start  # position in the spans, first token
        self.label, self.word, self.wordless = "", "", True


def parse(brackets: str) -> Tree:
    """Read the tree of a string, without changes. ValueError: it does not hold exactly one tree."""
    trees = [tree for _, tree in read_brackets([Line(1, brackets)], "brackets")]
    if len(trees) != 1:
        raise ValueError(f"{len(trees)} trees, not one, in {brackets[:60]!r}")
    return trees[0]


def read_brackets(lines: Iterable[Line], where: str) -> Iterator[tuple[int, Tree]]:
    """Yield every tree with the number of its first line. ValueError: wrong brackets; it names `where` and the line."""
    stack: list[_Open] = []
    tokens: list[str] = []
    tags: list[str] = []
    spans: list[Span | None] = []
    begin, fresh = 0, False  # fresh: the last piece was an opening bracket, so a label may follow
    for number, text in lines:
        for piece in _PIECE.findall(text):
            if piece == "(":
                if not stack:
                    begin, tokens, tags, spans = number, [], [], []
                elif stack[-1].word:
                    raise ValueError(f"{where}, line {number}: a bracket after the word {stack[-1].word!r}")
                else:
                    stack[-1].wordless = False
                stack.append(_Open(len(spans), len(tokens)))
                spans.append(None)
                fresh = True
                continue
            if not stack:
                raise ValueError(f"{where}, line {number}: {piece!r} outside of all brackets")
            if piece == ")":
                _close(stack.pop(), tokens, tags, spans, f"{where}, line {number}")
                if not stack:
                    yield begin, Tree(tuple(tokens), tuple(tags), tuple(span for span in spans if span))
            elif fresh:
                stack[-1].label = piece
            elif stack[-1].word or not stack[-1].wordless:
                raise ValueError(f"{where}, line {number}: {piece!r} beside other words or brackets of a phrase")
            else:
                stack[-1].word = piece
            fresh = False
    if stack:
        raise ValueError(f"{where}, line {begin}: the tree that begins here lacks {len(stack)} closing brackets")


def _close(node: _Open, tokens: list[str], tags: list[str], spans: list[Span | None], where: str) -> None:
    if node.word:
        if node.label != TRACE:
            tokens.append(unescape(node.word))
            tags.append(node.label)
    elif node.wordless:
        raise ValueError(f"{where}: a bracket {node.label!r} with nothing in it")
    elif len(tokens) > node.start:
        spans[node.index] = Span(node.label, node.start, len(tokens))


def plain(tree: Tree) -> Tree:
    """Return the tree below one ROOT and without function tags: NP-SBJ-1 becomes NP."""
    spans = [span._replace(label=_FUNCTION.sub("", span.label)) for span in tree.spans]
    if spans and spans[0].label in ("", "TOP", "S1"):
        spans[0] = spans[0]._replace(label=ROOT)
    if tree.tokens and (not spans or spans[0].label != ROOT):
        spans.insert(0, Span(ROOT, 0, len(tree.tokens)))
    return tree._replace(spans=tuple(spans))


def brackets(tree: Tree) -> str:
    """Write a tree on one line; brackets in words and tags become -LRB- and -RRB-, and a word without a tag gets X."""
    opened = [""] * len(tree.tokens)
    closed = [0] * len(tree.tokens)
    for label, start, end in tree.spans:
        opened[start] += f"({label} "
        closed[end - 1] += 1
    return " ".join(
        f"{before}({tag.translate(_BRACKETS) or 'X'} {token.translate(_BRACKETS)}){')' * after}"
        for before, tag, token, after in zip(opened, tree.tags, tree.tokens, closed, strict=True)
    )


def unescape(word: str) -> str:
    r"""Return a word as in running text: brackets for -LRB- and so on, no backslash before / and *."""
    if "-" in word and (bracket := _ESCAPES.get(word.upper())):
        return bracket
    return word.replace("\\/", "/").replace("\\*", "*") if "\\" in word else word


def alike(one: str, other: str) -> bool:
    """Whether two words differ only in quotation marks and escapes."""
    return one == other or _spelling(one) == _spelling(other)


def _spelling(word: str) -> str:
    word = unescape(word)
    return _QUOTES.get(word, word)
