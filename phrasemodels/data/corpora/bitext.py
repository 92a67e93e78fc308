"""Readers of parallel text: two files with a sentence a line or one file with both sides in a line.

- Two files: line N of one belongs to line N of the other. Geo and Atis are such pairs.
- One file: a separator divides each line into source, target and, optionally, a group. COGS: `source TAB target TAB kind of
  generalisation`. SCAN: `IN: source OUT: target`, with the prefix "IN: " and the separator " OUT: ".
- One file of sentences with labels: `sentence TAB label`, and perhaps a group.
- ASPEC, Japanese and English: fields separated by `|||`, of which the last two are the sentences.
- MSParS: questions with logical forms, in blocks of tagged lines.

        <question id=1>         TAB  who wrote it
        <logical form id=1>     TAB  ( lambda ?x ( mso:book.author it ?x ) )
        <parameters id=1>       TAB  it (entity) [2,2]
        <question type id=1>    TAB  single-relation
        ==================================================
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field

from phrasemodels.data.formats.lines import bounded, lines, too_long
from phrasemodels.data.formats.shards import BITEXT, SENTENCES, build, columns

TwoFiles = Annotated[Mapping[str, Path], Field(min_length=2, max_length=2)]


def bitext_blocks(files: TwoFiles, max_words: int, source: str = "", target: str = "") -> Iterator[pa.Table]:
    """Yield BITEXT of two files by role, `source` and `target` (default: in order). No line is dropped.

    ValueError: it names the file and the line of an error.
    """
    first, second = files
    paths = files[source or first], files[target or second]
    sides = [read_lines(path, max_words) for path in paths]
    rows = [0, 0]
    while any(block := [list(islice(side, BLOCK_LINES)) for side in sides]):
        if len(block[0]) == len(block[1]):
            ids = range(rows[0], rows[0] + len(block[0]))
            yield build(BITEXT, str(paths[0]), {"id": ids, "source": block[0], "target": block[1]}, len(ids))
        rows = [before + len(lines_) for before, lines_ in zip(rows, block, strict=True)]
    if rows[0] != rows[1]:
        raise ValueError(
            f"{paths[0]} has {rows[0]} lines and {paths[1]} has {rows[1]}: line N of both must belong together"
        )


def read_lines(path: Path, max_words: int) -> Iterator[str]:
    """Yield the lines of a UTF-8 file.

    ValueError: bytes outside of UTF-8, an empty line or more than max_words words.
    """
    for number, text in lines(path):
        line = text.strip()
        words = len(line.split())
        if not words:
            raise ValueError(f"{path}, line {number}: empty; remove the line from both sides")
        if words > max_words:
            raise ValueError(f"{path}, line {number}: {words} words, at most {max_words}; split it, or raise max_words")
        yield line


OneFile = Annotated[Mapping[str, Path], Field(min_length=1, max_length=1)]
Separator = Annotated[str, Field(min_length=1)]


class BadLine(NamedTuple):
    """A line that is no record. kind: the same for all lines with one fault. problem: the fault, and what to do."""

    number: int
    kind: str
    problem: str
    text: str


class BadLines:
    """The bad lines of a file: of each kind the first one, the numbers of some others and their count."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._first: dict[str, BadLine] = {}
        self._numbers: dict[str, list[int]] = {}
        self._others = Counter[str]()

    def add(self, line: BadLine) -> None:
        self.count += 1
        if self._first.setdefault(line.kind, line) is line:
            self._numbers[line.kind] = []
            return
        self._others[line.kind] += 1
        if len(self._numbers[line.kind]) < MOST_LISTED:
            self._numbers[line.kind].append(line.number)

    def __str__(self) -> str:
        """One line of text: of each kind the problem of the first, and the numbers of the others."""
        texts = []
        for kind, first in self._first.items():
            text = f"{self.path}, line {first.number}: {first.problem}"
            if others := self._others[kind]:
                more = f" and {others - MOST_LISTED} more" if others > MOST_LISTED else ""
                text += f" (also line{'s' * (others > 1)} {', '.join(map(str, self._numbers[kind]))}{more})"
            texts.append(text)
        return "; ".join(texts)


MOST_BAD = 0.01  # of all lines
MOST_LISTED = 100  # lines of one kind
BLOCK_LINES = 65_536


def column_blocks(
    files: OneFile,
    max_words: int,
    separator: Separator = "\t",
    prefix: str = "",
    bad_lines: Literal["stop", "skip"] = "stop",
    max_bad: Annotated[float, Field(ge=0, le=1)] = MOST_BAD,
) -> Iterator[pa.Table]:
    """Yield BITEXT of one file.

    A bad line lacks the prefix or is not UTF-8. Or it has not two or three columns or has an empty source or target. Or
    a side is too long. bad_lines: they are errors. Or they are left out if they are at most the share `max_bad` of all
    lines. ValueError: it lists all bad lines.
    """
    (path,) = files.values()
    bad, rows = BadLines(path), 0
    divided_lines = divided(path, max_words, separator, prefix)
    while block := list(islice(divided_lines, BLOCK_LINES)):  # so that few lines are Python objects at a time
        found = []
        for line in block:
            if isinstance(line, BadLine):
                bad.add(line)
            else:
                found.append(line)
        ids = {"id": range(rows, rows + len(found))}
        yield build(BITEXT, str(path), ids | columns(("source", "target", "group"), found), len(found))
        rows += len(found)
    every = rows + bad.count
    if bad.count and bad_lines == "stop":
        raise ValueError(f"{bad}; to leave such lines out, set the option bad_lines to skip")
    if bad.count > max_bad * every:
        raise ValueError(f"{bad.count} of {every} lines are bad, more than max_bad = {max_bad:g}: {bad}")


