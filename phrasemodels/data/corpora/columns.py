"""Reader of pairs in one file: a separator divides each line into source, target and, optionally, a group.

COGS: `source TAB target TAB kind of generalisation`. SCAN: `IN: source OUT: target`, with the prefix "IN: " and the
separator " OUT: ".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.schemas import BITEXT, build, columns

One = Annotated[Mapping[str, Path], Field(min_length=1, max_length=1)]
Separator = Annotated[str, Field(min_length=1)]


def read(files: One, max_words: int, separator: Separator = "\t", prefix: str = "") -> pa.Table:
    """Return BITEXT of one file. No line is dropped.

    ValueError: a line lacks the prefix, has not two or three columns, or has an empty source or target.
    """
    (path,) = files.values()
    found = []
    for number, text in lines(path):
        bounded(text, str(path), number, max_words)
        cells = [cell.strip() for cell in text.removeprefix(prefix).split(separator)]
        if not text.strip():
            raise ValueError(f"{path}, line {number}: empty; remove the line")
        if not text.startswith(prefix) or len(cells) == 1:
            raise ValueError(
                f"{path}, line {number}: {text[:40]!r} is not {prefix!r}, source, {separator!r}, target; "
                "give prefix and separator as options: --option separator=..., or in the manifest"
            )
        if len(cells) > 3 or not all(cells[:2]):
            problem = f"{len(cells)} columns, not two or three" if all(cells[:2]) else "no source, or no target"
            raise ValueError(f"{path}, line {number}: {problem}; correct the line")
        found.append((*cells, "")[:3])
    return build(BITEXT, str(path), columns(("source", "target", "group"), found), len(found))
