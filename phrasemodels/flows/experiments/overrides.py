"""Overrides: `train.steps=200` as a copy of an experiment with one field replaced.

Users' parts are named like values: `model.encoder=NAME`, `recipe.metrics=NAME,NAME`, `recipe.parsed=NAME`. The parser
of this package is `recipe.parsed=english`.
"""

import ast
import dataclasses
import functools
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from torch import Tensor

from phrasemodels import project
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.store import Step
from phrasemodels.encoders import EncoderConfig
from phrasemodels.flows.experiments.comparability import PRECISION, leaves_precision_open
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.saved import TORCH
from phrasemodels.tasks.metrics.scores import check_metrics
from phrasemodels.tasks.prepare.corpora import SampleCorpus

if TYPE_CHECKING:
    from phrasemodels.tasks.parsers.parse import ParserBackend

SHIPPED = "english"  # the parser of this package
# by the name of a field; encoders go by the class of the old value
GROUPS = {"metrics": "metrics", "parsed": "parsers"}


def added(old: Any, path: str, text: str) -> Any:
    """Return the part that replaces an old value. None: the field at this path takes no part.

    An encoder inherits the fields it shares with the old one. Metrics are a tuple. A parser gives all rows its trees.
    ValueError: the part is unknown or lacks a value.
    """
    group = "encoders" if isinstance(old, EncoderConfig) else GROUPS.get(path.rpartition(".")[2], "")
    names = text.split(",") if group == "metrics" else [text]
    if not group or not text:
        return None
    if group == "parsers" and text == SHIPPED:
        from phrasemodels.tasks.parsers.shipped import by_shipped_parser

        return by_shipped_parser
    for name in names:
        if name not in (known := project.parts(group)):
            near = closest(name, known) if known else f"there are none; {project.FILE} or a package names them"
            raise ValueError(f"{path}={text}: no {name!r} among the {group} that users add: {near}")
    if group == "metrics":
        return tuple(project.part(group, name) for name in names)
    kind = project.part(group, text)
    if group == "parsers":
        return partial(with_trees_of, _parser(kind, f"{path}={text}"))
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and issubclass(kind, EncoderConfig)):
        raise ValueError(f"{path}={text}: {kind!r} is no dataclass that is an EncoderConfig")
    if kind.build is EncoderConfig.build:
        raise ValueError(f"{path}={text}: {kind.__name__} has no `build`, which makes the layer")
    shared = {f.name for f in dataclasses.fields(kind)} & {f.name for f in dataclasses.fields(old)}
    try:
        return kind(**{name: getattr(old, name) for name in shared})
    except TypeError as error:  # of a field that the old encoder lacks
        raise ValueError(f"{path}={text}: {error}; give such a field a default") from error


def _parser(kind: Any, where: str) -> "ParserBackend":
    """Return a parser of a user's class. ValueError: it cannot be made, or keys cannot name it."""
    try:
        made: ParserBackend = kind()
    except TypeError as error:
        raise ValueError(f"{where}: {error}; give its fields defaults") from error
    if not dataclasses.is_dataclass(made) or not callable(getattr(made, "analyse", None)):
        raise ValueError(f"{where}: {kind!r} is no frozen dataclass with `analyse`")
    return made


def with_trees_of(parser: "ParserBackend", rows: Step) -> Step:
    """Return the step that adds the trees of a parser to the rows."""
    from phrasemodels.tasks.parsers.parse import AddTrees, add_trees

    return Step(add_trees, f"add trees of {type(parser).__name__} to {rows.label}", AddTrees(parser), {"rows": rows})


def name_of(value: Any) -> str:
    """Return the name of a part in an override. It is empty if it is no user's part."""
    if getattr(value, "__name__", "") == "by_shipped_parser":
        return SHIPPED
    made = value.args[0] if isinstance(value, partial) and value.func is with_trees_of else value
    for group in ("encoders", "metrics", "parsers"):
        for name in project.parts(group):
            if project.part(group, name) in (made, type(made)):
                return name
    return ""


