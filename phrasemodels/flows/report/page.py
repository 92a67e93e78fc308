"""The page of a table as a step of the store, keyed by the table, its comparison and the code that draws it."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import HasKey, Job, Step
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.report.counts import counts_text
from phrasemodels.flows.report.place import PAGE, place_page
from phrasemodels.flows.report.table import table_text
from phrasemodels.flows.report.templates import templates_digest
from phrasemodels.flows.results.finished import FinishedTable


@dataclass(frozen=True)
class PageSettings:
    """The table that a page shows, and the digest of the templates. run_ids: of MLflow, by the keys of trainings."""

    table: Table
    templates: str
    run_ids: Mapping[str, str] = field(default_factory=dict, compare=False)


def page_step(table: Table, comparison: HasKey, run_ids: Mapping[str, str] | None = None) -> Step:
    """Return the step that draws the page of a table."""
    settings = PageSettings(table, templates_digest(), run_ids or {})
    return Step(draw_page, f"page {table.title}", settings, {"comparison": comparison})


def draw_page(job: Job, settings: PageSettings) -> dict[str, Any]:
    """Draw the page of a table whose steps are all in the store; note what `reproduce` prints beside its rows."""
    table = settings.table
    pipelines = [experiment.steps(seed) for seed in table.seeds for experiment in table.experiments]
    finished = FinishedTable(table, pipelines, job.store, job.inputs["comparison"], settings.run_ids)
    text = table_text(finished) if finished.outcomes else counts_text(finished)
    write_durably(job.out / PAGE, text)
    return {"run_ids": dict(settings.run_ids), "leaks": finished.leaks}


def write_report(finished: FinishedTable, page: Path | None = None) -> Path:
    """Write the page of a table into the folder `reports` of the store, and to `page`, the page of a run; return the first
    path."""
    return place_page(finished.store, drawn(finished), finished.table.slug, page)


def drawn(finished: FinishedTable) -> Artifact:
    """Return the artifact with the page of a table; it is drawn again if MLflow's database is another one."""
    run_ids = {o.trained.key: finished.run_ids.get(o.trained.key, "") for o in finished.outcomes}
    step = page_step(finished.table, finished.comparison, run_ids)
    made = finished.store.run(step)
    if made.meta["run_ids"] == run_ids:
        return made
    shutil.rmtree(made.path)
    return finished.store.run(step)
