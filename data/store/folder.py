"""A folder that several nodes see, written like object storage: a file is there whole, or it is not there."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from phrasemodels.data.store.artifacts import sha256_of


class SharedFolder(LocalFileSystem):
    """fsspec's folder, but everything is written aside and then takes its place; mode="create" fails if one is there."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        with self._aside(path) as aside:
            with open(aside, "wb") as file:
                file.write(value)
            _sync(aside)
            (os.link if mode == "create" else os.replace)(aside, path)

    def put_file(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """What is there already with the same bytes is only made new."""
        if os.path.isfile(path2) and sha256_of(Path(path1)) == sha256_of(Path(path2)):
            os.utime(path2)
            return
        with self._aside(path2) as aside:
            shutil.copyfile(path1, aside)
            _sync(aside)
            os.replace(aside, path2)

    @contextlib.contextmanager
    def _aside(self, path: str) -> Iterator[str]:
        self.makedirs(self._parent(path), exist_ok=True)
        aside = f"{path}.{uuid.uuid4().hex}"
        try:
            yield aside
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has taken its place
                os.remove(aside)


def _sync(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
