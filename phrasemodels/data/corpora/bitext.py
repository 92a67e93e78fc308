"""Reader of parallel text: two files with a sentence a line; line N of one belongs to line N of the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from phrasemodels.data.formats.lines import lines
from phrasemodels.data.formats.schemas import BITEXT, build

Two = Annotated[Mapping[str, Path], Field(min_length=2, max_length=2)]


def read(files: Two, max_words: int, source: str = "", target: str = "") -> pa.Table:
    """Return BITEXT of two files, by role; the roles `source` and `target` say which is which (default: in order).

    ValueError: it names the file and the line of an error. No line is dropped.
    """
    first, second = files
    paths = files[source or first], files[target or second]
    sides = [read_lines(path, max_words) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{paths[0]} has {len(sides[0])} lines and {paths[1]} has {len(sides[1])}: line N of both must belong together"
        )
    return build(BITEXT, str(paths[0]), {"source": sides[0], "target": sides[1]}, len(sides[0]))


def read_lines(path: Path, max_words: int) -> list[str]:
    """Return the lines of a UTF-8 file. ValueError: bytes that are not UTF-8, an empty line, or more than max_words words."""
    sentences = []
    for number, text in lines(path):
        line = text.strip()
        words = len(line.split())
        if not words:
            raise ValueError(f"{path}, line {number}: empty; remove the line from both sides")
        if words > max_words:
            raise ValueError(f"{path}, line {number}: {words} words, at most {max_words}; split it, or raise max_words")
        sentences.append(line)
    return sentences
