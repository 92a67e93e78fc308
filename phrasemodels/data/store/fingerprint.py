"""The fingerprint of a step's source code. If code within reach of the step changes, the step's key changes.

Definitions are hashed by their syntax trees, so comments, docstrings and layout do not count. The search begins at a function
and follows every name to its definition inside of this project, also through imports. It adds the statements that run at the
import of the modules on its way, of their packages and of ENVIRONMENT. The modules in STORE do not count. They decide how
artifacts are kept, not their content; store.FORMAT is their version.

Python and libraries count by their version, and by the digest of each file that differs from its installation. Code of users
counts like the project's, wherever it lies: in a project folder, in an editable or local installation, or on PYTHONPATH.
Names can't follow some of it (UNFOLLOWED). If a step reaches such code, all users' modules within its reach count whole, and so do
modules that it names in a text. A file of the study that code names counts by its content.
"""

import ast
import base64
import csv
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from phrasemodels.project import BESIDE, FILE, folder
from phrasemodels.project import modules as added_modules

PROJECT = "phrasemodels"  # beside it the modules that users add (project.py) count
STORE = tuple(f"phrasemodels.data.store.{name}" for name in ("store", "fingerprint"))
# How parts are found, which values are refused, and how files are downloaded, whose digests are in the key, is not what
# steps do.
NOT_FINGERPRINTED = (
    *STORE,
    "phrasemodels.config",
    "phrasemodels.project",
    "phrasemodels.data.download.archives",
    "phrasemodels.data.download.fetch",
)
ENVIRONMENT = "phrasemodels.infra.environment"  # sets variables before anything else runs
PARSE_ATTEMPTS = 20
PYTHON = ".".join(map(str, sys.version_info[:2]))
IMPORT_TIME = "<module>"  # in place of a top-level name: the statements that a module runs when it is imported
WHOLE = "<whole>"  # in place of a top-level name: all of a user's module
DYNAMIC = "<dynamic>"  # in place of a top-level name: a user's module has code that names cannot follow
ENVIRONMENT_READERS = frozenset({"environ", "getenv", "expandvars"})
UNFOLLOWED = {"eval", "exec", "globals", "locals", "vars", "__import__"}  # functions, by their bare names
# also as attributes, definitions and under other names
UNFOLLOWED_PARTS = {
    *("import_module", "reload", "run_module", "run_path", "find_spec", "spec_from_file_location", "exec_module"),
    *("iter_modules", "walk_packages", "__subclasses__", "__init_subclass__"),
}
FILES = "<file>"  # in place of a module: a file of a study that users' code names
FILE_NAME = re.compile(r"[\w*?/-]*\.[\w*?./-]+")
VARIABLES = "os.environ"  # in place of a module: a variable of the environment that users' code names
LIBRARY = "<library>"  # in place of a top-level name: a library that users' code imports
IMPORTED = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w., \t]+)", re.MULTILINE)
CODE = (".py", ".so", ".pyd")  # files of a library that run

Name = tuple[str, str]  # module, top-level name


class Module:
    """The top-level names of one file: its definitions, with all bindings of a name, and its imports.

    `imports` includes imports inside of functions. `imported` has only those that run at the import of the file.
    """

    def __init__(self, name: str, tree: ast.Module, package: str) -> None:
        self.definitions: dict[str, ast.AST] = {}
        self.package = package
        self.imports = _imports(_statements(tree), package)
        self.imported = frozenset().union(*_imports(_run_with_the_module(tree), package).values())
        bindings: dict[str, list[ast.stmt]] = {}
        for statement in tree.body:
            for bound in _bound_names(statement):
                bindings.setdefault(bound, []).append(statement)
        for bound, (first, *others) in bindings.items():
            self.definitions[bound] = ast.Module([first, *others], []) if others else first
        own = {*bindings, *(bound for bound, found in self.imports.items() if any(_is_users(of) for of, _ in found))}
        own = own if (users := _is_users(name)) else set()
        if run := [one for one in tree.body if _runs_code(one, own) or (users and _has_effects(one))]:
            self.definitions[IMPORT_TIME] = ast.Module(run, [])


