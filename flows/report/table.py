"""One self-contained HTML page of a table: verdicts, intervals, curves, examples, and where every number is from."""

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Step, digest_of
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.report.attention_pages import attention_figures
from phrasemodels.flows.report.forms import sections
from phrasemodels.flows.report.plots import curves, differences, groups, intervals, lines
from phrasemodels.flows.report.sections import structured
from phrasemodels.flows.report.templates import render, row_name
from phrasemodels.flows.results.models import PARTS, Answering, given_texts
from phrasemodels.flows.results.query import ANSWERS
from phrasemodels.flows.results.records import page_of
from phrasemodels.flows.run.session import Session
from phrasemodels.tasks.metrics.significance import seed_group
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.entailment.recipe import EntailmentRecipe
from phrasemodels.tasks.train.loop import history

EXAMPLES = 8
SENTENCE = ("premise_tree", "premise", "text", "tokens")  # the first of these that a record has
UNITS = ("%", "M", "K")
SURE = 0.05  # of p, corrected over the table
TEXTS = (
    "facts",
    "question",
    "premise",
    "hypothesis",
    "text",
    "tokens",
    "source",
)  # of records: data/formats/schemas.py


def write_report(session: Session, verdicts: Artifact) -> Path:
    """The page, in the store's folder `reports`, and as that of this run. Sentences of corpora that may not be passed on
    are left out."""
    rows = verdicts.meta["rows"]
    page = render(
        "table.html.jinja",
        table=session.table,
        rows=rows,
        cell=session.table.experiments[0].answers[0].cell,
        layout=_layout(rows),
        scored={row["experiment"]: row for row in rows},
        metrics=list(dict.fromkeys(name for row in rows for name in row["intervals"])),
        warning=seed_group(rows[0]["values"][rows[0]["metric"]]).warning,
        plots=_plots(session, rows),
        tested=tested(rows),
        said={name: said(rows, name) for name in tested(rows)},
        leaks=session.leaks(),
        lineage=[_lineage(session, pipeline) for pipeline in session.pipelines],
        **_examples(session),
        sections=[*structured(session, rows), *sections(session)],
        attention=_attention(session),
        licences=verdicts.meta["licences"],
        stand_in=verdicts.meta["stand_in"],
        verdicts=verdicts,
    )
    table = session.table
    path = session.store.root / "reports" / f"{table.paper}-table{table.number}-{table.profile}.html"
    for place in (path, *([page_of(session.store, session.attempt)] if session.attempt else [])):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_durably(place, page)
    return path


def tested(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Metrics in which rows were tested against a baseline, the whole test set first, with the number of sentences."""
    found = [row["against"]["differences"] for row in rows if row["against"]]
    return {name: difference["sentences"] for one in found for name, difference in one.items()}


def said(rows: list[dict[str, Any]], metric: str) -> str:
    """In one sentence, which rows differ from their baselines in a metric."""
    compared = [(row_name(row), row["against"]["differences"]) for row in rows if row["against"]]
    found = [(name, each[metric]) for name, each in compared if metric in each]
    sure = [f"{name} ({one['difference']:+.2f})" for name, one in found if one["p_holm"] < SURE]
    return (
        f"{len(sure)} of {len(found)} rows differ from their baselines" + (": " if sure else "") + "; ".join(sure) + "."
    )


def _layout(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows as the paper prints them: a line for each system, in it a number for each metric."""
    lines: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row_name(row), {})[row["metric"]] = row
    return lines


def difference_plots(rows: list[dict[str, Any]]) -> dict[str, Markup]:
    """By metric, the differences of all rows from their baselines."""
    compared: dict[str, dict[str, Any]] = {}
    for row in (row for row in rows if row["against"]):
        compared.setdefault(row["metric"], {})[row_name(row)] = row["against"]["differences"]
    return {metric: Markup(differences(found)) for metric, found in compared.items()}


def _unit(row: dict[str, Any], metric: str) -> str:
    """A metric with its unit, which its signature ends with if it is not one of 0 to 100."""
    last = row["signatures"][metric].split()[-1]
    return f"{metric} ({last if last in UNITS else '0 to 100'})"


