"""Folders and files of others: only regular files inside of them are read or copied, and none is overwritten unasked.

A link could lead to a secret file of the user, a pipe never ends, and a device fills the memory.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import tempfile
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
            raise ValueError(f"{place} has more than {MOST_FILES} folders below it, also through links: name one with fewer")
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


def check_replaceable(path: Path, force: bool = False) -> None:
    """Raise a ValueError if a file, or a non-empty folder, is there.

    force: replace it all the same. Only devices and the like are refused.
    """
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link to nothing: remove it, or name another place")
    if above := [folder for folder in path.parents if folder.exists() and not folder.is_dir()]:
        raise ValueError(f"{path}: {above[0]} is a file, not a folder: name another place")
    if path.exists() and not path.is_dir() and not path.is_file():
        raise ValueError(f"{path} is no file: name another place")
    if not force and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise ValueError(f"{path} exists: name another place, or replace it with --force (in Python force=True)")


@contextlib.contextmanager
def writing_folder(to: Path, force: bool = False) -> Iterator[Path]:
    """Yield a new folder to write to. At the end it takes the place of `to`. After an error `to` is as before.

    ValueError: as of `check_replaceable`.
    """
    check_replaceable(to, force)
    place = to.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as aside:
        new = Path(aside, "new")
        new.mkdir()
        yield new
        check_replaceable(to, force)  # it may have been written to in the meantime
        if force:
            put_in_place(new, place)
        else:
            new.rename(place)  # which fails over a folder that another command has just filled


def put_in_place(new: Path, place: Path) -> None:
    """Rename a folder at once, even over a file or another folder, which then has the name of the new one."""
    if not place.exists():
        new.rename(place)
        return
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if exchange and exchange(here, os.fsencode(new), here, os.fsencode(place), swap) == 0:
        return
    # other systems: what is there is never in a folder that is removed before the new one is in place
    aside = place.with_name(f".{place.name}.{os.urandom(6).hex()}")
    place.rename(aside)
    try:
        new.rename(place)
    except BaseException:
        aside.rename(place)
        raise
    aside.rename(new)
