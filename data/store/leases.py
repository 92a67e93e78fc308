"""Leases: while a run is under way, garbage collection keeps the artifacts whose keys the run leases.

ROOT/leases/NAME.json holds the keys; the run holds the lock NAME.lock, which the operating system releases at its end.
"""

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import filelock

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Store


@contextlib.contextmanager
def lease(store: Store, keys: Iterable[str], name: str = "") -> Iterator[None]:
    """Keep the artifacts of these keys until the block, or the process, ends."""
    name = name or uuid.uuid4().hex
    folder = store.root / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / f"{name}.lock", thread_local=False)
    with removal_lock(store):
        lock.acquire()
        write_durably(folder / f"{name}.json", json.dumps(sorted(keys)))
    try:
        yield
    finally:
        (folder / f"{name}.json").unlink(missing_ok=True)
        lock.release()
        (folder / f"{name}.lock").unlink(missing_ok=True)


def leased_keys(store: Store) -> set[str]:
    """Return the keys that runs under way lease; remove the leases of dead runs."""
    keys: set[str] = set()
    for path in (store.root / "leases").glob("*.json"):
        if is_alive(store, path.stem):
            with contextlib.suppress(FileNotFoundError):  # the run has just ended
                keys.update(_read_keys(path))
        else:
            path.unlink(missing_ok=True)
    return keys


def _read_keys(path: Path) -> list[str]:
    try:
        keys = json.loads(path.read_bytes())
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    except (ValueError, RecursionError):
        pass
    raise ValueError(f"{path}: the lease is damaged and its run is under way; wait until the run has ended")


def is_alive(store: Store, name: str) -> bool:
    """Whether the run that took the lease of this name is under way."""
    return is_locked(store.root / "leases" / f"{name}.lock")


def removal_lock(store: Store) -> filelock.BaseFileLock:
    """Return the lock that excludes the taking of a lease and the removal of artifacts from each other."""
    (store.root / "locks").mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(store.root / "locks" / "sweep.lock")


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file."""
    if not path.exists():
        return False
    try:
        with filelock.FileLock(path).acquire(blocking=False):
            return False
    except filelock.Timeout:
        return True
