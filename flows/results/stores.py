"""The store that the settings name, what a run does to keep it, and what goes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from phrasemodels.data.store.gc import Waste, collect, trim, trimmed, waste
from phrasemodels.data.store.leases import lease
from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.records import forgotten
from phrasemodels.infra.settings import Settings


def open_store(settings: Settings) -> Store:
    """This node's folder, and the shared storage behind it if the store is a URL; an OSError if it cannot be used."""
    if (url := settings.remote) is None:
        return Store(settings.root).open()
    from phrasemodels.data.store.object_storage import ObjectStorage

    return Store(settings.root, ObjectStorage(url)).open()


@contextlib.contextmanager
def kept(store: Store, steps: list[Step], settings: Settings, name: str = "") -> Iterator[None]:
    """While a run is under way: nothing that it rests on is removed, here and elsewhere; then the cache is trimmed."""
    keys = {step.key for step in steps}
    with contextlib.ExitStack() as stack:
        stack.enter_context(trimmed(store, settings.cache_bytes))
        if store.shared is not None:
            stack.enter_context(store.shared.lease(keys))
        stack.enter_context(lease(store, keys, name))
        yield


def collected(store: Store, settings: Settings, days: float, newest: int, dry: bool = False) -> list[Waste]:
    """What was removed, or would be, here and in the shared storage, and of runs; this node's folder shrinks to its
    limit."""
    found = waste(store, days, newest) if dry else collect(store, days, newest)
    if store.shared is not None:
        found += [Waste(Path(path), 0, "shared") for path in store.shared.collect(days, newest, dry)]
    there = store.artifacts() if store.shared is None else store.shared.artifacts()
    left = {artifact.key for artifact in there} - {thing.path.stem for thing in found}
    found += forgotten(store, days, left, dry)
    if store.shared is not None and not dry:
        found += [Waste(a.path, 0, a.manifest["label"]) for a in trim(store, settings.cache_bytes)]
    return found
