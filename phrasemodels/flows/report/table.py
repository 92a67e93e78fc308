"""The HTML page of a table in one file: verdicts, tests, learning curves and examples.

It has the origin of every number. It begins with a conclusion in sentences: the gain of phrases, the sentences behind
it and the needs of a verdict. A tuning has the chosen setting of each row. A counted table has every printed number, ours and the verdict.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from numpy.typing import NDArray

from phrasemodels.data.formats.shards import BATCH_ROWS, read_shard
from phrasemodels.data.store.store import digest_of
from phrasemodels.flows.report import is_sure, render, row_name
from phrasemodels.flows.report.plots import curves, lines, svg_of
from phrasemodels.flows.results.records import commit
from phrasemodels.flows.results.results import FinishedTable
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.recipe import Outcome, Section
from phrasemodels.tasks.train.trainer import history
from phrasemodels.verdicts.scales import lower_is_better
from phrasemodels.verdicts.significance import few_seeds

Row = dict[str, Any]  # of a comparison
KINDS = {"idiom": "idioms", "plain": "plain sentences"}  # groups of sentences by their name in a sentence
CHANGED = "changed: "  # before the overrides in a reason
METRICS = {"bleu": "BLEU"}  # as they are written in a sentence


def findings(rows: Sequence[Row]) -> list[str]:
    """Return sentences on the result, the conclusion first. rows: of a comparison."""
    tested = [row for row in rows if row["against"]]
    if all(map(_at_floor, rows)):
        return ["No system learned: every seed scores 0. Train longer (train.steps), or change train.learning_rate."]
    if not tested:
        if len(rows) == 1:
            return [f"{row_name(rows[0])}: {_mean(rows[0])}. No other row was run, so nothing is compared with it."]
        means = sorted(row["intervals"][row["metric"]]["mean"] for row in rows)
        alike = len({row["metric"] for row in rows}) == 1
        found = f", {_metric(rows[0])} {means[0]:.2f} to {means[-1]:.2f}" if alike else ""
        return [f"{len(rows)} rows{found}; none is tested against another."]
    largest = max(tested, key=lambda row: abs(_difference(row)["difference"]))
    few = min(len(row["seeds"]) for row in tested)
    by_chance = f"One seed tests nothing: {_differences_in_words(len(tested))} may be by chance."
    said = [by_chance] if few < 2 else [*_counted(tested)]
    if few == 2:
        said[-1] += f" These are {few_seeds(few)}."
    metric, differences = _metric(largest), largest["against"]["differences"]
    own = differences[largest["metric"]]
    verb = ("gains" if own["difference"] > 0 else "loses") if abs(own["difference"]) >= 0.05 else "differs by"
    gain = f"{verb} {abs(own['difference']):.1f}{_interval(own)} {metric} against {_baseline(largest, rows)}."
    said.append("The largest: " * (len(tested) > 1) + f"{row_name(largest)} {gain}")
    by_kind = {name: differences.get(f"{largest['metric']}/{kind}") for kind, name in KINDS.items()}
    if kinds := [f"on {n} {of['difference']:+z.1f}{_interval(of)} {metric}" for n, of in by_kind.items() if of]:
        said.append(f"By kind: {', '.join(kinds)}.")
    return said


def _at_floor(row: Row) -> bool:
    learned = row["intervals"][row["metric"]]["mean"] != 0
    return not (learned or row.get("exact") or lower_is_better(row["metric"]))


def _differences_in_words(count: int) -> str:
    return f"{count} differences from baselines" if count > 1 else "the difference from the baseline"


def _counted(tested: Sequence[Row]) -> Iterator[str]:
    """Yield for each metric the number of significant differences from baselines, and their rows."""
    by_metric: dict[str, list[Row]] = {}
    for row in tested:
        by_metric.setdefault(row["metric"], []).append(row)
    for metric, own in by_metric.items():
        sure = [row_name(row) for row in own if is_sure(_difference(row))]
        in_metric = f" in {METRICS.get(metric, metric)}" if len(by_metric) > 1 else ""
        many = len(own) > 1
        corrected = "p < 0.05, corrected by Holm" if many else "p < 0.05"
        if many:
            counted = f"{len(sure) or 'None'} of {_differences_in_words(len(own))} {'are' if len(sure) > 1 else 'is'}"
        else:
            counted = f"The difference from the baseline is{'' if sure else ' not'}"
        which = f": {', '.join(sure)}" if many and sure else ""
        yield f"{counted} significant{in_metric} ({corrected}){which}."


def needed(rows: Sequence[Row]) -> list[str]:
    """Return what a comparison of these rows with the paper needs, each reason once.

    Rows with different changes stand together.
    """
    parts = reasons([row for row in rows if row["verdict"] == "not comparable"])
    changed = [part for part in parts if part.startswith(CHANGED)]
    others = {re.sub(r": \d+ settings[^(]*", " ", part): part for part in reversed(parts) if part not in changed}
    return [*reversed(others.values()), *(changed if len(changed) < 2 else [f"{CHANGED}settings of each row"])]


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return the parts of the reasons of rows, each once."""
    return list(dict.fromkeys(part for row in rows for part in unnamed(row["reason"]).split("; ")))


