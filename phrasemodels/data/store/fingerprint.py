"""The fingerprint of a step's source code: if code that the step can reach changes, the step's key changes.

Definitions are hashed by their syntax trees, so comments, docstrings and layout do not count. From a function the
search follows every name to its definition, through imports, inside of this project, and adds the statements that
the modules on its way, the packages that they are in and ENVIRONMENT run when they are imported. Of Python and of
libraries only the version counts. The store's modules in STORE do not count: they decide how artifacts are kept, not what is
in them; store.FORMAT is their version.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

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

Name = tuple[str, str]  # module, top-level name


class Module:
    """The top-level names of one file: its definitions, with all bindings of a name, and its imports.

    `imports` has those inside of functions too; `imported` only those that run when the file itself is imported.
    """

    def __init__(self, name: str, tree: ast.Module, package: str) -> None:
        self.definitions: dict[str, ast.AST] = {}
        self.imports = _imports(_statements(tree), package)
        self.imported = frozenset().union(*_imports(_run_with_the_module(tree), package).values())
        for hidden, _ in self.imports.get("*", ()):
            if _is_ours(hidden):
                raise ValueError(f"{name}: `from {hidden} import *` hides what a step reaches; name what you import")
        bindings: dict[str, list[ast.stmt]] = {}
        for statement in tree.body:
            for bound in _bound_names(statement):
                bindings.setdefault(bound, []).append(statement)
        for bound, (first, *others) in bindings.items():
            self.definitions[bound] = ast.Module([first, *others], []) if others else first
        if run := [statement for statement in tree.body if _runs_code(statement)]:
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
                # `import a.b` binds a, `import a.b as c` binds a.b to c
                top = alias.asname or alias.name.split(".")[0]
                bound.setdefault(top, set()).add((alias.name if alias.asname else top, ""))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                bound.setdefault(alias.asname or alias.name, set()).add((module, alias.name))
    return bound


def _statements(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the statements inside of a node, at any depth; expressions are not searched, as they hold none."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def _run_with_the_module(node: ast.AST) -> Iterable[ast.AST]:
    """Yield the statements of a file that run when it is imported: all but bodies of functions and of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).removeprefix("typing.") == "TYPE_CHECKING":
            yield from _run_with_the_module(ast.Module(child.orelse, []))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield child
            yield from _run_with_the_module(child)


def _bound_names(node: ast.stmt) -> list[str]:
    """The names that a definition or an assignment binds; `module.name = 3` and `table["key"] = 3` bind none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [
        leaf.id
        for target in targets
        for leaf in ast.walk(target)
        if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)
    ]


def _runs_code(node: ast.stmt) -> bool:
    """Whether a top-level statement does more than bind names: a call, or a decorator that registers a definition."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        # such as @registry.register(key): it changes another object. @dataclass(frozen=True) has keywords alone and
        # does not
        return any(isinstance(decorator, ast.Call) and decorator.args for decorator in node.decorator_list)
    return not isinstance(node, ast.Import | ast.ImportFrom) and not _bound_names(node) and not _bare_string(node)


def _is_ours(module: str) -> bool:
    """Return whether a module is of this project, or one that users add."""
    top = module.split(".")[0]
    return top == PROJECT or top in added_modules()


@cache
def _module(name: str) -> Module | None:
    """Return a module of the project by name; None if it does not exist or is one of NOT_FINGERPRINTED."""
    if not _is_ours(name) or name in NOT_FINGERPRINTED:
        return None
    try:
        # find_spec imports parent packages, but not the module itself
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    package = name if spec.submodule_search_locations else name.rpartition(".")[0]
    return Module(name, _parsed(Path(spec.origin)), package)


def _parsed(path: Path) -> ast.Module:
    return _tree(path.read_text(encoding="utf-8"), path)


@cache
def _tree(text: str, path: Path) -> ast.Module:
    """Parse a file. In Python 3.11 threads that parse at once may raise SystemError (gh-106905), so it is tried again."""
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


def _references(nodes: Iterable[ast.AST]) -> Iterable[list[str]]:
    """Yield every dotted name among the nodes of a definition, as the list of its parts."""
    for leaf in nodes:
        if isinstance(leaf, ast.Name):
            yield [leaf.id]
        elif isinstance(leaf, ast.Attribute):
            parts = [leaf.attr]
            value: ast.expr = leaf.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name):
                yield [value.id, *reversed(parts)]
        elif isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and leaf.value.isidentifier():
            yield [leaf.value]  # a quoted annotation