def _plots(session: Session, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """SVG drawn by us, from numbers and our own names: safe to put into the page as it is."""
    drawn = {metric: Markup(_intervals(rows, metric)) for metric in dict.fromkeys(row["metric"] for row in rows)}
    first_seed = [p for p in session.pipelines if p.seed == session.table.seeds[0]]
    histories = {p.experiment.row: _history(session, p) for p in first_seed}
    said = first_seed[0].experiment.recipe.curve
    plots: dict[str, Any] = {"intervals": drawn, "curves": Markup(curves(histories, said)), "curve": said}
    plots["differences"] = difference_plots(rows)
    metric = rows[0]["metric"]
    if found := _by_length(rows, metric):
        plots["lengths"] = Markup(lines(found, "words of a sentence", f"{_unit(rows[0], metric)}, mean over seeds"))
    names = [n for n in rows[0]["intervals"] if n.startswith(f"{metric}/") and not n.startswith(f"{metric}/length")]
    if names:
        bars = [
            {"label": row["experiment"].rsplit("/", 1)[1], **{n: row["intervals"][n]["mean"] for n in names}}
            for row in rows
            if row["metric"] == metric
        ]
        plots["groups"] = Markup(groups(bars, names, f"{_unit(rows[0], metric)}, mean over seeds"))
    return plots


def _by_length(rows: list[dict[str, Any]], metric: str) -> dict[str, list[tuple[float, float]]]:
    """Of each row the mean over seeds at each length, where there are several (Figure 2 of paper 001)."""
    begin = f"{metric}/length "
    found = {
        row["experiment"].rsplit("/", 1)[1]: sorted(
            (float(name.removeprefix(begin)), one["mean"])
            for name, one in row["intervals"].items()
            if name.startswith(begin)
        )
        for row in rows
        if row["metric"] == metric
    }
    return {name: points for name, points in found.items() if len(points) > 1}


def _intervals(rows: list[dict[str, Any]], metric: str) -> str:
    """Published and ours of the rows with a metric."""
    shown = [
        {"name": row_name(r), "values": r["values"][metric], "published": r["published"], **r["intervals"][metric]}
        for r in rows
        if r["metric"] == metric
    ]
    return intervals(shown, _unit(next(row for row in rows if row["metric"] == metric), metric))


def _history(session: Session, pipeline: Pipeline) -> list[dict[str, float]]:
    trained = session.store.find(pipeline.trained, verify=False)
    assert trained is not None
    return history(trained)


def _lineage(session: Session, pipeline: Pipeline) -> dict[str, Any]:
    """Where the numbers of one model and seed are from."""
    trained, scored = (session.store.find(step, verify=False) for step in (pipeline.trained, pipeline.scored))
    assert trained is not None and scored is not None
    return {
        "experiment": pipeline.experiment.name,
        "seed": pipeline.seed,
        "metric": (metric := pipeline.experiment.answers[0].metric),
        "value": scored.meta["scores"][metric]["value"],
        "run": session.run_of(pipeline),
        "train": trained,
        "score": scored,
        "test_set": digest_of([shard["content"] for shard in scored.meta["test_set"]])[:16],
        "config": json.dumps(trained.manifest["parts"]["settings"], indent=1),
    }


def _examples(session: Session) -> dict[str, Any]:
    """{examples, shown}: test sentences of each group with every system's answer, and why there are none."""
    first = [p for p in session.pipelines if p.seed == session.table.seeds[0]]
    artifacts = [found for p in first if (found := session.store.find(p.predicted, verify=False)) is not None]
    if not all(artifact.meta["redistributable"] for artifact in artifacts):
        return {"examples": [], "shown": "Left out: the licence of the corpus does not let its sentences be passed on."}
    tables = [read_shard(artifact.file("predictions.arrow")).to_pylist() for artifact in artifacts]
    texts = [_asked(session, pipeline, table) for pipeline, table in zip(first, tables, strict=True)]
    names = _columns(tables[0][0])
    if names is None or any(len(text) != len(texts[0]) for text in texts):
        return {"examples": [], "shown": "The answers of this problem are not sentences that can be laid side by side."}
    right = [sum(table[i][names[1]] == table[i][names[0]] for table in tables) for i in range(len(tables[0]))]
    chosen: dict[str, list[int]] = {}
    for index in sorted(range(len(right)), key=lambda i: _telling(right[i], len(tables))):
        chosen.setdefault(tables[0][index]["group"], []).append(index)
    shown = max(1, EXAMPLES // len(chosen))
    examples = [
        {
            "group": group,
            "source": texts[0][i],
            "reference": _joined(tables[0][i][names[0]]),
            "systems": [
                (p.experiment.row, _joined(t[i][names[1]]), t[i][names[1]] == t[i][names[0]])
                for p, t in zip(first, tables, strict=True)
            ],
        }
        for group, indices in sorted(chosen.items())
        for i in indices[:shown]
    ]
    return {"examples": examples, "shown": ""}


def _telling(right: int, systems: int) -> int:
    """What some get right and others wrong comes first, then what all get wrong."""
    return 2 if right == systems else int(right == 0)


def _sentences(session: Session, pipeline: Pipeline) -> Step | None:
    """The test set, or, where its records are more than sentences, the first sentence of each group, with its tree if
    the encoder is told of one; None if they may not be passed on."""
    recipe = pipeline.experiment.recipe
    split: Step = recipe.corpus.split("test")
    if isinstance(recipe, EntailmentRecipe):
        split = recipe.parsed(split)
    read = session.store.run(split)
    if not read.meta["redistributable"]:
        return None
    rows = read_shards(read)
    if "source" in rows.schema.names:
        return split
    first: dict[str, str] = {}
    for row in rows.to_pylist():
        first.setdefault(row["group"], next(_joined(row[name]) for name in SENTENCE if row.get(name)))
    return given_texts([text for _, text in sorted(first.items())], sorted(first))


def _columns(row: dict[str, Any]) -> tuple[str, str] | None:
    """What was wanted and what was answered, in a row of predictions."""
    return next((pair for pair in ANSWERS if row.keys() >= set(pair)), None)


def _asked(session: Session, pipeline: Pipeline, rows: list[dict[str, Any]]) -> list[str]:
    """What each row of predictions answers: its source, or the texts of its record."""
    if "source" in rows[0]:
        return [_joined(row["source"]) for row in rows]
    read = session.store.find(pipeline.experiment.recipe.corpus.split("test"), verify=False)
    records = read_shards(read).to_pylist() if read else []
    texts = {r["id"]: " / ".join(_joined(r[name]) for name in TEXTS if r.get(name)) for r in records}
    return [texts.get(row["id"], "") for row in rows]


def _joined(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _attention(session: Session) -> dict[str, list[dict[str, Any]]]:
    """For each system, what the last layer of its first seed's encoder attends to in a sentence of each group."""
    found = {}
    for pipeline in (p for p in session.pipelines if p.seed == session.table.seeds[0]):
        recipe, trained = pipeline.experiment.recipe, session.store.find(pipeline.trained, verify=False)
        if isinstance(recipe, Answering) and trained is not None and trained.meta["redistributable"]:
            if (sentences := _sentences(session, pipeline)) is None:
                continue
            known = {"model": pipeline.trained} | {n: data for n, data in recipe.data().items() if n in PARTS}
            step = recipe.attending(pipeline.experiment.model, sentences, known, 1)
            try:
                rows = read_shard(session.store.run(step).file("attention.arrow")).to_pylist()
            except ValueError:  # a model without attention says so
                continue
            found[pipeline.experiment.row] = attention_figures(_last_layers(rows))
    return found


def _last_layers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the attentions of sentences those of the encoder's last layer, and of the decoder's."""
    sides = [[row["module"] for row in rows if (row.get("written") is None) == encodes] for encodes in (True, False)]
    last = tuple(side[-1].rpartition(".")[0] for side in sides if side)
    return [row for row in rows if row["module"].startswith(last)]
