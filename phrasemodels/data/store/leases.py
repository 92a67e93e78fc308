"""Leases: while a run is under way, garbage collection keeps the artifacts whose keys the run leases.

ROOT/leases/NAME.json holds the keys; the run holds the lock NAME.lock, which the operating system releases at its end.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import filelock

from phrasemodels.data.store.artifacts import read_regular, write_durably
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
        (folder / f"{name}.lock").unlink(missing_ok=True)
        lock.release()


def leased_keys(store: Store) -> set[str]:
    """Return the keys that runs under way lease; those of dead runs do not count."""
    keys: set[str] = set()
    for path in (store.root / "leases").glob("*.json"):
        if is_alive(store, path.stem):
            with contextlib.suppress(FileNotFoundError):  # the run has just ended
                keys.update(_read_keys(path))
    return keys


def remove_dead_leases(store: Store) -> None:
    """Remove the leases of dead runs; the caller holds the removal lock."""
    for path in (store.root / "leases").glob("*"):
        if path.suffix in (".json", ".lock") and not is_alive(store, path.stem):
            with contextlib.suppress(OSError):
                path.unlink()


def _read_keys(path: Path) -> list[str]:
    try:
        keys = json.loads(read_regular(path))
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
    """Whether a process holds a lock file, which need not be writable; anything else at its place is not held."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two that look do not see each other
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
