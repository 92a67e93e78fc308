"""An audit of the verdicts, by a plain computation that shares no code with them: `python benchmarks/audit_verdicts.py 30 45` judges
thirty random numbers anew, drawn with seed 45, and prints those that come out otherwise; `0` takes all.

It reads the values of runs from results/*/result.json, the printed numbers from published_results.csv, and follows the text of
docs/explanation/statistics.md and of the decision record. What is judged, and by which runs, is taken from the verdicts: the audit is
of the arithmetic. A printed deviation over runs that are not counted is of two runs. The best of 20 starts of bAbI is one run, since each
run of ours repeats the whole selection.
"""

import csv
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy import stats

PROJECT = Path(__file__).parents[1]
PUBLISHED = PROJECT / "phrasemodels/data/published_results.csv"
NAMED = ("paper", "table", "system", "variant", "dataset", "split", "metric")
JUDGED = ("reproduced", "higher", "lower", "inconclusive")
AVERAGE, TASK = " AVERAGE", " TASK"
Line = Mapping[str, Any]


def rule(
    printed: str, values: Sequence[float], unit: str, metric: str, deviation: str, items: int
) -> tuple[str, int | None]:
    """Return the verdict on a trained number and the further seeds that would decide."""
    number, last = float(printed), 10.0 ** -len(printed.partition(".")[2])
    if unit == "correlation":
        number, last, values = 100 * number, 100 * last, [100 * value for value in values]
    step, half = (100 / items if items else last), last / 2
    margin = min(max(last, min(2.0, min(number, 100 - number) / 2)), max(half, number / 2))
    if unit == "percentage points":
        step, margin = last, max(last, min(2.0, abs(number) / 2))
    if metric.startswith("relative_"):
        half, step, margin = math.log1p(half / number), math.log1p(last / number), math.log(1.1)
        number, values = math.log(number), [math.log(value) for value in values]
    if len(values) == 1:
        return "inconclusive", 1
    spread, freedom, of = max(stdev(values), step / math.sqrt(12)), len(values) - 1, 1
    if deviation:
        of = 2
        spread = math.sqrt((freedom * spread**2 + (of - 1) * float(deviation) ** 2) / (freedom + of - 1))
        freedom += of - 1
    gap = fmean(values) - number

    def verdict(n: int, nu: int) -> str:
        inside = stats.t.ppf(0.95, nu) * spread / math.sqrt(n)
        further = stats.t.ppf(0.975, nu) * spread * math.sqrt(1 / n + 1 / of)
        if abs(gap) + inside <= margin and spread / math.sqrt(of) <= 0.6 * margin:
            return "reproduced"
        if abs(gap) - inside > margin and abs(gap) - half > further:
            return "higher" if gap > 0 else "lower"
        return "inconclusive"

    found = verdict(len(values), freedom)
    if found != "inconclusive":
        return found, None
    return found, next((q for q in range(1, 201) if verdict(len(values) + q, freedom + q) != "inconclusive"), None)


def values_of(line: Line) -> tuple[list[float], int]:
    """Return the values of the runs that a line is judged by, and the items of their test set; none where no kept result has them."""
    file = PROJECT / line["source"] / "result.json"
    if not line["source"].startswith("results/") or not file.is_file():
        return [], 0
    for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
        if row["experiment"] == line["experiment"] and line["measured"] in row["values"]:
            return row["values"][line["measured"]], sum(part.get("rows", 0) for part in row.get("test_set") or [])
    return [], 0


# rows whose chain has another potential than the paper's, so that they reproduce nothing
OTHER_MODEL = ("003/tablebabi/paper/binary-", "003/tablebabi-readings/paper/binary-rows-")
UNDEFINED = "the paper does not say what is counted"


def by_readings(line: Line, known: Mapping[str, str]) -> tuple[str, int | None] | None:
    """Return the verdict on which the readings agree that vote; None if the runs of one are not kept."""
    found = []
    for one in [reading for reading in line["readings"] if reading["votes"]] or [line]:
        values, items = values_of({**line, "experiment": one["experiment"], "source": one["source"]})
        if not values:
            return None
        verdict, further = rule(line["printed"], values, known["unit"], known["metric"], known["stdev"], items)
        withheld = verdict == "reproduced" and one["experiment"].startswith(OTHER_MODEL)
        found.append(("inconclusive" if withheld else verdict, further))
    needed = [further for _, further in found]
    same = len({verdict for verdict, _ in found}) == 1
    return found[0][0] if same else "inconclusive", max(filter(None, needed)) if same and all(needed) else None


def judged_anew(line: Line, lines: Iterable[Line]) -> tuple[str, int | None] | None:
    """Return the verdict on a line and the further seeds; None if its runs are not kept."""
    (known,) = [row for row in csv.DictReader(PUBLISHED.open(encoding="utf-8")) if all(row[n] == line[n] for n in NAMED)
                and row["value"] == line["printed"]]  # fmt: skip
    if line["dataset"].endswith(AVERAGE):
        prefix = line["dataset"].removesuffix(AVERAGE) + TASK
        tasks = [
            x
            for x in lines
            if all(x[n] == line[n] for n in ("paper", "system", "metric")) and x["dataset"].startswith(prefix)
        ]
        found = [values_of(task)[0] for task in tasks]
        values, items = [fmean(of_seed) for of_seed in zip(*found, strict=False)], 0
    elif not line["exact"]:
        return by_readings(line, known)
    else:
        values, items = values_of(line)
    if not values:
        return None
    if line["exact"]:
        if UNDEFINED in line["reason"]:
            return "inconclusive", None
        gap, half = values[0] - float(line["printed"]), 10.0 ** -len(line["printed"].partition(".")[2]) / 2
        return "reproduced" if abs(gap) <= half * (1 + 1e-9) else "higher" if gap > 0 else "lower", None
    return rule(line["printed"], values, known["unit"], known["metric"], known["stdev"], items)


def audit(lines: Sequence[Line], picked: Iterable[Line]) -> tuple[int, list[str]]:
    """Return how many of the picked lines were judged anew, and what came out otherwise, in words."""
    count, wrong = 0, []
    for line in picked:
        if (anew := judged_anew(line, lines)) is None:
            continue
        count += 1
        if anew != (line["verdict"], line["further_seeds"]):
            what = " ".join(filter(None, (line[name] for name in NAMED)))
            wrong.append(
                f"{what} {line['printed']}: {line['verdict']}, {line['further_seeds']}; anew {anew[0]}, {anew[1]}"
            )
    return count, wrong


def main(number: int, seed: int) -> int:
    """Audit so many random lines."""
    command = [sys.executable, "-m", "phrasemodels", "verdicts", "--json"]
    lines = json.loads(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout)
    judged = [line for line in lines if line["verdict"] in JUDGED]
    picked = random.Random(seed).sample(judged, number) if number else judged
    count, wrong = audit(lines, picked)
    print(
        *wrong,
        f"{count - len(wrong)} of {count} agree; the runs of {len(picked) - count} others are not kept",
        sep="\n",
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])) if len(sys.argv) > 2 else main(30, 45))
