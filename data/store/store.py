"""The store: what each step made, under a key that says all that decided it.

    ROOT/objects/STEP/KEY/...       what a step made, and manifest.json, written last
    ROOT/work/KEY/{out,checkpoints} a step under way; checkpoints outlive a crash, so that training goes on from them
    ROOT/locks/KEY.lock             two runs at once: one works, the other waits and finds a hit

A key is the sha256 of the step's name, the source that it can reach, the versions of the libraries it uses, its
settings and the keys of its inputs. A hit counts only if every file is there with its digest.
"""

import contextlib
import datetime
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import filelock

from phrasemodels.data.store.artifacts import (
    MANIFEST,
    Artifact,
    damaged,
    describe,
    files_of,
    manifest_of,
    write_durably,
)
from phrasemodels.data.store.shared import Shared
from phrasemodels.data.store.step import FORMAT, Executor, HasKey, Job, Step, key_of

UNWRITABLE = {"No space left on device": "full", "Disk quota exceeded": "full", "Read-only file system": "read-only"}


def belongs(manifest: Mapping[str, Any], step: str, key: str) -> bool:
    """Whether a manifest is that of a place: one that was copied there counts for nothing."""
    return manifest["step"] == step and manifest["key"] == key == key_of(manifest)


class Store:
    """A folder of artifacts. Safe for several processes at once, and for any of them being killed at any time.

    With shared storage behind it the folder is this node's cache: what is made counts once it has been published.
    """

    def __init__(self, root: Path, shared: Shared | None = None) -> None:
        self.root, self.shared = Path(root).absolute(), shared

    def open(self) -> "Store":
        """Make sure that the store can be written to; an OSError names the folder if not."""
        try:
            for name in ("objects", "work", "locks"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            probe = self.root / "work" / f".probe-{os.getpid()}"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise OSError(
                f"the store {self.root} cannot be written to ({error.strerror}): "
                f"free it, or choose another with {self._setting}"
            ) from error
        if self.shared is not None:
            self.shared.open()
        return self

    @property
    def _setting(self) -> str:
        return "PHRASEMODELS_STORE" if self.shared is None else "PHRASEMODELS_CACHE"

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """A full disk by its name: libraries raise it as many types, and without a path."""
        try:
            yield
        except BaseException as error:
            if said := next((said for words, said in UNWRITABLE.items() if words in str(error)), None):
                raise OSError(
                    f"the disk of {self.root} is {said}: free some, or choose another with {self._setting}"
                ) from error
            raise

    def where(self, name: str, key: str) -> Path:
        return self.root / "objects" / name / key

    def workspace(self, key: str) -> Path:
        """The folder of a step under way."""
        return self.root / "work" / key

    def find(self, step: Step, verify: bool = True) -> Artifact | None:
        """The artifact of a step, if it is there and whole; it counts as used."""
        return self.here(self.where(step.name, step.key), verify)

    def here(self, path: Path, verify: bool = True) -> Artifact | None:
        """The artifact in a folder, brought from the shared storage if need be."""
        found = self._at(path, verify)
        if found is None and self.shared is not None:
            with self._disk():
                found = self._at(path, verify) if self.shared.fetch(path) else None
        if found is not None:
            with contextlib.suppress(OSError):  # somebody else's folder
                os.utime(path / MANIFEST)
        return found

    def _at(self, path: Path, verify: bool) -> Artifact | None:
        """As load, in ROOT/objects/STEP/KEY: what is of another step or key is not there."""
        found = self.load(path, verify)
        return found if found is not None and belongs(found.manifest, *path.parts[-2:]) else None

    def load(self, path: Path, verify: bool = True) -> Artifact | None:
        """The artifact in a folder, if it is there; with verify, only if every file has the digest of the manifest."""
        try:
            manifest = manifest_of((path / MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        artifact = None if manifest is None else Artifact(path, manifest)
        return None if artifact and verify and damaged(artifact) else artifact

    def artifacts(self) -> Iterator[Artifact]:
        """Everything in the store, oldest first; files are not read."""
        found = [a for m in self.root.glob(f"objects/*/*/{MANIFEST}") if (a := self._at(m.parent, verify=False))]
        yield from sorted(found, key=lambda artifact: artifact.manifest["finished"])

    def run(self, step: Step, executor: Executor | None = None) -> Artifact:
        """The artifact of a step: found, or made from its inputs, which are made first if need be."""
        if (hit := self.find(step)) is not None:
            return hit
        inputs = {name: self.resolve(value, executor) for name, value in step.inputs.items()}
        with self.lock(step.key):
            return self.find(step) or self._make(step, inputs, executor or Executor())

    def resolve(self, value: HasKey, executor: Executor | None = None) -> Artifact:
        """An input as an artifact: a step is run."""
        return self.run(value, executor) if isinstance(value, Step) else value  # type: ignore[return-value]

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a key. The lock goes with its process, so a killed one leaves nothing behind."""
        with filelock.FileLock(self.root / "locks" / f"{key}.lock"):
            yield

    def _make(self, step: Step, inputs: Mapping[str, Artifact], executor: Executor) -> Artifact:
        work, final = self.workspace(step.key), self.where(step.name, step.key)
        out = work / "out"
        made = self.load(out) or self._fill(out, step, inputs, executor)  # a whole one is there if it was not published
        if self.shared is not None and not self.shared.publish(out, made.manifest):
            if (first := self.here(final)) is not None:  # another node was first, so that all go on from the same bytes
                shutil.rmtree(work, ignore_errors=True)
                return first
            self.shared.replace(out, made.manifest)
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(final, ignore_errors=True)  # a damaged one
        os.replace(out, final)
        shutil.rmtree(work, ignore_errors=True)
        return Artifact(final, made.manifest)

    def _fill(self, out: Path, step: Step, inputs: Mapping[str, Artifact], executor: Executor) -> Artifact:
        """Make a step in an empty folder, its manifest last; a failure leaves nothing."""
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        started = time.monotonic()
        try:
            with self._disk():
                meta = step.make(Job(out, out.parent / "checkpoints", inputs, self, executor, step.key), step.settings)
                manifest = {
                    "format": FORMAT,
                    "key": step.key,
                    "step": step.name,
                    "label": step.label,
                    "about": dict(step.about),
                    "parts": step.parts,
                    "files": {name: describe(out / name) for name in sorted(files_of(out))},
                    "meta": {**_inherited(inputs), **meta},
                    "seconds": round(time.monotonic() - started, 3),
                    "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                }
                write_durably(out / MANIFEST, _lines(manifest))
        except BaseException as error:
            shutil.rmtree(out, ignore_errors=True)
            error.add_note(step.label)
            raise
        return Artifact(out, manifest)


def _lines(manifest: Mapping[str, Any]) -> str:
    """JSON with a line for each entry: to be read, and written by the compiled encoder, which knows no indentation."""
    entries = (f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in manifest.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _inherited(inputs: Mapping[str, Artifact]) -> dict[str, Any]:
    """What travels from inputs to outputs: the licences, and whether the text may be shown to others."""
    metas = [artifact.meta for artifact in inputs.values() if "licences" in artifact.meta]
    if not metas:
        return {}
    return {
        "licences": sorted({licence for meta in metas for licence in meta["licences"]}),
        "redistributable": all(meta["redistributable"] for meta in metas),
        "stand_in": any(meta["stand_in"] for meta in metas),
    }
