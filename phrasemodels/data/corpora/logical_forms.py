"""Reader of MSParS: questions with logical forms, in blocks of tagged lines.

    <question id=1>         TAB  who wrote it
    <logical form id=1>     TAB  ( lambda ?x ( mso:book.author it ?x ) )
    <parameters id=1>       TAB  it (entity) [2,2]
    <question type id=1>    TAB  single-relation
    ==================================================

Geo and Atis are pairs of files with a record a line: see `bitext`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.schemas import BITEXT, SENTENCES, build, columns

TAGS = ("question", "logical form", "parameters", "question type")
_TAGGED = re.compile(r"<([a-z ]+) id=(?:[^>]* id=)?(\d+)>\t?(.*)")  # some ids follow a remark


def read(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return BITEXT of questions and logical forms; the group is the type of the question."""
    path = files["blocks"]
    records = list(_blocks(path, max_words))
    for line, block in records:
        if not block["question"] or not block["logical form"]:
            raise ValueError(f"{path}, line {line}: a question without logical form; use the reader `questions`")
    found = [(block["question"], block["logical form"], block["question type"]) for _, block in records]
    return build(BITEXT, str(path), columns(("source", "target", "group"), found), len(records))


def read_questions(files: Mapping[str, Path], max_words: int) -> pa.Table:
    """Return SENTENCES of the questions in blocks, or in a file with a question a line."""
    if "blocks" in files:
        texts = [block["question"] for _, block in _blocks(files["blocks"], max_words)]
    else:
        path = files["lines"]
        texts = [bounded(text.strip(), str(path), number, max_words) for number, text in lines(path)]
    found = {"text": texts, "reason": ["" if text else "empty" for text in texts]}
    return build(SENTENCES, str(next(iter(files.values()))), found, len(texts))


def _blocks(path: Path, max_words: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield every block with the number of its first line. ValueError: lines in another order, or a block that is cut off."""
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
