"""Reader of parallel text: two files, one sentence a line, line N of one belongs to line N of the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from phrasemodels.data.formats.lines import lines
from phrasemodels.data.formats.schemas import BITEXT, build

Two = Annotated[Mapping[str, Path], Field(min_length=2, max_length=2)]


def read(files: Two, max_words: int, source: str = "", target: str = "") -> pa.Table:
    """BITEXT of two files, by language or by `nl` and `lf`; the first is the source if none is named."""
    first, second = files
    sides = files[source or first], files[target or second]
    return read_bitext(*sides, len(read_lines(sides[0], max_words)), max_words)


def read_bitext(source: Path, target: Path, rows: int, max_words: int) -> pa.Table:
    """BITEXT of two files. A ValueError names file and line of what is wrong; nothing is dropped."""
    sides = [read_lines(path, max_words) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source} has {len(sides[0])} lines and {target} has {len(sides[1])}: line N of both must belong together"
        )
    if len(sides[0]) != rows:
        raise ValueError(
            f"{source} has {len(sides[0])} lines, the manifest says {rows}: another version of the corpus?"
        )
    return build(BITEXT, str(source), {"source": sides[0], "target": sides[1]}, rows)


def read_lines(path: Path, max_words: int) -> list[str]:
    """Lines of a UTF-8 file. Refuses malformed bytes, empty lines and lines of more than max_words words."""
    kept = []
    for number, text in lines(path):
        line = text.strip()
        words = len(line.split())
        if not words:
            raise ValueError(f"{path}, line {number}: empty; remove the line from both sides")
        if words > max_words:
            raise ValueError(f"{path}, line {number}: {words} words, at most {max_words}; split it, or raise max_words")
        kept.append(line)
    return kept
