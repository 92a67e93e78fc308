"""The HTML page of a table: verdicts, tests, plots, examples, attention, sections of its problem, and the origin of every
number. The page is one file."""

import json
from typing import Any

from markupsafe import Markup

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import digest_of
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.report.attention import attention_figures
from phrasemodels.flows.report.conclusion import findings, needed, unnamed
from phrasemodels.flows.report.figures import svg_of
from phrasemodels.flows.report.plots import curves, differences, groups, intervals, lines
from phrasemodels.flows.report.sections import paper_sections
from phrasemodels.flows.report.templates import is_sure, render, row_name
from phrasemodels.flows.report.tuning import chosen_settings, expected_bests
from phrasemodels.flows.results.commit import commit
from phrasemodels.flows.results.finished import FinishedTable
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.recipe import PARTS
from phrasemodels.tasks.problems.report import Outcome, Section
from phrasemodels.tasks.train.loop import history
from phrasemodels.verdicts.significance import seed_group

EXAMPLES = 8
UNITS = ("%", "M", "K")


def table_text(finished: FinishedTable) -> str:
    """Return the page of a table. Sentences of corpora that are not redistributable are left out."""
    rows = finished.comparison.meta["rows"]
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
        metrics=list(dict.fromkeys(name for row in rows for name in row["intervals"])),
        warning=seed_group(rows[0]["values"][rows[0]["metric"]]).warning,
        plots=_plots(finished, rows),
        tested=tested(rows),
        conclusions={name: conclusion(rows, name) for name in tested(rows)},
        leaks=finished.leaks,
        lineage=[_lineage(finished, *pair) for pair in zip(finished.pipelines, finished.outcomes, strict=True)],
        **_examples(finished),
        tuning=chosen_settings(finished.table.trials),
        expected_bests=expected_bests(finished.table.trials) if finished.table.trials else "",
        sections=[*paper_sections(finished), *_problem_sections(finished)],
        svg=lambda figure: Markup(svg_of(figure)),
        attention=_attention(finished),
        licences=finished.comparison.meta["licences"],
        stand_ins=_stand_ins(finished, rows),
        generated=isinstance(finished.experiments[0].recipe.corpus, SampleCorpus),
        verdicts=finished.comparison,
    )


def _stand_ins(finished: FinishedTable, rows: list[dict[str, Any]]) -> list[str]:
    """Return the corpora of the rows on data that are not the paper's."""
    own = {row["experiment"] for row in rows if row["stand_in"]}
    return list(dict.fromkeys(one.recipe.corpus.name for one in finished.experiments if one.name in own))


