"""Plugins: papers, corpora, encoders, metrics and parsers from a project folder or an installed package.

A project folder has a file phrasemodels.toml with a table for each group, as in `[papers]` and `my-study = "study"`. A
package has entry points of the same groups (`phrasemodels.papers`). Both name `module` or `module:attribute`. The project
folder is the nearest folder with this file from the working directory upwards, or the folder in PHRASEMODELS_PROJECT. The
nearest one is refused if another user may have written to it.

papers: modules with PAPER and TABLES, with printed.csv and settings.csv beside them. corpora: packages with manifests
(NAME.toml) and files of corpora (NAME/FILE). The files of a project folder are in its folder `corpora`. encoders: classes of
configurations. metrics: functions. parsers: classes of back ends of the parse step.
"""

import ast
import contextlib
import dis
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import tomllib
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from phrasemodels.config import File
from phrasemodels.folders import files_below

FILE, VARIABLE = "phrasemodels.toml", "PHRASEMODELS_PROJECT"
GROUPS = ("papers", "corpora", "encoders", "metrics", "parsers")
CORPORA = "corpora"  # the folder of a project with manifests and files of corpora
BESIDE = ("printed.csv", "settings.csv", "claims.csv")  # what a paper's module may have beside it
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
    watch()
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
            object.__setattr__(self, "sha256", content_of(self._located))

    @property
    def _located(self) -> Path:
        here = (folder() or Path.cwd()) / expanded(self.place, "StudyFile")
        DECLARED.add(str(here))
        return here

    @property
    def path(self) -> Path:
        """Return the path, to read the file or folder. OSError: it is gone. ValueError: its content is another one."""
        here = self._located
        if content_of(here) != self.sha256:
            raise ValueError(f"{here} has changed since it was planned or trained with: run again, or put it back")
        return here


def _state(place: Path) -> tuple[tuple[str, int, int], ...]:
    """Return the name, size and time of change of a file, or of each file of a folder. OSError: it is not there."""
    inside = files_below(place, lambda one: one.name[0] != "." and one.name != "__pycache__") if place.is_dir() else ()
    names = sorted(str(path.relative_to(place)) for path in inside if path.name[0] != ".")
    if not (names or place.is_file()):
        raise OSError(f"{place}: there is no such file, or the folder is empty; StudyFile names it")
    return tuple((name, (s := (place / name).stat()).st_size, s.st_mtime_ns) for name in names or [""])


def content_of(place: Path) -> str:
    """Return the digest of a file, or of the names and contents of a folder's files. OSError: it is not there."""
    return _content(place, _state(place))


@cache
def _content(place: Path, state: tuple[tuple[str, int, int], ...]) -> str:
    """`content_of`. Changed files are read again."""
    digests = []
    for name, *_ in state:
        with _quiet(), (place / name).open("rb") as file:
            digests.append(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


DECLARED: set[str] = set()  # paths whose content keys know
# files and variables read by users' code outside of steps, by the module whose import reads them, or ""
READ: dict[str, set[str]] = {}
ASKED: dict[str, set[str]] = {}
READERS = frozenset("__getitem__ get getenv __contains__ expandvars".split())  # of a variable, not copies of all
SUBSCRIPTS = ("BINARY_SUBSCR", "BINARY_OP")  # instructions of `os.environ[name]`
OF_MACHINE = frozenset(  # variables that a step may read
    "PATH HOME USER TMPDIR CUDA_VISIBLE_DEVICES OMP_NUM_THREADS RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR "
    "MASTER_PORT".split()
)
STORES = ("STORE", "CACHE")  # of PHRASEMODELS_: folders of artifacts
SETTINGS = ("MIRROR", "SUPPLIED", "PARSERS")  # of PHRASEMODELS_: folders whose files keys know if our code reads them
CODE = (".py", ".so", ".pyd")  # files that run
SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/run/")
STEPS = ("_fill", "call_in_worker", "train_worker")  # functions that run a step
_here = threading.local()  # depth: steps that run in this thread; quiet: this module opens files itself
_before: list[str] = []  # sys.path before users' code ran
_plugins: set[str] = set()  # the names of `modules`
_running: set[object] = set()  # steps of this process
# threads started by users' code, with their module in READ
_started: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def declared_files_only() -> Iterator[None]:
    """During a step, refuse to open users' files for reading if no key knows them.

    They are those of the project folder, and all files opened by users' code, also in threads that it started. Only Python's
    own `open` is seen. Compiled code, for example of safetensors, opens files by itself.
    """
    watch_users()
    step = object()
    _running.add(step)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        _running.discard(step)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Watch none of the files that this thread opens."""
    before, _here.quiet = getattr(_here, "quiet", False), True
    try:
        yield
    finally:
        _here.quiet = before


def watch_users() -> None:
    """`watch`, if users offer any parts. A process of Ray begins with it, before it imports users' code."""
    if any(parts(group) for group in GROUPS):
        watch()


AGAIN = """
import importlib, json, sys
from phrasemodels import project
project.watch()
for name in sys.argv[1:]:
    importlib.import_module(name)
print(f"\\n{json.dumps([{of: [*known] for of, known in one.items()} for one in (project.READ, project.ASKED)])}")
"""


def _import_again() -> None:
    """Note what the import of users' modules that are there already reads, in a process that watches it.

    ValueError: one fails there.
    """
    tops = {name for name in _plugins if not name.startswith(("test_", "conftest"))}  # no step reaches tests
    names = [name for name in sys.modules if name.partition(".")[0] in tops]
    if not names:
        return
    _before[:] = filter(_is_pythons, sys.path)  # they may have added the others
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", AGAIN, *names],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(
            f"{', '.join(names)}: imported before its files were watched, and its import in a new process failed: "
            f"{(done.stderr.splitlines() or ['?'])[-1]}; run phrasemodels.project.watch_users() before the import"
        )
    for known, found in zip((READ, ASKED), json.loads(done.stdout.splitlines()[-1]), strict=True):
        for module, read in found.items():
            known.setdefault(module, set()).update(read)


