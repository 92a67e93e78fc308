"""The configuration of a saved model: its numbers, in the classes and functions of the experiment."""

import dataclasses
from typing import Any

from phrasemodels.data.store.step import jsonable
from phrasemodels.flows.results.earlier_names import PRESENT_NAME


def restored(template: Any, saved: Any, where: str) -> Any:
    """Return a saved configuration: the template with the saved numbers. Its classes and functions must be the saved ones.

    So no code that a file names is ever imported. A field that came later has its default. ValueError: the experiment now
    has another class or function.
    """
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        kind = jsonable(template)["type"]
        if _present_name(saved.get("type")) != kind:
            raise ValueError(f"{where}: the model was made as {saved.get('type')}, which is {kind} now")
        values = {
            f.name: f.default  # of before there was such a field, which its default keeps as it was
            if f.name not in saved and f.default is not dataclasses.MISSING
            else restored(getattr(template, f.name), saved[f.name], f"{where}.{f.name}")
            for f in dataclasses.fields(template)
            if f.compare
        }
        return dataclasses.replace(template, **values)
    if isinstance(template, tuple) and any(map(dataclasses.is_dataclass, template)):
        if len(template) != len(saved):
            raise ValueError(f"{where}: the model was made with {len(saved)} parts, there are {len(template)} now")
        return tuple(restored(part, one, where) for part, one in zip(template, saved, strict=True))
    if callable(template):
        if _present_name(saved) != jsonable(template):
            raise ValueError(f"{where}: the model was made with {saved}, which is {jsonable(template)} now")
        return template
    if template == saved:
        return template
    if isinstance(template, int | float | str) and not isinstance(saved, type(template) | int):
        raise ValueError(f"{where}: {saved!r} was saved where {template!r} is expected; export the model again")
    return tuple(saved) if isinstance(template, tuple) else saved


def _present_name(name: Any) -> Any:
    return PRESENT_NAME.get(name, name) if isinstance(name, str) else name