def labelled_blocks(
    files: OneFile,
    max_words: int,
    separator: Separator = "\t",
    bad_lines: Literal["stop", "skip"] = "stop",
    max_bad: Annotated[float, Field(ge=0, le=1)] = MOST_BAD,
) -> Iterator[pa.Table]:
    """Yield SENTENCES of one file: a sentence, a tab, its label and perhaps a tab and a group.

    Options and errors are as in `column_blocks`.
    """
    for rows in column_blocks(files, max_words, separator, "", bad_lines, max_bad):
        read = {"id": rows["id"], "text": rows["source"], "label": rows["target"], "group": rows["group"]}
        yield build(SENTENCES, str(next(iter(files.values()))), read, rows.num_rows)


def divided(
    path: Path, max_words: int, separator: str = "\t", prefix: str = ""
) -> Iterator[tuple[str, str, str] | BadLine]:
    """Yield the source, target and group of each line of a file or why it is bad."""
    for number, text in lines(path, errors="surrogateescape"):
        cells = [cell.strip() for cell in text.removeprefix(prefix).split(separator)]
        if wrong := _problem(text, cells, max_words, separator, prefix):
            yield BadLine(number, *wrong, text)
        else:
            source, target, *group = cells
            yield source, target, group[0] if group else ""


def _problem(text: str, cells: Sequence[str], max_words: int, separator: str, prefix: str) -> tuple[str, str] | None:
    """Return the kind and the problem of a bad line. None for a good one."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = len(text[: error.start].encode()) + 1
        return "not UTF-8", f"byte {place} is not UTF-8; convert the file"
    if not text.strip():
        return "empty", "empty; remove the line"
    if not text.startswith(prefix) or len(cells) == 1:
        return "one column", (
            f"{text[:40]!r} is not {prefix!r}, source, {separator!r}, target; "
            "give prefix and separator as options: --option separator=..., or in the manifest"
        )
    if not all(cells[:2]):
        return "no source or no target", "no source, or no target; correct the line"
    if len(cells) > 3:
        return "too many columns", f"{len(cells)} columns, not two or three; correct the line"
    for cell in cells:
        if problem := too_long(cell, max_words):
            return "too long", problem
    return None


FIELDS = (4, 5)  # in dev and test; in train, where a score comes first


def read_aspec(
    files: Mapping[str, Path], max_words: int, characters: int = 0, words: int = 0, drop_long: bool = False
) -> pa.Table:
    """Return BITEXT from Japanese to English of all files in order.

    Pairs of more than `characters` Japanese characters (without spaces) or `words` English words are in the group
    `long`. With drop_long they are dropped. 0 is no bound.
    """
    rows: list[tuple[int, str, str, str]] = []
    counter = count()
    for path in files.values():
        for number, text in lines(path):
            row, fields = next(counter), text.split(" ||| ")
            if len(fields) not in FIELDS or not fields[-1].strip() or not fields[-2].strip():
                raise ValueError(
                    f"{path}, line {number}: expected 4 or 5 fields separated by ' ||| ', the last two not empty"
                )
            japanese, english = (bounded(field.strip(), str(path), number, max_words) for field in fields[-2:])
            long = 0 < characters < len("".join(japanese.split())) or 0 < words < len(english.split())
            if not (long and drop_long):
                rows.append((row, japanese, english, "long" if long else ""))
    found = columns(("id", "source", "target", "group"), rows)
    return build(BITEXT, str(next(iter(files.values()))), found, len(rows))


TAGS = ("question", "logical form", "parameters", "question type")
_TAGGED = re.compile(r"<([a-z ]+) id=(?:[^>]* id=)?(\d+)>\t?(.*)")  # some ids follow a remark


def read_mspars(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return BITEXT of questions and logical forms. The group is the type of the question."""
    path = files["blocks"]
    records = list(_blocks(path, max_words))
    for line, block in records:
        if not block["question"] or not block["logical form"]:
            raise ValueError(f"{path}, line {line}: a question without logical form; use the reader `questions`")
    found = [(block["question"], block["logical form"], block["question type"]) for _, block in records]
    return build(BITEXT, str(path), columns(("source", "target", "group"), found), len(records))


def read_mspars_questions(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return SENTENCES of the questions in blocks, or in a file with a question a line."""
    if "blocks" in files:
        texts = [block["question"] for _, block in _blocks(files["blocks"], max_words)]
    else:
        path = files["lines"]
        texts = [bounded(text.strip(), str(path), number, max_words) for number, text in lines(path)]
    found = {"text": texts, "reason": ["" if text else "empty" for text in texts]}
    return build(SENTENCES, str(next(iter(files.values()))), found, len(texts))


def _blocks(path: Path, max_words: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield every block with the number of its first line. ValueError: lines in another order, or an incomplete block."""
    block: dict[str, str] = {}
    begin, identity = 0, ""
    for number, text in lines(path):
        if text.startswith("====") and len(block) == len(TAGS):
            yield begin, block
            block = {}
            continue
        if not text.strip() and not block:
            continue
        expected = TAGS[len(block)] if len(block) < len(TAGS) else "a line of ="
        match = _TAGGED.fullmatch(text.rstrip())
        if not match or match[1] != expected or (block and match[2] != identity):
            raise ValueError(f"{path}, line {number}: {text[:40]!r} in place of <{expected} id=...>")
        if not block:
            begin, identity = number, match[2]
        block[expected] = bounded(match[3].strip(), str(path), number, max_words)
    if len(block) == len(TAGS):
        yield begin, block
    elif block:
        raise ValueError(f"{path}, line {begin}: the block that begins here is cut off; download the file again")
