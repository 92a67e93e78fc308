"""Pages of tables and of all papers.

The page of a table is a step of the store. Its key has the table, its comparison and the drawing code. It is kept as an
artifact and copied to the place of reports. The page of all papers has every printed number with its verdict. Each page is one
file.
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phrasemodels import project
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import HasKey, Job, Step, Store
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
from phrasemodels.flows.results.records import place_of, read_kept, records
from phrasemodels.flows.results.results import FinishedTable, Result, all_results
from phrasemodels.flows.results.verdicts import DATA, verdicts
from phrasemodels.infra.tracking import Tracker

PAGE = "page.html"  # the file of the artifact


def place_page(store: Store, drawn: Artifact, name: str) -> Path:
    """Copy a page from its artifact to reports/NAME.html of the store. Return this path."""
    path = store.root / "reports" / f"{name}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, drawn.file(PAGE).read_text(encoding="utf-8"))
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


def write_report(finished: FinishedTable) -> Path:
    """Write the page of a table into the folder `reports` of the store. Return its path."""
    return place_page(finished.store, drawn(finished), finished.table.slug)


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
    titles = {Path(str(run.get("report", ""))).name: run["title"] for run in records(store)}
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
        pages={file: title for file, title in titles.items() if (folder / file).is_file()},
        answered={(r["source"], r["experiment"], r["measured"]): r["verdict"] for r in rows},
        kept=[_kept_result(name, results) for name in sorted({r.source for r in results if r.kept})],
        tables=[_layout(paper, name, rows) for paper, name in dict.fromkeys((r["paper"], r["table"]) for r in rows)],
    )
    write_durably(folder / "index.html", page)
    return folder / "index.html"


def _kept_result(source: str, results: list[Result]) -> dict[str, Any]:
    """Return a kept result: title, commit, note, rows and their tests."""
    rows = [
        {**r.row, "printed": r.answer.cell.printed if r.answer.cell else "", "source": source}
        for r in results
        if r.source == source
    ]
    result = read_kept(place_of(source.removeprefix("results/")) / "result.json")
    about = {name: result[name] for name in ("title", "commit", "note")}
    metrics = tested(rows)
    conclusions = {name: conclusion(rows, name) for name in metrics}
    return {**about, "source": source, "rows": rows, "tested": metrics, "conclusions": conclusions}


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
