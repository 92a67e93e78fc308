"""Open the store and MLflow's tracker that the settings name, to read them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store
    from phrasemodels.infra.tracking import Tracker


def opened() -> tuple["Store", "Tracker"]:
    """Return the store and the tracker, for reading alone: neither is made, locked or written to."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.stores import store_of
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker, readable

    settings = Settings()
    return store_of(settings), Tracker(readable(settings.tracking_uri))
