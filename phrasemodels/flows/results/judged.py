"""The verdicts on all printed numbers and their counts.

They are cached on disk while neither the store nor results/ change.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from phrasemodels.data.store.disk_cache import cached_on_disk, contents
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.published import CONTRADICTION, EXCHANGED, JUDGED, SUSPECT, VERDICTS
from phrasemodels.flows.results.records import folders
from phrasemodels.infra.tracking import Tracker

WRONG_REPRODUCED, WRONG_DIFFERENT = 0.05, 0.06  # rates of the rule
FULLER = "ICLR"  # begins the tables of the full paper of 003, which isn't among the five
A_SEED = re.compile(r" \((?:about|at least) [^()]* a seed[^()]*\)")  # in what a number takes
ROW = re.compile(r" --row \S+")


def judged(store: Store, tracker: Tracker, paper: str = "", claims: bool = False) -> list[dict[str, Any]]:
    """Return the verdicts on the results in the store and on kept ones. ValueError: the paper is unknown.

    claims: return the answers to the papers' claims by them.
    """

    def make() -> list[dict[str, Any]]:
        from phrasemodels.flows.results.claims import answered_claims
        from phrasemodels.flows.results.results import all_results
        from phrasemodels.flows.results.verdicts import verdicts

        found = all_results(store, tracker)
        return answered_claims(found, store, paper) if claims else verdicts(found, paper)

    depends = [paper, tracker.keys(), list(map(str, store.present())), _kept_contents()]
    return list(cached_on_disk("claims" if claims else "verdicts", depends, make))


KEPT = (
    "experiment", "metric", "published", "verdict", "reason", "seeds", "diverged", "values", "training", "settings", "sentences",
)  # fmt: skip


def problem_of(experiment: Any) -> list[str]:
    """Return the problem and the corpus of an experiment. One that counts something has no corpus."""
    return [experiment.recipe.name, getattr(getattr(experiment.recipe, "corpus", None), "name", "")]


def cached_kept() -> list[dict[str, Any]]:
    """Return the rows of kept results.

    Each has title, origin, problem and older code. It also has the interval and tests of the metric.
    """

    def make() -> list[Any]:
        from phrasemodels.flows.results.results import kept_results, older_code

        return [
            {
                **{name: r.row[name] for name in KEPT if name in r.row},
                "intervals": {r.row["metric"]: r.row["intervals"][r.row["metric"]]},
                "against": (against := r.row["against"])
                and against | {"differences": {r.row["metric"]: against["differences"][r.row["metric"]]}},
                "title": r.title,
                "origin": r.source,
                "exact": r.answer.exact,
                "older": older_code(r.experiment, r.row.get("code", "")),
                "problem": problem_of(r.experiment),
            }
            # of two rows with one answer, the first: what the second answered is no longer asked
            for r in {(r.source, r.row["experiment"], r.row["metric"]): r for r in [*kept_results()][::-1]}.values()
        ][::-1]

    return list(cached_on_disk("kept rows", _kept_contents(), make))


def _kept_contents() -> list[dict[str, str]]:
    return [contents(folder) for folder in folders()]


def summary(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts by paper and verdict. Verdicts without a number are left out."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of = counts.setdefault(row["paper"], {})
        of[row["verdict"]] = of.get(row["verdict"], 0) + 1
    return counts


def headline(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Describe the counted, trained and contradicted numbers.

    The settings and the chance of an error are given, too. The rates are the largest that benchmarks/verdict_rule.py
    simulates.
    """
    rows = list(rows)
    fuller = sum(row["table"].startswith(FULLER) for row in rows)
    counts = Counter((row["kind"], row["verdict"]) for row in rows if row["verdict"] in JUDGED)
    lines = [f"{len(rows) - fuller} numbers of the papers, and {fuller} of a fuller version of 003"] if fuller else []
    for kind in sorted({kind for kind, _ in counts}):
        of = [f"{counts[kind, verdict]} {verdict}" for verdict in JUDGED if counts[kind, verdict]]
        lines.append(f"{kind}: {', '.join(of)}")
    trained: Counter[str] = Counter()
    for (kind, verdict), n in counts.items():
        trained[verdict] += n * kind.startswith("trained")
    differ = trained["higher"] + trained["lower"]
    if trained.total():
        lines.append(
            f"by chance, at most {math.ceil(WRONG_REPRODUCED * trained['reproduced'])} of the {trained['reproduced']} trained "
            f"that are reproduced may be two margins off, and {math.ceil(WRONG_DIFFERENT * differ)} of the {differ} higher or "
            "lower may be equal"
        )
    contradicted, least = least_wrong(rows)
    if contradicted:
        suspect = sum(row["kind"].startswith(SUSPECT) for row in rows)
        lines.append(
            f"impossible: {contradicted} contradicted, at least {least} of which must be wrong; suspect, under an assumption: {suspect}"
        )
    return lines


def least_wrong(lines: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """Return how many numbers are contradicted, and how many of them at least are wrong.

    They are one of each group with the same arithmetic, and both of two exchanged ones.
    """
    groups: dict[str, list[str]] = {}
    for line in lines:
        if line["kind"].startswith(CONTRADICTION):
            groups.setdefault(line["reason"], []).append(line["kind"])
    return sum(map(len, groups.values())), sum(len(kinds) if EXCHANGED in kinds else 1 for kinds in groups.values())


def needed(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the needs of unjudged numbers without hours and count the numbers of each need.

    The most frequent need comes first.
    """
    return dict(Counter(A_SEED.sub("", row["needs"]) for row in rows if row["needs"]).most_common())


def commands(rows: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the commands for the needs of numbers without a judgement: one for all rows of a table with one need."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for command in filter(None, row["command"].split("; ")):
            of_table = found.setdefault(A_SEED.sub("", row["needs"]), {}).setdefault(ROW.sub("", command), {})
            of_table |= dict.fromkeys(ROW.findall(command))
    return {
        what: [one.replace(" --seeds", f"{''.join(rows_of)} --seeds") for one, rows_of in of.items()]
        for what, of in found.items()
    }


def reasons(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the counts of each kind of reason, by verdict. The most frequent come first."""
    counts = Counter((row["verdict"], row["kind"]) for row in rows)
    return {
        verdict: {kind: n for (of, kind), n in counts.most_common() if of == verdict}
        for verdict in VERDICTS
        if any(of == verdict for of, _ in counts)
    }
