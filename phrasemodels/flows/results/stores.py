"""The store that the settings name, the lease of a run on it, and its garbage collection."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from phrasemodels.data.store.gc import Waste, collect, trim, trimmed, waste
from phrasemodels.data.store.leases import lease
from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import remove_old
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import Tracker, readable


def store_of(settings: Settings) -> Store:
    """Return this node's folder, with the shared storage behind it if the store is a URL. It need not exist to be read."""
    if (url := settings.remote) is None:
        return Store(settings.root)
    from phrasemodels.data.store.object_storage import ObjectStorage

    return Store(settings.root, ObjectStorage(url))


def opened_to_read() -> tuple[Store, Tracker]:
    """Return the store and the tracker that the settings name, for reading alone: neither is made, locked or written to.
    OSError: the store's place is no folder."""
    settings = Settings()
    if settings.root.exists() and not settings.root.is_dir():
        raise OSError(f"{settings.root} is no folder: name the store's folder with PHRASEMODELS_STORE")
    return store_of(settings), Tracker(readable(settings.tracking_uri))


def open_store(settings: Settings) -> Store:
    """Open the store to write to it. OSError: it cannot be used."""
    return store_of(settings).open()


@contextlib.contextmanager
def leased_steps(store: Store, steps: list[Step], settings: Settings, name: str = "") -> Iterator[None]:
    """While a run is under way: garbage collection removes none of its steps, on any node. Then trim this node's cache."""
    keys = {step.key for step in steps}
    with contextlib.ExitStack() as stack:
        stack.enter_context(trimmed(store, settings.cache_bytes))
        if store.shared is not None:
            stack.enter_context(store.shared.lease(keys))
        stack.enter_context(lease(store, keys, name))
        yield


def collect_garbage(store: Store, settings: Settings, days: float, newest: int, dry: bool = False) -> list[Waste]:
    """Remove what no verdict and no run depends on, here, in the shared storage, and among records of runs; return it.

    days: keep what was made or used within so many days. newest: keep so many verdicts of each table (0: all). dry: only
    return what would be removed. This node's cache shrinks to its limit.
    """
    removed = waste(store, days, newest) if dry else collect(store, days, newest)
    if store.shared is not None:
        removed += [Waste(Path(path), 0, "shared") for path in store.shared.collect(days, newest, dry)]
    present = store.artifacts() if store.shared is None else store.shared.artifacts()
    left = {artifact.key for artifact in present} - {item.path.stem for item in removed}
    removed += remove_old(store, days, left, dry)
    if store.shared is not None and not dry:
        removed += [Waste(a.path, 0, a.manifest["label"]) for a in trim(store, settings.cache_bytes)]
    return removed
