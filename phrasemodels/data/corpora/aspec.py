"""Reader of ASPEC, Japanese and English: fields separated by `|||`, of which the last two are the sentences."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.schemas import BITEXT, build, columns

FIELDS = (4, 5)  # in dev and test; in train, where a score comes first


def read(
    files: Mapping[str, Path], max_words: int, characters: int = 0, words: int = 0, drop_long: bool = False
) -> pa.Table:
    """Return BITEXT from Japanese to English, of all files in order.

    Pairs of more than `characters` Japanese characters, without spaces, or `words` English words are in the group `long`, or
    are dropped with drop_long; 0 is no bound.
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
