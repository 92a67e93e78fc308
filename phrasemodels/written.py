"""Write output files without overwriting files of the user, unless --force says so."""

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


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