def tested(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the metrics in which rows were tested against a baseline, with the number of sentences: 280, or 280 or 448."""
    found: dict[str, set[int]] = {}
    for row in rows:
        for name, difference in row["against"]["differences"].items() if row["against"] else ():
            found.setdefault(name, set()).add(difference["sentences"])
    return {name: " or ".join(map(str, sorted(numbers))) for name, numbers in found.items()}


def conclusion(rows: list[dict[str, Any]], metric: str) -> str:
    """Return a sentence that says which rows differ from their baselines in a metric."""
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


def difference_plots(rows: list[dict[str, Any]]) -> dict[str, Markup]:
    """Return the plots, by metric, of the differences of all rows from their baselines."""
    compared: dict[str, dict[str, Any]] = {}
    for row in (row for row in rows if row["against"]):
        compared.setdefault(row["metric"], {})[row_name(row)] = row["against"]["differences"]
    return {metric: Markup(differences(found)) for metric, found in compared.items()}


def _unit(row: dict[str, Any], metric: str) -> str:
    """Return a metric with its unit, the end of its signature; of other metrics none is known."""
    last = row["signatures"][metric].split()[-1]
    return f"{metric} ({last})" if last in UNITS else metric


def _plots(finished: FinishedTable, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plots of the page as markup; they hold numbers and names of ours, which need no escaping."""
    slugs = {outcome.experiment: outcome.row for outcome in finished.outcomes}
    histories: dict[str, list[Any]] = {}
    for outcome in finished.outcomes:
        histories.setdefault(outcome.row, []).append(history(outcome.trained))
    curve, metric = finished.pipelines[0].trained.settings.objective.curve, rows[0]["metric"]
    plots: dict[str, Any] = {
        "intervals": {name: Markup(_intervals(rows, name)) for name in dict.fromkeys(row["metric"] for row in rows)},
        "curves": Markup(curves(histories, curve)),
        "curve": curve,
        "differences": difference_plots(rows),
    }
    unit = f"{_unit(rows[0], metric)}, mean over seeds"
    own = {slugs[row["experiment"]]: row["intervals"] for row in rows if row["metric"] == metric}
    if found := _by_length(own, metric):
        plots["lengths"] = Markup(lines(found, "words of a sentence", unit))
    names = [n for n in rows[0]["intervals"] if n.startswith(f"{metric}/") and not n.startswith(f"{metric}/length")]
    if names:
        bars = [{"label": slug, **{n: means[n]["mean"] for n in names}} for slug, means in own.items()]
        plots["groups"] = Markup(groups(bars, names, unit))
    return plots


def _by_length(rows: dict[str, dict[str, Any]], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Return for each row its means over seeds by length of sentence, if there are several (paper 001, Figure 2)."""
    begin = f"{metric}/length "
    found = {
        slug: sorted((float(name[len(begin) :]), one["mean"]) for name, one in means.items() if name.startswith(begin))
        for slug, means in rows.items()
    }
    return {slug: points for slug, points in found.items() if len(points) > 1}


def _intervals(rows: list[dict[str, Any]], metric: str) -> str:
    """Return the plot of published and our values of the rows with a metric."""
    shown = [
        {"name": row_name(r), "values": r["values"][metric], "published": r["published"], **r["intervals"][metric]}
        for r in rows
        if r["metric"] == metric
    ]
    return intervals(shown, _unit(next(row for row in rows if row["metric"] == metric), metric))


def _lineage(finished: FinishedTable, pipeline: Pipeline, outcome: Outcome) -> dict[str, Any]:
    """Return the origin of the numbers of one row and seed."""
    trained, scored = outcome.trained, outcome.scored
    return {
        "experiment": outcome.experiment,
        "seed": outcome.seed,
        "metric": (metric := pipeline.experiment.answers[0].metric),
        "value": scored.meta["scores"][metric]["value"],
        "run": finished.run_ids.get(trained.key, ""),
        "train": trained,
        "score": scored,
        "test_set": digest_of([shard["content"] for shard in scored.meta["test_set"]])[:16],
        "config": json.dumps(trained.manifest["parts"]["settings"], indent=1),
    }


def _examples(finished: FinishedTable) -> dict[str, Any]:
    """Return {examples, shown}: test sentences of each group with the answers of all rows, or why there are none."""
    first = finished.first_seeds
    if not all(outcome.predicted.meta["redistributable"] for outcome in first):
        return {"examples": [], "shown": "Left out: the licence of the corpus does not let its sentences be passed on."}
    tables = [read_shard(outcome.predicted.file("predictions.arrow")).to_pylist() for outcome in first]
    columns = first[0].recipe.answer_columns
    questions = [
        _questions(finished, outcome, rows) if columns else [] for outcome, rows in zip(first, tables, strict=True)
    ]
    if columns is None or any(own != questions[0] for own in questions):
        return {"examples": [], "shown": "The answers of this problem are not sentences that can be laid side by side."}
    gold, answer = columns
    right = [sum(rows[i][answer] == rows[i][gold] for rows in tables) for i in range(len(tables[0]))]
    chosen: dict[str, list[int]] = {}
    for index in sorted(range(len(right)), key=lambda i: _interest(right[i], len(tables))):
        chosen.setdefault(tables[0][index]["group"], []).append(index)
    shown = max(1, EXAMPLES // len(chosen))
    examples = [
        {
            "group": group,
            "source": questions[0][i],
            "reference": _joined(tables[0][i][gold]),
            "systems": [
                (outcome.row, _joined(rows[i][answer]), rows[i][answer] == rows[i][gold])
                for outcome, rows in zip(first, tables, strict=True)
            ],
        }
        for group, indices in sorted(chosen.items())
        for i in indices[:shown]
    ]
    return {"examples": examples, "shown": ""}


def _interest(right: int, systems: int) -> int:
    """Return the rank of a sentence: first those that only some rows get right, then those that none does."""
    return 2 if right == systems else int(right == 0)


def _questions(finished: FinishedTable, outcome: Outcome, predictions: list[dict[str, Any]]) -> list[str]:
    """Return what each row of predictions is the answer to."""
    records = read_shards(finished.store.run(outcome.recipe.test_rows())).to_pylist()
    by_id = {record["id"]: record for record in records}
    return [outcome.recipe.question(row, by_id[row["id"]]) for row in predictions]


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _problem_sections(finished: FinishedTable) -> list[Section]:
    """Return the sections of the table's problem; a table of several problems has none."""
    if len({type(outcome.recipe) for outcome in finished.outcomes}) > 1:
        return []
    return finished.outcomes[0].recipe.sections(finished.outcomes, finished.store.run)


def _attention(finished: FinishedTable) -> dict[str, list[dict[str, Any]]]:
    """Return for each row the figures of the last layers' attention to a test sentence of each group, by its first seed."""
    figures = {}
    for outcome in finished.first_seeds:
        recipe = outcome.recipe
        if not (recipe.answers_inputs and outcome.trained.meta["redistributable"]):
            continue
        records = finished.store.run(recipe.test_rows())
        if not records.meta["redistributable"]:
            continue
        known = {"model": outcome.trained} | {name: step for name, step in recipe.data().items() if name in PARTS}
        step = recipe.attention_step(outcome.model, recipe.attended_texts(records), known, 1)
        try:
            rows = read_shard(finished.store.run(step).file("attention.arrow")).to_pylist()
        except ValueError:  # the model has no attention
            continue
        figures[outcome.row] = attention_figures(_last_layers(rows))
    return figures


def _last_layers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the attention of the encoder's last layer, and of the decoder's."""
    sides = [[row["module"] for row in rows if (row.get("written") is None) == encodes] for encodes in (True, False)]
    last = tuple(side[-1].rpartition(".")[0] for side in sides if side)
    return [row for row in rows if row["module"].startswith(last)]
