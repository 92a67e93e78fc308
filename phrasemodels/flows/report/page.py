"""Pages of tables and of all papers.

The page of a table is a step of the store. Its key has the table, its comparison and the drawing code. It is kept as an
artifact and copied to the place of reports. The page of all papers has every printed number with its verdict, and systems
compared across papers. Each page is one file.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phrasemodels import project
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import HasKey, Job, Step, Store, digest_of
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.published import JUDGED, VERDICTS, papers
from phrasemodels.flows.report import render, templates_digest
from phrasemodels.flows.report.table import (
    conclusion,
    counts_text,
    table_text,
    tested,
)
from phrasemodels.flows.results.claims import answered_claims
from phrasemodels.flows.results.judged import headline, needed, reasons, summary
from phrasemodels.flows.results.records import place_of, read_kept
from phrasemodels.flows.results.results import FinishedTable, Result, all_results
from phrasemodels.flows.results.verdicts import DATA, verdicts
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.metrics.compare import TestedRow, differences
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.trainer import history

PAGE = "page.html"  # the file of the artifact


def place_page(store: Store, drawn: Artifact, name: str, page: Path | None = None) -> Path:
    """Copy a page from its artifact to reports/NAME.html of the store and to `page`. Return the first one."""
    path = store.root / "reports" / f"{name}.html"
    text = drawn.file(PAGE).read_text(encoding="utf-8")
    for place in (path, page) if page else (path,):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_durably(place, text)
    return path


@dataclass(frozen=True)
class PageSettings:
    """The table of a page and the digest of the templates. run_ids: of MLflow by the keys of trainings."""

    table: Table
    templates: str
    run_ids: Mapping[str, str] = field(default_factory=dict, compare=False)


def page_step(table: Table, comparison: HasKey, run_ids: Mapping[str, str] | None = None) -> Step:
    """Return the step for drawing the page of a table."""
    settings = PageSettings(table, templates_digest(), run_ids or {})
    return Step(draw_page, f"page {table.title}", settings, {"comparison": comparison})


def draw_page(job: Job, settings: PageSettings) -> dict[str, Any]:
    """Draw the page of a table with all steps in the store. Note the further output of `reproduce`."""
    table = settings.table
    pipelines = [experiment.steps(seed) for seed in table.seeds for experiment in table.experiments]
    finished = FinishedTable(table, pipelines, job.store, job.inputs["comparison"], settings.run_ids)
    text = table_text(finished) if any(p.trains for p in pipelines) else counts_text(finished)
    write_durably(job.out / PAGE, text)
    return {"run_ids": dict(settings.run_ids), "leaks": finished.leaks}


def write_report(finished: FinishedTable, page: Path | None = None) -> Path:
    """Write the page of a table into the folder `reports` of the store and to `page`, the page of a run.

    Returns:
        The first path.
    """
    return place_page(finished.store, drawn(finished), finished.table.slug, page)


def drawn(finished: FinishedTable) -> Artifact:
    """Return the artifact with the page of a table.

    It is drawn again if MLflow's database is another one, or once a failed check is done.
    """
    run_ids = {o.trained.key: finished.run_ids.get(o.trained.key, "") for o in finished.outcomes}
    step = page_step(finished.table, finished.comparison, run_ids)
    made = finished.store.run(step)
    if made.meta["run_ids"] == run_ids and made.meta["leaks"] == finished.leaks:
        return made
    shutil.rmtree(made.path)
    return finished.store.run(step)


MARKS = dict(zip(VERDICTS, ("=", "↑", "↓", "?", "✗", "!", "≁", ""), strict=True))


def write_overview(store: Store, tracker: Tracker) -> Path:
    """Write reports/index.html of the store with links to the pages of tables. Return its path."""
    results = all_results(store, tracker)
    rows = verdicts(results)
    folder = store.root / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    compared = comparisons(store, results)
    shown = {
        (row["source"], row["experiment"]) for row in [*rows, *(row for table in compared for row in table["rows"])]
    }
    page = render(
        "overview.html.jinja",
        numbers=[*papers(), *project.parts("papers")],
        total=len(rows),
        counts=(counts := summary(rows)),
        totals={verdict: sum(of.get(verdict, 0) for of in counts.values()) for verdict in MARKS},
        headline=headline(rows),
        claims=answered_claims(results, store),
        reasons={verdict: found for verdict, found in reasons(rows).items() if verdict not in JUDGED},
        needed=needed(rows),
        marks=MARKS,
        pages=[_page(path) for path in sorted(folder.glob("*-table*.json"))],
        contradicted={(r["source"], r["experiment"], r["measured"]) for r in rows if r["verdict"] == "impossible"},
        kept=[_kept_result(name, results) for name in sorted({r.source for r in results if r.kept})],
        comparisons=[{**table, **_tests(table["rows"])} for table in compared],
        tables=[_layout(paper, name, rows) for paper, name in dict.fromkeys((r["paper"], r["table"]) for r in rows)],
        origins=origins(store, [r for r in results if r.kept or (r.source, r.experiment.name) in shown]),
    )
    write_durably(folder / "index.html", page)
    return folder / "index.html"


def _page(path: Path) -> dict[str, str]:
    try:
        title = json.loads(path.read_text(encoding="utf-8"))["title"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: remove it, or run its table again") from error
    return {"title": title, "file": path.with_suffix(".html").name}


def _tests(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tests of rows against their baselines, and sentences on them."""
    metrics = tested(rows)
    return {
        "tested": metrics,
        "conclusions": {name: conclusion(rows, name) for name in metrics},
    }


