"""The numbers that papers print: the five, and those that users add."""

import csv
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from phrasemodels import project

COLUMNS = ("paper", "table", "system", "variant", "dataset", "split", "metric", "value", "stdev", "unit", "notes")


NEEDED = ("table", "system", "metric", "value")


PRINTED = "printed.csv"  # beside the module of a paper that a user adds


@cache
def published_results() -> list[dict[str, str]]:
    """Return all numbers that papers print, as rows of strings. ValueError: a file that a user adds is wrong."""
    with (files("phrasemodels.data") / "published_results.csv").open(encoding="utf-8") as file:
        ours = list(csv.DictReader(file))
    return [*ours, *(row for paper in project.parts("papers") for row in _added(paper))]


def _added(paper: str) -> Iterable[dict[str, str]]:
    """Yield the rows of the file beside a paper's module; missing columns are empty, `paper` is the paper's name."""
    if (path := project.beside(paper, PRINTED)) is None:
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        if unknown := [name for name in rows.fieldnames or () if name not in COLUMNS]:
            raise ValueError(f"{path}: no column is called {unknown[0]!r}; columns: {', '.join(COLUMNS)}")
        for row in rows:
            if wrong := [name for name in NEEDED if not row.get(name)]:
                raise ValueError(f"{path}, line {rows.line_num}: no {wrong[0]}; columns: {', '.join(COLUMNS)}")
            if not _is_number(row["value"]):
                raise ValueError(
                    f"{path}, line {rows.line_num}: value {row['value']!r} is no number; write it as printed"
                )
            yield dict.fromkeys(COLUMNS, "") | row | {"paper": paper}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


VERDICTS = ("reproduced", "higher", "lower", "impossible", "not comparable", "not run")


JUDGED = VERDICTS[:3]
