"""The printed numbers of a paper: their CSV, and what a paper's own numbers say against one of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from phrasemodels.verdicts.printed import no_f1, no_mean, no_share, no_total
from phrasemodels.verdicts.readers import csv_rows

NEEDED = ("paper", "table", "row", "dataset", "metric", "value")
OPTIONAL = ("n", "runs", "arithmetic", "baseline", "our_row", "our_dataset", "our_metric", "not_comparable")
MOST = 100_000  # printed numbers
MOST_ITEMS = 10_000_000
VALUE = re.compile(r"[-−]?\d{1,15}(\.\d{1,15})?\s?%?")
COUNT = "count"
RELATIONS = ("mean of ", "sum of ", "difference of ", "f1 of ")


@dataclass(frozen=True)
class Printed:
    """A printed number and where it stands. value: its text, such as "47.1" or "87.1%".

    n: the items that it is a share of; 0 if it is no share. runs: it is the mean of so many shares. arithmetic: how the paper's
    numbers make it, such as "mean of A; B"; "count" if it does not vary by seed. baseline: the row that it is tested against.
    our_row, our_dataset, our_metric: names in our results, if they are others. not_comparable: why it cannot be compared with
    them, such as other data. ValueError: a value that is none of these.
    """

    paper: str
    table: str
    row: str
    dataset: str
    metric: str
    value: str
    n: int = 0
    runs: int = 1
    arithmetic: str = ""
    baseline: str = ""
    our_row: str = ""
    our_dataset: str = ""
    our_metric: str = ""
    not_comparable: str = ""

    def __post_init__(self) -> None:
        if self.value and not VALUE.fullmatch(self.value):
            raise ValueError(f"value {self.value[:40]!r} is no printed number, such as 47.1 or 87.1%")
        if not (self.n >= 0 and self.runs >= 1 and self.n * self.runs <= MOST_ITEMS):
            raise ValueError(f"n={self.n}, runs={self.runs}: must be positive, and n × runs at most {MOST_ITEMS}")
        if self.arithmetic not in ("", COUNT, "mean") and not self.arithmetic.startswith(RELATIONS):
            known = ", ".join((COUNT, "mean", *(f"{name}A; B" for name in RELATIONS)))
            raise ValueError(f"arithmetic {self.arithmetic[:40]!r}: must be {known}, or empty")

    @property
    def digits(self) -> str:
        """The number without a percent sign, as `judge` reads it."""
        return self.value.replace("−", "-").removesuffix("%").strip()

    @property
    def is_percent(self) -> bool:
        """Whether it is printed with a percent sign."""
        return self.value.endswith("%")

    @property
    def where(self) -> tuple[str, str, str, str, str]:
        """What identifies it: paper, table, row, data set, metric."""
        return self.paper, self.table, self.row, self.dataset, self.metric


def read_printed(path: Path) -> list[Printed]:
    """Return the printed numbers of a CSV with the columns NEEDED, and OPTIONAL ones. ValueError: a mistake, with its row."""
    found: dict[tuple[str, ...], Printed] = {}
    for number, row in enumerate(csv_rows(path), 1):
        if lacking := [name for name in NEEDED if name not in row]:
            raise ValueError(f"{path}: no column {lacking[0]}; needed are {', '.join(NEEDED)}")
        if unknown := sorted(row.keys() - {*NEEDED, *OPTIONAL}):
            raise ValueError(f"{path}: unknown column {unknown[0][:40]!r}; optional are {', '.join(OPTIONAL)}")
        try:
            one = _printed(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from error
        if one.where in found:
            raise ValueError(f"{path}, row {number}: {' / '.join(one.where)[:200]} stands there twice")
        if number > MOST:
            raise ValueError(f"{path}: more than {MOST} numbers; divide it")
        found[one.where] = one
    if not found:
        raise ValueError(f"{path}: no printed numbers; its columns are {', '.join(NEEDED)}")
    return list(found.values())


def _printed(row: Mapping[str, str]) -> Printed:
    fields: dict[str, Any] = dict(row)
    for name, default in (("n", 0), ("runs", 1)):
        text = row.get(name, "")
        if text and not re.fullmatch(r"\d{1,9}", text):
            raise ValueError(f"{name}={text[:20]!r} is no whole number")
        fields[name] = int(text) if text else default
    return Printed(**fields)


def impossible(one: Printed, others: Sequence[Printed]) -> str:
    """Say why a printed number cannot be, with the arithmetic; empty if it can. others: all numbers of the paper.

    ValueError: its arithmetic names a number that is not there.
    """
    if not one.value:
        return ""
    if one.n and (said := no_share(_percent(one), one.n * one.runs)):
        runs = f" ({one.runs} runs of {one.n})" if one.runs > 1 else ""
        return said + (runs or "; a mean over runs could be: then give `runs`")
    if one.arithmetic in ("", COUNT):
        return ""
    kind, _, names = one.arithmetic.partition(" of ")
    parts = [part.digits for part in _parts(one, names, others)]
    if kind == "mean":
        return no_mean(one.digits, parts)
    if kind == "sum":
        return no_total(one.digits, [1] * len(parts), parts)
    if len(parts) != 2:
        raise ValueError(f"{' / '.join(one.where)[:200]}: {kind} is of two numbers, A; B")
    return no_total(one.digits, (1, -1), parts) if kind == "difference" else no_f1(one.digits, *parts)


def _percent(one: Printed) -> str:
    """Return a share in percent: 0.871 is 87.1."""
    share = Decimal(one.digits)
    return one.digits if one.is_percent or share > 1 else str(share.scaleb(2))


def _parts(one: Printed, names: str, others: Sequence[Printed]) -> list[Printed]:
    """Return the numbers that the arithmetic of one names: other data sets of its row, rows of its data set, or metrics.

    Without names they are all other data sets of its row.
    """
    table = [other for other in others if other.where[:2] == one.where[:2] and other.value and other is not one]
    by_dataset = {o.dataset: o for o in table if (o.row, o.metric) == (one.row, one.metric)}
    if not names:
        if by_dataset:
            return list(by_dataset.values())
        raise ValueError(f"{' / '.join(one.where)[:200]}: a mean, but no other data set of its row is there")
    by_row = {o.row: o for o in table if (o.dataset, o.metric) == (one.dataset, one.metric)}
    by_metric = {o.metric: o for o in table if (o.row, o.dataset) == (one.row, one.dataset)}
    wanted = [name.strip() for name in names.split(";")]
    for known in (by_dataset, by_row, by_metric):
        if all(name in known for name in wanted):
            return [known[name] for name in wanted]
    raise ValueError(
        f"{' / '.join(one.where)[:200]}: {one.arithmetic[:80]!r} names no other data sets of its row, rows of its data set, or "
        "metrics of both"
    )
