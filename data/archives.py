"""Archives that nobody vouches for: what is in them stays inside the folder, and within bounds.

Refused: `..` and absolute paths, links and devices, names that differ in case only, encryption, too many entries, and
more bytes than the caller allows or than RATIO times the archive.
"""

import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from lzma import LZMAError
from pathlib import Path
from typing import IO, NamedTuple

RATIO = 200
MOST_ENTRIES = 100_000
CHUNK = 1 << 16
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, OSError, NotImplementedError)


class Entry(NamedTuple):
    """A file in an archive; what it is called there, and how to open it."""

    name: str
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, folder: Path, most: int) -> list[str]:
    """Put all files of an archive into a new folder and name them. A ValueError leaves nothing behind."""
    folder.mkdir(parents=True)
    try:
        with _entries(archive) as entries:
            left = _allowed(archive, most)
            for entry in entries:
                target = folder / entry.name
                target.parent.mkdir(parents=True, exist_ok=True)
                left -= _copy(archive, entry, target, left)
            return [entry.name for entry in entries]
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def extract(archive: Path, member: str, target: Path, most: int) -> None:
    """Put one file of an archive at `target`."""
    with _entries(archive) as entries:
        found = [entry for entry in entries if entry.name == member]
        if not found:
            raise ValueError(f"{archive} holds no {member!r}: another version of the archive?")
        try:
            _copy(archive, found[0], target, _allowed(archive, most))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _allowed(archive: Path, most: int) -> int:
    return min(most, RATIO * archive.stat().st_size)


def _copy(archive: Path, entry: Entry, target: Path, most: int) -> int:
    """Copy an entry and count its bytes; what the archive says of its size does not matter."""
    total = 0
    with target.open("xb") as out:
        for chunk in _chunks(archive, entry):
            total += len(chunk)
            if total > most:
                raise ValueError(f"{archive}: {entry.name!r} would take more than {most} bytes; nothing was kept")
            out.write(chunk)
    return total


def _chunks(archive: Path, entry: Entry) -> Iterator[bytes]:
    try:
        with entry.open() as source:
            while chunk := source.read(CHUNK):
                yield chunk
    except BROKEN as error:
        raise ValueError(f"{archive}: {entry.name!r} is damaged ({_line(error)}); get the archive again") from error


def _line(error: BaseException) -> str:
    """What a library says, in a line."""
    return " ".join(str(error).split())


@contextmanager
def _entries(archive: Path) -> Iterator[list[Entry]]:
    """The files of a zip or tar archive, all names checked."""
    opened: zipfile.ZipFile | tarfile.TarFile | None = None
    try:
        if zipfile.is_zipfile(archive):
            opened = zipfile.ZipFile(archive)
            entries = _checked(archive, _zip_entries(archive, opened))
        else:
            opened = tarfile.TarFile.open(archive)
            entries = _checked(archive, _tar_entries(archive, opened))
    except BROKEN as error:
        raise ValueError(f"{archive}: not a whole zip or tar archive ({_line(error)}); get it again") from error
    else:
        yield entries
    finally:
        if opened:
            opened.close()


def _zip_entries(archive: Path, opened: zipfile.ZipFile) -> Iterator[Entry]:
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{archive}: {info.filename!r} is a link or a device; nothing was unpacked")
        if info.flag_bits & 1:
            raise ValueError(f"{archive}: {info.filename!r} is encrypted; nothing was unpacked")
        if not info.filename.endswith("/"):
            yield Entry(info.filename, partial(opened.open, info))


def _tar_entries(archive: Path, opened: tarfile.TarFile) -> Iterator[Entry]:
    for info in opened:
        if not (info.isreg() or info.isdir()):
            raise ValueError(f"{archive}: {info.name!r} is a link or a device; nothing was unpacked")
        if info.isreg():
            yield Entry(info.name.removeprefix("./"), partial(_regular, opened, info))


def _regular(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = opened.extractfile(info)
    assert file is not None  # it is a regular file
    return file


def _checked(archive: Path, entries: Iterator[Entry]) -> list[Entry]:
    seen: dict[str, str] = {}
    parents: set[str] = set()
    checked = []
    for entry in entries:
        parts = entry.name.split("/")
        if not all(parts) or ".." in parts or "." in parts or any(c in entry.name for c in "\\:\0"):
            raise ValueError(f"{archive}: {entry.name!r} would leave the folder; nothing was unpacked")
        folded = unicodedata.normalize("NFC", entry.name).casefold()
        if folded in seen:
            raise ValueError(f"{archive}: {entry.name!r} and {seen[folded]!r} differ in case only, or not at all")
        seen[folded] = entry.name
        parents.update(folded.rsplit("/", depth)[0] for depth in range(1, len(parts)))
        checked.append(entry)
        if len(checked) > MOST_ENTRIES:
            raise ValueError(f"{archive}: more than {MOST_ENTRIES} files; nothing was unpacked")
    if both := parents & seen.keys():
        raise ValueError(f"{archive}: {min(both)!r} is a file and a folder; nothing was unpacked")
    return checked
