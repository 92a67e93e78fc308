"""Counted tables, one after another in this process: they train nothing, so they need neither Ray nor Prefect nor MLflow."""

from collections.abc import Iterator, Mapping
from typing import Any

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.remembered import remembered
from phrasemodels.data.store.step import Executor
from phrasemodels.flows.results.stores import leased_steps, open_store
from phrasemodels.flows.run.outline import outlined
from phrasemodels.flows.run.sources import sources_of
from phrasemodels.infra.settings import Settings


def count(settings: Settings, corpora: bool) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Run the counted tables that read no corpora, or all; yield the title and the rows of each, or why it cannot run.

    A table whose corpora or parser cannot be had does not stop the others.
    """
    for paper, table, reads in remembered("counted", None, _counted):
        if reads and not corpora:
            continue
        asked = {"paper": paper, "table": table, "profile": "sample", "seeds": 1, "set": [], "rows": []}
        try:
            outline, store = outlined(asked, settings), open_store(settings)
            found = [step.find(store) for step in outline.steps]
            made = found[-1] if all(found) else None
            yield outline.title, (made or _made(asked, settings)).meta["rows"], ""
        except OSError as error:
            yield f"Paper {paper}, Table {table}", [], str(error)


def _counted() -> list[tuple[str, str, bool]]:
    """Return the paper and number of each counted table, and whether it reads corpora."""
    from phrasemodels.flows.experiments.catalogue import COUNTED

    return [(paper, number, reads) for (paper, number), reads in COUNTED.items()]


def _made(asked: Mapping[str, Any], settings: Settings) -> Artifact:
    """Count a table in this process."""
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.run.preflight import planned

    plan, store = planned(Request(**asked), settings)
    with leased_steps(store, plan.steps, settings):
        return store.run(plan.comparison, Executor(sources=sources_of(settings)))