def _run_modules(nodes: Iterable[ast.AST]) -> Iterable[Name]:
    """Yield the modules of the project that a string among nodes names, as in `python -m NAME`."""
    strings = (leaf.value for leaf in nodes if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str))
    for name in strings:
        if "." in name and name.replace(".", "_").isidentifier() and _module(name) is not None:
            yield name, IMPORT_TIME


def _resolve(module: str, parts: list[str], seen: frozenset[Name] = frozenset()) -> Iterable[Name]:
    """Yield what a dotted name in a module may refer to: (module, name) in the project, or (library, "").

    seen: the imports that led here; modules may import a name from each other that neither defines.
    """
    here = _module(module)
    head, *rest = parts
    if here is None or (module, head) in seen:
        return
    if head in here.definitions:
        yield module, head
        return
    for target, attribute in here.imports.get(head, ()):
        path = [*target.split("."), *([attribute] if attribute else []), *rest]
        if _is_ours(path[0]):
            yield from _in_project(path, seen | {(module, head)})
        else:
            yield path[0], ""


def _in_project(path: list[str], seen: frozenset[Name]) -> Iterable[Name]:
    """Yield what a dotted path of the project refers to. What a module binds in an `if` or `try` counts with its statements."""
    for cut in range(len(path), 0, -1):
        inner = ".".join(path[:cut])
        if (found := _module(inner)) is not None:
            if cut == len(path):
                return
            if path[cut] in found.definitions or path[cut] in found.imports:
                yield from _resolve(inner, path[cut:], seen)
            else:
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
    """Return the digest of a definition and the names that it refers to; None if it does not exist.

    The digest is empty for the statements that a module runs if it runs none; its imports run.
    """
    module, attribute = name
    found = _module(module)
    if found is not None and attribute == IMPORT_TIME and attribute not in found.definitions:
        return "", _run_at_import(module)
    if found is None or attribute not in found.definitions:
        return None
    node = found.definitions[attribute]
    digest = hashlib.sha256(_without_docstrings(node).encode()).hexdigest()[:16]
    nodes = [*ast.walk(node)]
    named = {target for parts in _references(nodes) for target in _resolve(module, parts)}
    return digest, frozenset({*named, *_run_modules(nodes), *_run_at_import(module)})


@cache
def _run_at_import(module: str) -> frozenset[Name]:
    """Return what runs when a module is imported: the statements of its packages, its own, and its imports'."""
    parts = module.split(".")
    packages = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    found = _module(module)
    imported = (name for target, attribute in (found.imported if found else ())
                for name in (target, f"{target}.{attribute}"))  # fmt: skip
    return frozenset((name, IMPORT_TIME) for name in (*packages, *imported) if _module(name) is not None)


def closure(*values: Callable[..., Any] | Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return digests of all definitions that the values can reach, by qualified name, and versions of their libraries."""
    roots = frozenset(root for value in values for root in _roots(value))
    source, libraries = _closure(roots | {(ENVIRONMENT, IMPORT_TIME)} if roots else roots)
    return dict(source), dict(libraries)


@cache
def _closure(roots: frozenset[Name]) -> tuple[dict[str, str], dict[str, str]]:
    queue = list(roots)
    seen: set[Name] = set()
    source: dict[str, str] = {}
    libraries = {"python": PYTHON}
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        module, attribute = name
        if not attribute:
            libraries |= _version(module)
        elif (definition := _definition(name)) is not None:
            if definition[0]:
                source[f"{module}:{attribute}"] = definition[0]
            queue += definition[1]
    return dict(sorted(source.items())), dict(sorted(libraries.items()))


def forget() -> None:
    """Forget the parsed files of the project; for a process in which they change."""
    for known in (_module, _definition, _run_at_import, _closure):
        known.cache_clear()


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@cache
def _version(package: str) -> dict[str, str]:
    """Return {distribution: version} of an imported package; an empty dictionary for the standard library."""
    if package in sys.stdlib_module_names:
        return {}
    try:  # most packages have their distribution's name; to read all distributions takes half a second
        found = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = _distributions().get(package, [])
        return {name: importlib.metadata.version(name).split("+")[0] for name in names[:1]}
    return {found.metadata["Name"]: found.version.split("+")[0]}