def unnamed(reason: str) -> str:
    """Return a reason with ROW in place of the row's name, so the rows of a table share it."""
    return re.sub(r"\(phrasemodels compare-settings [^()]*\)", "(phrasemodels compare-settings ROW)", reason)


def _interval(found: dict[str, Any]) -> str:
    return f" [{found['low']:+.1f}, {found['high']:+.1f}]" if found["seeds"] > 1 else ""


def _metric(row: Row) -> str:
    return METRICS.get(row["metric"], str(row["metric"]))


def _difference(row: Row) -> dict[str, Any]:
    return dict(row["against"]["differences"][row["metric"]])


def _baseline(row: Row, rows: Sequence[Row]) -> str:
    name = row["against"]["baseline"]
    return next((row_name(other) for other in rows if other["experiment"] == name), name)


def _mean(row: Row) -> str:
    ours = row["intervals"][row["metric"]]
    half = f" ± {ours['half_width']:.2f}" if ours["half_width"] is not None else ""
    return f"{_metric(row)} {ours['mean']:.2f}{half}"


Trials = Sequence[Mapping[str, Any]]  # of each row, as `tuned` in flows/run/tune.py returns them


def chosen_settings(rows: Trials) -> list[dict[str, Any]]:
    """Return for each row the setting with the lowest dev criterion, this criterion and the row's own."""
    settings = []
    for row in rows:
        best = min((t for t in row["trials"] if t["loss"] is not None), key=lambda trial: trial["loss"])
        own = row["trials"][0]["loss"]
        settings.append(
            {
                "row": row["row"],
                "trials": len(row["trials"]),
                "dev loss": round(best["loss"], 4),
                "as defined": None if own is None else round(own, 4),
                "setting": ", ".join(best["changed"]) or "as defined",
            }
        )
    return settings


EXAMPLES = 8
UNITS = ("%", "M", "K")


def table_text(finished: FinishedTable) -> str:
    """Return the page of a table. Sentences of corpora that are not redistributable are left out."""
    rows = finished.comparison.meta["rows"]
    stand_ins = {row["experiment"] for row in rows if row["stand_in"]}  # rows with another corpus than the paper's
    return render(
        "table.html.jinja",
        table=finished.table,
        rows=rows,
        findings=findings(rows),
        needed=needed(rows),
        reasons=list(dict.fromkeys(unnamed(row["reason"]) for row in rows)),
        unnamed=unnamed,
        commit=commit(),
        cell=finished.experiments[0].answers[0].cell,
        layout=_layout(rows),
        scored={row["experiment"]: row for row in rows},
        printed=list(dict.fromkeys(row["metric"] for row in rows)),
        metrics=list(dict.fromkeys(name for row in rows for name in row["intervals"])),
        warning="" if rows[0].get("exact") else few_seeds(len(rows[0]["seeds"])),
        plots=_plots(finished, rows),
        tested=tested(rows),
        conclusions={name: conclusion(rows, name) for name in tested(rows)},
        leaks=finished.leaks,
        lineage=[_lineage(finished, outcome) for outcome in finished.outcomes],
        **_examples(finished),
        tuning=chosen_settings(finished.table.trials),
        sections=_problem_sections(finished),
        svg=lambda figure: Markup(svg_of(figure)),
        licences=finished.comparison.meta["licences"],
        stand_ins=list(dict.fromkeys(one.recipe.corpus.name for one in finished.experiments if one.name in stand_ins)),
        generated=isinstance(finished.experiments[0].recipe.corpus, SampleCorpus),
        verdicts=finished.comparison,
    )


