"""Upkeep of a store: what it holds, what is damaged, and what may go.

Roots are comparisons (what verdicts are read from) and the leases of runs under way; all that they rest on stays.
"""

import contextlib
import datetime
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from phrasemodels.data.store.artifacts import MANIFEST, Artifact, damaged
from phrasemodels.data.store.leases import leased, locked, sweeping
from phrasemodels.data.store.store import Store

ROOT_STEP = "compare"  # tasks/metrics/verdict.py
DAY, HOUR = 86400.0, 3600.0
KEY = re.compile("[0-9a-f]{32}")  # the names of artifacts; what is called otherwise is not ours


def rests_on(known: dict[str, Artifact], roots: Iterable[str]) -> set[str]:
    """The keys of roots, and of everything in the store that they rest on."""
    found: set[str] = set()
    queue = list(roots)
    while queue:
        if (key := queue.pop()) not in found:
            found.add(key)
            queue += known[key].manifest["parts"]["inputs"].values() if key in known else []
    return found


def needed(known: dict[str, Artifact], roots: Iterable[str], leased: Iterable[str]) -> set[str]:
    """The keys of verdicts and of runs under way, and of all that they rest on.

    A ValueError if one that a verdict rests on cannot be read: nobody knows then what it rests on.
    """
    for root in (roots := sorted(roots)):
        if lost := sorted(rests_on(known, [root]) - known.keys()):
            raise ValueError(
                f"nothing is removed: {lost[0]} is damaged or gone, and the verdict {ROOT_STEP}/{root} rests on it and on "
                "what it was made from. Run `phrasemodels reproduce` again for its table, or remove that verdict first"
            )
    return rests_on(known, [*roots, *leased])


def verdicts(known: dict[str, Artifact], newest: int = 0) -> list[str]:
    """The keys of comparisons; with newest, of so many of each title."""
    by_title: dict[str, list[Artifact]] = {}
    for artifact in known.values():
        if artifact.manifest["step"] == ROOT_STEP:
            by_title.setdefault(artifact.manifest["label"], []).append(artifact)
    ordered = (sorted(group, key=lambda a: str(a.manifest["finished"]), reverse=True) for group in by_title.values())
    return [artifact.key for group in ordered for artifact in (group[:newest] if newest else group)]


@dataclass(frozen=True)
class Waste:
    """What may be removed: a folder, its bytes, and what it was."""

    path: Path
    bytes: int
    label: str


def waste(store: Store, days: float = 7.0, newest: int = 0) -> list[Waste]:
    """Everything that no verdict and no run under way rests on and that is older than so many days.

    newest: of each title, only so many verdicts count (0: all). What was interrupted counts by its last change.
    """
    known = {artifact.key: artifact for artifact in store.artifacts()}
    under_lease = leased(store)
    whole = {artifact.path for artifact in known.values()}
    torn = [path for path in store.root.glob("objects/*/*") if path not in whole and KEY.fullmatch(path.name)]
    roots = [*verdicts(known, newest), *(path.name for path in torn if path.parent.name == ROOT_STEP)]
    # from a cache things are evicted, and the storage behind it keeps them
    kept = needed(known, roots, under_lease) if store.shared is None else rests_on(known, [*roots, *under_lease])
    # a run's shards are no inputs of their own: while it runs, what was used within a day stays
    before = time.time() - max(days, 1.0 if under_lease else 0.0) * DAY
    found = [
        Waste(a.path, artifact_bytes(a), a.manifest["label"])
        for a in known.values()
        if a.key not in kept and _used(a) < before
    ]
    under_way = (path for path in store.root.glob("work/*") if path.is_dir() and path.name not in kept)
    for path in [*torn, *under_way]:
        if (
            not path.name.startswith(".waste")
            and _changed(path) < before
            and not locked(store.root / "locks" / f"{path.name}.lock")
        ):
            found.append(Waste(path, folder_bytes(path), f"interrupted {path.name}"))
    return found


def collect(store: Store, days: float = 7.0, newest: int = 0) -> list[Waste]:
    """Remove the waste; each thing is put aside whole, so that nobody sees half of it."""
    with sweeping(store):
        found = waste(store, days, newest)
        _put_aside(store, [thing.path for thing in found])
    _empty(store)
    return found


def _put_aside(store: Store, paths: Iterable[Path]) -> None:
    """While sweeping; all of it may be deleted once it is there."""
    aside = store.root / "work" / ".waste"
    aside.mkdir(parents=True, exist_ok=True)  # somebody was killed in the middle
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, aside / uuid.uuid4().hex)
    os.replace(aside, aside.with_name(f".waste-{uuid.uuid4().hex}"))


def _empty(store: Store) -> None:
    """Delete what was put aside, also by one that was killed."""
    for path in store.root.glob("work/.waste-*"):
        shutil.rmtree(path, ignore_errors=True)


