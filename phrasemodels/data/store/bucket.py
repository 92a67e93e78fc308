"""Files under a URL, through fsspec: file://, s3:// (s3fs) and its other schemes. Credentials come from the environment."""

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from phrasemodels.data.store.artifacts import LOCAL_DISK_ERRORS, sha256_of

PARTS = {"manifests", "blobs", "leases", "checkpoints", "probes"}  # folders of a store on object storage
PRECONDITION_FAILED, CONFLICT = 412, 409  # HTTP: the file exists; another client is writing it at this moment


@cache
def _filesystem(url: str, process: int) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it; a forked process needs its own."""
    try:
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise OSError(f"{url}: {error}; s3:// needs `pip install s3fs`") from error
    if url.startswith("file:"):
        files, path = AtomicFolder(skip_instance_cache=True), unquote(path)
    return files, path


@dataclass(frozen=True)
class Bucket:
    """Files under a URL. Errors of the storage are raised as OSErrors that name the URL."""

    url: str

    @property
    def files(self) -> Any:
        """The fsspec file system."""
        return _filesystem(self.url, os.getpid())[0]

    def path(self, *names: str) -> str:
        """Return the path of a file in the file system."""
        return "/".join([_filesystem(self.url, os.getpid())[1].rstrip("/"), *names])

    def open(self) -> None:
        """Check that the storage can be written to. OSError: it cannot, or a folder holds something else than a store."""
        self._refuse_other_folder()
        probe = self.path("probes", f"{uuid.uuid4().hex}")
        try:
            with self.naming_errors():
                self.files.pipe_file(probe, b"x")
                self.files.rm_file(probe)
        except FileNotFoundError as error:
            raise OSError(f"the object storage {self.url} does not work ({error}): is there such a bucket?") from error

    def _refuse_other_folder(self) -> None:
        """Raise an OSError if the URL is a folder with other things than those of a store, such as /etc."""
        folder = Path(self.path().rstrip("/") or "/")
        if self.url.startswith("file:") and folder.is_dir():
            with self.naming_errors():
                names = {path.name for path in folder.iterdir()}
            if names and not names & PARTS:
                raise OSError(f"{self.url}: this folder holds something else than a store; name an empty one")

    @contextlib.contextmanager
    def naming_errors(self, others: Collection[int] = ()) -> Iterator[None]:
        """Raise errors of any library as OSErrors that name the URL.

        FileNotFoundError, FileExistsError and errors with an errno in `others` pass unchanged.
        """
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if getattr(error, "errno", None) in others:
                raise
            raise OSError(f"the object storage {self.url} does not work ({type(error).__name__}: {error})") from error

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
        """Return when a file was last written, in seconds; the present if the file has just been removed."""
        with self.naming_errors(), contextlib.suppress(FileNotFoundError):
            return float(self.files.modified(path).timestamp())
        return time.time()

    def texts(self, name: str) -> dict[str, bytes]:
        """Return the content of every file below a path; files that are removed meanwhile are left out."""
        return self.texts_of(self.listed(name))

    def texts_of(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return the content of some files; those that are removed meanwhile are left out."""
        with self.naming_errors():
            contents = self.files.cat_ranges(paths, None, None)  # `cat` would read [ as a pattern
            for error in contents:
                if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                    raise error
        return {path: text for path, text in zip(paths, contents, strict=True) if isinstance(text, bytes)}

    def listed(self, *names: str) -> list[str]:
        """Return every file below a path, sorted; an empty list if the path does not exist."""
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
    """fsspec's local file system with the guarantees of object storage, for a folder that several nodes share.

    Each file is written under a temporary name and then renamed; mode="create" fails if the file exists.
    """

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file."""
        with self._temporary(path) as temporary:
            with open(temporary, "wb") as file:
                file.write(value)
            _sync(temporary)
            (os.link if mode == "create" else os.replace)(temporary, path)

    def put_file(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """Copy path1 to path2; if path2 has the same bytes already, only set its time to now."""
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
