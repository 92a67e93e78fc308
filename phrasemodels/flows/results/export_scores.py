"""Export a kept result as what `phrasemodels judge` reads: printed numbers, and scores of each seed and test item."""

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import write_parquet
from phrasemodels.flows.results.folder import kept_files, place_of
from phrasemodels.flows.results.results import Result, kept_results, tested
from phrasemodels.tasks.metrics.accuracy import accuracy_of
from phrasemodels.tasks.metrics.compare import TestedRow, reason_not
from phrasemodels.tasks.metrics.parseval import f1_of
from phrasemodels.verdicts.paper import NEEDED
from phrasemodels.verdicts.significance import Array

PRINTED, SCORES = "printed.csv", "scores.parquet"
COLUMNS = (*NEEDED, "baseline", "not_comparable")
# Score and total of an item, (..., 2), by the metric of its statistics.
SHARES: Mapping[Callable[[Array], Array], Callable[[Array], Array]] = {
    accuracy_of: lambda counts: counts,
    f1_of: lambda counts: np.stack([2 * counts[..., 0], counts[..., 1] + counts[..., 2]], -1),
}


def export_scores(name: str, folder: Path) -> list[Path]:
    """Write a kept result, results/NAME, into a folder: printed.csv and scores.parquet; return their paths.

    Metrics that are no Σ score / Σ total, such as BLEU, are left out. ValueError: there is no such result, or it has no other
    metric.
    """
    kept(name)
    path = place_of(name) / "result.json"
    results = [one for one in kept_results() if one.source == f"results/{name}"]
    rows = [
        pair
        for pair in zip(results, tested(path)[1](), strict=True)
        if pair[1].statistic and pair[1].statistic.value in SHARES
    ]
    if not rows:
        metrics = ", ".join(dict.fromkeys(one.answer.metric for one in results))
        raise ValueError(
            f"{name}: no metric is a mean over items ({metrics}), so there are no scores of items to write"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / PRINTED).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(_printed(result) for result, _ in rows)
    write_parquet(folder / SCORES, pa.concat_tables(_scores(*pair) for pair in rows))
    return [folder / PRINTED, folder / SCORES]


def _printed(result: Result) -> dict[str, str]:
    """Return the printed number of a row, with why it cannot be compared, as its verdict says."""
    cell, against = result.answer.cell, result.row["against"]
    unlike = result.experiment.reason_not(result.answer) or result.row["reason_not"]
    return {
        "paper": result.experiment.paper,
        "table": result.title,
        "row": result.experiment.name,
        "dataset": "",
        "metric": result.answer.metric,
        "value": cell.printed if cell else "",
        "baseline": against["baseline"] if against else result.experiment.name,
        "not_comparable": reason_not(result.row["stand_in"], unlike),
    }


def _scores(result: Result, row: TestedRow) -> pa.Table:
    """Return score and total of each seed and item of a row; an item is named by its place."""
    assert row.statistic is not None
    sums = SHARES[row.statistic.value](row.statistics(""))
    seeds, n = sums.shape[:2]
    return pa.table(
        {
            "row": [result.experiment.name] * (seeds * n),
            "metric": [row.metric] * (seeds * n),
            "seed": [str(seed) for seed in result.row["seeds"] for _ in range(n)],
            "item": [f"{place:06}" for place in range(n)] * seeds,
            "score": sums[..., 0].ravel(),
            "total": sums[..., 1].ravel(),
        }
    )


def kept(name: str) -> dict[str, Any]:
    """Return result.json of a kept result. ValueError: there is no such result."""
    known = [path.parent.name for path in kept_files()]
    if name not in known:
        raise ValueError(f"no kept result {name!r}: {closest(name, known)}")
    return dict(json.loads((place_of(name) / "result.json").read_text(encoding="utf-8")))