def _imports(nodes: Iterable[ast.AST], package: str) -> dict[str, set[Name]]:
    """Return what the import statements among nodes bind: {name: {(module, name in it, or "" for the module itself)}}.

    A name has several targets after `try: from fast import f` and `except ImportError: from slow import f`, or if functions
    use it for different ones. package: of the file; relative imports start from it.
    """
    bound: dict[str, set[Name]] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds a, and runs a.b, under whose dotted name no reference is; `import a.b as c` binds a.b to c
                top = alias.asname or alias.name.split(".")[0]
                bound.setdefault(top, set()).add((alias.name if alias.asname else top, ""))
                bound.setdefault(alias.name, set()).add((alias.name, ""))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                bound.setdefault(alias.asname or alias.name, set()).add((module, alias.name))
    return bound


def _statements(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the statements inside of a node at any depth. Expressions hold no statements and are skipped."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def _run_with_the_module(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the statements that run at a file's import: all but bodies of functions and of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).removeprefix("typing.") == "TYPE_CHECKING":
            yield from _run_with_the_module(ast.Module(child.orelse, []))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield child
            yield from _run_with_the_module(child)


def _bound_names(node: ast.stmt) -> list[str]:
    """The names bound by a definition or an assignment. `module.name = 3` and `table["key"] = 3` bind none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [
        leaf.id
        for target in targets
        for leaf in ast.walk(target)
        if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)
    ]


def _runs_code(node: ast.stmt, own: Collection[str]) -> bool:
    """Whether a top-level statement does more than bind names: it calls, or a decorator registers a definition.

    own: names of users' functions. They may register a decorated definition.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        # such as @registry.register(key): it changes another object. @dataclass(frozen=True) has keywords alone and
        # does not
        calls = any(isinstance(decorator, ast.Call) and decorator.args for decorator in node.decorator_list)
        return calls or any(parts[0] in own for decorator in node.decorator_list for parts in _references(decorator))
    return not isinstance(node, ast.Import | ast.ImportFrom) and not _bound_names(node) and not _bare_string(node)


def _has_effects(node: ast.stmt) -> bool:
    """Whether a definition or assignment does more than its name says: a class that fills a table, `_ = register()`, a default that
    calls."""
    if isinstance(node, ast.ClassDef):
        plain = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign, ast.Pass)
        return any(
            not isinstance(one, plain) and not _bare_string(one) and (not _bound_names(one) or _has_effects(one))
            for one in node.body
        )
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        return any(isinstance(leaf, ast.Call) for default in defaults for leaf in ast.walk(default))
    if isinstance(node, ast.Assign):
        others = [
            leaf
            for target in node.targets
            for leaf in ast.walk(target)
            if isinstance(leaf, ast.Attribute | ast.Subscript)
        ]
        return bool(others) or set(_bound_names(node)) == {"_"}
    return False


def _is_ours(module: str) -> bool:
    """Return whether a module is of this project, or code of users."""
    return _is_project(module) or _is_users(module)


def _is_users(module: str) -> bool:
    top = module.split(".")[0]
    return top != PROJECT and (top in added_modules() or users_place(top) is not None)


@cache
def users_place(top: str) -> Path | None:
    """Return the file or folder of a user's module outside of all plugins; None for any other module.

    Modules of Python, of this package's requirements, or of another unpacked distribution are no users' modules.
    """
    if top in sys.stdlib_module_names or top in sys.builtin_module_names or top in _required():
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    places = [*(spec.submodule_search_locations or ()), spec.origin] if spec else []
    place = next((path for path in map(Path, filter(None, places)) if path.exists()), None)
    if place is None or not any(place.parent.glob("*-info")) or (found := _distribution(top)) is None:
        return place
    record, source = found.read_text("RECORD") or "", json.loads(found.read_text("direct_url.json") or "{}")
    name = os.path.relpath(spec.origin if spec and spec.origin else place, str(found.locate_file("")))
    installed = f"\n{Path(name).as_posix()}" in f"\n{record}"
    return None if installed and "dir_info" not in source else place


