"""Verdicts before and after: `python benchmarks/verdict_changes.py 5931fc51` judges all printed numbers by the program and the kept
results of that commit, and by those of today, and prints a table by kind and every change with its explanation, as
docs/results/changes.md has them.

5931fc51 is the last commit before the rule of docs/decisions/001-rule-of-verdicts.md. A trained number that was judged then is also
judged by today's rule on the seeds of then, which tells what the rule changed from what further seeds did.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from phrasemodels.flows.experiments.published import JUDGED, VERDICTS, printed_value, published_results
from phrasemodels.flows.results.results import Result, kept_results
from phrasemodels.verdicts.judgement import judge

PROJECT = Path(__file__).parents[1]
NAMED = ("paper", "table", "system", "variant", "dataset", "split", "metric", "printed")
Line = dict[str, Any]
Key = tuple[str, ...]


def verdicts_of(folder: Path) -> dict[Key, Line]:
    """Return the verdicts of a checkout with an empty store, by number."""
    with tempfile.TemporaryDirectory() as store:
        environment = os.environ | {"PYTHONPATH": str(folder), "PHRASEMODELS_STORE": f"{store}/store"}
        command = [sys.executable, "-m", "phrasemodels", "verdicts", "--json"]
        said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    return {tuple(line[name] for name in NAMED): line for line in json.loads(said)}


def at(commit: str) -> dict[Key, Line]:
    """Return the verdicts of a commit."""
    packed = subprocess.run(["git", "archive", commit], cwd=PROJECT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        return verdicts_of(Path(folder))


def kind(line: Line, other: Line) -> str:
    """Return what kind of number a line is: counted, or trained on which settings, by itself or, before kinds were told apart, by
    the same number today."""
    kinds = [
        x["kind"] for x in (line, other) if x["verdict"] in JUDGED and x["kind"].startswith(("counted", "trained"))
    ]
    if kinds:
        return str(kinds[0]).partition(",")[0]
    return "counted" if line["exact"] or other["exact"] else "trained"


def explained(before: Line, now: Line, results: dict[tuple[str, str, str], Result]) -> str:
    """Return why a verdict changed."""
    if now["verdict"] not in JUDGED:
        return str(now["reason"])
    if now["exact"]:
        return f"counted anew: {before['ours']:g} before" if before["ours"] is not None else "counted since"
    if before["verdict"] not in JUDGED:
        return "trained since"
    found = results.get((now["source"], now["experiment"], now["measured"]))
    if found is None:  # an average
        return f"the rule, and {now['seeds']} seeds in place of {before['seeds']}"
    row = next(row for row in published_results() if all(row[name] == now[name] for name in NAMED[:-1]))
    then = judge(
        now["printed"], found.row["values"][now["measured"]][: before["seeds"]], how=printed_value(row)
    ).verdict
    if now["seeds"] == before["seeds"] or then == now["verdict"]:
        return "the rule"
    return (
        f"the rule ({then} by the {before['seeds']} seeds of then), and {now['seeds'] - before['seeds']} further seeds"
    )


def main(commit: str) -> None:
    """Print the table by kind, then each change."""
    before, now = at(commit), verdicts_of(PROJECT)
    counts: Counter[tuple[str, str, str]] = Counter()
    for key, line in now.items():
        was = before.get(key)
        counts[kind(line, was or line), was["verdict"] if was else "not listed", line["verdict"]] += 1
    print(f"| kind | verdict | before | now |\n{'|---' * 2}|{'---:|' * 2}")
    for one in sorted({kind for kind, _, _ in counts}):
        for verdict in VERDICTS:
            then = sum(n for (k, v, _), n in counts.items() if (k, v) == (one, verdict))
            today = sum(n for (k, _, v), n in counts.items() if (k, v) == (one, verdict))
            if then or today:
                print(f"| {one} | {verdict} | {then} | {today} |")
    print(f"\n{len(now.keys() - before.keys())} numbers are listed since.")
    results = {(r.source, r.experiment.name, r.row["metric"]): r for r in kept_results()}
    print(f"\n| number | printed | before | now | why |\n{'|---' * 5}|")
    for key, line in now.items():
        was = before.get(key)
        if was and was["verdict"] != line["verdict"]:
            what = " ".join(filter(None, key[:-1]))
            print(
                f"| {what} | {line['printed']} | {was['verdict']} | {line['verdict']} | {explained(was, line, results)} |"
            )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "5931fc51")
