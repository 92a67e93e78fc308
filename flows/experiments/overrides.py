"""Overrides: `train.steps=200` as a copy of an experiment with one field replaced."""

import dataclasses
import typing
from dataclasses import replace
from typing import Any, get_args, get_origin

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.tasks.prepare.corpora import SampleCorpus

PARTS = ("recipe", "model", "train")  # of an experiment can be overridden; the other fields say which row it is
CORPUS = "recipe.corpus."
MACHINE = ("train.workers=", "train.threads=", "train.gpus=", "train.checkpoint_every=")  # change no score


def overridden(experiment: Experiment, assignment: str) -> Experiment:
    """Return the experiment with one field replaced, marked as changed unless only its placement was.

    With another corpus it answers no printed number. ValueError: the field is unknown, or its value has the wrong type or
    is refused by the configuration.
    """
    made = _override(experiment, assignment)
    if made == experiment or assignment.startswith(MACHINE):
        return made
    made = replace(made, changed=(*made.changed, assignment))
    if not assignment.startswith(CORPUS) or isinstance(made.recipe.corpus, SampleCorpus):
        return made
    return replace(made, answers=tuple(replace(answer, cell=None) for answer in made.answers))


def _override(experiment: Experiment, assignment: str) -> Experiment:
    path, separator, text = assignment.partition("=")
    if not separator:
        raise ValueError(f"{assignment!r}: an override is written field.field=value, like train.steps=200")
    if path.split(".")[0] not in PARTS:
        raise ValueError(f"{path!r}: only fields of {', '.join(PARTS)} can be overridden, like train.steps=200")
    return _replaced(experiment, path.split("."), text, path)


def _replaced(value: Any, path: list[str], text: str, whole: str) -> Any:
    name, *rest = path
    known = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    if name not in known:
        raise ValueError(f"{whole!r}: no field {name!r}; {closest(name, known) if known else 'it has no fields'}")
    new = _replaced(getattr(value, name), rest, text, whole) if rest else _parsed(text, type(value), name, whole)
    try:
        return dataclasses.replace(value, **{name: new})
    except ValueError as error:  # a configuration checks itself, and names its own field
        if rest:
            raise
        raise ValueError(f"{whole.removesuffix(name)}{error}") from None


def _parsed(text: str, owner: type, name: str, whole: str) -> Any:
    """Return the text as a value of the field's type: a number, a word, or a tuple of them."""
    kind = typing.get_type_hints(owner)[name]
    try:
        if get_origin(kind) is not tuple:
            return _plain(text, kind)
        first, *others = get_args(kind)
        parts = tuple(_plain(part, first) for part in text.split(",") if part)
        if others == [...] or len(parts) == 1 + len(others):
            return parts
    except (ValueError, KeyError):
        pass
    raise ValueError(
        f"{whole}={text}: the field is {getattr(kind, '__name__', kind)}; only numbers and words can be set"
    )


def _plain(text: str, kind: Any) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if kind in (int, float, str):
        return kind(text)
    raise ValueError(f"{kind} is not written as text")
