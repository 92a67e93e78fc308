"""The store: the artifact of each step, in a folder named by the step's key.

    ROOT/objects/STEP/KEY/...       an artifact: the files of the step, and manifest.json, written last
    ROOT/work/KEY/{out,checkpoints} a running step; a training continues from the checkpoints after a crash
    ROOT/index.json                 what answers in SQL need of all manifests
    ROOT/locks/KEY.lock             of two runs at once, one makes the artifact and the other waits for it

A key is the sha256 of the step's name, its reachable source code, the versions of its libraries, its settings and the keys of
its inputs. A cached artifact is used only if all of its files exist and match their digests.
"""

import contextlib
import datetime
import functools
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from phrasemodels.config import to_json
from phrasemodels.data.store.artifacts import (
    MANIFEST,
    Artifact,
    atomic_replace,
    damage_of,
    describe,
    files_of,
    holding,
    locked,
    parse_manifest,
    remove,
    this_machine,
    with_digest,
    write_durably,
)
from phrasemodels.data.store.fingerprint import closure
from phrasemodels.folders import NotAFileError, read_regular
from phrasemodels.project import declared_files_only

if TYPE_CHECKING:
    from phrasemodels.data.store.shared import ObjectStorage

FORMAT = 1  # of keys and manifests; the source of this module is part of no key


def digest_of(value: Any) -> str:
    """Return the sha256 of the canonical JSON of a value."""
    return _digest(to_json(value))


def _digest(plain: Any) -> str:
    # sorted: the order in which a mapping was filled must not change a key
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(manifest: Mapping[str, Any]) -> str:
    """Return the key of the parts in a manifest, in the manifest's own format."""
    return _digest({"format": manifest.get("format"), "step": manifest["step"], **manifest["parts"]})[:32]


class HasKey(Protocol):
    """An input of a step: another step, an artifact, or a shard."""

    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class Step:
    """One arrow of the pipeline: `make(job, settings) -> meta`, its settings and its inputs.

    label: its name for people. about: its purpose (experiment, seed, ...), kept in the manifest. fans_out: it divides its work
    with `executor.map`, so it runs in the driver process. root: garbage collection keeps its artifact with all inputs. None of
    them is part of the key. Experiments with a common training share its artifact.
    """

    make: Callable[["Job", Any], dict[str, Any]]
    label: str
    settings: Any = None
    inputs: Mapping[str, HasKey] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    fans_out: bool = False
    root: bool = False

    @property
    def name(self) -> str:
        return self.make.__name__

    @functools.cached_property
    def parts(self) -> dict[str, Any]:
        """The parts of the key: digests of source, versions of libraries, settings, and keys of inputs."""
        source, libraries = closure(self.make, self.settings)
        return {
            "source": source,
            "libraries": libraries,
            "settings": to_json(self.settings),
            "inputs": {name: value.key for name, value in sorted(self.inputs.items())},
        }

    @functools.cached_property
    def key(self) -> str:
        return key_of({"format": FORMAT, "step": self.name, "parts": self.parts})


def with_dependencies(steps: Sequence[Step]) -> list[Step]:
    """Return the steps and all their dependencies, each once, inputs first."""
    ordered: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.key not in ordered:
            for value in step.inputs.values():
                if isinstance(value, Step):
                    visit(value)
            ordered[step.key] = step

    for step in steps:
        visit(step)
    return list(ordered.values())


def serial_map(function: Callable[..., Any], items: Collection[tuple[Any, ...]]) -> Iterator[Any]:
    """Call function(*item) for each item in this process, one after another; yield the results."""
    return (function(*item) for item in items)


def call_here(function: Callable[..., None], *arguments: Any) -> None:
    """Call function(*arguments) in this process."""
    function(*arguments)


class OutOfTimeError(TimeoutError):
    """A training was stopped before its last update. The checkpoint is kept; a rerun resumes from it."""


@dataclass(frozen=True)
class Executor:
    """How a step runs its parts. The default runs everything in this process.

    map(function, items): call function(*item) for each item and yield the results in order. Nothing runs before its result is
    asked for. launch(function, *arguments): call the function on every training worker. Several workers have
    torch.distributed set up. fetches: the workers download their files. report(history): receive the metrics measured so far.
    sources: where downloads come from. stop_at: the number of updates after which a training saves a checkpoint and ends with
    OutOfTimeError. keeps_state: a finished training keeps its last checkpoint, so another one with more updates can go on from
    it. Garbage collection removes it like interrupted work.
    """

    map: Callable[[Callable[..., Any], Collection[tuple[Any, ...]]], Iterable[Any]] = serial_map
    launch: Callable[..., None] = call_here
    fetches: bool = False
    report: Callable[[list[dict[str, float]]], None] | None = None
    sources: Any = None
    stop_at: float = math.inf
    keeps_state: bool = False


