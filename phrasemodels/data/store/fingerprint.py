"""The fingerprint of a step's source code. If code within reach of the step changes, the step's key changes.

Definitions are hashed by their syntax trees, so comments, docstrings and layout do not count. The search begins at a function
and follows every name to its definition inside of this project, also through imports. It adds the statements that run at the
import of the modules on its way, of their packages and of ENVIRONMENT. The modules in STORE do not count. They decide how
artifacts are kept, not their content; store.FORMAT is their version.

Python and libraries count by their version, and by the digest of each file that differs from its installation. Code of users
counts like the project's, wherever it lies: in a project folder, in an editable or local installation, or on PYTHONPATH.
Names can't follow some of it (UNFOLLOWED). If a step reaches such code, all users' modules within its reach count whole. So does a
module that a text names. The files that the import of a module reads count by their content (project.READ).
"""

import ast
import base64
import csv
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from phrasemodels import project
from phrasemodels.project import CODE, PART, users_place

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
# bare names, attributes and definitions, and libraries that find code by its name
UNFOLLOWED = frozenset("eval exec compile globals locals vars __import__ __builtins__ __loader__".split())
UNFOLLOWED_PARTS = frozenset("exec_module load_module __subclasses__ __init_subclass__ __globals__ f_globals".split())
UNFOLLOWED_LIBRARIES = frozenset(
    "importlib pkgutil runpy zipimport pydoc code gc pickle builtins ctypes dill cloudpickle joblib jsonpickle hydra "
    "sys.modules sys._getframe sys.meta_path sys.path_hooks".split()
)
# names of functions and methods that change something else; what a class runs when it is called, and when it has a subclass
ACTING = re.compile(
    r"(set|register|add|update|append|extend|insert|pop|remove|clear|patch|seed|manual|enable|disable|install)(_\w+)?|"
    r"setattr|delattr|setdefault|seterr\w*|next"
)
CALLABLE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
AT_CALL = ("__init__", "__new__", "__post_init__", "__set_name__")
AT_SUBCLASS = ("__init_subclass__",)
FILES = "<file>"  # in place of a module: a file that the import of a user's module reads
VARIABLES = "os.environ"  # in place of a module: a variable of the environment that users' code names
LIBRARY = "<library>"  # in place of a top-level name: a library that users' code imports

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
        if run := [one for one in tree.body if _runs_code(one, own) or (users and _has_effects(one, name))]:
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


def _has_effects(node: ast.stmt, module: str) -> bool:
    """Whether a definition or an assignment of users' code may do more than bind its names.

    Such as a class that fills a table, `_ = register()`, `x = TABLE.update()`, or a call of a function that sets something.
    """
    if isinstance(node, ast.ClassDef):
        bases = (target for base in node.bases for target in _own(module, base))
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
        return (
            any(_is_active(target, AT_SUBCLASS) for target in bases)
            or any(_is_active(target) for key in node.keywords for target in _own(module, key.value))
            or _acts([*node.bases, *node.keywords], module)
            or any(
                not isinstance(one, ast.Pass) and not _bare_string(one) and not isinstance(one, inner) for one in node.body
            )
            or any(_has_effects(one, module) for one in node.body if isinstance(one, inner))
        )
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = (target for one in node.decorator_list for target in _own(module, one))
        return any(map(_is_active, decorators)) or _acts([node.args, *filter(None, [node.returns])], module)
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    others = (leaf for target in targets for leaf in ast.walk(target))
    if set(_bound_names(node)) == {"_"} or any(isinstance(leaf, ast.Attribute | ast.Subscript) for leaf in others):
        return True
    return _acts([part for part in ast.iter_child_nodes(node) if part not in targets], module)


