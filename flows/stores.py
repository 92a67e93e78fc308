"""The store that the settings name, and what a run does to keep it."""

import contextlib
from collections.abc import Iterator

from data.leases import lease
from data.store import Step, Store
from data.upkeep import trimmed
from infra.settings import Settings


def open_store(settings: Settings) -> Store:
    """This node's folder, and the shared storage behind it if the store is a URL; an OSError if it cannot be used."""
    if (url := settings.remote) is None:
        return Store(settings.root).open()
    from data.remote import ObjectStorage

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