def _is_pythons(place: str) -> bool:
    """Whether Python itself began with a folder of `sys.path`, or it has installed distributions."""
    path, script = os.path.abspath(place), getattr(sys.modules.get("__main__"), "__file__", None) or ""
    named = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), os.path.dirname(script), os.getcwd()]
    return path in map(os.path.abspath, named) or f"{path}/".startswith(_interpreter()) or _has_distributions(path)


@cache
def watch() -> None:
    """Watch the files that users' code opens: refuse them in steps, and note which ones the import of a module reads.

    Modules that are there already, as in a notebook, are imported again in another process. Python can't remove this hook.
    """
    own = f"{place}/" if (place := folder()) else None
    _before[:] = sys.path
    stores, known = (
        tuple(f"{os.path.abspath(os.environ[name])}/" for name in names if name in os.environ)
        for names in ([f"PHRASEMODELS_{setting}" for setting in group] for group in (STORES, SETTINGS))
    )
    stores += (f"{own}.phrasemodels/",) if own else ()
    with contextlib.suppress(ValueError):  # commands that read them say so
        _plugins.update(modules())
        known += tuple(f"{place}/" for place in corpora_folders())
    _import_again()

    def observe(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes) or getattr(_here, "quiet", False):
            return
        if not arguments[2] & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC):  # "r+" reads, too
            with _quiet():
                opened(os.path.abspath(os.fsdecode(arguments[0])))

    @functools.wraps(start := threading.Thread.start)
    def started(thread: threading.Thread) -> None:
        users, module, _ = _caller()
        if users:
            _started[thread] = module
        start(thread)

    def opened(path: str) -> None:
        in_own, cached = own is not None and path.startswith(own), "/__pycache__/" in path
        if path.startswith(stores if in_own else (*SYSTEM, *stores)) or (cached and not path.endswith(".pyc")):
            return
        if cached:
            place, name = os.path.split(path)
            path = os.path.join(os.path.dirname(place), f"{name.partition('.')[0]}.py")
        if is_installed(path):
            return
        users, module, direct = _caller()
        step = _in_step(direct)
        below = f"/{path.removeprefix(own)}" if own else path  # the study may be below a hidden folder
        hidden = bool(step) and "/." in below
        if hidden and not direct:
            return
        if not direct and (path.startswith(known) or path.endswith((*BESIDE, FILE))):
            return
        if not step:
            if users and (module or direct) and os.path.isfile(path):
                READ.setdefault(module, set()).add(path)
            return
        if path.endswith(CODE) and any(path.startswith(f"{place}/") for place in map(os.path.abspath, sys.path)):
            return  # a module, which the fingerprint knows
        if not in_own and (path.startswith(f"{tempfile.gettempdir()}/") or not users):
            return
        if os.path.isfile(path) and not any(path == one or path.startswith(f"{one}/") for one in DECLARED):
            raise ValueError(
                f"a step reads {path}, but no key knows its content: give the configuration a field "
                f"`file: StudyFile = StudyFile({os.path.relpath(path, own or '/')!r})`, and read `self.file.path`"
            )

    def asked(name: str, encode: Callable[[str], str] = os.environ.encodekey) -> str:
        frame, through = sys._getframe(1), set[str]()
        while frame.f_code.co_filename.startswith("<frozen") and frame.f_back is not None:
            through.add(frame.f_code.co_name)
            frame = frame.f_back
        file, one = frame.f_code.co_filename, dis.opname[frame.f_code.co_code[frame.f_lasti]]
        copied = through == {"__getitem__"} and one not in SUBSCRIPTS  # as by dict(os.environ)
        if through <= READERS and not copied and _kind(file) == "users":
            _, module, direct = _caller()
            if not _in_step(direct):
                ASKED.setdefault(module, set()).add(name)
            elif name not in OF_MACHINE.union(*(names for of, names in ASKED.items() if of), _texts(file)):
                raise ValueError(
                    f"a step reads the variable {name} of the environment ({file}, line {frame.f_lineno}), but no key knows "
                    "its value: read it where the module is imported"
                )
        return encode(name)

    os.environ.encodekey = asked
    threading.Thread.start = started  # type: ignore[assignment, method-assign] # Python 3.11 has no event for it
    sys.addaudithook(observe)


