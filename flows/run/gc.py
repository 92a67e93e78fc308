"""The flow that bounds the disk: `phrasemodels store gc` on a schedule."""

from typing import Annotated

from prefect import flow
from pydantic import Field

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels.flows.results.stores import collected, open_store
from phrasemodels.infra.settings import Settings


@flow(name="gc", persist_result=False, log_prints=True)
def gc(days: Annotated[float, Field(ge=0)] = 7.0, verdicts: Annotated[int, Field(ge=0)] = 0) -> list[str]:
    """Remove what no verdict and no run under way rests on; interrupted work too, once it is old. Returns the paths.

    days: keep what was made or used within so many. verdicts: keep so many of each table, the newest; 0: all.
    """
    settings = Settings()
    gone = collected(open_store(settings), settings, days, verdicts)
    print(f"{len(gone)} things removed, {sum(thing.bytes for thing in gone)} bytes in this node's folder")
    return [str(thing.path) for thing in gone]
