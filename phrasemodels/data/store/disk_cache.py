"""Answers cached between processes. They follow from the project's files alone, for example names of experiments or keys of a plan.

Making an answer imports torch and builds every model's configuration. Reading one takes a JSON file. An answer counts only
while no source or data file of the project, no library and no version of Python has changed. Your own code may read any file of
its folders and any variable of the environment, so all of them count. A file elsewhere counts if your code read it. Answers lie
in the user's cache folder. If it can't be written to, answers are made anew each time.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from phrasemodels import project
from phrasemodels.data.store.artifacts import sha256_of, write_durably
from phrasemodels.data.store.store import digest_of
from phrasemodels.folders import files_below

PACKAGE = Path(project.__file__).parent
SUFFIXES = (".py", ".toml", ".csv", ".jinja")
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "phrasemodels" / "answers"
MOST_FILES = 20_000  # of users; with more, answers are made anew
VOLATILE = {"_", "SHLVL", "PWD", "OLDPWD", "LINES", "COLUMNS"}  # variables that a shell sets
MOST = 1000  # values that are kept; the tests of each kept result are one, of which there are some 80


def cached_on_disk(name: str, key: Any, compute: Callable[[], Any], of_users: bool = True) -> Any:
    """Return the cached JSON value of a key. Compute and cache it on a miss. Errors of `compute` are not cached.

    Args:
        key: Everything the value depends on beside the project's files and libraries.
        of_users: The value also depends on code of users.
    """
    known = [key, str(PACKAGE), project_digest(), users_digest() if of_users else ""]  # an answer may have paths
    path = FOLDER / f"{name}-{digest_of(known)[:32]}.json"
    with contextlib.suppress(OSError, ValueError):
        kept, read = json.loads(path.read_bytes())
        if read == _states(one for one, *_ in read):
            return kept
    value = compute()
    text = json.dumps([value, _states(set[str]().union(*project.READ.values())) if of_users else []])
    with contextlib.suppress(OSError):
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        # renamed into place: another process may read or make the same answer at this moment
        write_durably(path, text)
        for old in sorted(FOLDER.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)[MOST:]:
            old.unlink()
    # not the value itself: a miss returns what a hit will, lists in place of tuples and text in place of numbers as
    # keys
    return json.loads(text)[0]


@cache
def project_digest() -> str:
    """Return the digest of the contents of the project's files, of the versions of libraries, and of Python's."""
    # names of .dist-info folders have the versions; importlib.metadata would open a file of each package
    installed = (entry for folder in sys.path for entry in _names(folder) if entry.endswith(".dist-info"))
    return digest_of([sys.version, sorted(installed), contents(PACKAGE, SUFFIXES)])


@cache
def users_digest() -> str:
    """Return the digest of the users' plugins, of the states of all files in their folders, and of the environment."""
    offered = {group: project.parts(group) for group in project.GROUPS}
    return digest_of([offered, _of_users() if any(offered.values()) or project.folder() else None])


def _states(paths: Iterable[str]) -> list[list[Any]]:
    """Return the path of each file, and its size and time of change if it is there."""
    found = {path: os.stat(path) if os.path.isfile(path) else None for path in paths}
    return sorted([path, *([state.st_size, state.st_mtime_ns] if state else [])] for path, state in found.items())


def _of_users() -> Any:
    found = list(islice((path for place in project.users_places() for path in _users_files(place)), MOST_FILES + 1))
    if len(found) > MOST_FILES:
        return time.time_ns()
    files = [(ascii(path), (s := path.stat()).st_size, s.st_mtime_ns) for path in found]
    return files, sorted(ascii(variable) for variable in os.environ.items() if variable[0] not in VOLATILE)


def _users_files(place: Path) -> Iterator[Path]:
    """Yield a file, or the files below a folder but for hidden ones, compiled modules, environments and stores."""

    def enter(folder: Path) -> bool:
        hidden = folder.name.startswith((".", "__pycache__"))
        return not (hidden or (folder / "pyvenv.cfg").exists() or (folder / "objects").is_dir())

    return (path for path in files_below(place, enter) if path == place or path.name[0] != ".")


def contents(folder: Path, suffixes: tuple[str, ...] = ("",)) -> dict[str, str]:
    """Return the sha256 of each file below a folder with one of the endings, by its path in the folder."""
    found = (path for path in _files(folder) if path.name.endswith(suffixes))
    return {str(path.relative_to(folder)): sha256_of(path) for path in found}


def states(folders: Iterable[Path]) -> dict[str, list[tuple[str, int, int]]]:
    """Return the path, the size (bytes) and the time of the last change (ns) of each file below each folder."""
    return {
        str(folder): [(str(path), (s := path.stat()).st_size, s.st_mtime_ns) for path in _files(folder)]
        for folder in folders
    }


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder in the order of their names, also through links, but no compiled modules."""
    return files_below(folder, lambda one: one.name != "__pycache__")


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder or os.curdir)
    return []
