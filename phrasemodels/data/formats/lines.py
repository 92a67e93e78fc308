"""Text files line by line: LF or CRLF in any extension of ASCII, with or without a byte order mark."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

BOM = b"\xef\xbb\xbf"
LONGEST_WORD = 100  # characters of a word, on average over a line; text without spaces has no other bound
LONGEST_NAME = 100  # characters of a tag, label or relation
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # its byte order marks


class Line(NamedTuple):
    """A line without its line break and its number from 1."""

    number: int
    text: str


def lines(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[Line]:
    """Yield the lines of a file. errors: as of `bytes.decode`.

    ValueError: a line is not in this encoding, or the file is UTF-16. The message names the line.
    """
    with path.open("rb") as file:
        yield from _decoded(_raw(file), str(path), encoding, errors)


def _raw(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without line breaks and byte order mark. A carriage return elsewhere is part of its line."""
    for number, raw in enumerate(file):
        yield (raw if number else raw.removeprefix(BOM)).rstrip(b"\r\n")


def lines_or_stdin(path: Path) -> Iterator[Line]:
    """Return the lines of a file in UTF-8. If the path is - they are of stdin as they arrive."""
    if str(path) != "-":
        return lines(path)
    return _decoded(_raw(_stdin()), "stdin", "utf-8")


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise ValueError("-: standard input is closed; name a file, or pipe a text in")
    return sys.stdin.buffer


def _decoded(raws: Iterable[bytes], where: str, encoding: str, errors: str = "strict") -> Iterator[Line]:
    for number, raw in enumerate(raws, 1):
        if number == 1:
            _check_encoding(raw, where)
        try:
            yield Line(number, raw.decode(encoding, errors))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}, line {number}: byte {error.start + 1} is not {encoding.upper()}; convert the file"
            ) from error


def _check_encoding(first: bytes, where: str) -> None:
    """ValueError: the first line of a file is UTF-16."""
    if first.startswith(UTF_16):
        raise ValueError(f"{where}: UTF-16; convert the file to UTF-8")


def too_long(text: str, max_words: int) -> str:
    """Return how a text is too long. It is empty if the text isn't.

    Bounds are max_words words and LONGEST_WORD times as many characters.
    """
    if len(text) >= LONGEST_WORD * max_words:
        return f"{len(text)} characters, fewer than {LONGEST_WORD * max_words} are expected"
    if len(text) > 2 * max_words and (words := len(text.split())) > max_words:
        return f"{words} words, at most {max_words}; split it, or raise max_words"
    return ""


def bounded(text: str, where: str, number: int, max_words: int) -> str:
    """Return the text. ValueError: it has more than max_words words, or as many characters as LONGEST_WORD times so many."""
    if problem := too_long(text, max_words):
        raise ValueError(f"{where}, line {number}: {problem}")
    return text


def lines_with_replacements(path: Path, warn: Callable[[str], None]) -> Iterator[Line]:
    """Return the lines of a file in UTF-8 as they arrive, or of stdin if the path is -.

    A byte outside of UTF-8 becomes U+FFFD. `warn` gets the first such line. ValueError: the text is UTF-16, or has a NUL byte.
    """
    told = False
    with contextlib.nullcontext(_stdin()) if str(path) == "-" else path.open("rb") as file:
        for number, raw in enumerate(_raw(file), 1):
            if number == 1:
                _check_encoding(raw, "stdin" if str(path) == "-" else str(path))
            if b"\0" in raw:
                raise ValueError(f"{'stdin' if str(path) == '-' else path}, line {number}: {_with_nul(raw)}")
            text = raw.decode("utf-8", "replace")
            if not told and text.encode() != raw:
                told = True
                warn(f"line {number} is not UTF-8: wrong bytes are read as \ufffd; convert the text")
            yield Line(number, text)


def _with_nul(raw: bytes) -> str:
    """Describe a line with NUL bytes: UTF-16 if every other byte of its beginning is NUL."""
    first = raw[:400]
    if len(first) > 3 and 2 * max(first[::2].count(0), first[1::2].count(0)) > 0.8 * len(first):
        return "UTF-16 without a byte order mark; convert the file to UTF-8"
    return "a NUL byte, which is no text; is this the right file?"


def is_name(text: str, refused: str = " ") -> bool:
    """Return whether a tag, label or relation is printable, short and without refused characters."""
    return len(text) <= LONGEST_NAME and text.isprintable() and not set(refused) & set(text)