def users_places() -> list[Path]:
    """Return the project folder, and all files and folders of the users' modules that it or plugins import."""
    places, queue, own = dict[str, Path](), [*added_modules()], folder()
    while queue:
        top = queue.pop()
        if top in places or (place := added_modules().get(top) or users_place(top)) is None:
            continue
        places[top] = place
        files = place.rglob("*.py") if place.is_dir() else [place]
        lines = (
            line for file in files for line in IMPORTED.findall(file.read_text(encoding="utf-8", errors="replace"))
        )
        queue += [name.split()[0].split(".")[0] for line in lines for name in line.split(",") if name.strip()]
    outside = (place for place in places.values() if own is None or not place.is_relative_to(own))
    return [*([own] if own else []), *sorted(outside)]


@cache
def _required() -> frozenset[str]:
    """Return the names of this package's required distributions."""
    try:
        found = importlib.metadata.requires(PROJECT) or []
    except importlib.metadata.PackageNotFoundError:
        return frozenset()
    return frozenset(re.split(r"[^\w.-]", one)[0].lower().replace("-", "_") for one in found)


@cache
def _module(name: str) -> Module | None:
    """Return a module of the project by name; None if it does not exist or is one of NOT_FINGERPRINTED."""
    if not _is_ours(name) or name in NOT_FINGERPRINTED:
        return None
    try:
        # find_spec imports parent packages, but not the module itself
        spec = importlib.util.find_spec(name)
    except ImportError:
        return None
    if spec is None or not spec.origin or not spec.has_location:
        return None
    package = name if spec.submodule_search_locations else name.rpartition(".")[0]
    file = Path(spec.origin)
    # of compiled code the digest stands in place of the source, as a number
    tree = _parsed(file) if file.suffix == ".py" else ast.parse(str(int(sha256(file), 16)))
    return Module(name, tree, package)