@dataclass(frozen=True)
class Job:
    """A running step: its output folder, its inputs, and the executor of its parts.

    parts: of the key, if it has any. adopted: bytes and sha256 by name of files adopted from other artifacts.
    """

    out: Path
    checkpoints: Path
    inputs: Mapping[str, Artifact]
    store: "Store"
    executor: Executor
    key: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    adopted: dict[str, dict[str, Any]] = field(default_factory=dict)

    def key_without(self, *names: str) -> str:
        """Return a key independent of one part, by its path in `parts`; empty if the parts are unknown."""
        inner = parts = to_json(self.parts)
        for name in names[:-1]:
            inner = inner.get(name, {})
        inner.pop(names[-1], None)
        return _digest(parts)[:32] if parts else ""

    def adopt(self, artifact: Artifact, name: str, target: str) -> None:
        """Make a file of another artifact a file of this step, under the name `target`.

        No byte of it is read. It gets a second name here, or only an entry in the manifest if it is on another node.
        """
        if self.store.shared is None or (artifact.path / name).is_file():
            _link(artifact.path / name, self.out / target)
        self.adopted[target] = artifact.manifest["files"][name]


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


DISK_ERRORS = {"No space left on device": "full", "Disk quota exceeded": "full", "Read-only file system": "read-only"}


class Damage(NamedTuple):
    """A damaged artifact, its problem, and the titles of the verdicts that need it."""

    artifact: Artifact
    problem: str
    verdicts: list[str]


