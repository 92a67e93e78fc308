"""Additions of users to the system: parts that a project folder or an installed package offers, by group and name.

A project folder has a file phrasemodels.toml with a table for each group, as in `[papers]` and `my-study = "study"`; a
package has entry points of the same groups (`phrasemodels.papers`). Both name `module` or `module:attribute`. The project
folder is the nearest one with that file from the working directory upwards, or the one that PHRASEMODELS_PROJECT names. The
nearest one is refused if another user may have written to it.

papers: modules with PAPER and TABLES, with printed.csv and settings.csv beside them. corpora: packages with manifests
(NAME.toml) and files of corpora (NAME/FILE); the files of a project folder are in its folder `corpora`. encoders: classes of
configurations. metrics: functions. parsers: classes of back ends of the step that parses.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

FILE, VARIABLE = "phrasemodels.toml", "PHRASEMODELS_PROJECT"
GROUPS = ("papers", "corpora", "encoders", "metrics", "parsers")
CORPORA = "corpora"  # the folder of a project with manifests and files of corpora
BESIDE = ("printed.csv", "settings.csv")  # what a paper's module may have beside it
PART = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
# the time and memory of tomllib grow with the square of its length
LONG_KEY = re.compile(r"""(\.[ \t]*([\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){50}""")


def expanded(path: str | Path, what: str) -> Path:
    """Return a path with the home folder in place of ~. ValueError: there is no such user; it names `what`."""
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
    """Refuse a file or folder that another user may have written, as git refuses a checkout.

    Args:
        otherwise: what to do if the user trusts it.

    Raises:
        ValueError: another user owns it, or others may write to it.
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
    """Refuse settings of libraries in the working folder that another user may have written. ValueError: there are some."""
    for name, text in READ_BY_LIBRARIES.items():
        path = Path(name)
        if path.is_file() and text.encode() in path.read_bytes().lower():
            check_own(path.absolute(), "work in another folder")


@cache
def folder() -> Path | None:
    """Return the project folder, whose modules can be imported from now on, here and in processes that this one starts.

    Returns:
        The folder; None if there is none.

    Raises:
        ValueError: PHRASEMODELS_PROJECT names another folder, or another user may have written to the folder that was found.
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
    """Return what a group offers: {name: "module" or "module:attribute"}. ValueError: two offer the same name."""
    found = dict(_own_parts().get(group, {}))
    for entry in importlib.metadata.entry_points(group=f"phrasemodels.{group}"):
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise ValueError(f"{group}: {found[entry.name]} and {entry.value} are both called {entry.name}; rename one")
    return found


def part(group: str, name: str) -> Any:
    """Import a part by name. ValueError: it cannot be imported, or fails while it is; the message has its line."""
    module, _, attribute = parts(group)[name].partition(":")
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
    """Return the last place in a user's module that an error passed, as ` (FILE, line N)`; empty if it passed none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if any(Path(frame.f_code.co_filename).is_relative_to(path) for path in modules().values()):
            found = f" ({frame.f_code.co_filename}, line {line})"
    return found


@cache
def modules() -> dict[str, Path]:
    """Return the modules and packages that users add, by top-level name: a file, or a package's folder.

    They are those that parts name and, in the project folder, all others. ValueError: a part's module of the folder has
    the name of an installed one.
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
    """Return a file beside the module of a paper, which is not imported; None: it has none."""
    module = parts("papers")[paper].partition(":")[0]
    top, *inner = module.split(".")
    if (path := modules().get(top)) is None:
        raise ValueError(f"papers: {paper}: there is no module {module}")
    place = path if path.is_dir() else path.parent
    place = place.joinpath(*inner[: None if place.joinpath(*inner).is_dir() else -1])
    return place / file if (place / file).is_file() else None


@cache
def manifests() -> dict[str, Path]:
    """Return the manifests of corpora that users add, by the names of their files."""
    return {path.stem: path for place in corpora_folders() for path in sorted(place.glob("*.toml"))}


@cache
def corpora_folders() -> tuple[Path, ...]:
    """Return the folders with manifests that users add; files of these corpora may lie in them as corpora/NAME/FILE.
    ValueError: a part names no package."""
    found = []
    for name, value in parts("corpora").items():
        top, *inner = value.split(".")
        place = modules().get(top, Path("-")).joinpath(*inner)
        if not place.is_dir():
            raise ValueError(f"corpora: {name} = {value!r} is no package with manifests (NAME.toml)")
        found.append(place)
    return (*found, *([own / CORPORA] if (own := folder()) else []))


def files() -> Iterator[Path]:
    """Yield all files that decide what users add: source, printed numbers, settings, manifests and the project's file."""
    for path in modules().values():
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
    for paper in parts("papers"):
        yield from filter(None, (beside(paper, name) for name in BESIDE))
    yield from manifests().values()
    if place := folder():
        yield place / FILE