def sha256(file: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _is_project(module: str) -> bool:
    return module.split(".")[0] == PROJECT


def _parsed(path: Path) -> ast.Module:
    return _tree(path.read_text(encoding="utf-8"), path)


@cache
def _tree(text: str, path: Path) -> ast.Module:
    """Parse a file. Threads that parse at once may raise SystemError in Python 3.11 (gh-106905), so try again."""
    for _ in range(PARSE_ATTEMPTS):
        with suppress(SystemError):
            return ast.parse(text, path)
    return ast.parse(text, path)


def _without_docstrings(node: ast.AST) -> str:
    """Return a syntax tree as text, without docstrings and other bare strings."""

    def dump(value: Any) -> str:
        if isinstance(value, ast.AST):
            inner = ",".join(f"{field}={dump(child)}" for field, child in ast.iter_fields(value))
            return f"{type(value).__name__}({inner})"
        if isinstance(value, list):
            return "[" + ",".join(dump(child) for child in value if not _bare_string(child)) + "]"
        return repr(value)

    return dump(node)


def _bare_string(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _references(node: ast.AST) -> Iterable[list[str]]:
    """Yield every dotted name in a definition, at its full length, as the list of its parts."""
    nodes = [node]
    while nodes:
        leaf = nodes.pop()
        if isinstance(leaf, ast.Attribute):
            parts, value = [leaf.attr], leaf.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name):
                yield [value.id, *reversed(parts)]
            else:
                nodes.append(value)
            continue
        if isinstance(leaf, ast.Name):
            yield [leaf.id]
        elif isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and leaf.value.isidentifier():
            yield [leaf.value]  # a quoted annotation
        nodes += ast.iter_child_nodes(leaf)


def _unfollowed(module: str, nodes: Iterable[ast.AST]) -> Iterable[Name]:
    """Yield the accesses of users' code that names can't follow: any module, files, or variables of the environment."""
    texts, reads, dynamic, here = set(), False, False, _module(module)
    declared = {id(one) for leaf in nodes if _is_declared(leaf) for one in ast.walk(leaf)}
    for leaf in nodes:
        name = getattr(leaf, "attr", getattr(leaf, "id", getattr(leaf, "name", "")))
        others = {of for _, of in here.imports.get(name, ())} if here and isinstance(leaf, ast.Name) else set()
        bare = isinstance(leaf, ast.Name) and not {name, *others}.isdisjoint(UNFOLLOWED | UNFOLLOWED_PARTS)
        if bare or name in UNFOLLOWED_PARTS or (name == "modules" and ast.unparse(leaf) == "sys.modules"):
            dynamic = True
        elif isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and id(leaf) not in declared:
            texts.add(leaf.value)
        reads |= not {name, *others}.isdisjoint(ENVIRONMENT_READERS)
    if reads and here:  # the variable's name may stand elsewhere in the module
        leaves = (leaf for one in here.definitions.values() for leaf in ast.walk(one) if isinstance(leaf, ast.Constant))
        texts |= {leaf.value for leaf in leaves if isinstance(leaf.value, str) and leaf.value.isidentifier()}
    if dynamic:
        yield module, DYNAMIC
        named = [text for text in texts if text.replace(".", "_").isidentifier() and _is_users(text)]
        yield from ((text, WHOLE) for text in named if _module(text) is not None)
    yield from ((VARIABLES, text) for text in texts if reads)
    yield from ((FILES, file) for text in texts for file in _named_files(module, text))


def _is_declared(node: ast.AST) -> bool:
    """Whether a call makes a StudyFile, whose content is in the key by itself."""
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "StudyFile"


def _named_files(module: str, text: str) -> Iterable[str]:
    """Yield the files that a text in a user's module names: beside the module or in the project folder; by an ending, all."""
    spec = importlib.util.find_spec(module) if FILE_NAME.fullmatch(text) and ".." not in text else None
    if spec is None or not spec.origin or text.startswith("/"):
        return
    for place in {Path(spec.origin).parent, *([own] if (own := folder()) else [])}:
        for file in place.glob(f"*{text}" if text.startswith(".") else text):
            hidden = any(
                part.startswith(".") for part in file.relative_to(place).parts[:-1]
            )  # the store is such a folder
            if (
                file.is_file()
                and not hidden
                and file.suffix not in (".py", ".pyc")
                and file.name not in (*BESIDE, FILE)
            ):
                yield str(file)


def _run_modules(nodes: Iterable[ast.AST]) -> Iterable[Name]:
    """Yield the project's modules named by a string among nodes, as in `python -m NAME`."""
    strings = (leaf.value for leaf in nodes if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str))
    for name in strings:
        if "." in name and name.replace(".", "_").isidentifier() and _module(name) is not None:
            yield name, IMPORT_TIME


def _resolve(module: str, parts: list[str], seen: frozenset[Name] = frozenset()) -> Iterable[Name]:
    """Yield the possible referents of a dotted name in a module: (module, name) in the project, or (library, "").

    seen: the imports so far. Two modules may import a name from each other although neither defines it.
    """
    here = _module(module)
    head, *rest = parts
    if here is None or (module, head) in seen:
        return
    if head in here.definitions:
        yield module, head
        return
    stars = [(target, head) for target, _ in here.imports.get("*", ()) if _offers(target, head)]
    for target, attribute in here.imports.get(head, stars):
        path = [*target.split("."), *([attribute] if attribute else []), *rest]
        if path[0] == PROJECT or (not _is_project(module) and _is_users(path[0])):
            yield from _in_project(path, seen | {(module, head)})
        else:
            yield path[0], "" if _is_project(module) else LIBRARY


def _offers(module: str, name: str) -> bool:
    """Whether `from module import *` may bind a name."""
    found = _module(module)
    return found is None or bool({name, "*"} & {*found.definitions, *found.imports})


