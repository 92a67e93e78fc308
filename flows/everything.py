"""The flow for a schedule: one table after another, so that one that fails does not keep the others from their end."""

from typing import Any

from prefect import flow

import infra.environment  # noqa: F401
from data.manifest import closest
from flows.catalogue import TABLES
from flows.reproduce import reproduce
from infra.services import services
from infra.settings import Settings


@flow(name="everything", persist_result=False)
def everything(
    papers: list[str] | None = None,
    profile: str = "sample",
    seeds: int = 2,
    set: list[str] | None = None,
) -> dict[str, Any]:
    """Every table of some papers, or of all; a report for each. Fails at the end if one of them did.

    papers: like ["000"]. set: overrides of every experiment, like ["train.steps=200"].
    """
    found: dict[str, Any] = {}
    failures: dict[str, str] = {}
    wanted = chosen(papers or [])
    with services(Settings()):
        for paper, number in wanted:
            name = f"paper {paper}, table {number}"
            try:
                found[name] = reproduce(paper=paper, table=number, profile=profile, seeds=seeds, set=set)["report"]
            except Exception as error:
                failures[name] = str(error).split("\n")[0]
    if failures:
        told = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise OSError(f"{len(failures)} of {len(wanted)} tables failed: {told}")
    return found


def chosen(papers: list[str]) -> list[tuple[str, str]]:
    """(paper, table) of some papers, or of all; a ValueError names one that is not there."""
    known = {paper for paper, _ in TABLES}
    for paper in papers:
        if paper not in known:
            raise ValueError(f"no paper {paper!r}: {closest(paper, known)}")
    return [(paper, number) for paper, number in TABLES if not papers or paper in papers]
