"""Open the store and MLflow's tracker that the settings name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store
    from phrasemodels.infra.tracking import Tracker


def opened() -> tuple["Store", "Tracker"]:
    """Return the store and the tracker. OSError: the store cannot be written to."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    settings = Settings()
    return open_store(settings), Tracker(settings.tracking_uri)