def tested(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tested metrics of rows, with the number of sentences: 280, or 280 or 448."""
    found: dict[str, set[int]] = {}
    for row in rows:
        for name, difference in row["against"]["differences"].items() if row["against"] else ():
            found.setdefault(name, set()).add(difference["sentences"])
    return {name: " or ".join(map(str, sorted(numbers))) for name, numbers in found.items()}


def conclusion(rows: list[dict[str, Any]], metric: str) -> str:
    """Say in a sentence which rows differ from their baselines in a metric."""
    compared = [(row_name(row), row["against"]["differences"]) for row in rows if row["against"]]
    found = [(name, each[metric]) for name, each in compared if metric in each]
    sure = [f"{name} ({one['difference']:+.2f})" for name, one in found if is_sure(one)]
    if found and all(one["p_holm"] is None for _, one in found):
        return "One seed: no test says what other seeds would do."
    return (
        f"{len(sure)} of {len(found)} rows differ from their baselines by more than chance"
        + (": " if sure else "")
        + "; ".join(sure)
        + "."
    )


def _layout(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return rows as the paper prints them, by system and metric."""
    systems: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        systems.setdefault(row_name(row), {})[row["metric"]] = row
    return systems


def _plots(finished: FinishedTable, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plots of the page as markup. Their numbers and names are ours and need no escaping."""
    slugs = {e.name: e.row for e in finished.experiments}
    histories: dict[str, list[Any]] = {}
    for outcome in finished.outcomes:
        histories.setdefault(outcome.row, []).append(history(outcome.trained))
    curve, metric = finished.pipelines[0].trained.settings.objective.curve, rows[0]["metric"]
    plots: dict[str, Any] = {
        "curves": Markup(curves(histories, curve) if histories else "no training came to its end"),
        "curve": curve,
    }
    last = rows[0]["signatures"].get(metric, "").split()[-1:]  # a unit, if the metric has one
    unit = f"{metric}{f' ({last[0]})' if last and last[0] in UNITS else ''}, mean over seeds"
    own = {slugs[row["experiment"]]: row["intervals"] for row in rows if row["metric"] == metric}
    if found := _by_length(own, metric):
        plots["lengths"] = Markup(lines(found, "words of a sentence", unit))
    return plots


def _by_length(rows: dict[str, dict[str, Any]], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Return the means over seeds of each row by length of sentence if there are several. See paper 001, Figure 2."""
    begin = f"{metric}/length "
    found = {
        slug: sorted((float(name[len(begin) :]), one["mean"]) for name, one in means.items() if name.startswith(begin))
        for slug, means in rows.items()
    }
    return {slug: points for slug, points in found.items() if len(points) > 1}


def _lineage(finished: FinishedTable, outcome: Outcome) -> dict[str, Any]:
    """Return the origin of the numbers of one row and seed."""
    trained, scored = outcome.trained, outcome.scored
    return {
        "experiment": outcome.experiment,
        "seed": outcome.seed,
        "metric": (metric := next(e for e in finished.experiments if e.name == outcome.experiment).answers[0].metric),
        "value": scored.meta["scores"][metric]["value"],
        "run": finished.run_ids.get(trained.key, ""),
        "train": trained,
        "score": scored,
        "test_set": digest_of([shard["content"] for shard in scored.meta["test_set"]])[:16],
        "config": json.dumps(trained.manifest["parts"]["settings"], indent=1),
    }


def _examples(finished: FinishedTable) -> dict[str, Any]:
    """Return {examples, shown}: test sentences of each group with all rows' answers or why there are none."""
    first = finished.first_seeds
    if not first:
        return {"examples": [], "shown": "No training came to its end."}
    if not all(outcome.predicted.meta["redistributable"] for outcome in first):
        return {
            "examples": [],
            "shown": "Left out: by its manifest the corpus may not be passed on (redistributable = false).",
        }
    tables = [read_shard(outcome.predicted.file("predictions.arrow")) for outcome in first]
    columns = first[0].recipe.answer_columns
    other = {"examples": [], "shown": "The answers of this problem are not sentences that can be laid side by side."}
    if columns is None or any(not table["id"].equals(tables[0]["id"]) for table in tables):
        return other
    gold, answer = columns
    right = np.sum([_right(table, gold, answer) for table in tables], axis=0)
    # those that are right in some rows only come first, then those right in none
    interest = [2 if count == len(tables) else int(count == 0) for count in right.tolist()]
    chosen = _chosen(tables[0]["group"], interest)
    picked = [table.take(pa.array(chosen, pa.int64())).to_pylist() for table in tables]
    questions = [_questions(finished, outcome, rows) for outcome, rows in zip(first, picked, strict=True)]
    if any(own != questions[0] for own in questions):
        return other
    examples = [
        {
            "group": rows[0]["group"],
            "source": question,
            "reference": _joined(rows[0][gold]),
            "systems": [
                (outcome.row, _joined(row[answer]), row[answer] == row[gold])
                for outcome, row in zip(first, rows, strict=True)
            ],
        }
        for question, rows in zip(questions[0], zip(*picked, strict=True), strict=True)
    ]
    return {"examples": examples, "shown": ""}


def _right(predictions: pa.Table, gold: str, answer: str) -> NDArray[np.int64]:
    """Return 1 for each right answer, else 0 (rows). A batch at a time is Python objects."""
    batches = predictions.select([gold, answer]).to_batches(max_chunksize=BATCH_ROWS)
    return np.array([row[gold] == row[answer] for batch in batches for row in batch.to_pylist()], np.int64)


def _chosen(groups: pa.ChunkedArray, interest: Sequence[int]) -> list[int]:
    """Return the shown rows by group, those of the lowest interest first."""
    rows: dict[str, list[int]] = {}
    names = groups.to_pylist()
    for row in sorted(range(len(interest)), key=lambda row: interest[row]):
        rows.setdefault(names[row], []).append(row)
    shown = max(1, EXAMPLES // len(rows))
    return [row for group in sorted(rows) for row in rows[group][:shown]]


def _questions(finished: FinishedTable, outcome: Outcome, predictions: list[dict[str, Any]]) -> list[str]:
    """Return the question of each row of predictions."""
    records = read_shards(finished.store.run(outcome.recipe.test_rows()))
    wanted = pa.array([row["id"] for row in predictions], records.schema.field("id").type)
    by_id = {record["id"]: record for record in records.filter(pc.is_in(records["id"], wanted)).to_pylist()}
    return [outcome.recipe.question(row, by_id[row["id"]]) for row in predictions]


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _problem_sections(finished: FinishedTable) -> list[Section]:
    """Return the sections of the table's problem. A table of several problems has none."""
    if len({type(outcome.recipe) for outcome in finished.outcomes}) != 1:
        return []
    return finished.outcomes[0].recipe.sections(finished.outcomes, finished.store.run)


def counts_text(finished: FinishedTable) -> str:
    """Return the page of a counted table."""
    compared = finished.comparison.meta
    return render("counts.html.jinja", table=finished.table, rows=compared["rows"], licences=compared["licences"])
