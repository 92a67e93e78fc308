"""Corpora supplied by the user, since they may not be passed on. They lie in folders named by the user."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from phrasemodels.data.download.archives import unpack
from phrasemodels.data.download.manifest import Manifest, Sources, UserFiles, how_to_supply
from phrasemodels.folders import check_inside

MOST_BYTES = 20_000_000_000  # of an unpacked archive


def folders(manifest: Manifest, sources: Sources) -> list[Path]:
    """Return the folders to search for user files: one named like the corpus in each folder of the sources."""
    return [mirror / manifest.name for mirror in sources.mirrors]


def obtain(manifest: Manifest, target: Path, sources: Sources) -> dict[str, str]:
    """Fetch every file of a corpus to a path below `target`; return the path or URL of origin of each.

    User files may be missing if the corpus has other files.

    Raises:
        ValueError: A file has another content.
        OSError: A file cannot be fetched, or there are no files. The message holds instructions.
    """
    from phrasemodels.data.download.fetch import fetch_all  # a machine that only trains lacks its libraries

    origins = fetch_all(manifest.files, target, sources)
    for wanted in manifest.sources:
        origins |= {name: str(path) for name, path in copy_user_files(manifest, wanted, sources, target).items()}
    if not origins:
        raise OSError(how_to_supply(manifest, manifest.sources[0]))
    return origins


def copy_user_files(manifest: Manifest, wanted: UserFiles, sources: Sources, target: Path) -> dict[str, Path]:
    """Copy user files to paths below `target`; return the folder of origin of each, or {} if there are none."""
    for folder in folders(manifest, sources):
        with _opened(wanted, folder) as root:
            found = locate(wanted, root)
            for name, path in found.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / name)
        if found:
            return dict.fromkeys(found, folder)
    return {}


def digests(manifest: Manifest, sources: Sources) -> dict[str, str]:
    """Return the sha256 of every file of a corpus: of downloads as the manifest states it, of user files as it is."""
    known = {file.name: file.sha256 for file in manifest.files}
    for wanted in manifest.sources:
        for folder in folders(manifest, sources):
            with _opened(wanted, folder) as root:
                found = locate(wanted, root)
                known |= {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
            if found:
                break
    return known


@contextmanager
def _opened(wanted: UserFiles, folder: Path) -> Iterator[Path]:
    """Yield the folder itself or, if the archive of the user files is in it, a temporary folder with its content."""
    if wanted.archive and (folder / wanted.archive).is_file():
        with tempfile.TemporaryDirectory() as temporary:
            unpack(folder / wanted.archive, Path(temporary) / "unpacked", MOST_BYTES)
            yield Path(temporary) / "unpacked"
    else:
        yield folder


def locate(wanted: UserFiles, folder: Path) -> dict[str, Path]:
    """Search a folder and all folders below it for user files, ignoring case; return paths by the files' new names.

    ValueError: another number of files than expected, or another content.
    """
    pattern = wanted.pattern.lower().split("/")
    found: dict[str, Path] = {}
    for path in _files(folder):
        tail = path.parts[-len(pattern) :]
        if all(map(fnmatchcase, (part.lower() for part in tail), pattern)) and len(tail) == len(pattern):
            name = wanted.name if wanted.count == 1 else f"{wanted.name}/{'/'.join(tail).lower()}"
            if name in found:
                raise ValueError(f"{path} and {found[name]} are both {name}; remove one of them")
            check_inside(path, folder.resolve())
            found[name] = path
    if found and wanted.count and len(found) != wanted.count:
        raise ValueError(
            f"{folder} has {len(found)} files {wanted.pattern}, {wanted.count} are expected; copy all of them again"
        )
    if wanted.git_blob:
        _check_blobs(wanted, found.values())
    return found


def _files(folder: Path) -> Iterator[Path]:
    for where, below, names in os.walk(folder):
        below.sort()
        yield from (Path(where) / name for name in sorted(names))


def _check_blobs(wanted: UserFiles, paths: Iterable[Path]) -> None:
    """Raise a ValueError if the git hash of a file differs from the manifest's."""
    for path in paths:
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        if blob != wanted.git_blob:
            raise ValueError(f"{path}: git blob {blob}, the manifest states {wanted.git_blob}; download the file again")
