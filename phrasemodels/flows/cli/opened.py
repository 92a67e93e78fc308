"""Open the store and MLflow's tracker that the settings name, to read them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store
    from phrasemodels.infra.tracking import Tracker


def opened() -> tuple["Store", "Tracker"]:
    """Return the store and the tracker, for reading alone: neither is made, locked or written to."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.stores import opened_to_read

    return opened_to_read()
