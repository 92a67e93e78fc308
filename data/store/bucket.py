"""Files under a URL, through fsspec: file://, s3:// (s3fs), and what else it knows. Credentials come from the environment."""

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

OUR_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # while something is brought here
PRECONDITION_FAILED, CONFLICT = 412, 409  # there is one already; somebody is just putting one


@cache
def _opened(url: str, process: int) -> tuple[Any, str]:
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError as error:
        raise OSError(f"{url}: {error}; s3:// needs `pip install s3fs`") from error
    if url.startswith("file:"):
        from phrasemodels.data.store.folder import SharedFolder

        files, path = SharedFolder(skip_instance_cache=True), unquote(path)
    return files, path


@dataclass(frozen=True)
class Bucket:
    """Files under a URL. Errors of the storage are OSErrors that name it."""

    url: str

    @property
    def files(self) -> Any:
        return _opened(self.url, os.getpid())[0]

    def path(self, *names: str) -> str:
        return "/".join([_opened(self.url, os.getpid())[1].rstrip("/"), *names])

    def open(self) -> None:
        """An OSError if it cannot be written to."""
        probe = self.path("probes", f"{uuid.uuid4().hex}")
        try:
            with self.named():
                self.files.pipe_file(probe, b"x")
                self.files.rm_file(probe)
        except FileNotFoundError as error:
            raise OSError(f"the object storage {self.url} does not work ({error}): is there such a bucket?") from error

    @contextlib.contextmanager
    def named(self, others: Collection[int] = ()) -> Iterator[None]:
        """Errors of any library as OSErrors; FileNotFoundError, FileExistsError and other parts' stay what they are."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if getattr(error, "errno", None) in others:
                raise
            raise OSError(f"the object storage {self.url} does not work ({type(error).__name__}: {error})") from error

    def create(self, path: str, text: bytes, tries: int = 5) -> bool:
        """Put a file where there is none; false if there is one."""
        try:
            self.files.pipe_file(path, text, mode="create")
            return True
        except FileExistsError:
            return False
        except OSError as error:  # s3fs knows AWS' words for it; the status is the same everywhere
            if (status := _status(error)) == PRECONDITION_FAILED:
                return False
            if status != CONFLICT or tries == 1:
                raise
        time.sleep(0.2)
        return self.create(path, text, tries - 1)

    def size(self, path: str) -> int | None:
        """In bytes; none if there is no such file."""
        try:
            return int(self.files.info(path)["size"])
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float:
        """When a file was written; now, if it goes while we look."""
        with self.named(), contextlib.suppress(FileNotFoundError):
            return float(self.files.modified(path).timestamp())
        return time.time()

    def texts(self, name: str) -> dict[str, bytes]:
        """What every file under a path holds; one that goes while we look holds nothing."""
        with self.named():
            paths = self.listed(name)
            texts = self.files.cat_ranges(paths, None, None)  # `cat` takes [ for a pattern
            found = dict(zip(paths, texts, strict=True))
            for error in found.values():
                if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                    raise error
        return {path: text for path, text in found.items() if isinstance(text, bytes)}

    def listed(self, *names: str) -> list[str]:
        """Every file under a path, sorted; none if there is no such path."""
        try:
            with self.named():
                return sorted(self.files.find(self.path(*names)))
        except FileNotFoundError:
            return []

    def put(self, file: Path, *names: str) -> None:
        """Upload one file to a path."""
        with self.named():
            self.files.put_file(str(file), self.path(*names))

    def get(self, file: Path, *names: str) -> None:
        """Download one file from a path."""
        with self.named(OUR_DISK):
            self.files.get_file(self.path(*names), str(file))

    def remove(self, *names: str) -> None:
        """Remove everything under a path."""
        with self.named(), contextlib.suppress(FileNotFoundError):
            for path in self.listed(*names):
                self.files.rm_file(path)


def _status(error: OSError) -> int | None:
    """The HTTP status that s3fs made an error of."""
    response: Mapping[str, Any] = getattr(error.__cause__, "response", {})
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