PARTS = ("recipe", "model", "train")  # of an experiment can be overridden; the other fields say which row it is
CORPUS = "recipe.corpus."
# change no score on purpose: sums of other machines differ in their last bits, and a GPU draws other random numbers for dropout
MACHINE = tuple(
    f"train.{name}"
    for name in ("workers", "threads", "gpus", "graphs", "checkpoint_every", "micro_batch_tokens", "accumulation_steps")
)


def overridden(experiment: Experiment, *assignments: str) -> Experiment:
    """Return the experiment with fields replaced.

    Replacements that change scores become part of its name. A precision that the paper leaves open does not.
    Assignments of one configuration are applied together. So the configuration checks their combination. Of one field
    the last assignment counts. Added metrics are shown, too. With another corpus an experiment answers no printed
    number. ValueError: a field is unknown. Or a value has the wrong type or is refused.
    """
    texts = dict(map(_assigned, assignments))
    tree: dict[str, Any] = {}
    for path, text in texts.items():
        *parents, name = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                raise ValueError(f"{path!r} is overridden both as a whole and in part")
        branch[name] = text
    made = _with_answers(_replaced(experiment, tree, ""), experiment)
    changes = dict(_assigned(assignment) for assignment in experiment.changed)
    free = (*MACHINE, PRECISION) if leaves_precision_open(experiment) else MACHINE
    changes |= {
        p: as_text(_value(made, p)) for p in texts if p not in free and _value(made, p) != _value(experiment, p)
    }
    made = replace(made, changed=tuple(f"{path}={text}" for path, text in sorted(changes.items())))
    if not any(path.startswith(CORPUS) for path in changes) or isinstance(made.recipe.corpus, SampleCorpus):
        return made
    return replace(made, answers=tuple(replace(answer, cell=None) for answer in made.answers))