def _in_step(direct: bool) -> bool:
    """Whether this thread runs a step, or users' code started it and a step runs. direct: users' code runs there itself."""
    return bool(getattr(_here, "depth", 0) or (direct and _running and threading.current_thread() in _started))


def _caller() -> tuple[bool, str, bool]:
    """Return whether users' code runs, the file of its module that is being imported or "", and whether it calls no code of ours."""
    frame: FrameType | None = sys._getframe(1)
    users, first = False, ""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        kind = "" if file == __file__ else _kind(file)
        if kind == "ours" and name in STEPS:
            return users, "", first == "users"
        first = first or kind
        if kind == "users":
            users = True
            if name == "<module>" and frame.f_globals.get("__name__") != "__main__":
                return True, os.path.abspath(file), first == "users"
        elif name == "<module>" and not users and not file.startswith("<"):
            return False, "", False  # what the import of a library reads
        frame = frame.f_back
    if not users and (thread := threading.current_thread()) in _started:
        return True, _started[thread], first != "ours"
    return users, "", first == "users"


@cache
def _texts(file: str) -> frozenset[str]:
    """Return the texts in a module. The fingerprint counts variables that they name."""
    with contextlib.suppress(OSError, SyntaxError, ValueError), _quiet():
        leaves = (leaf for leaf in ast.walk(ast.parse(Path(file).read_bytes())) if isinstance(leaf, ast.Constant))
        return frozenset(leaf.value for leaf in leaves if isinstance(leaf.value, str))
    return frozenset()


@cache
def _kind(file: str) -> str:
    """Whose code a file has: "ours", "users", or "" for that of libraries."""
    if file.startswith(f"{Path(__file__).parent}/"):
        return "ours"
    return "" if file.startswith("<") or is_installed(os.path.abspath(file)) else "users"


def is_installed(path: str) -> bool:
    """Return whether a file is of Python, of this package, or of the installed distributions that keys know by version."""
    for place in map(os.path.abspath, sys.path):
        if path.startswith(f"{place}/") and _has_distributions(place):
            top = path.removeprefix(f"{place}/").partition("/")[0]
            name = top.partition(".")[0]
            return top.endswith("-info") or (name not in _plugins and users_place(name) is None and _found(name))
    return path.startswith(_interpreter())


@cache
def _has_distributions(place: str) -> bool:
    return any(Path(place).glob("*.dist-info"))


@cache
def _interpreter() -> tuple[str, ...]:
    """Return the folders of Python and of this package."""
    inner = [os.path.join(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("bin", "lib", "share")]
    places = (*inner, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parent)
    return tuple(f"{place}/" for place in places)


def _found(top: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):
        return importlib.util.find_spec(top) is not None
    return top in sys.modules


def users_place(top: str) -> Path | None:
    """Return the file or folder of a user's module outside of all plugins; None for any other module.

    Modules of Python, of this package's requirements, or of another unpacked distribution are no users' modules.
    """
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top in required():
        return None
    place = _place(top, top in sys.modules, *sys.path)  # code may add folders, and is found from then on
    # Python's own tests, `test`, aren't among its names of modules
    return None if place is not None and str(place.parent) == sysconfig.get_path("stdlib") else place


@cache
def _place(top: str, *_: Any) -> Path | None:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    place = next((path for path in map(Path, filter(None, places)) if path.exists()), None)
    if place is None or not any(place.parent.glob("*-info")) or (first := distribution(top)) is None:
        return place
    # a distribution of the module's name may have none of its files
    others = (distribution(name) for name in _distributions().get(top, ()))
    for found in filter(None, itertools.chain([first], others)):
        record, source = found.read_text("RECORD") or "", json.loads(found.read_text("direct_url.json") or "{}")
        name = os.path.relpath(spec.origin if spec and spec.origin else place, str(found.locate_file("")))
        if f"\n{Path(name).as_posix()}" in f"\n{record}":
            return place if "dir_info" in source else None
    return place


def in_added_folders() -> set[str]:
    """Return the names of the modules in the folders that users' code has added to `sys.path`."""
    added = {*sys.path} - {*_before} if _before else set[str]()
    return {name for place in added for name in _python_in(Path(place)) if users_place(name)}


@cache
def required() -> frozenset[str]:
    """Return the names of this package's required distributions."""
    try:
        found = importlib.metadata.requires("phrasemodels") or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    return frozenset(re.split(r"[^\w.-]", one)[0].lower().replace("-", "_") for one in found)


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@cache
def distribution(package: str) -> importlib.metadata.Distribution | None:
    """Return the distribution of an imported package, or None."""
    try:  # most packages have their distribution's name; to read all distributions takes half a second
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = _distributions().get(package, [])
        return importlib.metadata.distribution(names[0]) if names else None


def users_places() -> list[Path]:
    """Return the project folder, and the files and folders of plugins outside of it."""
    own = folder()
    outside = (place for place in modules().values() if own is None or not place.is_relative_to(own))
    return [*([own] if own else []), *sorted(outside)]
