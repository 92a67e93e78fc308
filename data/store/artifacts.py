"""What a step made: a folder with a manifest that gives the size and digest of each of its files."""

import contextlib
import datetime
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

MANIFEST = "manifest.json"
SHA256 = re.compile("[0-9a-f]{64}")
TRAINING_LABEL = re.compile(r"\w+ (?P<experiment>.+) seed (?P<seed>\d+)", re.DOTALL)
os.umask(UMASK := os.umask(0))  # there is no asking without setting
LONGEST_PART, LONGEST_NAME = 255, 2000  # bytes that any file system takes


@dataclass(frozen=True)
class Artifact:
    """What a step made: a folder of the store and its manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.manifest["key"]

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the step said of its result."""
        return self.manifest["meta"]

    @property
    def about(self) -> Mapping[str, Any]:
        """For whom it was made: experiment, seed and more, if it belongs to a training."""
        return about(self.manifest)

    def file(self, name: str) -> Path:
        return self.path / name


def about(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return for whom an artifact was made, such as {"experiment": ..., "seed": ...}; empty if it belongs to no training.

    Manifests that were written before they had this field say it in their label: STEP EXPERIMENT seed N.
    """
    if isinstance(given := manifest.get("about"), Mapping) and given:
        return given
    found = TRAINING_LABEL.fullmatch(manifest["label"])
    return {"experiment": found["experiment"], "seed": int(found["seed"])} if found else {}


def files_of(folder: Path) -> Iterator[str]:
    """What a step made, by names under its folder; the manifest is not among it."""
    return (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def manifest_of(text: bytes) -> dict[str, Any] | None:
    """The manifest that a file holds, or None if it holds none: it may be cut off, or anything."""
    try:
        found = json.loads(text)
        datetime.datetime.fromisoformat(found["finished"]).timestamp()
        words = [found["key"], found["step"], found["label"], *found["parts"]["inputs"].values()]
        files = found["files"]
        right = all(isinstance(word, str) for word in words) and _under_a_folder(files)
        right &= all(
            isinstance(file["bytes"], int) and bool(SHA256.fullmatch(file["sha256"])) for file in files.values()
        )
        json.dumps(found, ensure_ascii=False).encode()  # half of a character could not be kept
        return found if right and isinstance(found["meta"], dict) else None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def _under_a_folder(names: Collection[str]) -> bool:
    """Whether files of these names can lie under one folder, beside its manifest."""
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    return folders.isdisjoint(names) and all(_plain(name) for name in names)


def _plain(name: str) -> bool:
    parts = name.split("/")
    short = len(name.encode()) <= LONGEST_NAME and all(len(part.encode()) <= LONGEST_PART for part in parts)
    return short and "\0" not in name and parts[0] != MANIFEST and {"", ".", ".."}.isdisjoint(parts)


def sha256_of(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Size and digest of a file, after its bytes have reached the disk."""
    status = path.stat()
    if status.st_nlink == 1:  # under a second name it is part of an artifact already
        path.chmod(0o666 & ~UMASK)  # safetensors and others give what they write to its owner alone
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return {"bytes": status.st_size, "sha256": sha256_of(path)}


def damaged(artifact: Artifact) -> str | None:
    """What is wrong with the files of an artifact, or None."""
    for name, expected in artifact.manifest["files"].items():
        path = artifact.path / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != expected["bytes"] or sha256_of(path) != expected["sha256"]:
            return f"{path} does not have the digest of its manifest"
    return None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write what is to take the place of a file once it is whole; a failure leaves the file as it was."""
    if path.is_dir():
        raise OSError(f"{path} is a folder: name a file")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_durably(path: Path, text: str) -> None:
    """Write a file aside, sync it, and rename it: readers see the old text or the new one."""
    with replacing(path) as aside, aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
