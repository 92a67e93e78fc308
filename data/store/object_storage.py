"""The store on object storage: the same keys, shared by all nodes, behind each node's own folder.

URL/manifests/STEP/KEY.json      written last, by a conditional put: of two that make a key at once, one wins
URL/blobs/AA/SHA256              files by digest, so that an upload can neither tear nor change what a manifest names
URL/leases/ID.json               the keys of runs under way
URL/checkpoints/KEY/STEP/...     of trainings under way; state.json last
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import MANIFEST, Artifact, describe, manifest_of, write_durably
from phrasemodels.data.store.bucket import OUR_DISK, Bucket
from phrasemodels.data.store.gc import DAY, ROOT_STEP, examine, needed, unreadable, verdicts
from phrasemodels.data.store.store import belongs

LEASE_DAYS = 30.0  # after which a lease is one that a dead run left
PIECE = 2**23  # bytes that are read at once


@dataclass(frozen=True)
class ObjectStorage(Bucket):
    """Artifacts under a URL."""

    def fetch(self, folder: Path) -> bool:
        """Bring the artifact of ROOT/objects/STEP/KEY to its folder, if the storage has it whole."""
        step, key = folder.parts[-2:]
        aside = folder.parents[2] / "work" / f".fetch-{uuid.uuid4().hex}"
        path = self.path("manifests", step, f"{key}.json")
        try:
            with self.named():
                text = self.files.cat_file(path)
            if (manifest := _own(path, text)) is None:
                return False
            with self.named(OUR_DISK):
                for name, expected in manifest["files"].items():
                    target = aside / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self.files.get_file(self._blob(expected["sha256"]), str(target))
                    if describe(target) != expected:
                        return False
            aside.mkdir(parents=True, exist_ok=True)
            write_durably(aside / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False))
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)  # a damaged one
            with contextlib.suppress(OSError):  # another process has just brought it
                os.replace(aside, folder)
        except FileNotFoundError:
            return False
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return True

    def publish(self, folder: Path, manifest: Mapping[str, Any]) -> bool:
        """Upload the files of a folder, then the manifest, unless there is one: then False, and that one counts."""
        self._upload(folder, manifest, again=False)
        with self.named():
            return self.create(self._manifest(manifest), _encoded(manifest))

    def replace(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Upload everything again over what is damaged."""
        self._upload(folder, manifest, again=True)
        with self.named():
            self.files.pipe_file(self._manifest(manifest), _encoded(manifest))

    def _upload(self, folder: Path, manifest: Mapping[str, Any], again: bool) -> None:
        with self.named():
            for name, described in manifest["files"].items():
                blob = self._blob(described["sha256"])
                # an old one may be about to be removed: a new one stays until its manifest is there
                if again or self.size(blob) != described["bytes"] or self.modified(blob) < time.time() - DAY:
                    self.files.put_file(str(folder / name), blob)

    def _blob(self, digest: str) -> str:
        return self.path("blobs", digest[:2], digest)

    def _manifest(self, manifest: Mapping[str, Any]) -> str:
        return self.path("manifests", manifest["step"], f"{manifest['key']}.json")

    def artifacts(self) -> list[Artifact]:
        """What every whole manifest in the storage says, oldest first; the files are not here."""
        return sorted(filter(None, self._manifests().values()), key=lambda a: str(a.manifest["finished"]))

    def _manifests(self) -> dict[str, Artifact | None]:
        """By its path what each manifest says; None of one that is damaged, or that somebody died writing."""
        found = {path: _own(path, text) for path, text in self.texts("manifests").items()}
        return {path: Artifact(Path(m["step"], m["key"]), m) if m else None for path, m in found.items()}

    def damage(self) -> list[tuple[Artifact, str, list[str]]]:
        """As phrasemodels.data.store.gc.damage; each blob is read once, in pieces."""
        found, wrong = self._manifests(), cache(self._wrong)
        torn = [Path(path) for path, artifact in found.items() if artifact is None and path.endswith(".json")]

        def damaged(artifact: Artifact) -> str | None:
            blobs = (self._blob(file["sha256"]) for file in artifact.manifest["files"].values())
            return next((what for blob in blobs if (what := wrong(blob)) is not None), None)

        return [*unreadable(torn), *examine(filter(None, found.values()), damaged)]

    def _wrong(self, blob: str) -> str | None:
        try:
            with self.named(), self.files.open(blob, "rb", block_size=PIECE) as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == blob.split("/")[-1]
        except FileNotFoundError:
            return f"{blob} is missing"
        return None if right else f"{blob} does not have its digest"

    @contextlib.contextmanager
    def lease(self, keys: Iterable[str]) -> Iterator[None]:
        """While a run is under way: other nodes remove nothing with these keys."""
        path = self.path("leases", f"{uuid.uuid4().hex}.json")
        with self.named():
            self.files.pipe_file(
                path, json.dumps({"keys": sorted(keys), "until": time.time() + LEASE_DAYS * DAY}).encode()
            )
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # it ends by itself
                self.files.rm_file(path)

    def leased(self) -> Counter[str]:
        """The keys of runs under way on any node, each with how many runs hold it."""
        found = {path: text for path, text in self.texts("leases").items() if path.endswith(".json")}
        return Counter(key for path, text in found.items() for key in _held(path, text))

    def collect(self, days: float = 7.0, newest: int = 0, dry: bool = False) -> list[str]:
        """Remove the manifests that no verdict and no run rests on, then the blobs that no manifest names, and checkpoints
        of no run; all of them older than so many days. Returns their paths."""
        runs, before, gone = self._waste(days, newest)
        if dry:
            return gone
        removed = []
        for path in list(gone):
            if self.listed("leases") != runs:  # a run came, and may have found some of it; or went, and left a verdict
                runs, before, gone = self._waste(days, newest)
            if path in gone and self.modified(path) < before:
                with self.named(), contextlib.suppress(FileNotFoundError):
                    self.files.rm_file(path)
                removed.append(path)
        return removed

    def _waste(self, days: float, newest: int) -> tuple[list[str], float, list[str]]:
        """The leases, the time before which things are old, and what may go: manifests before their blobs."""
        runs, leased = self.listed("leases"), self.leased()
        # shards are in no lease, and blobs are there before their manifest: while a run lives, what is a day old stays
        before = time.time() - max(days, 1.0 if leased else 0.0) * DAY
        found = self._manifests()
        known = {artifact.key: artifact for artifact in found.values() if artifact is not None}
        torn = [Path(path) for path, artifact in found.items() if artifact is None and path.endswith(".json")]
        roots = [*verdicts(known, newest), *(path.stem for path in torn if path.parent.name == ROOT_STEP)]
        kept = needed(known, roots, leased)
        gone = [path for path in found if Path(path).stem not in kept and self.modified(path) < before]
        left = [artifact for path, artifact in found.items() if artifact is not None and path not in gone]
        named = {self._blob(file["sha256"]) for a in left for file in a.manifest["files"].values()}
        under_way = [path for path in self.listed("checkpoints") if path.split("/")[-3] not in leased]
        unnamed = [path for path in self.listed("blobs") if path not in named]
        return runs, before, gone + [path for path in [*unnamed, *under_way] if self.modified(path) < before]


def _encoded(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode()


def _own(path: str, text: bytes) -> dict[str, Any] | None:
    """The manifest that a file STEP/KEY.json holds, or None if it holds none, or another's."""
    *_, step, name = path.split("/")
    found = manifest_of(text)
    return found if found and name.endswith(".json") and belongs(found, step, name.removesuffix(".json")) else None


def _held(path: str, text: bytes) -> list[str]:
    """The keys of a lease, until it has ended."""
    try:
        lease = json.loads(text)
        keys, until = lease["keys"], float(lease["until"])
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys if until > time.time() else []
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    raise ValueError(f"{path} is damaged: remove it, once no run of another node is under way")
