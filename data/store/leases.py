"""Leases of runs under way on things in a store: what they have taken stays until they end, or are killed.

ROOT/leases/NAME.json    keys; NAME.lock is held by the run
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
    """While a run is under way: nothing with these keys is removed. A lease ends with its process."""
    name = name or uuid.uuid4().hex
    folder = store.root / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / f"{name}.lock", thread_local=False)
    with sweeping(store):
        lock.acquire()
        write_durably(folder / f"{name}.json", json.dumps(sorted(keys)))
    try:
        yield
    finally:
        (folder / f"{name}.json").unlink(missing_ok=True)
        lock.release()
        (folder / f"{name}.lock").unlink(missing_ok=True)


def leased(store: Store) -> set[str]:
    """The keys that runs under way have taken; what dead ones left is removed."""
    found: set[str] = set()
    for path in (store.root / "leases").glob("*.json"):
        if held(store, path.stem):
            with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
                found.update(_keys(path))
        else:
            path.unlink(missing_ok=True)
    return found


def _keys(path: Path) -> list[str]:
    try:
        keys = json.loads(path.read_bytes())
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    except (ValueError, RecursionError):
        pass
    raise ValueError(f"{path} is damaged, and the run that holds it is under way: wait until it has ended")


def held(store: Store, name: str) -> bool:
    """Whether the run with a lease of this name is alive."""
    return locked(store.root / "leases" / f"{name}.lock")


def sweeping(store: Store) -> filelock.BaseFileLock:
    """Held while things are put aside, and while a lease is taken: a run finds a thing before, or not at all."""
    (store.root / "locks").mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(store.root / "locks" / "sweep.lock")


def locked(path: Path) -> bool:
    """Whether a process holds a lock; one that nobody ever took does not exist."""
    if not path.exists():
        return False
    try:
        with filelock.FileLock(path).acquire(blocking=False):
            return False
    except filelock.Timeout:
        return True