class LostFileError(OSError):
    """The shared storage has lost or damaged a file of an artifact. A step that needs it makes it again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: the shared storage has it no longer, or damaged: phrasemodels store verify")
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return LostFileError, (self.folder,)


@dataclass(frozen=True)
class SharedArtifact(Artifact):
    """An artifact of the shared storage. Its local folder has only requested files."""

    store: "Store"

    def file(self, name: str) -> Path:
        """Return the path of a file. Download it if it is not here. LostFileError: it is lost."""
        path = super().file(name)
        if name in self.manifest["files"] and not path.is_file():
            self.store.download(self.path, name)
        return path

    def folder(self) -> Path:
        """Return the folder, with all of its files in it. LostFileError: one is lost."""
        for name in self.manifest["files"]:
            self.file(name)
        return self.path


def is_manifest_of(manifest: Mapping[str, Any], step: str, key: str) -> bool:
    """Whether a manifest belongs into the folder STEP/KEY. A manifest copied from another artifact does not."""
    return manifest["step"] == step and manifest["key"] == key == key_of(manifest)


class Store:
    """A folder of artifacts. Several processes may use it at once. You may kill any of them at any time.

    With shared storage the folder is this node's cache. Then an artifact exists for other nodes, and for this one after a restart,
    as soon as its manifest is in the shared storage.
    """

    def __init__(self, root: Path, shared: "ObjectStorage | None" = None) -> None:
        self.root, self.shared = Path(root).absolute(), shared
        self._elsewhere: dict[Path, SharedArtifact] = {}

    def open(self) -> "Store":
        """Make the folders and check that they are writable. OSError: they aren't; it names the folder."""
        try:
            for name in ("objects", "work", "locks"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            # folders that exist already do not show that the disk is full or read-only
            probe = self.root / "work" / f".probe-{os.getpid()}"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise OSError(
                f"the store {self.root} cannot be written to ({error.strerror}): "
                f"free some space, or choose another folder with {self._setting}"
            ) from error
        if self.shared is not None:
            self.shared.open()
        return self

    @property
    def _setting(self) -> str:
        return "PHRASEMODELS_STORE" if self.shared is None else "PHRASEMODELS_CACHE"

    @contextlib.contextmanager
    def _naming_disk(self) -> Iterator[None]:
        """Raise the errors of a full disk as OSErrors with the folder's name. Libraries raise them as many types."""
        try:
            yield
        except BaseException as error:
            if state := next((state for words, state in DISK_ERRORS.items() if words in str(error)), None):
                raise OSError(
                    f"the disk of {self.root} is {state}: free some space, or choose another folder with {self._setting}"
                ) from error
            raise

    def where(self, name: str, key: str) -> Path:
        """Return the folder for a step's artifact, by the step's name and key."""
        return self.root / "objects" / name / key

    def workspace(self, key: str) -> Path:
        """Return the working folder of the step with this key."""
        return self.root / "work" / key

    def find(self, step: Step, verify: bool = True) -> Artifact | None:
        """Return the artifact of a step, or None if there is none, and mark it as used. verify: as in `get`."""
        return self.get(self.where(step.name, step.key), verify)

    def get(self, path: Path, verify: bool = True) -> Artifact | None:
        """Return the artifact in ROOT/objects/STEP/KEY, or None, and mark it as used.

        Its manifest is downloaded from the shared storage if it is missing or damaged here. Its files are downloaded on request.

        Args:
            verify: Compare every file here with its digest. Of a new manifest, look at the sizes of the other files. Without it
                damage goes unnoticed.
        """
        artifact = self._local(path, verify)
        if artifact is None and self.shared is not None:
            with self._naming_disk():
                artifact = self._local(path, verify) if self.shared.fetch(path, check=verify) else None
        if artifact is not None:
            # garbage collection and the caches of nodes take the time of the manifest as the time of the last use
            with contextlib.suppress(OSError):  # the folder belongs to another user
                os.utime(path / MANIFEST)
        return artifact

    def _local(self, path: Path, verify: bool) -> Artifact | None:
        """Return the artifact in ROOT/objects/STEP/KEY. None also if the manifest is of another artifact.

        With shared storage files may be missing here. They are downloaded on request.
        """
        artifact = self.load(path, verify, partial=self.shared is not None)
        if artifact is None or not is_manifest_of(artifact.manifest, *path.parts[-2:]):
            return None
        return self._artifact(path, artifact.manifest)

    def _artifact(self, path: Path, manifest: Mapping[str, Any]) -> Artifact:
        return Artifact(path, manifest) if self.shared is None else SharedArtifact(path, manifest, self)

    def download(self, folder: Path, name: str) -> None:
        """Download a file of an artifact from the shared storage into ROOT/objects/STEP/KEY. LostFileError: it is lost."""
        assert self.shared is not None, "without shared storage every artifact is whole"
        manifest = folder / MANIFEST
        while manifest.is_file() or self.get(folder, verify=False) is not None:
            with self._naming_disk(), contextlib.suppress(FileNotFoundError):  # the folder has just been trimmed
                os.utime(manifest)
                expected = _files_in(manifest, _end_of(manifest)).get(name)
                if expected is not None and self.shared.download(folder, name, expected):
                    return
                break
        remove(folder)  # with it, this node would not look at the shared storage again
        raise LostFileError(folder)

    def bring(self, path: Path) -> None:
        """Download a file of an artifact unless it is here, or all files if the path is its folder. LostFileError: one is lost."""
        if self.shared is None or not path.is_relative_to(self.root / "objects"):
            return
        step, key, *names = path.relative_to(self.root / "objects").parts
        if names:
            if not path.is_file():
                self.download(self.where(step, key), "/".join(names))
        elif (artifact := self.get(self.where(step, key), verify=False)) is not None:
            artifact.folder()
        else:
            raise LostFileError(self.where(step, key))

    def load(self, path: Path, verify: bool = True, partial: bool = False) -> Artifact | None:
        """Return the artifact in any folder, also outside the store and under any name, or None.

        verify: only if every file has its digest in the manifest. partial: files may be missing.
        """
        try:
            manifest = parse_manifest(read_regular(path / MANIFEST))
        except (FileNotFoundError, NotADirectoryError, NotAFileError):
            return None
        artifact = None if manifest is None else Artifact(path, manifest)
        return None if artifact and verify and damage_of(artifact, partial) else artifact

    def artifacts(self) -> Iterator[Artifact]:
        """Yield every artifact in the folder, oldest first. Files are not verified."""
        paths = self.root.glob(f"objects/*/*/{MANIFEST}")
        found = [artifact for path in paths if (artifact := self._local(path.parent, verify=False))]
        yield from sorted(found, key=lambda artifact: artifact.finished)

    def present(self) -> list[Path]:
        """Return STEP/KEY of every artifact, here and in the shared storage, sorted. No manifest is read."""
        here = {path.parent.relative_to(self.root / "objects") for path in self.root.glob(f"objects/*/*/{MANIFEST}")}
        return sorted(here.union(self.shared.present() if self.shared is not None else ()))

    def all_artifacts(self) -> list[Artifact]:
        """Return every artifact, here and in the shared storage, oldest first. Files are not verified.

        Files in the shared storage are downloaded on request.
        """
        found: dict[str, Artifact] = {artifact.key: artifact for artifact in self.artifacts()}
        if self.shared is not None:
            there = self.shared.present()
            new = [path for place, path in there.items() if place not in self._elsewhere and place.name not in found]
            for manifest in self.shared.manifests(new):
                place = Path(manifest["step"], manifest["key"])
                self._elsewhere[place] = SharedArtifact(self.root / "objects" / place, manifest, self)
            found = {place.name: one for place, one in self._elsewhere.items() if place in there} | found
        return sorted(found.values(), key=lambda artifact: artifact.finished)

    def indexed(self) -> list[Artifact]:
        """Return every artifact, oldest first, with one digest of the package's code in place of those of its functions.

        Manifests are read once and kept in ROOT/index.json. One that has changed since is read again.
        """
        if self.shared is not None:
            return self.all_artifacts()
        index, known = self.root / INDEX, dict[str, Any]()
        with contextlib.suppress(OSError, ValueError):
            seal, _, text = read_regular(index).partition(b"\n")
            known = json.loads(text) if seal == _seal(text) else {}
        found = dict[str, Any]()
        for path in filter(Path.is_file, self.root.glob(f"objects/*/*/{MANIFEST}")):
            with contextlib.suppress(FileNotFoundError):
                name = f"{path.parent.parent.name}/{path.parent.name}"
                stamp = _end_of(path).decode(errors="replace")  # a use of the artifact changes its time
                if name in known and known[name][0] == stamp:
                    found[name] = known[name]
                elif artifact := self._local(path.parent, verify=False):
                    found[name] = [stamp, _in_brief(artifact.manifest)]
        if found != known:
            text = json.dumps(found).encode()
            # the folder may be read-only
            with contextlib.suppress(OSError), locked(index), atomic_replace(index) as temporary:
                temporary.write_bytes(_seal(text) + b"\n" + text)
        artifacts = (Artifact(self.root / "objects" / name, manifest) for name, (_, manifest) in found.items())
        return sorted(artifacts, key=lambda artifact: artifact.finished)

    def run(self, step: Step, executor: Executor | None = None) -> Artifact:
        """Return the artifact of a step. If it does not exist, make its inputs, then the step itself.

        If the shared storage has lost a file of an input, the input is made again once.
        """
        if (hit := self.find(step)) is not None:
            return hit
        try:
            return self._run(step, executor)
        except LostFileError as error:
            remove(error.folder)  # another node may have missed it
        try:
            return self._run(step, executor)
        except LostFileError as error:  # no step that needs this one tries again
            raise OSError(str(error)) from error

    def _run(self, step: Step, executor: Executor | None) -> Artifact:
        looked = time.monotonic()
        inputs = {name: self.resolve(value, executor) for name, value in step.inputs.items()}
        with self.lock(step.key):
            # another process may have made it while this one waited for the lock, and another node while the inputs were made
            found = (
                self.find(step)
                if time.monotonic() - looked > 1.0
                else self._local(self.where(step.name, step.key), True)
            )
            return found or self._make(step, inputs, executor or Executor())

    def resolve(self, value: HasKey, executor: Executor | None = None) -> Artifact:
        """Return an input as an artifact. Run it if it is a step, and download its file or folder."""
        if isinstance(value, Step):
            return self.run(value, executor)
        if isinstance(path := getattr(value, "path", None), Path) and not isinstance(value, Artifact):
            self.bring(path)
        return value  # type: ignore[return-value]

    def lock(self, key: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of a key."""
        return holding(self.root / "locks" / f"{key}.lock")

    def _make(self, step: Step, inputs: Mapping[str, Artifact], executor: Executor) -> Artifact:
        work, final = self.workspace(step.key), self.where(step.name, step.key)
        out = work / "out"
        made = self.load(out) or self._fill(out, step, inputs, executor)  # `out` is whole if publishing failed before
        # published before it gets to `objects`: a node may evict all that it has there, since the shared storage has it
        # too
        if self.shared is not None and not self.shared.publish(out, made.manifest):
            if (first := self.get(final)) is not None:  # another node was first: all nodes use the same bytes
                shutil.rmtree(work, ignore_errors=True)
                return first
            # the storage has a manifest under this key, but `get` found it damaged
            self.shared.replace(out, made.manifest)
        final.parent.mkdir(parents=True, exist_ok=True)
        remove(final)  # what is there is damaged
        # a rename within one file system: readers see no artifact, or all of it
        os.replace(out, final)
        shutil.rmtree(work, ignore_errors=True)
        return self._artifact(final, made.manifest)

    def _fill(self, out: Path, step: Step, inputs: Mapping[str, Artifact], executor: Executor) -> Artifact:
        """Call the step's function in an empty folder and write the manifest last. After an error the folder is gone."""
        remove(out)
        out.mkdir(parents=True)
        started = time.monotonic()
        try:
            with self._naming_disk():
                job = Job(out, out.parent / "checkpoints", inputs, self, executor, step.key, step.parts)
                with declared_files_only():
                    meta = step.make(job, step.settings)
                meta = {**inherited(inputs), **meta}
                if "shards" in meta and (lacking := [name for name in TERMS if name not in meta]):
                    raise ValueError(
                        f"step {step.name}: it writes shards without an input that has terms, so it has to return their terms: "
                        f"{', '.join(lacking)}, as in {{'licences': ['CC0-1.0'], 'redistributable': True, 'stand_in': False}}"
                    )
                manifest = {
                    "format": FORMAT,
                    "key": step.key,
                    "step": step.name,
                    "label": step.label,
                    "about": dict(step.about),
                    "root": step.root,
                    "parts": step.parts,
                    "files": {
                        name: job.adopted.get(name) or describe(out / name)
                        for name in sorted({*files_of(out), *job.adopted})
                    },
                    "meta": meta,
                    "machine": this_machine(),
                    "seconds": round(time.monotonic() - started, 3),
                    "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
                }
                manifest = with_digest(manifest)
                # last: a folder without a manifest is no artifact, so a killed process leaves nothing that looks whole
                write_durably(out / MANIFEST, _to_json(manifest))
        # Ctrl-C and Prefect's TerminationSignal are no Exceptions; checkpoints are beside `out` and stay
        except BaseException as error:
            shutil.rmtree(out, ignore_errors=True)
            error.add_note(step.label)
            raise
        return Artifact(out, manifest)


INDEX, INDEX_FORM = "index.json", b"2"  # the form changes with what the index has of a manifest


def _seal(text: bytes) -> bytes:
    """Return the first line of an index: of its text and its form."""
    return hashlib.sha256(INDEX_FORM + text).hexdigest().encode()


def _in_brief(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with one digest of the package's code. Code of users stays as it is."""
    code = manifest["parts"].get("source", {})
    own = {name: digest for name, digest in code.items() if name.partition(".")[0] == "phrasemodels"}
    source = {name: digest for name, digest in code.items() if name not in own} | {"phrasemodels": digest_of(own)}
    return {**manifest, "parts": {**manifest["parts"], "source": source}}


def _end_of(manifest: Path) -> bytes:
    """Return the last bytes of a manifest, with the digest of its content."""
    with manifest.open("rb") as file:
        file.seek(-min(100, manifest.stat().st_size), os.SEEK_END)
        return file.read()


@functools.lru_cache(maxsize=8)
def _files_in(manifest: Path, end: bytes) -> Mapping[str, Any]:
    """Return the files of a manifest; none if it is damaged.

    end: its last bytes. They tell whether it is the one read before. A stage of 100,000 shards has a manifest of 36 MB.
    """
    found = parse_manifest(read_regular(manifest))
    return found["files"] if found else {}


def _to_json(manifest: Mapping[str, Any]) -> str:
    """Return JSON with a line for each top-level entry: readable, and faster to write than with `indent`."""
    entries = (f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in manifest.items())
    return "{\n" + ",\n".join(entries) + "\n}\n"


TERMS = ("licences", "redistributable", "stand_in")  # of records; stand_in: they take the place of a paper's corpus


def inherited(inputs: Mapping[str, Artifact]) -> dict[str, Any]:
    """Return the TERMS inherited from the inputs of an artifact.

    They are licences, whether its text may be shown to others, and whether it stands in for other data.
    """
    metas = [artifact.meta for artifact in inputs.values() if "licences" in artifact.meta]
    if not metas:
        return {}
    return {
        "licences": sorted({licence for meta in metas for licence in meta["licences"]}),
        "redistributable": all(meta["redistributable"] for meta in metas),
        "stand_in": any(meta["stand_in"] for meta in metas),
    }
