"""The store on object storage. All nodes share it under the same keys.

Files lie under a URL and are read through fsspec: file://, s3:// (s3fs) and its other schemes. Credentials come from the
environment.

URL/manifests/STEP/KEY.json      written last, by a conditional put: if two nodes publish a key, the first one wins
URL/blobs/AA/SHA256              files by digest, so an upload never changes a file of a manifest
URL/leases/ID.json               the keys leased by a running run
URL/checkpoints/KEY/STEP/...     checkpoints of running trainings; state.json is written last
"""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from phrasemodels.data.store.artifacts import (
    LOCAL_DISK_ERRORS,
    MANIFEST,
    Artifact,
    damage_of,
    describe,
    parse_manifest,
    sha256_of,
)
from phrasemodels.data.store.gc import (
    DAY,
    damaged_artifacts,
    keys_to_keep,
    root_steps,
    verdict_keys,
    without_manifest,
)
from phrasemodels.data.store.store import Damage, is_manifest_of

PARTS = {"manifests", "blobs", "leases", "checkpoints", "probes"}  # folders of a store on object storage
PRECONDITION_FAILED, CONFLICT = 412, 409  # HTTP: the file exists; another client is writing it at this moment


@cache
def _filesystem(url: str, process: int) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it. A forked process needs its own."""
    own = dict(fsspec.config.conf)
    fsspec.config.conf.clear()  # of ~/.config/fsspec and FSSPEC_ variables, which may name another server
    try:
        # no caches: listings must show the files of other nodes, and a cached instance has a thread that a fork loses
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise OSError(f"{url}: {error}; s3:// needs `pip install s3fs`") from error
    finally:
        fsspec.config.conf.update(own)  # others in this process may use it
    if url.startswith("file:"):
        files, path = AtomicFolder(skip_instance_cache=True), unquote(path)
    return files, path


@dataclass(frozen=True)
class Bucket:
    """Files under a URL. Errors of the storage become OSErrors with the URL."""

    url: str

    @property
    def files(self) -> Any:
        """The fsspec file system."""
        return _filesystem(self.url, os.getpid())[0]

    def path(self, *names: str) -> str:
        """Return the path of a file in the file system."""
        return "/".join([_filesystem(self.url, os.getpid())[1].rstrip("/"), *names])

    def open(self) -> None:
        """Check that the storage is writable and keeps the first of two files of a name.

        OSError: it doesn't, or a folder holds something else than a store.
        """
        self._refuse_other_folder()
        probe = self.path("probes", f"{uuid.uuid4().hex}")
        try:
            with self.naming_errors():
                won = [self.create(probe, text) for text in (b"first", b"second")]
                self.files.rm_file(probe)
        except FileNotFoundError as error:
            raise OSError(f"{error}: is there such a bucket?") from error
        if won != [True, False]:
            raise OSError(f"{self.url}: this server ignores If-None-Match, so nodes would replace each other's results")

    def _refuse_other_folder(self) -> None:
        """Raise an OSError if the URL is a folder with foreign content, for example /etc."""
        folder = Path(self.path().rstrip("/") or "/")
        if self.url.startswith("file:") and folder.is_dir():
            with self.naming_errors():
                names = {path.name for path in folder.iterdir()}
            if names and not names & PARTS:
                raise OSError(f"{self.url}: this folder holds something else than a store; name an empty one")

    @contextlib.contextmanager
    def naming_errors(self, others: Collection[int] = ()) -> Iterator[None]:
        """Raise errors of any library as OSErrors with the URL. FileNotFoundError stays one.

        FileExistsError and errors with an errno in `others` pass unchanged.
        """
        try:
            yield
        except FileExistsError:
            raise
        except Exception as error:
            absent = isinstance(error, FileNotFoundError)
            if getattr(error, "errno", None) in others and not absent:
                raise
            named = f"the object storage {self.url} does not work ({type(error).__name__}: {error})"
            raise (FileNotFoundError if absent else OSError)(named) from error

    def create(self, path: str, text: bytes, tries: int = 5) -> bool:
        """Write a file if it does not exist; return False if it does."""
        try:
            self.files.pipe_file(path, text, mode="create")
            return True
        except FileExistsError:
            return False
        except OSError as error:  # s3fs knows the error names of AWS alone; the status is the same on every server
            if (status := _status(error)) == PRECONDITION_FAILED:
                return False
            if status != CONFLICT or tries == 1:
                raise
        time.sleep(0.2)
        return self.create(path, text, tries - 1)

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, or None if it does not exist."""
        try:
            return int(self.files.info(path)["size"])
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float:
        """Return when a file was last written, in seconds. Now, if the file has just been removed."""
        with self.naming_errors(), contextlib.suppress(FileNotFoundError):
            return float(self.files.modified(path).timestamp())
        return time.time()

    def texts(self, name: str) -> dict[str, bytes]:
        """Return the content of every file below a path. Files removed meanwhile are left out."""
        return self.texts_of(self.listed(name))

    def texts_of(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return the content of some files. Files removed meanwhile are left out."""
        with self.naming_errors():
            contents = self.files.cat_ranges(paths, None, None)  # `cat` would read [ as a pattern
            for error in contents:
                if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                    raise error
        return {path: text for path, text in zip(paths, contents, strict=True) if isinstance(text, bytes)}

    def listed(self, *names: str) -> list[str]:
        """Return every file below a path, sorted. The list is empty if the path does not exist."""
        try:
            with self.naming_errors():
                return sorted(self.files.find(self.path(*names)))
        except FileNotFoundError:
            return []

    def put(self, file: Path, *names: str) -> None:
        """Upload one file to a path."""
        with self.naming_errors():
            self.files.put_file(str(file), self.path(*names))

    def get(self, file: Path, *names: str) -> None:
        """Download one file from a path."""
        with self.naming_errors(LOCAL_DISK_ERRORS):
            self.files.get_file(self.path(*names), str(file))

    def remove(self, *names: str) -> None:
        """Remove all files below a path."""
        with self.naming_errors(), contextlib.suppress(FileNotFoundError):
            for path in self.listed(*names):
                self.files.rm_file(path)


def _status(error: OSError) -> int | None:
    """Return the HTTP status behind an error of s3fs."""
    response: Mapping[str, Any] = getattr(error.__cause__, "response", {})
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode")


class AtomicFolder(LocalFileSystem):
    """fsspec's local file system with the guarantees of object storage, for a folder shared by several nodes.

    Each file is written under a temporary name and then renamed. mode="create" fails if the file exists.
    """

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file."""
        with self._temporary(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(value)
            _sync(temporary)
            # os.link fails if the file exists; os.replace takes its place; both are atomic
            (os.link if mode == "create" else os.replace)(temporary, path)

    def _open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        is_endless = os.path.exists(path) and not os.path.isfile(
            path
        )  # a pipe or device, which counts as a damaged file
        return super()._open(os.devnull if is_endless else path, mode, *arguments, **options)

    def put_file(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """Copy path1 to path2. If path2 has the same bytes already, only set its time to now."""
        # the time protects a blob from a collection by another node
        if os.path.isfile(path2) and sha256_of(Path(path1)) == sha256_of(Path(path2)):
            os.utime(path2)
            return
        with self._temporary(path2) as temporary:
            shutil.copyfile(path1, temporary)
            _sync(temporary)
            os.replace(temporary, path2)

    @contextlib.contextmanager
    def _temporary(self, path: str) -> Iterator[str]:
        self.makedirs(self._parent(path), exist_ok=True)
        temporary = f"{path}.{uuid.uuid4().hex}"
        try:
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has been renamed
                os.remove(temporary)


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


LEASE_SECONDS = 3600.0  # a lease that was not renewed for so long is of a dead run
PIECE = 2**23  # bytes of one read
REQUESTS = 16  # at once
SMALL = 2**18  # bytes


@dataclass(frozen=True)
class ObjectStorage(Bucket):
    """Artifacts under a URL."""

    def fetch(self, folder: Path, check: bool = True) -> bool:
        """Download the manifest of an artifact into ROOT/objects/STEP/KEY, unless it is there.

        Returns:
            False if the storage has no artifact, or with `check` if a file of it is missing there or has another size.
        """
        step, key = folder.parts[-2:]
        temporary = folder.parents[2] / "work" / f".fetch-{uuid.uuid4().hex}"
        path = self.path("manifests", step, f"{key}.json")
        try:
            # into a folder aside, renamed: another process of this node may look at `folder` at any time
            temporary.mkdir(parents=True)
            with self.naming_errors(LOCAL_DISK_ERRORS):
                self.files.get_file(path, str(temporary / MANIFEST))  # one request; s3fs takes two for `cat_file`
            if (manifest := _own_manifest(path, (temporary / MANIFEST).read_bytes())) is None:
                return False
            described = manifest["files"].values()
            blobs = self._states(self._blob(file["sha256"]) for file in described) if check else []
            if any(blob is None or blob[0] != file["bytes"] for blob, file in zip(blobs, described, strict=check)):
                return False
            describe(temporary / MANIFEST)  # syncs it
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not _is_whole(folder):  # else another process has just downloaded it
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.replace(temporary, folder)
        except FileNotFoundError:
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def download(self, folder: Path, name: str, expected: Mapping[str, Any]) -> bool:
        """Download one file of an artifact into its folder. Return False if it is missing or damaged.

        A file damaged in the storage is removed there, so no node takes it for whole.

        Raises:
            FileNotFoundError: The folder of the artifact was removed meanwhile.
        """
        temporary, blob = folder.parents[2] / "work" / f".fetch-{uuid.uuid4().hex}", self._blob(expected["sha256"])
        temporary.mkdir(parents=True)
        try:
            # aside, and renamed when it is whole, as a reader may look for it at any time
            with self.naming_errors(LOCAL_DISK_ERRORS):
                self.files.get_file(blob, str(temporary / "file"))
            if describe(temporary / "file") != expected:
                if self._problem_of(blob) is not None:  # read once more: the download may have been at fault
                    with self.naming_errors(), contextlib.suppress(FileNotFoundError):
                        self.files.rm_file(blob)
                return False
        except FileNotFoundError:
            return False
        else:
            try:
                if "/" in name:
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(temporary / "file", folder / name)
            except FileNotFoundError:
                raise FileNotFoundError(f"{folder} was removed meanwhile") from None
            return True
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def publish(self, folder: Path, manifest: Mapping[str, Any]) -> bool:
        """Upload the files of a folder, then its manifest. Return False if another node published this key before."""
        # blobs before the manifest that names them: a manifest is proof that all of its blobs are there
        self._upload(folder, manifest, again=False)
        with self.naming_errors():
            return self.create(self._manifest(manifest), _encoded(manifest))

    def replace(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Upload all files and the manifest over a damaged artifact."""
        self._upload(folder, manifest, again=True)
        with self.naming_errors():
            self.files.pipe_file(self._manifest(manifest), _encoded(manifest))

    def _upload(self, folder: Path, manifest: Mapping[str, Any], again: bool) -> None:
        """Upload the files of a folder that the storage lacks; with `again` all.

        A file may be missing from the folder if it was adopted from another node. Then it must be in the storage.
        """
        files = manifest["files"]
        here = {name for name in files if (folder / name).is_file()}
        # to ask for a small file costs as much as to upload it
        asked = [name for name in files if not (name in here and (again or files[name]["bytes"] <= SMALL))]
        states = dict(zip(asked, self._states(self._blob(files[name]["sha256"]) for name in asked), strict=True))
        for name, described in files.items():
            size, written = states.get(name) or (-1, 0.0)
            # an old blob may be about to be removed; a new one stays until its manifest is written
            if size == described["bytes"] and written >= time.time() - DAY / 2:
                continue
            blob = self._blob(described["sha256"])
            if name not in here and not self.download(folder, name, described):
                raise OSError(f"{blob}, a file of {manifest['label']}, is lost: start again")
            with self.naming_errors():
                self.files.put_file(str(folder / name), blob)

    def _states(self, paths: Iterable[str]) -> list[tuple[int, float] | None]:
        """Return the bytes of files and the times of their last change in seconds; None for a missing file."""

        def state(path: str) -> tuple[int, float] | None:
            try:
                with self.naming_errors():
                    known = self.files.info(path)
                    written = known.get("LastModified") or known.get("mtime") or self.files.modified(path)
            except FileNotFoundError:
                return None
            return int(known["size"]), written if isinstance(written, float) else written.timestamp()

        with ThreadPoolExecutor(
            REQUESTS
        ) as threads:  # a request takes some 10 ms, and a stage may have thousands of files
            return list(threads.map(state, paths))

    def _blob(self, digest: str) -> str:
        return self.path("blobs", digest[:2], digest)

    def _manifest(self, manifest: Mapping[str, Any]) -> str:
        return self.path("manifests", manifest["step"], f"{manifest['key']}.json")

    def artifacts(self) -> list[Artifact]:
        """Return every artifact with a whole manifest, oldest first. Its files are not downloaded."""
        return sorted(filter(None, self._manifests().values()), key=lambda a: a.finished)

    def present(self) -> dict[Path, str]:
        """Return the path of each manifest by STEP/KEY. None is read."""
        return {Path(*path.split("/")[-2:]).with_suffix(""): path for path in self.listed("manifests")}

    def manifests(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """Return the manifests at some paths. Damaged ones are left out."""
        return [m for path, text in self.texts_of(list(paths)).items() if (m := _own_manifest(path, text))]

    def _manifests(self) -> dict[str, Artifact | None]:
        """Return the artifact of each manifest by path; None for a damaged manifest."""
        found = {path: _own_manifest(path, text) for path, text in self.texts("manifests").items()}
        return {path: Artifact(Path(m["step"], m["key"]), m) if m else None for path, m in found.items()}

    def damage(self) -> list[Damage]:
        """Read every blob once and return every damaged artifact."""
        found, problem_of = self._manifests(), cache(self._problem_of)
        torn = [Path(path) for path, artifact in found.items() if artifact is None and path.endswith(".json")]

        def check(artifact: Artifact) -> str | None:
            blobs = (self._blob(file["sha256"]) for file in artifact.manifest["files"].values())
            return next((problem for blob in blobs if (problem := problem_of(blob)) is not None), None)

        return [*without_manifest(torn), *damaged_artifacts(filter(None, found.values()), check)]

    def _problem_of(self, blob: str) -> str | None:
        try:
            with self.naming_errors(), self.files.open(blob, "rb", block_size=PIECE) as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == blob.split("/")[-1]
        except FileNotFoundError:
            return f"{blob} is missing"
        return None if whole else f"{blob} does not have its digest"

    @contextlib.contextmanager
    def lease(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep the artifacts of these keys from garbage collection by any node during the block.

        If this process dies, the lease holds for at most LEASE_SECONDS more.
        """
        path, leased, ended = self.path("leases", f"{uuid.uuid4().hex}.json"), sorted(keys), threading.Event()

        def write() -> None:
            self.files.pipe_file(path, json.dumps({"keys": leased, "until": time.time() + LEASE_SECONDS}).encode())

        def renew() -> None:
            # six tries before it expires
            while not ended.wait(LEASE_SECONDS / 6):
                with contextlib.suppress(Exception):  # the next time; the storage may be starting again
                    write()

        with self.naming_errors():
            write()
        renewing = threading.Thread(target=renew, daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with contextlib.suppress(Exception):  # it expires
                self.files.rm_file(path)

    def leased_keys(self) -> Counter[str]:
        """Return the keys leased by runs on any node, each with the number of its leases."""
        found = {path: text for path, text in self.texts("leases").items() if path.endswith(".json")}
        return Counter(key for path, text in found.items() for key in self._keys_of_lease(path, text))

    def _keys_of_lease(self, path: str, text: bytes) -> list[str]:
        """Return the keys of a lease. An expired one has none. If the clock of its node is wrong, the storage's counts."""
        now = time.time()
        try:
            lease = json.loads(text)
            keys, until = lease["keys"], float(lease["until"])
            if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
                held = now < until < now + 2 * LEASE_SECONDS or self.modified(path) > now - LEASE_SECONDS
                return keys if held else []
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            pass
        raise ValueError(f"{path}: the lease is damaged; remove it once no run of another node is under way")

    def collect(self, days: float = 7.0, newest: int = 0, dry: bool = False) -> list[str]:
        """Remove unneeded files older than `days` days; return their paths. With `dry` remove nothing.

        First go manifests without a verdict and a lease, then blobs without a manifest and checkpoints without a lease.
        """
        runs, before, gone = self._waste(days, newest)
        if dry:
            return gone
        removed = []
        for path in list(gone):
            if self.listed("leases") != runs:  # a run has started, and may use some of it, or ended with a verdict
                runs, before, gone = self._waste(days, newest)
            # another node may have used the blob again since it was listed: to upload it again sets its time
            if path in gone and self.modified(path) < before:
                with self.naming_errors(), contextlib.suppress(FileNotFoundError):
                    self.files.rm_file(path)
                removed.append(path)
        return removed

    def _waste(self, days: float, newest: int) -> tuple[list[str], float, list[str]]:
        """Return the leases, the age limit, and the files to remove: manifests before their blobs."""
        runs, leased = self.listed("leases"), self.leased_keys()
        # no lease holds shards, and blobs are written before their manifest: during a run files of the last day stay
        before = time.time() - max(days, 1.0 if leased else 0.0) * DAY
        # after the leases were read: a run that ends between the two has left its verdict, which is found here
        found = self._manifests()
        known = {artifact.key: artifact for artifact in found.values() if artifact is not None}
        torn = [Path(path) for path, artifact in found.items() if artifact is None and path.endswith(".json")]
        roots = [*verdict_keys(known, newest), *(path.stem for path in torn if path.parent.name in root_steps(known))]
        kept = keys_to_keep(known, roots, leased)
        gone = [path for path in found if Path(path).stem not in kept and self.modified(path) < before]
        left = [artifact for path, artifact in found.items() if artifact is not None and path not in gone]
        named = {self._blob(file["sha256"]) for a in left for file in a.manifest["files"].values()}
        under_way = [path for path in self.listed("checkpoints") if path.split("/")[-3] not in leased]
        unnamed = [path for path in self.listed("blobs") if path not in named]
        return runs, before, gone + [path for path in [*unnamed, *under_way] if self.modified(path) < before]


def _encoded(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode()


def _is_whole(folder: Path) -> bool:
    """Return whether ROOT/objects/STEP/KEY holds an artifact without damaged files. Files may be missing."""
    try:
        manifest = _own_manifest(f"{folder.parent.name}/{folder.name}.json", (folder / MANIFEST).read_bytes())
    except OSError:
        return False
    return manifest is not None and damage_of(Artifact(folder, manifest), partial=True) is None


def _own_manifest(path: str, text: bytes) -> dict[str, Any] | None:
    """Return the manifest in a file STEP/KEY.json, or None if it is damaged or of another artifact."""
    *_, step, name = path.split("/")
    manifest = parse_manifest(text)
    own = manifest and name.endswith(".json") and is_manifest_of(manifest, step, name.removesuffix(".json"))
    return manifest if own else None
