"""The flow `everything`: one table after another, for schedules; a table that fails does not stop the others."""

import time
from typing import Any

from prefect import flow, runtime

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.leases import lease
from phrasemodels.flows.experiments.catalogue import COUNTED, TABLES
from phrasemodels.flows.results.records import page_of
from phrasemodels.flows.results.stores import open_store
from phrasemodels.flows.run.attempts import recorded, write
from phrasemodels.flows.run.reproduce import end_of, reproduce
from phrasemodels.infra.services import services
from phrasemodels.infra.settings import Settings


def _run_name() -> str:
    """Return the name of a flow run: its papers, tables, profile and seeds."""
    asked = runtime.flow_run.parameters
    papers, tables = (", ".join(asked.get(name) or ["all"]) for name in ("papers", "tables"))
    return f"papers {papers}, tables {tables}, {asked['profile']}, {asked['seeds']} seeds"


@flow(name="everything", flow_run_name=_run_name, persist_result=False)
def everything(
    papers: list[str] | None = None,
    profile: str = "sample",
    seeds: int = 2,
    set: list[str] | None = None,
    tables: list[str] | None = None,
    duration: str = "",
) -> dict[str, Any]:
    """Run every table of some papers, or of all, with a report for each and a page that links to them. The run fails at
    the end if one of the tables failed.

    papers: like ["000"]. set: overrides of every experiment, like ["train.steps=200"]. tables: only these tables, like
    ["1"]. duration: stop the trainings after this time, like "3h"; the next run goes on.
    """
    until = end_of(duration)
    wanted, run, settings = chosen(papers or [], tables or []), str(runtime.flow_run.id), Settings()
    outcomes: dict[str, dict[str, str]] = {}  # report, run and error of each table
    title = f"{len(wanted)} of {len(TABLES)} tables, profile {profile}"
    asked, store = runtime.flow_run.parameters, open_store(settings)
    with services(settings), lease(store, [], run), recorded(store, run, title, asked, {"tables": outcomes}) as record:
        for paper, number in wanted:
            outcome = outcomes[f"paper {paper}, table {number}"] = {}
            try:
                left = f"{max(1, round(until - time.time()))}s" if duration else ""
                state = reproduce(paper, number, profile, seeds, set, duration=left, return_state=True)
                if page_of(store, part := str(state.state_details.flow_run_id)).exists():  # it was not refused at once
                    outcome["run"] = part
                result = state.result()
                outcome |= {"report": result["report"], "left": str(len(result["left"]))}
            except Exception as error:
                outcome["error"] = str(error).split("\n")[0]
            write(store, record)
        if failures := [f"{name}: {outcome['error']}" for name, outcome in outcomes.items() if "error" in outcome]:
            raise OSError(f"{len(failures)} of {len(wanted)} tables failed: {'; '.join(failures)}")
    return {name: outcome["report"] for name, outcome in outcomes.items()}


def chosen(papers: list[str], tables: list[str]) -> list[tuple[str, str]]:
    """Return (paper, table) of the tables of some papers, or of all. Tables that read corpora only to count them have to be
    named. ValueError: a paper or table does not exist."""
    known = {paper for paper, _ in TABLES}
    for paper in papers:
        if paper not in known:
            raise ValueError(f"no paper {paper!r}: {closest(paper, known)}")
    of_papers = [(paper, number) for paper, number in TABLES if not papers or paper in papers]
    for number in tables:
        if number not in (known_tables := {table for _, table in of_papers}):
            raise ValueError(f"no table {number!r} of these papers: {closest(number, known_tables)}")
    return [named for named in of_papers if (named[1] in tables if tables else not COUNTED.get(named, False))]
