"""Numbers that a paper prints in several places: one result answers all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from phrasemodels.flows.experiments.published import published_results

PRINTED = ("paper", "system", "variant", "dataset", "split", "metric", "value")
Columns = Mapping[str, str]  # of data/published_results.csv


@dataclass(frozen=True)
class Repeat:
    """Rows of the file, by some columns, that repeat rows whose columns are the same but for `of`, in fewer digits or as many."""

    row: Columns
    of: Columns


MIXED = "n=[0;0;2;2;3;3;4;4]"
FOURTH, FIFTH = f"Model 4, {MIXED}", f"Model 5, {MIXED}"
BEST = "3 self-attention layers; PWFF yes; residual dropout yes"
REPEATS = (
    Repeat({"paper": "001", "table": "Table 4", "variant": "(8) Full Model"}, {"table": "Table 2", "variant": ""}),
    *(
        Repeat(
            {"paper": "002", "table": "Table 3", "variant": variant, "dataset": dataset},
            {"table": "Table 2", "variant": MIXED, "dataset": full},
        )
        for variant in (FOURTH, FIFTH)
        for dataset, full in (("Atis", "Atis"), ("MSParS", "MSParS (BPE6k)"))
    ),
    Repeat(
        {"paper": "002", "table": "Table 4", "variant": "layers=[1 - 6]", "metric": "logic match"},
        {"table": "Table 2", "variant": MIXED},
    ),
    *(
        Repeat({"paper": "004", "table": place}, {"table": "Table 2", "variant": BEST})
        for place in ("abstract", "text 6")
    ),
)


def original(row: Columns) -> Columns:
    """Return the row that a row repeats, or the row itself."""
    for repeat in REPEATS:
        if all(row[name] == value for name, value in repeat.row.items()):
            wanted = {name: row[name] for name in ("paper", "table", *PRINTED[1:-1])} | dict(repeat.of)
            (found,) = [o for o in published_results() if all(o[name] == value for name, value in wanted.items())]
            return found
    return row


def same_numbers(row: Columns) -> list[Columns]:
    """Return all rows of the file that are one number with a row, itself among them."""
    return _same()[_identity(row)]


@cache
def _same() -> dict[tuple[str, ...], list[Columns]]:
    found: dict[tuple[str, ...], list[Columns]] = {}
    for row in published_results():
        found.setdefault(_identity(row), []).append(row)
    return found


def _identity(row: Columns) -> tuple[str, ...]:
    return tuple(original(row)[name] for name in PRINTED)
