"""Sentences in CoNLL-U: words, tags, heads, relations."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phrasemodels.data.formats.lines import Line

COLUMNS = 10
FORM, UNIVERSAL, TAG, HEAD, RELATION = 1, 3, 4, 6, 7


class Analysed(NamedTuple):
    """A sentence of n tokens; heads count from 1, 0 is the root. What is wrong is left out, and `reason` says why."""

    line: int
    document: str
    tokens: list[str]
    tags: list[str]
    universal: list[str]
    heads: list[int]
    relations: list[str]
    reason: str


def read_conllu(lines: Iterable[Line], where: str) -> Iterator[Analysed]:
    """Every sentence. Words of several tokens and empty nodes are passed over: their tokens and heads count.

    A line that is no CoNLL-U gives a ValueError that names `where` and the line; heads that make no tree give a reason.
    """
    rows: list[tuple[int, list[str]]] = []
    document, comments = "", 0
    for number, text in lines:
        if text.startswith("#"):
            if rows:
                raise ValueError(f"{where}, line {number}: a comment inside of a sentence; put an empty line before it")
            comments = comments or number
            if text.startswith("# newdoc id = "):
                document = text.removeprefix("# newdoc id = ").strip()
        elif text.strip():
            fields = text.split("\t")
            if len(fields) != COLUMNS:
                raise ValueError(f"{where}, line {number}: {len(fields)} columns between tabs, CoNLL-U has {COLUMNS}")
            rows.append((number, fields))
        elif rows:
            yield _sentence(rows, document, where)
            rows, comments = [], 0
        elif comments:
            raise ValueError(f"{where}, line {comments}: comments on a sentence without words")
    if rows:
        yield _sentence(rows, document, where)
    elif comments:
        raise ValueError(f"{where}, line {comments}: comments on a sentence without words")


def _sentence(rows: list[tuple[int, list[str]]], document: str, where: str) -> Analysed:
    words: list[tuple[int, list[str]]] = []
    for number, fields in rows:
        if fields[0].isdecimal() and fields[0].isascii():
            if fields[0] != str(len(words) + 1):
                raise ValueError(f"{where}, line {number}: token {fields[0]} where {len(words) + 1} should be")
            if not fields[FORM].strip():
                raise ValueError(f"{where}, line {number}: token {fields[0]} has no form")
            words.append((number, fields))
        elif not _beside(fields[0]):
            raise ValueError(f"{where}, line {number}: {fields[0]!r} is no token number; CoNLL-U has 1, 1-2 or 1.1")
    first = rows[0][0]
    if not words:
        raise ValueError(f"{where}, line {first}: a sentence without tokens")
    heads = _heads(words, where) if any(fields[HEAD] != "_" for _, fields in words) else []
    reason = flaw(heads)
    universal, tags, relations = (_column(words, place) for place in (UNIVERSAL, TAG, RELATION))
    if reason or not heads:
        heads, relations = [], []
    return Analysed(first, document, [fields[FORM] for _, fields in words], tags, universal, heads, relations, reason)


def _column(words: list[tuple[int, list[str]]], place: int) -> list[str]:
    """A column, or nothing if it holds nothing but underscores."""
    column = [fields[place] for _, fields in words]
    return column if any(value != "_" for value in column) else []


def _beside(identity: str) -> bool:
    """Whether this numbers a word of several tokens (1-2) or an empty node (1.1)."""
    for mark in "-.":
        first, found, second = identity.partition(mark)
        if found:
            return (first + second).isdecimal() and (first + second).isascii() and bool(first and second)
    return False


def _heads(words: list[tuple[int, list[str]]], where: str) -> list[int]:
    heads = []
    for number, fields in words:
        head = fields[HEAD]
        if not (head.isdecimal() and head.isascii() and len(head) < 8):
            raise ValueError(f"{where}, line {number}: head {head!r} is not one number; a token has one head")
        if int(head) > len(words):
            raise ValueError(f"{where}, line {number}: head {head} in a sentence of {len(words)} tokens")
        heads.append(int(head))
    return heads


def flaw(heads: list[int]) -> str:
    """Why heads make no tree, or nothing: there must be one root, from which every token is reached."""
    roots = heads.count(0)
    if heads and roots != 1:
        return f"{roots} roots" if roots else "cyclic dependencies"
    settled = [True] + [False] * len(heads)
    for token in range(1, len(heads) + 1):
        path = set()
        while not settled[token]:
            settled[token] = True
            path.add(token)
            token = heads[token - 1]
            if token in path:
                return "cyclic dependencies"
    return ""


def write_sentence(
    tokens: Sequence[str],
    heads: Sequence[int],
    relations: Sequence[str],
    universal: Sequence[str] = (),
    tags: Sequence[str] = (),
    misc: Sequence[str] = (),
) -> str:
    """Return the lines of a sentence of n tokens in CoNLL-U. Each column has n values, or none, which becomes `_`."""
    blank = ["_"] * len(tokens)
    columns = [tokens, *(column or blank for column in (universal, tags, heads, relations, misc))]
    return "".join(
        f"{place}\t{token}\t_\t{upos}\t{xpos}\t_\t{head}\t{relation}\t_\t{other}\n"
        for place, (token, upos, xpos, head, relation, other) in enumerate(zip(*columns, strict=True), 1)
    )