def _kept_result(source: str, results: list[Result]) -> dict[str, Any]:
    """Return a kept result: title, commit, note, rows and their tests."""
    rows = [
        {**r.row, "printed": r.answer.cell.printed if r.answer.cell else "", "source": source}
        for r in results
        if r.source == source
    ]
    result = read_kept(place_of(source.removeprefix("results/")) / "result.json")
    about = {name: result[name] for name in ("title", "commit", "note")}
    return {**about, "source": source, "rows": rows, **_tests(rows)}


def _place(row: dict[str, Any]) -> tuple[str, str]:
    """Return the line and column of a number: its system, and data set with metric.

    Statistics of a data set have the data set and the metric.
    """
    if row["system"] in DATA:
        variant = "" if row["variant"].startswith("task=") else row["variant"]
        return row["dataset"] or row["system"], f"{row['metric']} {variant}".strip()
    return f"{row['system']} {row['variant']}".strip(), f"{row['dataset']} {row['metric']}".strip()


def _layout(paper: str, table: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a table in the paper's layout: a line for each system, a column for each data set and metric."""
    lines: dict[str, dict[str, dict[str, Any]]] = {}
    columns: dict[str, None] = {}
    own = [row for row in rows if (row["paper"], row["table"]) == (paper, table)]
    several = {column for (_, column), count in Counter(map(_place, own)).items() if count > 1}
    for row in own:
        system, column = _place(row)
        column = f"{column}, {row['split']}" if column in several else column
        lines.setdefault(system, {})[column] = row
        columns[column] = None
    if len(columns) > max(6, len(lines)):  # wider than high: transposed, to be readable
        turned = {column: {s: line[column] for s, line in lines.items() if column in line} for column in columns}
        return {"paper": paper, "table": table, "columns": list(lines), "lines": turned}
    return {"paper": paper, "table": table, "columns": list(columns), "lines": lines}


def origins(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return {id, experiment, title, source, commit, seeds, config, test_set, licences} of each experiment of a source.

    seeds: {seed, run, train, score, values} of each; values: by metric, of all metrics of the results.
    """
    artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        alike.setdefault((result.source, result.experiment.name), []).append(result)
    return [_origin(group, artifacts) for group in alike.values()]


def _origin(results: Sequence[Result], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    result = results[0]
    run, row = result.runs[0], result.row
    trained, scored = (artifacts.get(run[name]) for name in ("train", "score"))
    settings = trained.manifest["parts"]["settings"] if trained else row.get("settings", {})
    test_set = scored.meta["test_set"] if scored else row.get("test_set", [])
    licences = scored.meta["licences"] if scored else row.get("licences", [])
    return {
        "id": f"{result.source}/{result.experiment.name}",
        "experiment": result.experiment.name,
        "title": result.title,
        "source": result.source,
        "commit": row.get("commit", ""),
        "seeds": [
            {**of, "values": {one.row["metric"]: one.row["values"][one.row["metric"]][place] for one in results}}
            for place, of in enumerate(result.runs)
        ],
        "config": json.dumps({name: value for name, value in settings.items() if name != "seed"}, indent=1),
        "test_set": digest_of([shard["content"] for shard in test_set])[:16],
        "licences": licences,
    }


BUDGET = ("steps", "batch_tokens")

Setting = tuple[str, str, str, str]  # problem and corpus, metric, budget, test set
Row = tuple[Result, list[Artifact], list[Artifact]]  # a result with its trainings and scores, one of each per seed


def comparisons(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return tables {title, metric, budget, test_set, rows} of the results in the store.

    They are the best result of each experiment. A row has quality and parameters, tokens per second and peak memory
    (MiB). It also has seconds of training (means over seeds) and its Holm-corrected difference from its baseline. The
    correction is over the table.
    """
    artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
    best: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.experiment.name, result.answer.metric)
        whole = bool(result.runs) and all(run[part] in artifacts for run in result.runs for part in ("train", "score"))
        if whole and (key not in best or best[key].worth < result.worth):
            best[key] = result
    tables: dict[Setting, list[Row]] = {}
    for result in best.values():
        trained = [artifacts[run["train"]] for run in result.runs]
        scored = [artifacts[run["score"]] for run in result.runs]
        config = trained[0].manifest["parts"]["settings"].get("config", {})
        budget = ", ".join(f"{name.replace('_', ' ')} {config[name]}" for name in BUDGET if name in config)
        setting = (result.experiment.recipe.name, result.answer.metric, budget, str(scored[0].meta["test_set"]))
        tables.setdefault(setting, []).append((result, trained, scored))
    return [_table(setting, rows, artifacts) for setting, rows in tables.items()]


def _table(setting: Setting, rows: list[Row], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    title, metric, budget, test_set = setting
    tested = []
    for result, _, scored in rows:
        statistic = result.answer.statistic
        tables = [read_shard(artifact.file("sentences.arrow")) for artifact in scored if statistic]
        tested.append(TestedRow(result.experiment.name, metric, test_set, statistic, tables))
    lines = [
        {
            "paper": result.experiment.paper,
            "source": result.source,
            "experiment": result.experiment.name,
            "metric": metric,
            "system": result.experiment.system,
            "variant": result.experiment.variant,
            "seeds": len(result.row["seeds"]),
            "quality": result.row["intervals"][metric],
            "parameters": trained[0].meta["parameters"],
            "tokens_per_second": _speed(result, trained, artifacts),
            "peak_memory_mib": _mean(artifact.meta["peak_memory_mib"] for artifact in trained),
            "train_seconds": _mean(artifact.meta["train_seconds"] for artifact in trained),
            "against": against,
        }
        for (result, trained, _), against in zip(rows, differences(tested), strict=True)
    ]
    return {"title": title, "metric": metric, "budget": budget, "test_set": test_set, "rows": lines}


def _speed(result: Result, trained: list[Artifact], artifacts: Mapping[str, Artifact]) -> float | None:
    """Return the tokens per second of all sides together as a mean over the rows of all histories.

    None if the training data is no longer in the store. A history counts the items in the mean of the loss (target
    tokens, pairs or sentences). So its speed is multiplied by the tokens per item.
    """
    data = artifacts.get(trained[0].manifest["parts"]["inputs"]["train"])
    if data is None:
        return None
    e = result.experiment
    problem = e.recipe.stages(e.model, e.train, 0)["model"].settings.objective
    examples = problem.examples([shard.path for shard in shards(data)])
    tokens = examples.lengths.sum() / problem.count(examples, np.arange(len(examples)))
    return _mean(tokens * row["items_per_second"] for training in trained for row in history(training))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