def with_precision_of(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment with the precision of a training of it with these settings, if the paper leaves it open."""
    precision = settings.get("config", {}).get("precision")
    if not precision or not leaves_precision_open(experiment):
        return experiment
    return overridden(experiment, f"{PRECISION}={precision}")


def _with_answers(made: Experiment, experiment: Experiment) -> Experiment:
    """Return an overridden experiment with answers for its own metrics alone, also for those new to it."""
    before, after = (getattr(one.recipe, "metrics", ()) for one in (experiment, made))
    if before == after:
        return made
    check_metrics(before)
    check_metrics(after)
    gone = {metric.__name__ for metric in before} - {metric.__name__ for metric in after}
    new = tuple(Answer(metric.__name__) for metric in after if metric not in before)
    return replace(made, answers=(*(answer for answer in made.answers if answer.metric not in gone), *new))


def _assigned(assignment: str) -> tuple[str, str]:
    """Return path and text of an assignment. ValueError: it is none, or no field of PARTS."""
    path, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"{assignment!r}: an override is written field.field=value, like train.steps=200")
    if path.split(".")[0] not in PARTS:
        raise ValueError(f"{path!r}: only fields of {', '.join(PARTS)} can be overridden, like train.steps=200")
    return path, text


def _value(experiment: Experiment, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), experiment)


def as_text(value: Any) -> str:
    """Return a value as an override writes it, so that equal settings have equal names: 2e-3 is 0.002."""
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, bool | int | float | str | None):
        return str(value).lower() if isinstance(value, bool | None) else str(value)
    return name_of(value) or getattr(value, "__name__", str(value))


def _replaced(value: Any, tree: dict[str, Any], prefix: str) -> Any:
    """Return a dataclass with fields of a tree of texts replaced. prefix: its place (`model.encoder.`)."""
    known = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if isinstance(value, SampleCorpus) and "name" in tree:
        raise ValueError(f"{prefix}name: this profile generates its corpus; take profile laptop, which reads one")
    new = {}
    for name, branch in tree.items():
        whole = f"{prefix}{name}"
        if name not in known:
            raise ValueError(f"{whole!r}: no field {name!r}; {closest(name, known) if known else 'it has no fields'}")
        if isinstance(branch, dict):
            new[name] = _replaced(getattr(value, name), branch, f"{whole}.")
        else:
            part = added(getattr(value, name), whole, branch)
            new[name] = _parsed(branch, value, name, whole) if part is None else part
    try:
        return dataclasses.replace(value, **new)
    except ValueError as error:  # a configuration checks itself, and names its own field
        raise ValueError(f"{prefix}{error}" if str(error).split("=")[0] in known else str(error)) from None


def _parsed(text: str, owner: Any, name: str, whole: str) -> Any:
    """Return the text as a value of a field's type.

    It is a number or word or a tuple of these. It may be the name of a function or class or `none` for None.
    """
    kind = typing.get_type_hints(type(owner))[name]
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if NoneType in kinds and text.lower() == "none":
        return None
    (kind,) = {one for one in kinds if one is not NoneType} if len(kinds) == 1 or NoneType in kinds else {kind}
    if get_origin(kind) in (Callable, type):
        known = choices(kind, owner, name)
        if text not in known:
            raise ValueError(f"{whole}={text}: no {name} of this name; {closest(text, known)}")
        return known[text]
    try:
        if get_origin(kind) is not tuple:
            return _plain(text, kind)
        first, *others = get_args(kind)
        parts = tuple(_plain(part, first) for part in text.split(",") if part)
        if others == [...] or len(parts) == 1 + len(others):
            return parts
    except (ValueError, KeyError):
        pass
    settable = get_origin(kind) is tuple or kind in (bool, int, float, str)
    wanted = (
        f"must be {_words(kind)}" if settable else "cannot be set as text; only numbers, words and parts by name can"
    )
    raise ValueError(f"{whole}={text}: {wanted}")


def choices(kind: Any, owner: Any, name: str) -> dict[str, Any]:
    """Return the functions and classes possible in a field of a configuration, by name.

    They come from the modules of the configuration, of its value and of its default. They also come from the modules it
    imports from and from the functions of torch in configurations. A class fits if it is a subclass of Base or Result.
    A function fits if it has the types of the field. Where the field names none its value gives the types.

    Args:
        kind: The type of the field, `type[Base]` or `Callable[[...], Result]`.
    """
    default: Any = next(field.default for field in dataclasses.fields(owner) if field.name == name)
    known = [part for part in (getattr(owner, name), default) if hasattr(part, "__name__")]
    here = sys.modules[type(owner).__module__]
    near = [part for part in (*vars(here).values(), *known) if _is_part(part)]
    parts = [
        part for module in {here, *(sys.modules[part.__module__] for part in near)} for part in vars(module).values()
    ]
    arguments, result = _signature(kind) if get_origin(kind) is Callable else (None, get_args(kind)[0])
    if arguments is None and known and inspect.isfunction(known[0]):
        arguments, result = _signature(known[0])
    found = {part.__name__: part for part in parts if _is_part(part) and _fits(part, arguments, result)}
    if (arguments, result) == ((Tensor,), Tensor):
        found |= {part.__name__: part for part in TORCH.values()}
    return found | {part.__name__: part for part in known}


def _is_part(value: Any) -> bool:
    """Return whether a value is a public function or class of this project or of users' modules."""
    if not (inspect.isfunction(value) or inspect.isclass(value)) or value.__name__.startswith("_"):
        return False
    top = value.__module__.partition(".")[0]
    return (top == "phrasemodels" or top in project.modules()) and value.__module__ in sys.modules


def _signature(part: Any) -> tuple[tuple[Any, ...] | None, Any]:
    """Return the types of the arguments without a default (None: any) and of the result, of a function, a class or a
    `Callable`."""
    if get_origin(part) is Callable:
        arguments, result = get_args(part)
        return (None if arguments is ... else tuple(arguments)), NoneType if result is None else result
    hints = typing.get_type_hints(part.__init__ if inspect.isclass(part) else part)
    needed = (
        parameter.name
        for parameter in inspect.signature(part).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )
    return tuple(hints.get(name, Any) for name in needed), part if inspect.isclass(part) else hints.get("return")


def _fits(part: Any, arguments: tuple[Any, ...] | None, result: Any) -> bool:
    """Return whether a function or class takes arguments of these types and gives a result of this type."""
    try:
        takes, gives = _signature(part)
        right = gives == result or (inspect.isclass(gives) and issubclass(gives, result))
    except (NameError, TypeError, ValueError):  # an annotation that is not there at run time, or no class
        return False
    if arguments is None or takes is None:
        return right and inspect.isclass(part) and part is not result
    return (
        right
        and len(takes) == len(arguments)
        and all(a == b or Any in (a, b) for a, b in zip(takes, arguments, strict=True))
    )


def _words(kind: Any) -> str:
    """Return the name of a type for --set: `int` or (of a pair) `float,float`."""
    parts = ["..." if part is ... else part.__name__ for part in get_args(kind)]
    return ",".join(parts) if parts else str(kind.__name__)


def _plain(text: str, kind: Any) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    raise ValueError(f"{kind} is not written as text")


def settings(experiment: Experiment) -> Iterator[dict[str, str]]:
    """Yield each field of an experiment for `--set`: its name, value, possible values and meaning."""
    for part in PARTS:
        if (owner := getattr(experiment, part)) is not None:  # a row that counts has no model and no training
            yield from _settings(owner, f"{part}.")


def _settings(owner: Any, prefix: str) -> Iterator[dict[str, str]]:
    said = meanings(type(owner))
    for field in dataclasses.fields(owner):
        value, whole = getattr(owner, field.name), prefix + field.name
        group = "encoders" if isinstance(value, EncoderConfig) else GROUPS.get(field.name, "")
        nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
        takes = f"one of your {group}, by name" if group else "" if nested else _takes(owner, field.name, whole)
        if takes and not (isinstance(owner, SampleCorpus) and field.name == "name"):
            shown = type(value).__name__ if nested else as_text(value)
            yield {"setting": whole, "value": shown, "takes": takes, "meaning": said.get(field.name, "")}
        if nested:
            yield from _settings(value, f"{whole}.")


def _takes(owner: Any, name: str, whole: str) -> str:
    """Return the type of a field or the names of its parts. It is empty if it can't be set as text."""
    kind = typing.get_type_hints(type(owner))[name]
    first = get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind
    if get_origin(first) in (Callable, type):
        return " · ".join(sorted(choices(first, owner, name)))
    try:
        _parsed(as_text(getattr(owner, name)), owner, name, whole)
    except ValueError:
        return ""
    return _words(first)


def meanings(kind: type) -> dict[str, str]:
    """Return the meanings of a dataclass's fields from its docstring or those below the fields.

    Inherited fields have meanings, too.
    """
    names = "|".join(field.name for field in dataclasses.fields(kind))
    label = re.compile(rf"(?:^|(?<=[.;] )|(?<=Args: ))((?:{names})(?:, (?:{names}))*): ")
    found: dict[str, str] = {}
    for owner in kind.__mro__[:-1]:
        for paragraph in inspect.cleandoc(owner.__doc__ or "").split("\n\n"):
            parts = label.split(" ".join(paragraph.split()))[1:]
            for own, meaning in zip(parts[::2], parts[1::2], strict=True):
                for name in own.split(", "):
                    found.setdefault(name, meaning.rstrip(".; ") + ".")
        for field, after in pairwise(body_of(owner) if len(found) < len(dataclasses.fields(kind)) else []):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found.setdefault(ast.unparse(field.target), " ".join(str(after.value.value).split()))
    return found


@functools.cache
def body_of(kind: type) -> list[ast.stmt]:
    """Return the statements of a class."""
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    return parsed.body if isinstance(parsed, ast.ClassDef) else []
