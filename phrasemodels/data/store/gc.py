"""Garbage collection of a store, and the search for damaged artifacts.

The roots are the artifacts of root steps (the comparisons behind verdicts) and the leases of running runs. Everything within
reach of a root through inputs is kept.

ROOT/leases/NAME.json holds the keys of a lease. The run holds the lock NAME.lock. The operating system releases it at the run's
end.
"""

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import filelock

from phrasemodels.data.store.artifacts import MANIFEST, Artifact, damage_of, write_durably
from phrasemodels.data.store.store import Damage, Store
from phrasemodels.folders import read_regular


@contextlib.contextmanager
def lease(store: Store, keys: Iterable[str], name: str = "") -> Iterator[None]:
    """Keep the artifacts of these keys until the block, or the process, ends."""
    name = name or uuid.uuid4().hex
    folder = store.root / "leases"
    folder.mkdir(parents=True, exist_ok=True)
    # thread_local=False: a lock that belongs to one thread could not be released by another one
    lock = filelock.FileLock(folder / f"{name}.lock", thread_local=False)
    # a collection under way has decided what to remove before it could see this lease
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
    """Return the keys leased by running runs. Leases of dead runs do not count."""
    keys: set[str] = set()
    for path in (store.root / "leases").glob("*.json"):
        if is_alive(store, path.stem):
            with contextlib.suppress(FileNotFoundError):  # the run has just ended
                keys.update(_read_keys(path))
    return keys


def remove_dead_leases(store: Store) -> None:
    """Remove the leases of dead runs. The caller holds the removal lock."""
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
    """Whether the run with the lease of this name is running."""
    return is_locked(store.root / "leases" / f"{name}.lock")


