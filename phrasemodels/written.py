"""Write output files without overwriting files of the user, unless --force says so."""

import contextlib
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
        new, old = Path(aside, "new"), Path(aside, "old")
        new.mkdir()
        yield new
        check_replaceable(to, force)  # it may have been written to in the meantime
        if place.exists():
            os.replace(place, old)
        os.replace(new, place)
