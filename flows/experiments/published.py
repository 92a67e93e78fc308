"""The numbers that the five papers print."""

import csv
from functools import cache
from importlib.resources import files


@cache
def published_results() -> list[dict[str, str]]:
    """Return all numbers that the five papers print, as rows of strings."""
    with (files("phrasemodels.data") / "published_results.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
