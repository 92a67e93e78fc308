"""Unpack untrusted zip and tar archives. No file leaves the target folder. All sizes are bounded.

Refused are `..` and absolute paths, links and devices, long names and names that differ only in case. Encryption and
too many entries are refused, too. So are more bytes than the caller allows or than RATIO times the archive.
"""

import bz2
import gzip
import lzma
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

RATIO = 200  # bytes unpacked for each byte of the archive
MOST_ENTRIES, MOST_CHARACTERS = 100_000, 500  # of an archive; of a name
HEADERS, HEADERS_EACH = 1 << 16, 1 << 11  # bytes of tar headers, all of which tarfile keeps: at first; for each entry
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": partial(lzma.open, format=lzma.FORMAT_XZ),
}
CHUNK = 1 << 16
T = TypeVar("T")
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    MemoryError,  # an xz file states how much memory its decoder needs
    UnicodeDecodeError,  # a name in zip is not in the encoding that its flag states
    NotImplementedError,
)


class Entry(NamedTuple):
    """A file in an archive: its name there and a function that opens it."""

    name: str
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, folder: Path, most: int) -> list[str]:
    """Unpack all files of an archive into a new folder and return their names. After an error the folder is gone.

    ValueError: the archive is damaged, or refused.
    """
    folder.mkdir(parents=True)
    left = min(most, _allowed(archive))
    try:
        with _entries(archive, left) as entries:
            for entry in entries:
                target = folder / entry.name
                target.parent.mkdir(parents=True, exist_ok=True)
                left -= _copy(archive, entry, target, left)
            return [entry.name for entry in entries]
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def extract(archive: Path, member: str, target: Path, most: int) -> None:
    """Unpack one file of an archive to `target`. ValueError: the archive is damaged or refused, or has no such file."""
    with _entries(archive, allowed := _allowed(archive)) as entries:
        entry = next((entry for entry in entries if entry.name == member), None)
        if entry is None:
            raise ValueError(f"{archive} holds no {member!r}: is it another version of the archive?")
        try:
            _copy(archive, entry, target, min(most, allowed))
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _allowed(archive: Path) -> int:
    return RATIO * archive.stat().st_size


def _copy(archive: Path, entry: Entry, target: Path, most: int) -> int:
    """Copy an entry and count its bytes. The size stated by the archive is not trusted."""
    total = 0
    with target.open("xb") as out:
        for chunk in _chunks(archive, entry):
            total += len(chunk)
            if total > most:
                raise ValueError(f"{archive}: {entry.name!r} takes more than {most} bytes; nothing was kept")
            out.write(chunk)
    return total


def _chunks(archive: Path, entry: Entry) -> Iterator[bytes]:
    try:
        with entry.open() as source:
            while chunk := source.read(CHUNK):
                yield chunk
    except BROKEN as error:
        raise ValueError(
            f"{archive}: {entry.name!r} is damaged ({_one_line(error)}); download the archive again"
        ) from error


def _one_line(error: BaseException) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


@contextmanager
def _entries(archive: Path, most: int) -> Iterator[list[Entry]]:
    """Yield the files of a zip or tar archive, their names checked. To list a tar, at most `most` bytes of it are read."""
    with ExitStack() as opened:
        try:
            if zipfile.is_zipfile(archive) and not _is_tar(archive):  # the last file of a tar may be a zip
                entries = _zip_entries(archive, opened.enter_context(zipfile.ZipFile(archive)))
            else:
                entries = _tar_entries(archive, opened.enter_context(_unpacked(archive)), most)
            checked = _checked(archive, entries)
        except BROKEN as error:
            raise ValueError(
                f"{archive}: not a whole zip or tar archive ({_one_line(error)}); download it again"
            ) from error
        yield checked