def _acts(
    nodes: Iterable[ast.AST], module: str, local: Collection[str] = (), calls: list[Any] | None = None
) -> bool:
    """Whether a call in nodes may change another object. Lambdas don't run.

    local: names of values that are new there. calls: gets the calls of users' code, which are then left to the caller.
    """
    waiting = [*nodes]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Lambda):
            continue
        waiting += ast.iter_child_nodes(node)
        parts = next(iter(_references(node.func)), []) if isinstance(node, ast.Call) else []
        if not parts or parts[0] in local or isinstance(getattr(node, "func", None), ast.Call | ast.Subscript):
            continue
        if own := _own(module, getattr(node, "func", node)):
            called = [(target, AT_CALL if len(parts) == 1 else ()) for target in own]
            if calls is not None:
                calls += called
            elif any(_is_active(*one) for one in called):
                return True
        elif parts[0] in _names_of(module)[0] or (ACTING.fullmatch(parts[-1]) and parts != ["set"]):
            return True
    return False


def _own(module: str, node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return users' functions and classes that an expression names or calls, each with its module."""
    found, seen = list[tuple[str, ast.AST]](), set[Name]()
    parts = next(iter(_references(node.func if isinstance(node, ast.Call) else node)), [])
    waiting = [(module, parts[0], parts[1:])] if parts else []
    while waiting:
        place, name, more = waiting.pop()
        if (place, name) in seen or not _is_users(place):
            continue
        seen.add((place, name))
        bound, imports = _names_of(place)
        made = (getattr(one, "value", one) for one in bound.get(name, ()))
        found += [(place, one) for one in made if isinstance(one, CALLABLE)]
        waiting += [(target, name, more) for target, star in imports.get("*", ()) if star == "*"]
        for target, inner in imports.get(name, ()):
            if inner:
                waiting.append((target, inner, more))
                waiting += [(f"{target}.{inner}", more[0], more[1:])] if more else []
            elif more:
                waiting.append((target, more[0], more[1:]))
    return found


@cache
def _is_active(target: tuple[str, ast.AST], methods: tuple[str, ...] = ()) -> bool:
    """Whether a users' function, class or lambda may change another object when it is called.

    methods: of a class that count. All, if it is empty.
    """
    waiting, seen = [(target, methods)], set[Any]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        (module, node), of = one
        if not isinstance(node, ast.ClassDef):
            if _changes_others(module, node, waiting):
                return True
            continue
        inner = (part for part in node.body if isinstance(part, CALLABLE))
        waiting += [((module, part), ()) for part in inner if not of or getattr(part, "name", "") in of]
        waiting += [(part, of) for base in node.bases for part in _own(module, base)]
        waiting += [(part, ()) for key in node.keywords for part in _own(module, key.value)]
    return False


def _changes_others(module: str, node: ast.AST, calls: list[Any]) -> bool:
    """Whether a function names a global variable, or sets a part of a value that isn't new in it. Its calls are added to `calls`."""
    nodes = [*ast.walk(node)]
    local = {"self", "cls"}
    for one in nodes:
        value = getattr(one, "value", None)
        if isinstance(one, ast.Assign | ast.AnnAssign) and not isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
            local.update(() if isinstance(value, ast.Call) and _own(module, value) else _bound_names(one))
    for one in nodes:
        if isinstance(one, ast.Global):
            return True
        if isinstance(one, ast.Attribute | ast.Subscript) and not isinstance(one.ctx, ast.Load):
            root: ast.AST = one
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if not isinstance(root, ast.Name) or root.id not in local:
                return True
    inner = (one.body for one in nodes if isinstance(one, ast.Lambda))
    return _acts([*ast.iter_child_nodes(node), *inner], module, local, calls)


def _is_ours(module: str) -> bool:
    """Return whether a module is of this project, or code of users."""
    return _is_project(module) or _is_users(module)


def _is_users(module: str) -> bool:
    top = module.split(".")[0]
    return top != PROJECT and (top in project.modules() or users_place(top) is not None)


@cache
def _module(name: str) -> Module | None:
    """Return a module of the project by name; None if it does not exist or is one of NOT_FINGERPRINTED."""
    return Module(name, *parsed) if (parsed := _parsed(name)) else None


@cache
def _names_of(name: str) -> tuple[dict[str, list[ast.stmt]], dict[str, set[Name]]]:
    """Return the top-level statements of a module by the names that they bind, and its imports. Empty without a source."""
    tree, package = _parsed(name) or (ast.Module([], []), "")
    bound: dict[str, list[ast.stmt]] = {}
    for one in tree.body:
        for own in _bound_names(one):
            bound.setdefault(own, []).append(one)
    return bound, _imports(_statements(tree), package)


@cache
def _parsed(name: str) -> tuple[ast.Module, str] | None:
    """Return the syntax tree of a module of the project and its package. None as for `_module`."""
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
    try:
        tree = _tree(file.read_bytes(), file)
    except (SyntaxError, ValueError):  # such as compiled code: its digest takes the place of the source
        tree = ast.parse(str(int(sha256(file), 16)))
    return tree, package


def sha256(file: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _is_project(module: str) -> bool:
    return module.split(".")[0] == PROJECT


@cache
def _tree(text: bytes, path: Path) -> ast.Module:
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


def _unfollowed(module: str, nodes: Iterable[ast.AST], libraries: Collection[str]) -> Iterable[Name]:
    """Yield what names can't follow in users' code: any module, modules that texts name, variables of the environment.

    libraries: the dotted names of libraries in it.
    """
    bare = {leaf.id for leaf in nodes if isinstance(leaf, ast.Name)}
    names = {getattr(leaf, "attr", getattr(leaf, "name", None)) for leaf in nodes} | bare
    texts = {leaf.value for leaf in nodes if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}
    found = {one.removeprefix("os.") for one in libraries}  # os.sys is sys; a bare sys is passed on
    finds = "sys" in found or any(f"{one}.".startswith(f"{name}.") for one in found for name in UNFOLLOWED_LIBRARIES)
    dynamic = bool(bare & UNFOLLOWED or names & UNFOLLOWED_PARTS or finds)
    if dynamic:
        yield module, DYNAMIC
    for words in (
        re.split("[.:]", text) for text in texts if PART.fullmatch(text) and (dynamic or not text.isidentifier())
    ):
        inner = (".".join(words[:count]) for count in range(len(words), 0, -1))
        if _is_users(words[0]) and (named := next(filter(_module, inner), None)):
            yield named, WHOLE
    readers, here = names | {one.split(".")[-1] for one in libraries}, _module(module)
    if readers & ENVIRONMENT_READERS and here:  # the variable's name may stand elsewhere in the module
        leaves = (leaf for one in here.definitions.values() for leaf in ast.walk(one) if isinstance(leaf, ast.Constant))
        texts |= {leaf.value for leaf in leaves if isinstance(leaf.value, str) and leaf.value.isidentifier()}
        yield from ((VARIABLES, text) for text in texts)


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
            yield (path[0], "") if _is_project(module) else (".".join(path), LIBRARY)


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
        libraries = [of for of, name in named if name == LIBRARY]
        hidden = {*_unfollowed(module, nodes, libraries), *_import_times(inner)}
    return digest, frozenset({*named, *hidden, *_run_modules(nodes), *_run_at_import(module)})


@cache
def _run_at_import(module: str) -> frozenset[Name]:
    """Return the code that runs at a module's import: the statements of its packages, its own, and its imports'.

    Of a user's module also the files and variables that its import read.
    """
    parts = module.split(".")
    packages = ((".".join(parts[:count]), "") for count in range(1, len(parts) + 1))
    found = _module(module)
    spec = importlib.util.find_spec(module) if found and _is_users(module) else None
    file = os.path.abspath(spec.origin) if spec and spec.origin else ""
    read = {(kind, one) for kind, of in ((FILES, project.READ), (VARIABLES, project.ASKED)) for one in of.get(file, ())}
    return _import_times([*packages, *(found.imported if found else ())]) | read


def _import_times(imported: Iterable[Name]) -> frozenset[Name]:
    """Return what runs when modules, or modules that are imported from packages, are imported."""
    names = (name for target, attribute in imported for name in (target, f"{target}.{attribute}" if attribute else ""))
    return frozenset((name, IMPORT_TIME) for name in names if name and _module(name) is not None)


def closure(*values: Callable[..., Any] | Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return digests of all definitions within reach of the values, by qualified name, and versions of their libraries."""
    project.watch_users()
    roots = frozenset(root for value in values for root in _roots(value))
    source, libraries = _closure(roots | {(ENVIRONMENT, IMPORT_TIME)} if roots else roots)
    return dict(source), dict(libraries)


@cache
def _closure(roots: frozenset[Name]) -> tuple[dict[str, str], dict[str, str]]:
    queue = list(roots)
    seen: set[Name] = set()
    source: dict[str, str] = {}
    libraries, imported, files, dynamic = {"python": PYTHON}, dict[str, str](), set[str](), False
    while queue or dynamic:
        if not queue:
            tops = {*project.modules(), *project.in_added_folders(), *(of.split(".")[0] for of, _ in seen)}
            below = (one for top in tops if _is_users(top) for one in _modules_below(top))
            queue = [(one, WHOLE) for one in below if (one, WHOLE) not in seen]
            if not queue:
                break
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        module, attribute = name
        if module == VARIABLES:
            with suppress(KeyError, UnicodeEncodeError):  # any text may be a name, also one that none can have
                source[f"{module}:{attribute}"] = hashlib.sha256(os.environ[attribute].encode()).hexdigest()[:16]
        elif module == FILES:
            files.add(attribute)
        elif attribute in ("", LIBRARY):
            (imported if attribute else libraries).update(_version(module.split(".")[0], bool(attribute)))
        elif attribute == DYNAMIC:
            dynamic = True
        elif (definition := _definition(name)) is not None:
            if definition[0]:
                source[f"{module}:{attribute}"] = definition[0]
            queue += definition[1]
    for path in files:
        if os.path.isfile(path) and (dynamic or not path.endswith(CODE)):
            # a name may stand in several folders, and folders are no part of a key
            file, digest = f"{FILES}:{Path(path).name}", project.content_of(Path(path))[:16]
            source[file] = " ".join(sorted({*source.get(file, "").split(), digest}))
    return dict(sorted(source.items())), dict(sorted((libraries | imported).items()))


def _modules_below(top: str) -> list[str]:
    """Return the names of a user's module and of all modules below it, without tests. No step reaches tests."""
    place = project.modules().get(top) or users_place(top)
    if place is None or top.startswith("test_") or top == "conftest":
        return []
    files = sorted(place.rglob("*.py")) if place.is_dir() else []
    below = (file.relative_to(place).with_suffix("").parts for file in files)
    return list(dict.fromkeys([top, *(".".join((top, *parts)).removesuffix(".__init__") for parts in below)]))


def forget() -> None:
    """Forget the parsed files of the project. For processes that see the files change."""
    of_files = (_parsed, _names_of, _is_active, _module, _definition, _run_at_import, _closure, _version)
    for known in (*of_files, project._place, project.distribution):
        known.cache_clear()


@cache
def _version(package: str, by_users: bool = False) -> dict[str, str]:
    """Return {distribution: version} of an imported package; an empty dictionary for the standard library.

    by_users: users' code imports it. This package may not require it, so two builds may have one version. The digest of its
    RECORD then counts, too.
    """
    if package in sys.stdlib_module_names or (found := project.distribution(package)) is None:
        return {}
    name = found.metadata["Name"]
    known = not by_users or name.lower().replace("-", "_") in project.required()
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