def removal_lock(store: Store) -> filelock.BaseFileLock:
    """Return the lock against taking a lease and removing artifacts at once."""
    (store.root / "locks").mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(store.root / "locks" / "sweep.lock")


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock file. The file need not be writable. Anything else at its place is not held."""
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


ROOT_STEP = "compare"  # stays a root where the manifests of all its artifacts are lost
DAY, HOUR = 86400.0, 3600.0  # seconds
KEY = re.compile("[0-9a-f]{32}")  # the folder name of an artifact; folders with other names are not ours


def reachable(known: dict[str, Artifact], roots: Iterable[str]) -> set[str]:
    """Return the keys of the roots and of all their inputs, direct and indirect."""
    reached: set[str] = set()
    queue = list(roots)
    while queue:
        if (key := queue.pop()) not in reached:
            reached.add(key)
            # a leased key may not be made yet, so its inputs are not known here; a lease names them too
            queue += known[key].manifest["parts"]["inputs"].values() if key in known else []
    return reached


def keys_to_keep(known: dict[str, Artifact], verdicts: Iterable[str], leased: Iterable[str]) -> set[str]:
    """Return the keys needed by verdicts and running runs.

    ValueError: an artifact behind a verdict can't be read, so its own inputs are unknown.
    """
    for verdict in (verdicts := sorted(verdicts)):
        if lost := sorted(reachable(known, [verdict]) - known.keys()):
            title = f"{known[verdict].manifest['label']!r} ({verdict})" if verdict in known else verdict
            raise ValueError(
                f"nothing is removed: {lost[0]} is damaged or missing, and the verdict {title} rests on it. Run "
                "`phrasemodels reproduce` again for its table, or remove that verdict first"
            )
    return reachable(known, [*verdicts, *leased])


def is_root(artifact: Artifact) -> bool:
    """Return whether an artifact was made by a root step."""
    return bool(artifact.manifest.get("root"))


def root_steps(known: dict[str, Artifact]) -> set[str]:
    """Return the names of the root steps. An artifact of a root step stays a root even if its manifest is lost."""
    return {ROOT_STEP, *(artifact.manifest["step"] for artifact in known.values() if is_root(artifact))}


def verdict_keys(known: dict[str, Artifact], newest: int = 0) -> list[str]:
    """Return the keys of all roots, or of the `newest` roots of each title with the same rows and seeds."""
    alike: dict[tuple[str, ...], list[Artifact]] = {}
    for artifact in known.values():
        if is_root(artifact):
            rows = sorted(artifact.manifest["parts"]["inputs"])
            alike.setdefault((artifact.manifest["label"], *rows), []).append(artifact)
    ordered = (sorted(group, key=lambda a: a.finished, reverse=True) for group in alike.values())
    return [artifact.key for group in ordered for artifact in (group[:newest] if newest else group)]


@dataclass(frozen=True)
class Waste:
    """A removable folder, its size in bytes, and a label of its content."""

    path: Path
    bytes: int
    label: str


def waste(store: Store, days: float = 7.0, newest: int = 0) -> list[Waste]:
    """Return the folders that neither a verdict nor a running run needs, unused for `days` days.

    newest: count only this many verdicts of each title (0: all). An interrupted step is as old as its last change.
    """
    known = {artifact.key: artifact for artifact in store.artifacts()}
    leased = leased_keys(store)
    whole = {artifact.path for artifact in known.values()}
    torn = [path for path in store.root.glob("objects/*/*") if path not in whole and KEY.fullmatch(path.name)]
    # what a torn root rests on is unknown, so `keys_to_keep` refuses to remove anything; a verdict that a run has made since
    # `known` was read counts as torn, too
    roots = [*verdict_keys(known, newest), *(path.name for path in torn if path.parent.name in root_steps(known))]
    # a cache may lose what the shared storage keeps, so there a lost input stops nothing
    kept = keys_to_keep(known, roots, leased) if store.shared is None else reachable(known, [*roots, *leased])
    # shards are no inputs of a run's steps, so no lease holds them: during a run everything used within a day stays
    before = time.time() - max(days, 1.0 if leased else 0.0) * DAY
    found = [
        Waste(a.path, artifact_bytes(a), a.manifest["label"])
        for a in known.values()
        if a.key not in kept and _last_used(a) < before
    ]
    under_way = (path for path in store.root.glob("work/*") if path.is_dir() and path.name not in kept)
    for path in [*torn, *under_way]:
        if (
            not path.name.startswith(".waste")
            and _last_changed(path) < before
            and not is_locked(store.root / "locks" / f"{path.name}.lock")
        ):
            found.append(Waste(path, folder_bytes(path), f"interrupted {path.name}"))
    return found


def collect(store: Store, days: float = 7.0, newest: int = 0) -> list[Waste]:
    """Remove the waste and return it. Each folder is renamed before it is deleted, so nobody reads half of it."""
    with removal_lock(store):
        remove_dead_leases(store)
        _remove_unheld_locks(store)
        found = waste(store, days, newest)
        _move_to_trash(store, [thing.path for thing in found])
    _empty_trash(store)
    return found


def _remove_unheld_locks(store: Store) -> None:
    """Remove the lock files of killed processes."""
    for path in store.root.glob("locks/*.lock"):
        if KEY.fullmatch(path.stem) and path.is_file():
            with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(path).acquire(blocking=False):
                # else another process could take the lock just before, and a third one would not see it
                path.unlink()  # while it is held


def _move_to_trash(store: Store, paths: Iterable[Path]) -> None:
    """Move folders to work/.waste-ID. Any process may delete them there. The caller holds the removal lock."""
    # below `work`, so that a rename cannot cross file systems
    trash = store.root / "work" / ".waste"
    trash.mkdir(parents=True, exist_ok=True)  # it exists if a process was killed here
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, trash / uuid.uuid4().hex)
    os.replace(trash, trash.with_name(f".waste-{uuid.uuid4().hex}"))


def _empty_trash(store: Store) -> None:
    """Delete the trash, also that of killed processes."""
    for path in store.root.glob("work/.waste-*"):
        shutil.rmtree(path, ignore_errors=True)


def _last_used(artifact: Artifact) -> float:
    """Return when an artifact was made or last found, whichever is later. Now, if it has just been removed."""
    try:
        return max(artifact.finished, (artifact.path / MANIFEST).stat().st_mtime)
    except FileNotFoundError:
        return time.time()


def trim(store: Store, limit: int) -> list[Artifact]:
    """Remove the least recently used artifacts from a node's cache until it holds at most `limit` bytes.

    Only for a store with shared storage, which keeps the artifacts. Artifacts leased by any node stay. While there are leases,
    everything used within the last hour stays, too.
    """
    assert store.shared is not None, "only a cache in front of shared storage may be trimmed"
    with removal_lock(store):
        known = sorted(store.artifacts(), key=_last_used)
        if (total := sum(artifact_bytes(artifact) for artifact in known)) <= limit:
            return []
        kept, gone = leased_keys(store).union(store.shared.leased_keys()), []
        before = time.time() - (HOUR if kept else 0.0)  # no lease holds the shards of a run
        for artifact in known:
            if total > limit and artifact.key not in kept and _last_used(artifact) < before:
                total -= artifact_bytes(artifact)
                gone.append(artifact)
        _move_to_trash(store, [artifact.path for artifact in gone])
    _empty_trash(store)
    return gone


@contextlib.contextmanager
def trimmed(store: Store, limit: int, pause: float = 0.0) -> Iterator[None]:
    """Trim a node's cache after the block, also after an error, unless it was trimmed within `pause` seconds."""
    try:
        yield
    finally:
        mark = store.root / "trimmed"
        with contextlib.suppress(OSError, ValueError):  # neither a full cache nor a damaged lease may fail a run
            if store.shared is not None and not (mark.exists() and time.time() - mark.stat().st_mtime < pause):
                mark.touch()
                trim(store, limit)


