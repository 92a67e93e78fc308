"""Reader of ASPEC, Japanese and English: fields between `|||`, the last two are the sentences."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.schemas import BITEXT, build, columns

FIELDS = (4, 5)  # development and test, training (which has a score in front)


def read(
    files: Mapping[str, Path], max_words: int, characters: int = 0, words: int = 0, drop_long: bool = False
) -> pa.Table:
    """BITEXT from Japanese to English; the files are one after another.

    Pairs of more `characters` in Japanese or `words` in English are of group `long`, or, to sample from the others,
    dropped; 0 is no bound.
    """
    rows: list[tuple[int, str, str, str]] = []
    counter = count()
    for path in files.values():
        for number, text in lines(path):
            row, fields = next(counter), text.split(" ||| ")
            if len(fields) not in FIELDS or not fields[-1].strip() or not fields[-2].strip():
                raise ValueError(f"{path}, line {number}: not 4 or 5 fields between ' ||| ', the last two not empty")
            japanese, english = (bounded(field.strip(), str(path), number, max_words) for field in fields[-2:])
            long = 0 < characters < len(japanese) or 0 < words < len(english.split())
            if not (long and drop_long):
                rows.append((row, japanese, english, "long" if long else ""))
    found = columns(("id", "source", "target", "group"), rows)
    return build(BITEXT, str(next(iter(files.values()))), found, len(rows))
