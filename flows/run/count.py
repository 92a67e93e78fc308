"""Counted tables, one after another in this process: they train nothing, so they need neither Ray nor Prefect nor MLflow."""

from collections.abc import Iterator
from typing import Any

from phrasemodels.data.store.step import Executor
from phrasemodels.flows.experiments.catalogue import COUNTED, Request
from phrasemodels.flows.results.stores import leased_steps
from phrasemodels.flows.run.preflight import planned
from phrasemodels.flows.run.sources import sources_of
from phrasemodels.infra.settings import Settings


def count(settings: Settings, corpora: bool) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Run the counted tables that read no corpora, or all; yield the title and the rows of each, or why it cannot run.

    A table whose corpora or parser cannot be had does not stop the others.
    """
    for (paper, table), reads in COUNTED.items():
        if reads and not corpora:
            continue
        try:
            plan, store = planned(Request(paper, table), settings)
            with leased_steps(store, plan.steps, settings):
                made = store.run(plan.comparison, Executor(sources=sources_of(settings)))
        except OSError as error:
            yield f"Paper {paper}, Table {table}", [], str(error)
            continue
        yield plan.table.title, made.meta["rows"], ""
