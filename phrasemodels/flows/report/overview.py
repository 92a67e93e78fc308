"""The HTML page of all papers: every printed number with its verdict, and systems compared across papers. It is one file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from phrasemodels import project
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.table import conclusion, difference_plots, tested
from phrasemodels.flows.report.templates import render
from phrasemodels.flows.report.tuning import expected_bests
from phrasemodels.flows.results.comparison import comparisons
from phrasemodels.flows.results.folder import place_of
from phrasemodels.flows.results.glance import needed, reasons, summary
from phrasemodels.flows.results.keep import TRIALS
from phrasemodels.flows.results.not_run import DATA
from phrasemodels.flows.results.origins import origins
from phrasemodels.flows.results.results import Result, all_results
from phrasemodels.flows.results.verdicts import verdicts
from phrasemodels.infra.tracking import Tracker

PAPERS = {
    "000": "Attention over Phrases",
    "001": "Phrase-level self-attention networks",
    "002": "Phrase Transformer",
    "003": "Structured attention",
    "004": "Label attention parser",
}
MARKS = {"reproduced": "=", "higher": "↑", "lower": "↓", "impossible": "✗", "not comparable": "≁", "not run": ""}


def write_overview(store: Store, tracker: Tracker) -> Path:
    """Write reports/index.html of the store, with links to the pages of tables beside it; return its path."""
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
        papers=PAPERS | {name: name for name in project.parts("papers")},
        total=len(rows),
        counts=(counts := summary(rows)),
        totals={verdict: sum(of.get(verdict, 0) for of in counts.values()) for verdict in MARKS},
        reasons=reasons(rows),
        needed=needed(rows),
        marks=MARKS,
        pages=[_page(path) for path in sorted(folder.glob("*-table*.json"))],
        kept=[_kept(folder_name, results) for folder_name in sorted({r.source for r in results if r.kept})],
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
    """Return the tests of rows against their baselines, as sentences and plots."""
    metrics = tested(rows)
    return {
        "tested": metrics,
        "conclusions": {name: conclusion(rows, name) for name in metrics},
        "plots": difference_plots(rows),
    }


def _kept(source: str, results: list[Result]) -> dict[str, Any]:
    """Return a kept result: title, commit, note, rows and their tests."""
    rows = [
        {**r.row, "printed": r.answer.cell.printed if r.answer.cell else "", "source": source}
        for r in results
        if r.source == source
    ]
    result = json.loads((place_of(source.removeprefix("results/")) / "result.json").read_text(encoding="utf-8"))
    about = {name: result[name] for name in ("title", "commit", "note")}
    trials = place_of(source.removeprefix("results/")) / TRIALS
    if trials.is_file():
        about["trials"] = expected_bests(json.loads(trials.read_text(encoding="utf-8")))
    return {**about, "source": source, "rows": rows, **_tests(rows)}


def _place(row: dict[str, Any]) -> tuple[str, str]:
    """Return the line and column of a number: its system, and data set with metric; for statistics of a data set, the data
    set and the metric."""
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
