"""What a store asks of the storage that several nodes share."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from phrasemodels.data.store.artifacts import Artifact


class Shared(Protocol):
    """Storage that several nodes share behind their own folders: phrasemodels.data.store.object_storage.ObjectStorage."""

    def open(self) -> None:
        """An OSError if it cannot be used."""

    def fetch(self, folder: Path) -> bool:
        """Bring an artifact to its folder; false if there is no whole one."""

    def publish(self, folder: Path, manifest: Mapping[str, Any]) -> bool:
        """Keep a folder; false if another one was first."""

    def replace(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        """Keep a folder instead of what is damaged."""

    def remove(self, *names: str) -> None:
        """Remove everything under a path of the storage."""

    def lease(self, keys: Iterable[str]) -> contextlib.AbstractContextManager[None]:
        """While a run is under way: nobody removes these keys."""

    def artifacts(self) -> list[Artifact]:
        """All that is there."""

    def leased(self) -> Counter[str]:
        """The keys of runs under way on any node, each with how many runs hold it."""

    def damage(self) -> list[tuple[Artifact, str, list[str]]]:
        """Every artifact that is not whole, what is wrong with it, and the titles of verdicts that rest on it."""

    def collect(self, days: float, newest: int, dry: bool) -> list[str]:
        """Remove what neither verdicts nor runs rest on; returns its paths."""
