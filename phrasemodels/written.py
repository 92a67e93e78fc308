"""Files and folders that commands write for users: nothing is replaced that this package did not write.

Beside what is written stands MARKER, which lists each file with its digest. So a file is known to be of this package, and
unchanged since, wherever its folder is moved to; a folder is if all of its files are.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

MARKER = ".phrasemodels-written"  # JSON: the sha256 of each file, by its path from the folder
MOST_BYTES = 16 << 20  # of MARKER


def check_replaceable(path: Path, force: bool = False) -> None:
    """Raise a ValueError if a file or folder is there that this package did not write, or that was changed since.

    force: replace it all the same; only what is neither a file nor a folder, such as a device, is refused.
    """
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link to nothing: remove it, or name another place")
    if above := [folder for folder in path.parents if folder.exists() and not folder.is_dir()]:
        raise ValueError(f"{path}: {above[0]} is a file, not a folder: name another place")
    if not path.exists():
        return
    if not path.is_dir() and not path.is_file():
        raise ValueError(f"{path} is no file: name another place")
    if force:
        return
    if path.is_dir():
        known = _listed(path)
        ours = all(known.get(name) == _digest(path / name) for name in _files(path))
    else:
        ours = _listed(path.parent).get(path.name) == _digest(path)
    if not ours:
        raise ValueError(
            f"{path} was not written by this command, or was changed since: name another place, or replace it with --force "
            "(in Python force=True)"
        )


@contextlib.contextmanager
def writing(*paths: Path, force: bool = False) -> Iterator[None]:
    """Check that files may be replaced, let them be written, and list them in MARKER. ValueError: as of
    `check_replaceable`."""
    for path in paths:
        check_replaceable(path, force)
    yield
    for path in paths:
        if path.is_file():
            _list(path.parent, {path.name: _digest(path)})


@contextlib.contextmanager
def writing_folder(to: Path, force: bool = False) -> Iterator[Path]:
    """Yield a new folder to write to, which takes the place of `to` at the end. After an error `to` is as before.

    ValueError: as of `check_replaceable`.
    """
    check_replaceable(to, force)
    place = to.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as aside:
        new, old = Path(aside, "new"), Path(aside, "old")
        new.mkdir()
        yield new
        _list(new, {name: _digest(new / name) for name in _files(new)})
        check_replaceable(to, force)  # it may have been written to in the meantime
        if place.exists():
            os.replace(place, old)
        os.replace(new, place)


def _files(folder: Path) -> Iterator[str]:
    """Yield the path of everything in a folder that is no folder, but for MARKER; links are not followed."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*names, *links):
            if (path := Path(place, name).relative_to(folder).as_posix()) != MARKER:
                yield path


def _listed(folder: Path) -> Mapping[str, str]:
    """Return the digests that the MARKER of a folder lists; none if it is missing or damaged."""
    file = folder / MARKER
    try:  # a pipe would be waited for, and a device read for ever
        if file.is_symlink() or not file.is_file() or file.stat().st_size > MOST_BYTES:
            return {}
        listed = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return listed if isinstance(listed, dict) else {}


def _list(folder: Path, digests: Mapping[str, str]) -> None:
    kept = {name: digest for name, digest in _listed(folder).items() if (folder / name).is_file()}
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=MARKER, encoding="utf-8", delete=False) as file:
        json.dump({**kept, **digests}, file, indent=0, sort_keys=True)
    Path(file.name).chmod(0o644)
    os.replace(file.name, folder / MARKER)


def _digest(path: Path) -> str:
    """Return the sha256 of a file; an empty text if it cannot be read as one."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
