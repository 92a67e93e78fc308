"""Compare a table with the paper: means over seeds, intervals, differences from baselines, verdicts."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Job
from phrasemodels.verdicts.judgement import Verdict, judge, qualified
from phrasemodels.verdicts.rule import PrintedValue
from phrasemodels.verdicts.scales import SMALL, known
from phrasemodels.verdicts.significance import (
    Array,
    Difference,
    Statistic,
    difference,
    few_seeds,
    holm,
    seed_group,
)


@dataclass(frozen=True)
class RowSettings:
    """A row of a table: its experiment, its printed number (empty: none) and our metric for the number.

    It also says why the numbers can't be compared. exact, how: as in `judge`. caveat: as in `qualified`. statistic:
    with one the row is tested against its baseline. baseline: an experiment. Default: the first row with the same
    metric and test set. changed: overrides of the experiment that affect scores.
    """

    experiment: str
    system: str
    variant: str
    printed: str
    metric: str
    reason_not: str
    statistic: Statistic | None = None
    baseline: str = ""
    changed: tuple[str, ...] = ()
    exact: bool = False
    caveat: str = ""
    how: PrintedValue | None = None


@dataclass(frozen=True)
class CompareSettings:
    """A table of rows, and the seeds of each row."""

    title: str
    rows: tuple[RowSettings, ...]
    seeds: tuple[int, ...]


def compare(job: Job, settings: CompareSettings) -> dict[str, Any]:
    """Compare a table with the paper and write verdicts.json.

    It has each row with its values by seed, interval and verdict and its difference from its baseline. Inputs are the
    scores by "EXPERIMENT seed N" or the data of a diverged training.
    """
    scores = [[job.inputs[f"{row.experiment} seed {seed}"] for seed in settings.seeds] for row in settings.rows]
    rows = [row_of_scores(*pair, settings.seeds) for pair in zip(settings.rows, scores, strict=True)]
    tested = [_tested(*pair) for pair in zip(settings.rows, scores, strict=True)]
    for row, against in zip(rows, differences(tested), strict=True):
        row["against"] = against
    write_durably(job.out / "verdicts.json", json.dumps({"title": settings.title, "rows": rows}, indent=1))
    return {"title": settings.title, "rows": rows}


def _tested(row: RowSettings, scores: Sequence[Artifact]) -> "TestedRow":
    """Return a row for tests. A row with a diverged training has no sentences and is not tested."""
    ended = [artifact for artifact in scores if "scores" in artifact.meta]
    statistic = row.statistic if len(ended) == len(scores) else None
    tables = [read_shard(artifact.file("sentences.arrow")) for artifact in scores if statistic]
    test_set = str(ended[0].meta["test_set"]) if ended else ""
    return TestedRow(row.experiment, row.metric, test_set, statistic, tables, row.baseline)


def _values(row: RowSettings, scores: Sequence[Artifact]) -> dict[str, list[float]]:
    """Return the values by metric and seed. A diverged training has NaN, and only the row's metric with its groups."""
    ended = [artifact.meta["scores"] for artifact in scores if "scores" in artifact.meta]
    metrics = sorted({name for scored in ended for name in scored})
    if len(ended) < len(scores):
        metrics = [name for name in metrics if name.startswith(f"{row.metric}/")] + [row.metric]
    return {
        name: [a.meta["scores"][name]["value"] if "scores" in a.meta else math.nan for a in scores] for name in metrics
    }