def _last_changed(folder: Path) -> float:
    """Return when anything in a folder was last written. Now, if the folder has just been removed."""
    try:
        return max(path.lstat().st_mtime for path in [folder, *folder.rglob("*")])
    except FileNotFoundError:
        return time.time()


def artifact_bytes(artifact: Artifact) -> int:
    """Return the size of an artifact's local files, by its manifest."""
    files = artifact.manifest["files"].items()
    return sum(file["bytes"] for name, file in files if (artifact.path / name).is_file())


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder. A file with several hard links counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def damage(store: Store) -> list[Damage]:
    """Read all files of the store and of the shared storage, and return every damaged artifact.

    An artifact is damaged if a file is missing or differs from its digest, or if its manifest is of another artifact.
    """
    there = [path.parent for path in store.root.glob(f"objects/*/*/{MANIFEST}")]
    known = list(store.artifacts())
    lost = {*there} - {artifact.path for artifact in known}
    return [
        *without_manifest(folder for folder in sorted(lost) if folder.exists()),  # not if it has just been removed
        *damaged_artifacts(known, partial(damage_of, partial=store.shared is not None)),
        *([] if store.shared is None else store.shared.damage()),
    ]


def without_manifest(places: Iterable[Path]) -> list[Damage]:
    """Return the damage of places STEP/KEY with a broken or foreign manifest. Their verdicts are unknown."""
    return [
        Damage(Artifact(p, {"key": p.stem, "label": p.parent.name}), f"{p}: no manifest of its own", []) for p in places
    ]


def damaged_artifacts(artifacts: Iterable[Artifact], check: Callable[[Artifact], str | None]) -> list[Damage]:
    """Return the artifacts with a problem found by `check`, and the titles of the verdicts that need them."""
    known = {artifact.key: artifact for artifact in artifacts}
    reached = {key: reachable(known, [key]) for key in verdict_keys(known)}
    found = []
    for artifact in known.values():
        if (problem := check(artifact)) is not None:
            titles = [known[verdict].manifest["label"] for verdict, keys in reached.items() if artifact.key in keys]
            found.append(Damage(artifact, problem, titles))
    return found
