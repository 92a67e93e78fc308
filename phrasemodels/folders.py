"""Untrusted folders: only regular files inside of them are read or copied.

A link could lead to a secret file of the user, a pipe never ends, and a device fills the memory.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

MOST_FILES = 100_000  # of a folder
MOST_TEXT = 1 << 28  # bytes of a file of JSON or text
TEXT = (".json", ".txt", ".md")


class NotAFileError(OSError):
    """Something else than a file is where a file should be."""


def read_regular(path: Path) -> bytes:
    """Return the content of a file. NotAFileError: something else is there, for example a folder or an endless pipe."""
    try:
        # O_NONBLOCK: to open a pipe that nobody writes to would wait for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a loop of links; a socket
            raise NotAFileError(f"{path} is no file: remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFileError(f"{path} is no file: remove it")
    with open(descriptor, "rb") as file:
        return file.read()


def check_folder(folder: Path) -> None:
    """Check the content of a folder, except unread names beginning with a dot.

    Raises:
        ValueError: A link leads out of the folder, something is neither a file nor a folder, or a text is too large.
    """
    root, seen = folder.resolve(), 0
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *names):
            if (seen := seen + 1) > MOST_FILES:
                raise ValueError(f"{folder} has more than {MOST_FILES} files")
            if not name.startswith("."):
                check_inside(Path(place, name), root)


def check_inside(path: Path, root: Path) -> None:
    """Raise a ValueError unless a path is a regular file or a folder, and its real place is inside of a folder."""
    try:
        status, real = path.stat(), path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # a link to nothing, a loop of links
        raise ValueError(f"{path} is a link that leads to no file; remove it") from error
    if not any(real.is_relative_to(inside) for inside in (root, *_cache_of(root))):
        raise ValueError(f"{path} is a link to {real}, outside of the folder; copy that file in its place")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise ValueError(f"{path} is neither a file nor a folder; remove it")
    if path.suffix in TEXT and status.st_size > MOST_TEXT:
        raise ValueError(f"{path} has {status.st_size} bytes, more than {MOST_TEXT}")


def files_below(place: Path, enter: Callable[[Path], bool]) -> Iterator[Path]:
    """Yield a file, or the files below a folder in the order of their names, also through links. No folder is read twice.

    Args:
        enter: Whether a folder below it is read.

    Raises:
        ValueError: There are too many folders.
    """
    if place.is_file():
        yield place
    seen: set[tuple[int, int]] = set()
    for folder, inner, names in os.walk(place, followlinks=True):
        status = os.stat(folder)
        if (here := (status.st_dev, status.st_ino)) in seen:  # links may lead in a circle
            inner.clear()
            continue
        seen.add(here)
        if len(seen) > MOST_FILES:
            raise ValueError(f"{place} has more than {MOST_FILES} folders: remove the links that lead to others")
        inner[:] = sorted(name for name in inner if enter(Path(folder, name)))
        yield from (path for name in sorted(names) if (path := Path(folder, name)).is_file())


def _cache_of(root: Path) -> list[Path]:
    """Return where the files of a repository of the Hugging Face Hub are: its snapshots are links to them."""
    inside = root.parent.name == "snapshots" and root.parents[1].name.startswith("models--")
    return [root.parents[1] / "blobs"] if inside else []


def copy_folder(folder: Path, to: Path, *left_out: str) -> None:
    """Copy a folder into a new or empty one. ValueError: as of `check_folder`.

    Names beginning with a dot, or fitting a pattern, are left out.
    """
    check_folder(folder)
    shutil.copytree(folder, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", *left_out))