def _zip_entries(archive: Path, opened: zipfile.ZipFile) -> Iterator[Entry]:
    for info in _counted(archive, opened.infolist()):
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"{archive}: {info.filename!r} is a link or a device; nothing was unpacked")
        if info.flag_bits & 1:
            raise ValueError(f"{archive}: {info.filename!r} is encrypted; nothing was unpacked")
        if not info.filename.endswith("/"):
            yield Entry(info.filename, partial(opened.open, info))


def _is_tar(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(262)[257:] == b"ustar"


def _unpacked(archive: Path) -> IO[bytes]:
    """Open a tar archive, decompressed."""
    with archive.open("rb") as file:
        start = file.read(6)
    return next((opener for magic, opener in OPENERS.items() if start.startswith(magic)), open)(archive, "rb")


class _Headers:
    """A tar archive during its listing. tarfile reads each header whole, so this class bounds the bytes of all headers."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.seek, self.tell, self.left = file, file.seek, file.tell, HEADERS

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0 or size < 0:
            raise tarfile.ReadError(f"headers of more than {HEADERS} bytes")
        return self.file.read(size)


class _Tar(tarfile.TarFile):
    """A tar archive without global pax headers. Invalid numbers are a ReadError."""

    def next(self) -> tarfile.TarInfo | None:
        try:
            return super().next()
        except (ValueError, OverflowError) as error:
            raise tarfile.ReadError(str(error)) from error
        finally:
            self.pax_headers = {}


def _tar_entries(archive: Path, file: IO[bytes], most: int) -> Iterator[Entry]:
    headers: Any = _Headers(file)
    opened = _Tar(fileobj=headers)
    for info in _counted(archive, opened):
        headers.left += HEADERS_EACH
        if not (info.isreg() or info.isdir()) or info.issparse():
            raise ValueError(f"{archive}: {info.name!r} is a link or a device; nothing was unpacked")
        if info.isreg():
            if not 0 <= info.size <= most:  # to find the next header, all of it would be decompressed
                raise ValueError(f"{archive}: {info.name!r} takes more than {most} bytes; nothing was unpacked")
            most -= info.size
            yield Entry(info.name.removeprefix("./"), partial(_regular, opened, info))
    _read_to_end(archive, file, most + HEADERS)
    opened.fileobj = file  # _copy bounds the contents


def _read_to_end(archive: Path, file: IO[bytes], most: int) -> None:
    """Read the rest after the last entry, so a compressed archive is whole and has its checksum."""
    while chunk := file.read(CHUNK):
        most -= len(chunk)
        if most < 0:
            raise ValueError(f"{archive}: too many bytes after its last entry; nothing was unpacked")


def _regular(opened: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = opened.extractfile(info)
    assert file is not None  # it is a regular file
    return file


def _counted(archive: Path, members: Iterable[T]) -> Iterator[T]:
    for number, member in enumerate(members):
        if number == MOST_ENTRIES:
            raise ValueError(f"{archive}: more than {MOST_ENTRIES} entries; nothing was unpacked")
        yield member


def _checked(archive: Path, entries: Iterator[Entry]) -> list[Entry]:
    seen: dict[str, str] = {}
    checked = []
    for entry in entries:
        parts = entry.name.split("/")
        if len(entry.name) > MOST_CHARACTERS:
            raise ValueError(f"{archive}: {entry.name[:50]!r}... has more than {MOST_CHARACTERS} characters")
        if not all(parts) or ".." in parts or "." in parts or any(c in entry.name for c in "\\:\0"):
            raise ValueError(f"{archive}: {entry.name!r} would leave the folder; nothing was unpacked")
        folded = unicodedata.normalize("NFC", entry.name).casefold()
        if folded in seen:
            raise ValueError(f"{archive}: {entry.name!r} and {seen[folded]!r} differ only in case, or not at all")
        seen[folded] = entry.name
        checked.append(entry)
    # sorted in this way, the files of a folder follow the folder's own name
    for name, after in pairwise(sorted(seen, key=lambda name: name.replace("/", "\0"))):
        if after.startswith(f"{name}/"):
            raise ValueError(f"{archive}: {name!r} is a file and a folder; nothing was unpacked")
    return checked
