"""Plugins: papers, corpora, encoders, metrics and parsers from a project folder or an installed package.

A project folder has a file phrasemodels.toml with a table for each group, as in `[papers]` and `my-study = "study"`. A
package has entry points of the same groups (`phrasemodels.papers`). Both name `module` or `module:attribute`. The project
folder is the nearest folder with this file from the working directory upwards, or the folder in PHRASEMODELS_PROJECT. The
nearest one is refused if another user may have written to it.

papers: modules with PAPER and TABLES, with printed.csv and settings.csv beside them. corpora: packages with manifests
(NAME.toml) and files of corpora (NAME/FILE). The files of a project folder are in its folder `corpora`. encoders: classes of
configurations. metrics: functions. parsers: classes of back ends of the parse step.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
import threading
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from phrasemodels.config import File

FILE, VARIABLE = "phrasemodels.toml", "PHRASEMODELS_PROJECT"
GROUPS = ("papers", "corpora", "encoders", "metrics", "parsers")
CORPORA = "corpora"  # the folder of a project with manifests and files of corpora
BESIDE = ("printed.csv", "settings.csv")  # what a paper's module may have beside it
PART = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
# the time and memory of tomllib grow with the square of its length
LONG_KEY = re.compile(r"""(\.[ \t]*([\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){50}""")


def expanded(path: str | Path, what: str) -> Path:
    """Return a path with the home folder in place of ~. ValueError: the user is unknown. It names `what`."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{what}: {path}: no home folder of such a user is known; write the whole path") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. ValueError: it is not TOML, or is nested too deeply."""
    try:
        text = path.read_text(encoding="utf-8")
        if found := LONG_KEY.search(text):
            raise ValueError(f"a key of more than 50 parts (at line {text.count(chr(10), 0, found.start()) + 1})")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def check_own(path: Path, otherwise: str) -> None:
    """Refuse a file or folder if another user may have written it, as git refuses a checkout.

    Args:
        otherwise: What to do if the user trusts it.

    Raises:
        ValueError: Another user owns it, or others may write to it.
    """
    found = path.stat()
    if found.st_uid not in (os.getuid(), 0):
        raise ValueError(f"{path} belongs to another user, and can run code: {otherwise}")
    if found.st_mode & 0o002 or (found.st_mode & 0o020 and found.st_gid not in (os.getgid(), 0)):
        raise ValueError(
            f"{path} can run code, and other users may write to it: run `chmod go-w` on it, or {otherwise}"
        )


# Files of the working folder that libraries read, and the text in them that makes the libraries do so.
READ_BY_LIBRARIES = {
    ".numba_config.yaml": "",
    "matplotlibrc": "",
    "prefect.toml": "",
    ".env": "prefect_",
    "pyproject.toml": "tool.prefect",
}


def check_working_folder() -> None:
    """Refuse settings of libraries in the working folder if another user may have written them. ValueError: there are some."""
    for name, text in READ_BY_LIBRARIES.items():
        path = Path(name)
        if path.is_file() and text.encode() in path.read_bytes().lower():
            check_own(path.absolute(), "work in another folder")


@cache
def folder() -> Path | None:
    """Return the project folder. Its modules can be imported from now on, here and in child processes.

    Returns:
        The folder, or None.

    Raises:
        ValueError: PHRASEMODELS_PROJECT names another folder, or another user may have written to the folder.
    """
    here = Path.cwd()
    named = os.environ.get(VARIABLE)
    candidates = [expanded(named, VARIABLE).absolute()] if named else [here, *here.parents]
    found = next((place for place in candidates if (place / FILE).is_file()), None)
    if named and not found:
        raise ValueError(f"{VARIABLE} names {named}, which has no {FILE}: `phrasemodels init` makes a project folder")
    if found and not named:
        for path in (found, found / FILE, *_python_in(found).values()):
            check_own(path, f"set {VARIABLE}={found} if you trust it")
    if found:
        os.environ[VARIABLE] = str(found)
        if str(found) not in sys.path:
            sys.path.append(str(found))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*paths, str(found)])))
    return found


@cache
def _own_parts() -> dict[str, dict[str, str]]:
    """Return the tables of the project's file. ValueError: it is not TOML, or has another table."""
    if (place := folder()) is None:
        return {}
    tables = read_toml(place / FILE)
    for group, named in tables.items():
        if (
            group not in GROUPS
            or not isinstance(named, dict)
            or not all(isinstance(part, str) and PART.fullmatch(part) for part in named.values())
        ):
            raise ValueError(
                f'{place / FILE}: {group}: tables are {", ".join(GROUPS)}, with lines like name = "module:part"'
            )
    return tables


@cache
def parts(group: str) -> dict[str, str]:
    """Return the parts of a group: {name: "module" or "module:attribute"}. ValueError: two have the same name."""
    found = dict(_own_parts().get(group, {}))
    for entry in importlib.metadata.entry_points(group=f"phrasemodels.{group}"):
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise ValueError(f"{group}: {found[entry.name]} and {entry.value} are both called {entry.name}; rename one")
    return found


def part(group: str, name: str) -> Any:
    """Import a part by name. ValueError: it is missing or fails at its import. The message has its line."""
    module, _, attribute = parts(group)[name].partition(":")
    if module == "__main__":
        raise ValueError(f"{group}: {name}: there is no module {module}")
    try:
        made = importlib.import_module(module)
        return getattr(made, attribute) if attribute else made
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        where = line_of(error)
        raise ValueError(
            f"{group}: {name} = {parts(group)[name]!r} cannot be imported: {kind}{error}{where}"
        ) from error


def line_of(error: BaseException) -> str:
    """Return the last place of an error in a user's module, as ` (FILE, line N)`; empty if there is none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if any(Path(frame.f_code.co_filename).is_relative_to(path) for path in modules().values()):
            found = f" ({frame.f_code.co_filename}, line {line})"
    return found


@cache
def modules() -> dict[str, Path]:
    """Return the users' modules and packages, by top-level name: a file, or a package's folder.

    They are those of parts and, in the project folder, all others. ValueError: a part's module of the folder has the name of an
    installed one.
    """
    place = folder()
    own = _python_in(place) if place else {}
    named = {value.partition(":")[0].partition(".")[0] for group in GROUPS for value in parts(group).values()}
    found = {}
    for name in sorted({*own, *named} - {"phrasemodels"}):
        spec = None if name == "__main__" else importlib.util.find_spec(name)
        origin = Path(spec.origin) if spec and spec.origin and spec.has_location else None
        path = origin.parent if origin and origin.name == "__init__.py" else origin
        if spec and spec.origin is None and (places := list(spec.submodule_search_locations or ())):
            path = Path(places[0])  # a folder without __init__.py
        if name in own and not (path and path.exists() and path.samefile(own[name])):
            if name in named:
                raise ValueError(f"{own[name]}: another module is called {name}, too: {path}; rename yours")
        elif path is not None:
            found[name] = path
    return found


def _python_in(place: Path) -> dict[str, Path]:
    """Return the modules and packages of a folder, by name."""
    files = {path.stem: path for path in place.glob("*.py") if path.stem.isidentifier() and path.stem != "__main__"}
    folders = {path.parent for path in place.glob("*/*.py") if path.parent.name.isidentifier()}
    return files | {path.name: path for path in folders}


def beside(paper: str, file: str) -> Path | None:
    """Return a file beside the module of a paper, or None. The module is not imported."""
    module = parts("papers")[paper].partition(":")[0]
    top, *inner = module.split(".")
    if (path := modules().get(top)) is None:
        raise ValueError(f"papers: {paper}: there is no module {module}")
    place = path if path.is_dir() else path.parent
    place = place.joinpath(*inner[: None if place.joinpath(*inner).is_dir() else -1])
    return place / file if (place / file).is_file() else None


@cache
def manifests() -> dict[str, Path]:
    """Return the manifests of users' corpora, by the names of their files."""
    return {path.stem: path for place in corpora_folders() for path in sorted(place.glob("*.toml"))}


@cache
def corpora_folders() -> tuple[Path, ...]:
    """Return the folders of users' manifests. Files of these corpora may lie in them as corpora/NAME/FILE.

    ValueError: a part names no package.
    """
    found = []
    for name, value in parts("corpora").items():
        top, *inner = value.split(".")
        place = modules().get(top, Path("-")).joinpath(*inner)
        if not place.is_dir():
            raise ValueError(f"corpora: {name} = {value!r} is no package with manifests (NAME.toml)")
        found.append(place)
    return (*found, *([own / CORPORA] if (own := folder()) else []))


@dataclass(frozen=True)
class StudyFile:
    """A file or folder read by a layer, a metric or a parser. Its content is part of every key. Its place is part of none."""

    place: File = field(compare=False)
    """Its path, in the project folder or absolute."""
    sha256: str = ""
    """Digest of its content, which is computed if it is not given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(self.place))
        if not self.sha256:
            object.__setattr__(self, "sha256", _content(self._located, _state(self._located)))

    @property
    def _located(self) -> Path:
        here = (folder() or Path.cwd()) / expanded(self.place, "StudyFile")
        DECLARED.add(str(here))
        return here

    @property
    def path(self) -> Path:
        """Return the path, to read the file or folder. OSError: it is gone. ValueError: its content is another one."""
        here = self._located
        if _content(here, _state(here)) != self.sha256:
            raise ValueError(f"{here} has changed since it was planned or trained with: run again, or put it back")
        return here


def _state(place: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the name, size and time of change of a file, or of each file of a folder. OSError: it is not there."""
    inside = (path for path in sorted(place.rglob("*")) if path.is_file())
    names = [str(path.relative_to(place)) for path in inside]
    names = [name for name in names if not name.startswith(".") and "/." not in name and "__pycache__" not in name]
    if not (names or place.is_file()):
        raise OSError(f"{place}: there is no such file, or the folder is empty; StudyFile names it")
    return tuple((name, (s := (place / name).stat()).st_size, s.st_mtime_ns) for name in names or [""])


@cache
def _content(place: Path, state: tuple[tuple[str, int, int], ...]) -> str:
    """Return the digest of a file, or of the names and contents of a folder's files. Changed files are read again."""
    digests = []
    for name, *_ in state:
        with (place / name).open("rb") as file:
            digests.append(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


DECLARED: set[str] = set()  # paths whose content keys know
SETTINGS = ("STORE", "CACHE", "MIRROR", "SUPPLIED", "PARSERS")  # of PHRASEMODELS_: folders whose files keys know
SOURCE = (".py", ".pyc", ".so", ".pyd", FILE)  # the fingerprint knows it
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/run/")
_step = threading.local()


@contextlib.contextmanager
def declared_files_only() -> Iterator[None]:
    """During a step in this thread, refuse to open users' files for reading if no key knows them.

    They are those of the project folder, and all files opened by users' code. Only Python's own `open` is seen. Compiled
    code, for example of safetensors, opens files by itself.
    """
    if any(parts(group) for group in GROUPS):
        _watch()
    _step.depth = getattr(_step, "depth", 0) + 1
    try:
        yield
    finally:
        _step.depth -= 1


@cache
def _watch() -> None:
    """Watch the files opened by this process. Python can't remove this hook."""
    own = folder()
    named = [os.environ[name] for name in (f"PHRASEMODELS_{setting}" for setting in SETTINGS) if name in os.environ]
    libraries = [place for place in sys.path if any(Path(place).glob("*.dist-info"))]
    installed = tuple(f"{place}/" for place in (sys.prefix, sys.base_prefix, Path(__file__).parent, *libraries))
    named += [str(own / CORPORA)] if own else []
    known = (*installed, *(f"{os.path.abspath(place)}/" for place in named))
    elsewhere = (*SYSTEM, f"{tempfile.gettempdir()}/")

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not getattr(_step, "depth", 0) or not isinstance(arguments[0], str | bytes):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        below = f"/{path.removeprefix(f'{own}/')}" if own else path  # the study may be below a hidden folder
        writes = arguments[2] & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC)  # "r+" reads, too
        if writes or path.endswith(SOURCE) or "/." in below or path.startswith(known):
            return
        if not (own and path.startswith(f"{own}/")) and (path.startswith(elsewhere) or not _users_call(installed)):
            return
        if os.path.isfile(path) and not any(path == one or path.startswith(f"{one}/") for one in DECLARED):
            raise ValueError(
                f"a step reads {path}, but no key knows its content: give the configuration a field "
                f"`file: StudyFile = StudyFile({os.path.relpath(path, own or '/')!r})`, and read `self.file.path`"
            )

    sys.addaudithook(refuse)


def _users_call(installed: tuple[str, ...]) -> bool:
    """Whether a step runs code of users at this moment."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name not in ("_fill", "call_in_worker", "train_worker"):
        if not frame.f_code.co_filename.startswith((*installed, "<")):
            return True
        frame = frame.f_back
    return False
