"""Parts that users add, named in overrides: `model.encoder=NAME`, `recipe.metrics=NAME,NAME`, `recipe.parsed=NAME`."""

import dataclasses
from functools import partial
from typing import Any

from phrasemodels import project
from phrasemodels.data.store.step import Step
from phrasemodels.encoders import EncoderConfig
from phrasemodels.tasks.parsers.parse import ParserBackend, PlantTrees, everywhere, plant


def added(old: Any, field: str, text: str) -> Any:
    """Return the part that takes the place of an old value; None: the text names none.

    An encoder gets the fields of the old one that it has, too; metrics are a tuple; a parser plants its trees everywhere.
    """
    if isinstance(old, EncoderConfig) and text in project.parts("encoders"):
        kind = project.part("encoders", text)
        shared = {f.name for f in dataclasses.fields(kind)} & {f.name for f in dataclasses.fields(old)}
        return kind(**{name: getattr(old, name) for name in shared})
    if field == "metrics" and text and set(names := text.split(",")) <= project.parts("metrics").keys():
        return tuple(project.part("metrics", name) for name in names)
    if field == "parsed" and text in project.parts("parsers"):
        return partial(planted, project.part("parsers", text)())
    return None


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
