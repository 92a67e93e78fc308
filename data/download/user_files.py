"""What a user puts in by hand: corpora that nobody may pass on. They are found in folders that the user names."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from phrasemodels.data.download.archives import unpack
from phrasemodels.data.download.manifest import Manifest, Source, by_hand
from phrasemodels.data.download.mirrors import Sources

MOST_BYTES = 20_000_000_000  # of an archive, unpacked


def folders(manifest: Manifest, sources: Sources) -> list[Path]:
    """Where files put in by hand are looked for: a folder called like the corpus in every folder of the sources."""
    return [mirror / manifest.name for mirror in sources.mirrors]


def obtain(manifest: Manifest, target: Path, sources: Sources) -> dict[str, str]:
    """Put every file of a corpus below `target` and say where each came from.

    What a user has to put in may be missing if the corpus has other files. ValueError: wrong content; OSError: nothing
    to be had, with instructions.
    """
    from phrasemodels.data.download.fetch import fetch  # needs libraries that a box that only trains does without

    origins = {}
    for file in manifest.files:
        place = target / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        origins[file.name] = fetch(file, place, sources)
    for source in manifest.sources:
        for name, path in supplied(manifest, source, sources, target).items():
            origins[name] = str(path)
    if not origins:
        raise OSError(by_hand(manifest, manifest.sources[0]))
    return origins


def supplied(manifest: Manifest, source: Source, sources: Sources, target: Path) -> dict[str, Path]:
    """Copy what a user put in for one source below `target`; nothing where they put in nothing."""
    for folder in folders(manifest, sources):
        with _opened(source, folder) as root:
            found = locate(source, root)
            for name, path in found.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / name)
        if found:
            return dict.fromkeys(found, folder)
    return {}


def digests(manifest: Manifest, sources: Sources) -> dict[str, str]:
    """sha256 of every file of a corpus: of the manifest, and of what a user put in."""
    known = {file.name: file.sha256 for file in manifest.files}
    for source in manifest.sources:
        for folder in folders(manifest, sources):
            with _opened(source, folder) as root:
                found = locate(source, root)
                known |= {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
            if found:
                break
    return known


@contextmanager
def _opened(source: Source, folder: Path) -> Iterator[Path]:
    """The folder itself, or the unpacked archive of a source if it lies in the folder."""
    if source.archive and (folder / source.archive).is_file():
        with tempfile.TemporaryDirectory() as aside:
            unpack(folder / source.archive, Path(aside) / "unpacked", MOST_BYTES)
            yield Path(aside) / "unpacked"
    else:
        yield folder


def locate(source: Source, folder: Path) -> dict[str, Path]:
    """The files of a source anywhere below a folder, by the names that they get; upper and lower case are the same.

    ValueError: fewer or more than there must be, or another content.
    """
    pattern = source.pattern.lower().split("/")
    found: dict[str, Path] = {}
    for path in _files(folder):
        tail = path.parts[-len(pattern) :]
        if all(map(fnmatchcase, (part.lower() for part in tail), pattern)) and len(tail) == len(pattern):
            name = source.name if source.count == 1 else f"{source.name}/{'/'.join(tail).lower()}"
            if name in found:
                raise ValueError(f"{path} and {found[name]} are both {name}: remove one")
            found[name] = path
    if found and source.count and len(found) != source.count:
        raise ValueError(
            f"{folder} has {len(found)} files {source.pattern}, {source.count} are expected: copy all again"
        )
    if source.git_blob:
        _check_blobs(source, found.values())
    return found


def _files(folder: Path) -> Iterator[Path]:
    for where, below, names in os.walk(folder):
        below.sort()
        yield from (Path(where) / name for name in sorted(names))


def _check_blobs(source: Source, paths: Iterable[Path]) -> None:
    for path in paths:
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        if blob != source.git_blob:
            raise ValueError(f"{path}: git blob {blob}, the manifest says {source.git_blob}; get the file again")
