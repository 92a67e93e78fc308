"""A step of the pipeline: a function, and everything that decides what it makes."""

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.fingerprint import closure

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store

FORMAT = 1  # of keys and manifests; the source of this module is part of no key


def jsonable(value: Any) -> Any:
    """Return a settings value as JSON: a dataclass by its type and fields, a function or class by its qualified name.

    Fields with compare=False, such as the folder of a file that is known by its digest, are left out.

    ValueError: a callable without a name that others cannot have: a lambda, a function in a function, a method of an object.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value) if f.compare}
        return {"type": f"{type(value).__module__}:{type(value).__qualname__}", **fields}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {
            "type": f"{type(value).__module__}:{type(value).__qualname__}",
            **{f: jsonable(getattr(value, f)) for f in value._fields},
        }
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, functools.partial):
        return {"partial": jsonable([value.func, value.args, value.keywords])}
    if callable(value):
        owner = getattr(value, "__self__", None)  # of a method: an object, or a class; of a builtin: its module
        if "<" in getattr(value, "__qualname__", "<") or not isinstance(owner, type | ModuleType | None):
            raise ValueError(
                f"{value!r} in a configuration has no name of its own: use a function of a module, a class, or a dataclass"
            )
        return f"{value.__module__}:{value.__qualname__}"
    return str(value) if isinstance(value, Path) else value


def digest_of(value: Any) -> str:
    """Return the sha256 of the canonical JSON of a value."""
    return _digest(jsonable(value))


def _digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(manifest: Mapping[str, Any]) -> str:
    """Return the key that belongs to the parts that a manifest lists, in the manifest's own format."""
    return _digest({"format": manifest.get("format"), "step": manifest["step"], **manifest["parts"]})[:32]


class HasKey(Protocol):
    """What can be the input of a step: another step, an artifact, or a shard."""

    @property
    def key(self) -> str: ...


@dataclass(frozen=True)
class Step:
    """One arrow of the pipeline: `make(job, settings) -> meta`, its settings and its inputs.

    label: what people call it. about: for whom it is made (experiment, seed, ...), kept in the manifest. fans_out: it
    divides its work with `executor.map`, so it runs in the driver process. None of them is part of the key: experiments
    that share a training share its artifact.
    """

    make: Callable[["Job", Any], dict[str, Any]]
    label: str
    settings: Any = None
    inputs: Mapping[str, HasKey] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    fans_out: bool = False

    @property
    def name(self) -> str:
        return self.make.__name__

    @functools.cached_property
    def parts(self) -> dict[str, Any]:
        """The parts of the key: digests of source, versions of libraries, settings, and keys of inputs."""
        source, libraries = closure(self.make, self.settings)
        return {
            "source": source,
            "libraries": libraries,
            "settings": jsonable(self.settings),
            "inputs": {name: value.key for name, value in sorted(self.inputs.items())},
        }

    @functools.cached_property
    def key(self) -> str:
        return key_of({"format": FORMAT, "step": self.name, "parts": self.parts})


def with_dependencies(steps: Sequence[Step]) -> list[Step]:
    """Return the steps and all that they depend on, each once, inputs before what is made from them."""
    ordered: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.key not in ordered:
            for value in step.inputs.values():
                if isinstance(value, Step):
                    visit(value)
            ordered[step.key] = step

    for step in steps:
        visit(step)
    return list(ordered.values())


def serial_map(function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Call function(*item) for each item in this process, one after another; yield the results."""
    return (function(*item) for item in items)


def call_here(function: Callable[..., None], *arguments: Any) -> None:
    """Call function(*arguments) in this process."""
    function(*arguments)


class OutOfTimeError(TimeoutError):
    """A step ended before it was done, since its time was up. What it has done is kept: the same step goes on from there."""


@dataclass(frozen=True)
class Executor:
    """How a step runs its parts. The default runs everything in this process.

    map(function, items): call function(*item) for each item and yield the results in order; nothing runs before they are
    asked for.
    launch(function, *arguments): call the function on every training worker, with torch.distributed set up if there are
    several. report(history): receive the metrics measured so far. sources: where downloads come from. until: the time
    (seconds since 1970) at which a training saves a checkpoint and ends with OutOfTimeError; stop_at: it does so after these
    updates, too.
    """

    map: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterable[Any]] = serial_map
    launch: Callable[..., None] = call_here
    report: Callable[[list[dict[str, float]]], None] | None = None
    sources: Any = None
    until: float = math.inf
    stop_at: float = math.inf


@dataclass(frozen=True)
class Job:
    """A step being run: its output folder, its inputs, and the executor of its parts."""

    out: Path
    checkpoints: Path
    inputs: Mapping[str, Artifact]
    store: "Store"
    executor: Executor
    key: str
