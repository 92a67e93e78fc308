"""Artifacts: the folders of files that steps make. A manifest lists the sizes and digests of the files."""

import contextlib
import datetime
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import filelock

# in a download: the fault of this node's disk, not of the place that the file comes from
LOCAL_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
MANIFEST = "manifest.json"
AHEAD = 3600.0  # seconds between the clocks of nodes, at most
SHA256 = re.compile("[0-9a-f]{64}")
WRITTEN = "-new-"  # in the name of a folder that is written under the lock of another
MAX_PART_BYTES, MAX_NAME_BYTES = 255, 2000  # of file names: every file system takes these


@dataclass(frozen=True)
class Artifact:
    """The result of a step: a folder of the store and its manifest."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.manifest["key"]

    @property
    def meta(self) -> Mapping[str, Any]:
        """The dictionary that the step returned."""
        return self.manifest["meta"]

    @property
    def about(self) -> Mapping[str, Any]:
        """Purpose of the step: experiment, seed, paper, table, profile and row. Empty for steps of data."""
        return given if isinstance(given := self.manifest.get("about"), Mapping) else {}

    @property
    def finished(self) -> float:
        """When it was made (seconds since 1970). A time to come, of a clock that was ahead, counts as the earliest."""
        made = datetime.datetime.fromisoformat(self.manifest["finished"]).timestamp()
        return made if made < time.time() + AHEAD else 0.0

    def file(self, name: str) -> Path:
        return self.path / name

    def folder(self) -> Path:
        """Return the folder, with all of its files in it."""
        return self.path


def files_of(folder: Path) -> Iterator[str]:
    """Yield the name of every file below the folder except its manifest, relative to the folder."""
    own = folder / MANIFEST
    return (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path != own)


def parse_manifest(text: bytes) -> dict[str, Any] | None:
    """Return the manifest in a file, or None if the file is cut off or invalid."""
    try:
        manifest = json.loads(text)
        datetime.datetime.fromisoformat(manifest["finished"]).timestamp()
        words = [manifest["key"], manifest["step"], manifest["label"], *manifest["parts"]["inputs"].values()]
        files = manifest["files"]
        valid = all(isinstance(word, str) for word in words) and _fit_into_one_folder(files)
        valid &= has_own_digest(manifest)
        valid &= all(
            isinstance(file["bytes"], int) and bool(SHA256.fullmatch(file["sha256"])) for file in files.values()
        )
        json.dumps(manifest, ensure_ascii=False).encode()  # a lone surrogate could not be written again
        return manifest if valid and isinstance(manifest["meta"], dict) else None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add an entry `digest` to JSON content: the digest of all of its other entries. It comes last."""
    rest = {name: value for name, value in content.items() if name != "digest"}
    written = json.loads(json.dumps(rest))  # numbers that are keys become text, in whose order keys are sorted
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": hashlib.sha256(text.encode()).hexdigest()}


def has_own_digest(content: Mapping[str, Any]) -> bool:
    """Return whether JSON content has the digest of `with_digest`."""
    return bool(with_digest(content)["digest"] == content.get("digest"))


def _fit_into_one_folder(names: Collection[str]) -> bool:
    """Whether files of these names can lie below one folder, beside its manifest."""
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    return folders.isdisjoint(names) and all(_is_plain(name) for name in names)


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    short = len(name.encode()) <= MAX_NAME_BYTES and all(len(part.encode()) <= MAX_PART_BYTES for part in parts)
    return short and "\0" not in name and parts[0] != MANIFEST and {"", ".", ".."}.isdisjoint(parts)


def remove(path: Path) -> None:
    """Remove a folder with its content, a file or a link; errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Sync a file to the disk and return its size in bytes and its sha256."""
    status = path.stat()
    if status.st_nlink == 1:  # with a second name the file is part of an artifact already
        path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors gives files to their owner alone
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return {"bytes": status.st_size, "sha256": sha256_of(path)}


def damage_of(artifact: Artifact, partial: bool = False) -> str | None:
    """Say which file of an artifact is missing or differs from its digest; None if all are whole.

    partial: files may be missing. A node's cache holds only requested files.
    """
    for name, expected in artifact.manifest["files"].items():
        path = artifact.path / name
        if not path.is_file():
            if partial and not os.path.lexists(path):
                continue
            return f"{path} is missing"
        if path.stat().st_size != expected["bytes"] or sha256_of(path) != expected["sha256"]:
            return f"{path} does not have the digest of its manifest"
    return None


@cache
def this_machine() -> str:
    """Return the kind of this machine's processor. On another kind libraries choose other instructions and orders of sums."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {model or platform.processor()}".strip()


def made_elsewhere(manifest: Mapping[str, Any]) -> str | None:
    """Return the kind of processor that made an artifact, if it is known and differs from this machine's."""
    made = manifest.get("machine")
    return made if isinstance(made, str) and made != this_machine() else None


@contextlib.contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is removed after it. The operating system releases the lock of a killed process."""
    with filelock.FileLock(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: a waiting process then takes a new one


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock of a place to write, .NAME.lock beside it, and remove what killed writers have left there."""
    place = place.resolve()
    left = re.compile(rf"\.{re.escape(place.name)}(\.\d+-[0-9a-f]{{12}}|{WRITTEN}[0-9a-z_]{{8}})")
    with holding(place.with_name(f".{place.name}.lock")):
        for killed in (one for one in place.parent.iterdir() if left.fullmatch(one.name)):
            remove(killed)
        yield


@contextlib.contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `path` at the end. After an error `path` is as before."""
    if path.is_dir():
        raise OSError(f"{path} is a folder: name a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        what = "cannot be written to" if path.parent.is_dir() else "is no folder"
        raise OSError(f"{path.parent} {what}: make it, or name another one for {path.name}")
    # process ids repeat in containers, and threads share one
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(6).hex()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, text: str) -> None:
    """Write a file atomically and sync it: readers see the old text or the new one."""
    with atomic_replace(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
