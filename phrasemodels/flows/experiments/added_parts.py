"""Parts that users add, named in overrides: `model.encoder=NAME`, `recipe.metrics=NAME,NAME`, `recipe.parsed=NAME`."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from phrasemodels import project
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.store.step import Step
from phrasemodels.encoders import EncoderConfig
from phrasemodels.tasks.parsers.parse import ParserBackend, PlantTrees, everywhere, plant

GROUPS = {
    "metrics": "metrics",
    "parsed": "parsers",
}  # by the name of a field; encoders go by the class of the old value


def added(old: Any, path: str, text: str) -> Any:
    """Return the part that takes the place of an old value; None: the field at this path takes none. ValueError: there is no
    such part, or it lacks a value.

    An encoder gets the fields of the old one that it has, too; metrics are a tuple; a parser plants its trees everywhere.
    """
    group = "encoders" if isinstance(old, EncoderConfig) else GROUPS.get(path.rpartition(".")[2], "")
    names = text.split(",") if group == "metrics" else [text]
    if not group or not text:
        return None
    for name in names:
        if name not in (known := project.parts(group)):
            raise ValueError(f"{path}={text}: no {name!r} among the {group} that users add: {_of(name, known)}")
    if group == "metrics":
        return tuple(project.part(group, name) for name in names)
    kind = project.part(group, text)
    if group == "parsers":
        return partial(planted, _parser(kind, f"{path}={text}"))
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and issubclass(kind, EncoderConfig)):
        raise ValueError(f"{path}={text}: {kind!r} is no dataclass that is an EncoderConfig")
    if kind.build is EncoderConfig.build:
        raise ValueError(f"{path}={text}: {kind.__name__} has no `build`, which makes the layer")
    shared = {f.name for f in dataclasses.fields(kind)} & {f.name for f in dataclasses.fields(old)}
    try:
        return kind(**{name: getattr(old, name) for name in shared})
    except TypeError as error:  # of a field that the old encoder lacks
        raise ValueError(f"{path}={text}: {error}; give such a field a default") from error


def _parser(kind: Any, where: str) -> ParserBackend:
    """Return a parser of a class that users add. ValueError: it cannot be made, or is no part that keys can name."""
    try:
        made: ParserBackend = kind()
    except TypeError as error:
        raise ValueError(f"{where}: {error}; give its fields defaults") from error
    if not dataclasses.is_dataclass(made) or not callable(getattr(made, "analyse", None)):
        raise ValueError(f"{where}: {kind!r} is no frozen dataclass with `analyse`")
    return made


def _of(name: str, known: Mapping[str, str]) -> str:
    """Return the nearest of the known names in words."""
    return closest(name, known) if known else f"there are none; {project.FILE} or a package names them"


def planted(parser: ParserBackend, rows: Step) -> Step:
    """Return the step that gives the rows the trees of a parser."""
    return Step(
        plant,
        f"plant trees of {type(parser).__name__} into {rows.label}",
        PlantTrees(parser, everywhere),
        {"rows": rows},
    )


def name_of(value: Any) -> str:
    """Return the name that a part has in an override; empty if it is none that users add."""
    made = value.args[0] if isinstance(value, partial) and value.func is planted else value
    for group in ("encoders", "metrics", "parsers"):
        for name in project.parts(group):
            if project.part(group, name) in (made, type(made)):
                return name
    return ""