def _in_project(path: list[str], seen: frozenset[Name]) -> Iterable[Name]:
    """Yield the referents of a dotted path of the project. Bindings in an `if` or `try` count with its statements."""
    for cut in range(len(path), 0, -1):
        inner = ".".join(path[:cut])
        if _module(inner) is not None:
            if cut < len(path) and _offers(inner, path[cut]):
                yield from _resolve(inner, path[cut:], seen)
            elif _is_users(inner):  # a module that is passed on, as to getattr, or has the name in another way
                yield inner, WHOLE
            elif cut < len(path):
                yield inner, IMPORT_TIME
            return


def _roots(value: Any) -> Iterable[Name]:
    """Yield the functions and classes of the project in a value, also in the fields of dataclasses and in containers."""
    if callable(value) and hasattr(value, "__qualname__"):
        if _is_ours(value.__module__):
            yield (value.__module__, value.__qualname__.split(".")[0])
    elif isinstance(value, partial):
        yield from _roots([value.func, value.args, value.keywords])
    elif hasattr(value, "__dataclass_fields__"):
        yield from _roots(type(value))
        for field in value.__dataclass_fields__:
            yield from _roots(getattr(value, field))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _roots(item)
    elif isinstance(value, list | tuple):
        if hasattr(value, "_fields"):  # a NamedTuple
            yield from _roots(type(value))
        for item in value:
            yield from _roots(item)


@cache
def _definition(name: Name) -> tuple[str, frozenset[Name]] | None:
    """Return the digest of a definition and the names in it; None if it does not exist.

    The digest is empty for a module that runs no statements. Its imports still run.
    """
    module, attribute = name
    found = _module(module)
    if found is not None and attribute == WHOLE:
        return "", frozenset((module, one) for one in (*found.definitions, IMPORT_TIME))
    if found is not None and attribute == IMPORT_TIME and attribute not in found.definitions:
        return "", _run_at_import(module)
    if found is None or attribute not in found.definitions:
        return None
    node = found.definitions[attribute]
    digest = hashlib.sha256(_without_docstrings(node).encode()).hexdigest()[:16]
    nodes = [*ast.walk(node)]
    named = {target for parts in _references(node) for target in _resolve(module, parts)}
    hidden: set[Name] = set()
    if _is_users(module):  # a function may import for what the import registers
        inner = frozenset[Name]().union(*_imports(nodes, found.package).values())
        hidden = {*_unfollowed(module, nodes), *_import_times(inner)}
    return digest, frozenset({*named, *hidden, *_run_modules(nodes), *_run_at_import(module)})


@cache
def _run_at_import(module: str) -> frozenset[Name]:
    """Return the code that runs at a module's import: the statements of its packages, its own, and its imports'."""
    parts = module.split(".")
    packages = ((".".join(parts[:count]), "") for count in range(1, len(parts) + 1))
    found = _module(module)
    return _import_times([*packages, *(found.imported if found else ())])


def _import_times(imported: Iterable[Name]) -> frozenset[Name]:
    """Return what runs when modules, or modules that are imported from packages, are imported."""
    names = (name for target, attribute in imported for name in (target, f"{target}.{attribute}" if attribute else ""))
    return frozenset((name, IMPORT_TIME) for name in names if name and _module(name) is not None)


