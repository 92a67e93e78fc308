"""Configurations: frozen dataclasses, with functions and classes by name, as JSON and back; checks of their fields.

`to_json` writes a configuration: settings of steps and their keys, exported models, packed parsers. `from_json` reads one and
never trusts it. A class or function must be on a list of the caller, and every value must have the type of its field.
Configurations check the ranges of their values themselves, in `__post_init__`, by the functions below. Each raises a
ValueError beginning with `field=value:`, so a caller can put the path of the field before it. A field with a tuple must not
be empty, and each of its numbers is checked.

The source of this module is part of no key. It decides how a configuration is written and which values are refused, not the
output of a step. If you change the output of `to_json`, raise FORMAT of the store.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

File = Annotated[str, "the path of a file, or an empty text"]  # the type of a field


def name_of(part: Any) -> str:
    """Return the name of a class or function, "module:name".

    ValueError: the name is not unique: a lambda, a function in a function, or a method of an object.
    """
    owner = getattr(part, "__self__", None)  # of a method: an object, or a class; of a builtin: its module
    named = "<" not in getattr(part, "__qualname__", "<") and getattr(part, "__module__", None)  # a method of a builtin has none
    if not named or not isinstance(owner, type | ModuleType | None):
        raise ValueError(
            f"{part!r} in a configuration has no name of its own: use a function of a module, a class, or a dataclass"
        )
    _check_name(part)
    return f"{part.__module__}:{part.__qualname__}"


def _check_name(part: Any) -> None:
    """Check that a part's name leads to it. A decorator may have made it, or type(): its name doesn't say what it is."""
    named: Any = sys.modules.get(part.__module__)
    if named is None or not isinstance(part, type | FunctionType) or getattr(getattr(named, "__spec__", None), "_initializing", False):
        return
    for name in part.__qualname__.split("."):
        named = getattr(named, name, None)
    if named != part:
        raise ValueError(
            f"{part!r} in a configuration isn't what {part.__module__}.{part.__qualname__} is: define it in its module under "
            "that name, and give what differs as a field"
        )


def to_json(value: Any, folders: Mapping[str, Path] | None = None) -> Any:
    """Return a configuration as JSON: a dataclass as its type and fields, a function or class as its name.

    Args:
        folders: Folders of a saved model, by name. A path below one of them becomes relative to it, and all fields are written.
            Without folders, fields with compare=False are left out, for example the folder of a file known by its digest.

    Raises:
        ValueError: As of `name_of`, or a field is called "type".
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        chosen = [f.name for f in dataclasses.fields(value) if (f.compare if folders is None else f.init)]
        return _typed(value, chosen, folders)
    if isinstance(value, Mapping):
        return {str(key): to_json(item, folders) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _typed(value, value._fields, folders)
    if isinstance(value, list | tuple):
        return [to_json(item, folders) for item in value]
    if isinstance(value, functools.partial):
        return {"partial": to_json([value.func, value.args, value.keywords], folders)}
    if callable(value):
        return name_of(value)
    if isinstance(value, str | Path):
        for name, folder in (folders or {}).items():
            if Path(value).is_relative_to(folder):
                return {"file": Path(name, Path(value).relative_to(folder)).as_posix()}
        return str(value)
    return value


def _typed(value: Any, names: Collection[str], folders: Mapping[str, Path] | None) -> dict[str, Any]:
    if "type" in names:
        raise ValueError(f"{type(value).__qualname__}: a field of a configuration must not be called type; rename it")
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    if folders is None and "<" in kind:  # two calls of the function make two classes of one name
        raise ValueError(f"{kind} is made by a function: define the class in a module, and give what differs as a field")
    if folders is None:
        _check_name(type(value))
    return {"type": kind, **{name: to_json(getattr(value, name), folders) for name in names}}


def no_file(name: str) -> str:
    """Raise a ValueError: this configuration may name no files."""
    raise ValueError(f"{name!r}: this configuration may name no files")


@dataclass(frozen=True)
class Decoder:
    """Reads configurations of `to_json` from untrusted files.

    part: return a class or function by its name; ValueError: it is not allowed. file: return the path of a file by its name
    in the folder of the configuration; ValueError: it is not allowed. tolerant: skip fields unknown to the class.
    """

    part: Callable[[str], Any]
    file: Callable[[str], str] = no_file
    tolerant: bool = False

    def read(self, saved: Any, kind: Any, where: str, template: Any = None) -> Any:
        """Return a saved value of a type.

        Args:
            where: Its place, for errors.
            template: A configuration with the unsaved fields. A field in neither keeps its default.

        Raises:
            ValueError: A value has another type, or is refused by its configuration, or a part is not allowed.
        """
        origin, arguments = get_origin(kind), get_args(kind)
        if kind == File:
            return self._file(saved, where)
        if origin is Annotated:
            return self.read(saved, arguments[0], where, template)
        if origin in (Union, types.UnionType):
            return self._first(saved, arguments, where, template)
        if origin is Literal:
            return saved if type(saved) in map(type, arguments) and saved in arguments else _refuse(saved, kind, where)
        if kind in (bool, int, float, str, types.NoneType, None):
            return saved if _is_plain(saved, kind) else _refuse(saved, kind, where)
        if kind is tuple or origin is tuple:
            return self._tuple(saved, arguments, where, template)
        if origin in (dict, Mapping, collections.abc.Mapping):
            return self._mapping(saved, arguments, where, template)
        if kind is type or origin is type:
            return self._class(saved, arguments, where)
        if kind is Callable or origin is collections.abc.Callable:
            return self._callable(saved, arguments, where, template)
        return self._any(saved, kind, where, template)

    def _first(self, saved: Any, kinds: tuple[Any, ...], where: str, template: Any) -> Any:
        if saved is None and types.NoneType in kinds:
            return None
        refusals = []
        for kind in kinds:
            try:
                return self.read(saved, kind, where, template)
            except ValueError as error:
                refusals.append(error)
        raise refusals[0]

    def _file(self, saved: Any, where: str) -> str:
        if isinstance(saved, dict) and saved.keys() == {"file"} and isinstance(saved["file"], str):
            return self.file(saved["file"])
        return saved if saved == "" else _refuse(saved, "a file of the model", where)

    def _tuple(self, saved: Any, kinds: tuple[Any, ...], where: str, template: Any) -> tuple[Any, ...]:
        if not isinstance(saved, list):
            _refuse(saved, tuple, where)
        kinds = kinds or (Any, ...)
        wanted = [kinds[0]] * len(saved) if kinds[1:] == (...,) else list(kinds)
        if len(wanted) != len(saved):
            raise ValueError(f"{where}: {len(saved)} values, where {len(wanted)} are expected")
        known = template if isinstance(template, tuple) and len(template) == len(saved) else [None] * len(saved)
        return tuple(
            self.read(item, kind, f"{where}.{place}", old)
            for place, (item, kind, old) in enumerate(zip(saved, wanted, known, strict=True))
        )

    def _mapping(self, saved: Any, kinds: tuple[Any, ...], where: str, template: Any) -> dict[str, Any]:
        if not isinstance(saved, dict):
            _refuse(saved, Mapping, where)
        known = template if isinstance(template, Mapping) else {}
        kind = kinds[1] if kinds else Any
        return {name: self.read(item, kind, f"{where}.{name}", known.get(name)) for name, item in saved.items()}

    def _class(self, saved: Any, bases: tuple[Any, ...], where: str) -> type:
        part = self._part(saved, where) if isinstance(saved, str) else None
        if isinstance(part, type) and all(_is_of(part, base) for base in bases):
            return part
        return _refuse(saved, type, where)

    def _callable(self, saved: Any, kinds: tuple[Any, ...], where: str, template: Any) -> Any:
        made = self._any(saved, Callable, where, template)
        taken = kinds[0] if kinds else ...
        if callable(made) and (taken is ... or _takes(made, len(taken))):
            return made
        return _refuse(saved, "a function of other arguments", where)

    def _any(self, saved: Any, kind: Any, where: str, template: Any) -> Any:
        """Return a part, a configuration, or a plain value where the type of a field says no more."""
        made = self._made(saved, kind, where, template)
        if kind not in (Any, Callable) and isinstance(kind, type) and not getattr(kind, "_is_protocol", False):
            return made if isinstance(made, kind) else _refuse(saved, kind, where)
        return made

    def _made(self, saved: Any, kind: Any, where: str, template: Any) -> Any:
        if isinstance(saved, dict) and "type" in saved:
            return self._dataclass(saved, where, template)
        if isinstance(saved, dict) and saved.keys() == {"partial"}:
            return self._partial(saved["partial"], where)
        if isinstance(saved, dict) and saved.keys() == {"file"}:
            return self._file(saved, where)
        if isinstance(saved, dict):
            return self._mapping(saved, (), where, template)
        if isinstance(saved, list):
            return self._tuple(saved, (), where, template)
        if not isinstance(saved, str):
            return saved if _is_plain(saved, type(saved)) else _refuse(saved, kind, where)
        if kind is not Any:  # a function or class; a text has a field of type str
            return self._part(saved, where)
        try:
            return self.part(saved) if ":" in saved else saved
        except ValueError:
            return saved

    def _part(self, name: str, where: str) -> Any:
        try:
            return self.part(name)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def _dataclass(self, saved: Mapping[str, Any], where: str, template: Any) -> Any:
        name = saved["type"]
        part: Any = self._part(name, where) if isinstance(name, str) else None
        if not (isinstance(part, type) and dataclasses.is_dataclass(part)):
            raise ValueError(f"{where}: {name} is no configuration")
        old = template if type(template) is part else None
        hints, values = _hints(part), {}
        known = {field.name: field for field in dataclasses.fields(part) if field.init}
        if (extra := sorted(saved.keys() - known.keys() - {"type"})) and not self.tolerant:
            raise ValueError(f"{where}: {part.__qualname__} has no field {extra[0]!r}")
        for name, field in known.items():
            if name in saved:
                inner = getattr(old, name, None)
                values[name] = self.read(saved[name], hints.get(name, Any), f"{where}.{name}", inner)
            elif old is not None and not field.compare:
                values[name] = getattr(old, name)
            elif field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{where}: {part.__qualname__} needs the field {name!r}")
        try:
            return part(**values)
        except ValueError as error:  # a configuration checks itself, and names its own field
            raise ValueError(f"{where}.{error}") from None

    def _partial(self, saved: Any, where: str) -> Any:
        try:
            name, positional, named = saved
            part: Any = self.part(name)
            bound = inspect.signature(part).bind_partial(*positional, **named)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {str(error) or saved}") from None
        hints = _hints(vars(part).get("__init__", part) if isinstance(part, type) else part)
        given = bound.arguments
        made = {k: self.read(v, hints.get(k, types.NoneType), f"{where}.{k}") for k, v in given.items()}
        first = list(made.values())[: len(positional)]
        return functools.partial(part, *first, **{k: made[k] for k in named})


def from_template(template: Any, saved: Any, where: str) -> Any:
    """Return the saved configuration of an experiment, as `to_json` wrote it without folders.

    Args:
        template: The experiment's configuration today. Only its classes and functions may be named. Unsaved fields are as in it.

    Raises:
        ValueError: Another class or function was saved, or a value of another type.
    """
    parts = {name_of(part): part for part in parts_of(template)}

    def part(name: str) -> Any:
        if (known := parts.get(name)) is None:
            raise ValueError(f"the model was made with {name}, which its experiment does not have any more")
        return known

    return Decoder(part, tolerant=True).read(saved, type(template), where, template)


def parts_of(value: Any) -> typing.Iterator[Any]:
    """Yield the classes and functions of a configuration."""
    if isinstance(value, functools.partial):
        yield from parts_of([value.func, value.args, value.keywords])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for field in dataclasses.fields(value):
            yield from parts_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from parts_of(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from parts_of(item)
    elif callable(value):
        yield value


@functools.cache
def _hints(part: Any) -> dict[str, Any]:
    """Return the types of the fields of a class, or of the arguments of a function, if they can be resolved."""
    try:
        return typing.get_type_hints(part, include_extras=True)
    except (NameError, TypeError):
        return {}


def _is_plain(saved: Any, kind: Any) -> bool:
    if kind in (types.NoneType, None):
        return saved is None
    if kind is float:
        return type(saved) in (int, float) and _is_finite(saved)
    return type(saved) is kind and kind in (bool, int, str)


def _is_of(part: type, base: Any) -> bool:
    return not isinstance(base, type) or getattr(base, "_is_protocol", False) or issubclass(part, base)


def _takes(function: Any, count: int) -> bool:
    """Return whether a function takes so many arguments. Some of other libraries do not say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
        return True
    except TypeError:
        return False


def _refuse(saved: Any, wanted: Any, where: str) -> Any:
    name = getattr(wanted, "__name__", None) or str(wanted)
    raise ValueError(f"{where}: {str(saved)[:80]!r} is not {name}")


def at_least(config: Any, least: int, *names: str) -> None:
    """Require whole numbers of at least `least`."""
    _require(config, names, lambda x: int(x) == x and x >= least, f"a whole number of at least {least}")


def at_most(config: Any, most: float, *names: str) -> None:
    """Require numbers of at most `most`, for files from outside."""
    _require(config, names, lambda x: x <= most, f"at most {most}")


def even(config: Any, *names: str) -> None:
    """Require even numbers of at least 2."""
    _require(config, names, lambda x: x % 2 == 0 and x >= 2, "an even number of at least 2")


def positive(config: Any, *names: str) -> None:
    """Require numbers above 0."""
    _require(config, names, lambda x: x > 0, "a finite number above 0")


def not_negative(config: Any, *names: str) -> None:
    """Require numbers of at least 0."""
    _require(config, names, lambda x: x >= 0, "a finite number of at least 0")


def share(config: Any, *names: str) -> None:
    """Require numbers of at least 0 and below 1, for example a dropout."""
    _require(config, names, lambda x: 0 <= x < 1, "at least 0 and below 1")


def one_of(config: Any, name: str, choices: Collection[Any]) -> None:
    """Require one of some values."""
    value = getattr(config, name)
    if value not in choices:
        raise ValueError(f"{name}={value}: must be one of {', '.join(map(str, choices))}")


def divides(config: Any, part: str, whole: str) -> None:
    """Require that the number `part` divides the number `whole`."""
    total = getattr(config, whole)
    _require(config, [part], lambda x: total % x == 0, f"a divisor of {whole}={total}")


def _require(config: Any, names: Any, holds: Callable[[Any], bool], wanted: str) -> None:
    for name in names:
        value = getattr(config, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers:
            raise ValueError(f"{name}={value}: must not be empty")
        if not all(_is_finite(x) and holds(x) for x in numbers):
            raise ValueError(f"{name}={value}: must be {wanted}")


def _is_finite(number: float) -> bool:
    """Return whether a number is finite as a float. A whole number of more than 308 digits is not."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
