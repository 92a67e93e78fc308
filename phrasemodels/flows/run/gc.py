"""The flow `gc`: `phrasemodels store gc` on a schedule, so that the disk stays bounded."""

from typing import Annotated

from prefect import flow
from pydantic import Field

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels.flows.results.stores import collect_garbage, open_store
from phrasemodels.infra.settings import Settings


@flow(name="gc", flow_run_name="keep {days} days", persist_result=False, log_prints=True)
def gc(days: Annotated[float, Field(ge=0)] = 7.0, verdicts: Annotated[int, Field(ge=0)] = 0) -> list[str]:
    """Remove what no verdict and no running run depends on, and old interrupted work; return the paths.

    days: keep what was made or used within so many days. verdicts: keep so many verdicts of each table (0: all).
    """
    settings = Settings()
    removed = collect_garbage(open_store(settings), settings, days, verdicts)
    print(f"{len(removed)} things removed, {sum(item.bytes for item in removed)} bytes in this node's folder")
    return [str(item.path) for item in removed]