def row_of_scores(row: RowSettings, scores: list[Artifact], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return a row of a table with its values by seed, intervals and verdict.

    Args:
        row: Its settings.
        scores: The scores of each seed, or the data of a diverged training. Its value is the worst of the scale.
        seeds: The seeds.
    """
    ended = [artifact for artifact in scores if "scores" in artifact.meta]
    metrics = sorted({name for artifact in ended for name in artifact.meta["scores"]})
    if ended and row.metric not in metrics:
        raise ValueError(
            f"{row.experiment}: no score {row.metric!r}, the answer of its row; there are {', '.join(metrics)}"
        )
    found = _values(row, scores)
    stand_in = any(artifact.meta["stand_in"] for artifact in scores)
    reason = reason_not(stand_in, row.reason_not)
    verdict = verdict_on(row.printed, found[row.metric], reason, row.exact, row.how)
    worst = 100.0 if (row.how.lower_is_better if row.how else known(row.metric).lower_is_better) else 0.0
    values = {name: [worst if math.isnan(one) else one for one in of] for name, of in found.items()}
    return {
        **{name: value for name, value in vars(row).items() if name not in ("statistic", "how")},
        "published": float(row.printed) if row.printed else None,
        "changed": list(row.changed),
        "seeds": list(seeds),
        "values": values,
        "intervals": {name: finite(asdict(seed_group(value))) for name, value in values.items()},
        "signatures": {name: ended[0].meta["scores"][name]["signature"] for name in values if name in metrics},
        "diverged": [seed for seed, artifact in zip(seeds, scores, strict=True) if artifact not in ended],
        "stand_in": stand_in,
        **asdict(qualified(verdict, row.caveat)),
    }


def reason_not(stand_in: bool, other: str) -> str:
    """Say why a row can't be compared with the paper: stand-in data, and another reason if there is one."""
    return "; ".join(["a stand-in, not the paper's data"] * stand_in + [other] * bool(other))


def verdict_on(printed: str, values: Sequence[float], reason: str, exact: bool, how: PrintedValue | None) -> Verdict:
    """Return the verdict on a printed number, or that it can't be compared if our values don't fit its scale."""
    try:
        found = judge(printed, values, reason, exact, how)
    except ValueError as error:
        return Verdict("not comparable", f"{error}; else correct {printed} in printed.csv, or its column scale")
    small = 0 < max((abs(value) for value in values if math.isfinite(value)), default=0) <= 1
    doubt = f"ours are at most 1 beside the printed {printed}: if they are shares, let the metric return percentages"
    of_shares = how is not None and how.scale == "percent" and not how.ours_percent and abs(float(printed or 0)) >= SMALL
    apart = small and not exact and of_shares
    return qualified(found, doubt if apart else "")


@dataclass(frozen=True)
class TestedRow:
    """A row with the statistics of its test sentences, a table for each seed."""

    experiment: str
    metric: str
    test_set: str
    statistic: Statistic | None
    seeds: list[pa.Table]
    baseline: str = ""

    def statistics(self, group: str) -> Array:
        """Return the statistics (S, n, K) of the sentences of a group. The group "" has all sentences."""
        assert self.statistic is not None
        tables = [t.filter(pc.equal(t["group"], group)) if group else t for t in self.seeds]
        return np.stack([pc.list_flatten(t[self.statistic.column]).to_numpy().reshape(len(t), -1) for t in tables]).astype(np.float64)

    def names(self) -> dict[str, str]:
        """Return the groups of sentences by the name of their metric: METRIC for all sentences, METRIC/GROUP."""
        groups = sorted(set(self.seeds[0]["group"].to_pylist()) - {""})
        return {self.metric: "", **{f"{self.metric}/{group}": group for group in groups}}


def differences(rows: list[TestedRow]) -> list[dict[str, Any] | None]:
    """Return for each row {"baseline": experiment, "differences": {METRIC: ..., METRIC/GROUP: ...}}.

    A baseline has None. The baseline is the named row or else the first row with the same metric, test set and
    statistic. p_holm is corrected over all rows of the table for each group of sentences by itself. With one seed there
    is no p but only an interval of chance in sentences. With two seeds there is a warning.
    """
    found: list[dict[str, Any] | None] = []
    for row in rows:
        same = [r for r in rows if (r.metric, r.test_set, r.statistic) == (row.metric, row.test_set, row.statistic)]
        # of the same test set alone: differences are taken sentence by sentence
        base = next((r for r in same if r.experiment == row.baseline), same[0])
        if row.statistic is None or base is row:
            found.append(None)
            continue
        value = row.statistic.value
        compared = {
            name: _as_row(difference(row.statistics(group), base.statistics(group), value))
            for name, group in row.names().items()
        }
        found.append({"baseline": base.experiment, "differences": compared})
    for name in {name for f in found if f for name in f["differences"]}:
        family = [f["differences"][name] for f in found if f and name in f["differences"]]
        family = [one for one in family if one["p"] is not None]
        for one, corrected in zip(family, holm([one["p"] for one in family]), strict=True):
            one["p_holm"] = corrected
    return found


def _as_row(found: Difference) -> dict[str, Any]:
    """Return a difference with a warning about too few seeds. One seed gets no p: it says nothing about other seeds."""
    no_p = dict.fromkeys(("p", "p_randomisation"), None) if found.seeds < 2 else {}
    return finite(asdict(found) | no_p) | {"p_holm": None, "warning": few_seeds(found.seeds)}


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with None in place of NaN. JSON has no NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