def closure(*values: Callable[..., Any] | Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return digests of all definitions within reach of the values, by qualified name, and versions of their libraries."""
    roots = frozenset(root for value in values for root in _roots(value))
    source, libraries = _closure(roots | {(ENVIRONMENT, IMPORT_TIME)} if roots else roots)
    return dict(source), dict(libraries)


@cache
def _closure(roots: frozenset[Name]) -> tuple[dict[str, str], dict[str, str]]:
    queue = list(roots)
    seen: set[Name] = set()
    source: dict[str, str] = {}
    libraries, imported, dynamic = {"python": PYTHON}, dict[str, str](), False
    while queue or dynamic:
        if not queue:
            tops = {one for one in {*added_modules(), *(of.split(".")[0] for of, _ in seen)} if _is_users(one)}
            queue = [(one, WHOLE) for top in tops for one in _modules_below(top) if (one, WHOLE) not in seen]
            if not queue:
                break
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        module, attribute = name
        if module == VARIABLES:
            value = os.environ.get(attribute)
            source |= (
                {} if value is None else {f"{module}:{attribute}": hashlib.sha256(value.encode()).hexdigest()[:16]}
            )
        elif module == FILES:
            file = f"{module}:{Path(attribute).name}"  # a name may stand in several folders, and folders are no part of a key
            source[file] = " ".join(sorted({*source.get(file, "").split(), sha256(Path(attribute))[:16]}))
        elif attribute in ("", LIBRARY):
            (imported if attribute else libraries).update(_version(module, bool(attribute)))
        elif attribute == DYNAMIC:
            dynamic = True
        elif (definition := _definition(name)) is not None:
            if definition[0]:
                source[f"{module}:{attribute}"] = definition[0]
            queue += definition[1]
    return dict(sorted(source.items())), dict(sorted((libraries | imported).items()))


def _modules_below(top: str) -> list[str]:
    """Return the names of a user's module and of all modules below it, without tests. No step reaches tests."""
    place = added_modules().get(top) or users_place(top)
    if place is None or top.startswith("test_") or top == "conftest":
        return []
    files = sorted(place.rglob("*.py")) if place.is_dir() else []
    below = (file.relative_to(place).with_suffix("").parts for file in files)
    return list(dict.fromkeys([top, *(".".join((top, *parts)).removesuffix(".__init__") for parts in below)]))


def forget() -> None:
    """Forget the parsed files of the project. For processes that see the files change."""
    for known in (_module, _definition, _run_at_import, _closure, users_place, _distribution, _version):
        known.cache_clear()


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@cache
def _distribution(package: str) -> importlib.metadata.Distribution | None:
    """Return the distribution of an imported package, or None."""
    try:  # most packages have their distribution's name; to read all distributions takes half a second
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = _distributions().get(package, [])
        return importlib.metadata.distribution(names[0]) if names else None


@cache
def _version(package: str, by_users: bool = False) -> dict[str, str]:
    """Return {distribution: version} of an imported package; an empty dictionary for the standard library.

    by_users: users' code imports it. This package may not require it, so two builds may have one version. The digest of its
    RECORD then counts, too.
    """
    if package in sys.stdlib_module_names or (found := _distribution(package)) is None:
        return {}
    name = found.metadata["Name"]
    known = not by_users or name.lower().replace("-", "_") in _required()
    more = [] if known else [found.read_text("RECORD") or ""]
    more += [f"{file} {digest}" for file, digest in _edited(found)]
    digest = hashlib.sha256("\n".join(more).encode()).hexdigest()[:16]
    return {name: " ".join([found.version.split("+")[0], *([digest] if more else [])])}


def _edited(found: importlib.metadata.Distribution) -> Iterable[tuple[str, str]]:
    """Yield the files of a distribution that changed since their installation, with their digests.

    A file is read if its size differs from RECORD, or if it is newer than RECORD.
    """
    wanted = (*CODE, ".dist-info/RECORD")
    lines = (line for line in (found.read_text("RECORD") or "").splitlines() if line.split(",")[0].endswith(wanted))
    rows = [row for row in csv.reader(lines) if len(row) == 3]
    record = next((row[0] for row in rows if row[0].endswith(".dist-info/RECORD")), None)
    if record is None:
        return
    base = str(found.locate_file(""))
    written = os.stat(os.path.join(base, record)).st_mtime_ns
    for name, installed, size in rows:
        if not installed:
            continue
        with suppress(OSError):  # a file that is gone does not run
            state = os.stat(path := os.path.join(base, name))
            if str(state.st_size) != size or state.st_mtime_ns > written:
                digest = hashlib.sha256(Path(path).read_bytes()).digest()
                if installed != f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}":
                    yield name, digest.hex()