def _used(artifact: Artifact) -> float:
    """When an artifact was made or last found, whichever is later; now, if it goes while we look."""
    made = datetime.datetime.fromisoformat(artifact.manifest["finished"]).timestamp()
    try:
        return max(made, (artifact.path / MANIFEST).stat().st_mtime)
    except FileNotFoundError:
        return time.time()


def trim(store: Store, limit: int) -> list[Artifact]:
    """Remove from a node's cache what was used longest ago until it holds at most `limit` bytes.

    Only for a store with shared storage behind it, which keeps everything. What runs under way on any node have leased
    stays, and while there are such, what was used within the hour.
    """
    assert store.shared is not None, "what is removed has to be elsewhere"
    with sweeping(store):
        known = sorted(store.artifacts(), key=_used)
        if (total := sum(artifact_bytes(artifact) for artifact in known)) <= limit:
            return []
        kept, gone = leased(store).union(store.shared.leased()), []
        before = time.time() - (HOUR if kept else 0.0)  # a run's shards are in no lease
        for artifact in known:
            if total > limit and artifact.key not in kept and _used(artifact) < before:
                total -= artifact_bytes(artifact)
                gone.append(artifact)
        _put_aside(store, [artifact.path for artifact in gone])
    _empty(store)
    return gone


@contextlib.contextmanager
def trimmed(store: Store, limit: int, pause: float = 0.0) -> Iterator[None]:
    """Afterwards, also after a failure, a node's cache is trimmed, unless it was within so many seconds."""
    try:
        yield
    finally:
        mark = store.root / "trimmed"
        with contextlib.suppress(OSError, ValueError):  # neither a large cache nor a damaged lease is a reason to fail
            if store.shared is not None and not (mark.exists() and time.time() - mark.stat().st_mtime < pause):
                mark.touch()
                trim(store, limit)


def _changed(folder: Path) -> float:
    """When anything in a folder was last written; now, if it goes while we look."""
    try:
        return max(path.lstat().st_mtime for path in [folder, *folder.rglob("*")])
    except FileNotFoundError:
        return time.time()


def artifact_bytes(artifact: Artifact) -> int:
    """The size that the manifest gives."""
    return sum(file["bytes"] for file in artifact.manifest["files"].values())


def folder_bytes(folder: Path) -> int:
    """What the files under a folder take; a file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def usage(store: Store) -> list[dict[str, object]]:
    """One row for each step and for what is beside the artifacts: number, bytes, and how many verdicts rest on."""
    known = {artifact.key: artifact for artifact in store.artifacts()}
    kept = rests_on(known, [*verdicts(known), *leased(store)])
    rows: dict[str, dict[str, int]] = {}
    for artifact in known.values():
        row = rows.setdefault(artifact.manifest["step"], {"artifacts": 0, "kept": 0, "bytes": 0})
        row["artifacts"] += 1
        row["kept"] += artifact.key in kept
    for step, row in rows.items():
        row["bytes"] = folder_bytes(store.root / "objects" / step)
    beside = [path for path in sorted(store.root.glob("*")) if path.is_dir() and path.name != "objects"]
    return [{"what": step, **row} for step, row in sorted(rows.items())] + [
        {"what": f"{path.name}/", "artifacts": None, "kept": None, "bytes": folder_bytes(path)} for path in beside
    ]


def damage(store: Store) -> list[tuple[Artifact, str, list[str]]]:
    """Every artifact with a file that is missing or differs from its digest, or without a manifest of its own, here and
    in the shared storage: what is wrong, and which verdicts rest on it. All bytes are read."""
    there = [path.parent for path in store.root.glob(f"objects/*/*/{MANIFEST}")]
    known = list(store.artifacts())
    lost = {*there} - {artifact.path for artifact in known}
    return [
        *unreadable(folder for folder in sorted(lost) if folder.exists()),  # it may have gone meanwhile
        *examine(known, damaged),
        *([] if store.shared is None else store.shared.damage()),
    ]


def unreadable(places: Iterable[Path]) -> list[tuple[Artifact, str, list[str]]]:
    """What is wrong with places STEP/KEY that have another's manifest, or a damaged one; what rests on it is unknown."""
    return [(Artifact(p, {"key": p.stem, "label": p.parent.name}), f"{p}: no manifest of its own", []) for p in places]


def examine(
    artifacts: Iterable[Artifact], damaged: Callable[[Artifact], str | None]
) -> list[tuple[Artifact, str, list[str]]]:
    """Those of which something is wrong, with it and the titles of verdicts that rest on them."""
    known = {artifact.key: artifact for artifact in artifacts}
    roots = {key: rests_on(known, [key]) for key in verdicts(known)}
    found = []
    for artifact in known.values():
        if (what := damaged(artifact)) is not None:
            resting = [known[root].manifest["label"] for root, keys in roots.items() if artifact.key in keys]
            found.append((artifact, what, resting))
    return found
