"""Tests of kept results against their baselines, kept beside them: a bootstrap takes seconds, and the same data and code give
the same bits."""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.fingerprint import closure
from phrasemodels.data.store.remembered import contents, remembered
from phrasemodels.data.store.step import digest_of
from phrasemodels.tasks.metrics.compare import TestedRow, differences

FILE = "tests.json"

Tests = list[dict[str, Any] | None]


def tests_of(folder: Path, rows: Sequence[TestedRow], read: Callable[[], list[TestedRow]]) -> Tests:
    """Return what `differences` says of the rows of a kept result: as it is kept in the folder, or computed if the data or
    the code of the test has changed since.

    rows: without their statistics. read: return the rows with the statistics of the folder's files.
    """
    key = key_of(folder, rows)
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads((folder / FILE).read_bytes())
        if kept["key"] == key:
            return list(kept["against"])
    return list(remembered("tests", key, lambda: differences(read())))


def key_of(folder: Path, rows: Sequence[TestedRow]) -> str:
    """Return the digest of the statistics in a folder, of the rows, and of the code that tests them."""
    source, _ = closure(differences, *(row.statistic for row in rows if row.statistic))
    return digest_of([contents(folder, (".arrow",)), rows, source])


def write_tests(folder: Path, rows: Sequence[TestedRow], tests: Tests) -> None:
    """Keep the tests of a kept result beside it."""
    write_durably(folder / FILE, json.dumps({"key": key_of(folder, rows), "against": tests}, indent=1) + "\n")
