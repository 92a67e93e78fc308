"""What a corpus is: its files, where to get them, what they must hash to, and on what terms.

One TOML file a corpus in data/manifests/. Unknown keys are refused.
"""

import difflib
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

MANIFESTS = Path(__file__).parents[1] / "manifests"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _inside(value: str) -> str:
    if ".." in value.split("/"):
        raise ValueError("a path must not contain '..'")
    return value


def _is_http(value: str) -> str:
    if not value.startswith(("https://", "http://")):
        raise ValueError(f"{value!r} is not an http(s) address")
    if "@" in urlsplit(value).netloc:  # it would be printed and kept
        raise ValueError("an address must not contain a user or a password; put the file into a mirror folder")
    return value


Inside = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"), AfterValidator(_inside)]
Url = Annotated[str, AfterValidator(_is_http)]
Kind = Literal["bitext", "tagged", "pairs", "sentences", "stories", "trees"]
Option = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


class Concatenation(Strict):
    """A file that is several files upstream: the parts, in this order, put into the {} of the address."""

    transform: Literal["concatenate"]
    url: Url
    parts: tuple[Inside, ...] = Field(min_length=1)


class FirstLines(Strict):
    """A file that is the beginning of one upstream."""

    transform: Literal["first_lines"]
    url: Url
    lines: int = Field(gt=0)


class Member(Strict):
    """A file that is in an archive upstream."""

    transform: Literal["member"]
    url: Url
    member: Inside
    most_bytes: int = Field(default=100_000_000, gt=0, description="a larger archive is not downloaded")


class File(Strict):
    """A file of a corpus. The digest is of the content after decompression; `mirror` is a path in a mirror folder.

    `build` makes it from what is upstream where there is no such file; the digest is the same.
    """

    name: Inside
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0)
    urls: tuple[Url, ...] = ()
    mirror: Inside
    build: Annotated[Concatenation | FirstLines | Member, Field(discriminator="transform")] | None = None


class Source(Strict):
    """What a user puts in by hand: files that match `pattern` in a folder that they name, or in `archive` there.

    One file keeps its name; several are put into a folder called `name` with as many levels as the pattern has.
    """

    name: Inside
    pattern: str = Field(min_length=1)
    count: int = Field(default=1, ge=0, description="how many files there must be; 0: several")
    archive: str = ""
    git_blob: str = Field(default="", pattern=r"^([0-9a-f]{40})?$", description="identity of a single file in git")
    instructions: str


class Part(Strict):
    """A share of the rows: [start, stop) in a fixed random order in which equal values of `by` stay together."""

    by: str = "id"
    start: int = Field(default=0, ge=0)
    stop: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError("stop is not after start")
        return self


class Split(Strict):
    """A division of a corpus: how many records it must have, and which file plays which part.

    `rows` is left out only where nobody can say beforehand. `reasons` counts the rows that cannot be used, by reason.
    What is not given here is as in the manifest.
    """

    rows: int | None = Field(default=None, gt=0)
    files: dict[str, str]
    schema_: Kind | None = Field(default=None, alias="schema")
    reader: str | None = None
    options: dict[str, Option] = {}
    reasons: dict[str, int] | Literal["unknown"] = {}
    part: Part | None = None
    licence: str | None = None
    redistributable: bool | None = None
    stand_in: bool | None = None
    note: str = ""


class Terms(NamedTuple):
    """On what terms a split may be used."""

    licence: str
    redistributable: bool
    stand_in: bool


class Manifest(Strict):
    """A corpus. A stand-in takes the place of a corpus that cannot be had: its scores are not the paper's scores."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    title: str
    schema_: Kind = Field(alias="schema")
    reader: str = "bitext"
    licence: str
    licence_text: str
    redistributable: bool
    stand_in: bool = False
    note: str = ""
    citation: str
    homepage: Url
    max_words: int = Field(default=1000, gt=0)
    lists: dict[str, tuple[Inside, ...]] = {}
    files: tuple[File, ...] = ()
    sources: tuple[Source, ...] = ()
    splits: dict[str, Split]

    @model_validator(mode="before")
    @classmethod
    def lists_become_parts(cls, value: Any) -> Any:
        """`parts = "train"` means the list of this name."""
        for file in value.get("files", ()) if isinstance(value, dict) else ():
            build = file.get("build") if isinstance(file, dict) else None
            if isinstance(build, dict) and isinstance(build.get("parts"), str):
                known = value.get("lists", {})
                if build["parts"] not in known:
                    raise ValueError(f"no list {build['parts']!r}: {closest(build['parts'], known)}")
                build["parts"] = known[build["parts"]]
        return value

    @model_validator(mode="after")
    def files_are_known(self) -> "Manifest":
        known = [file.name for file in self.files] + [source.name for source in self.sources]
        for name, split in self.splits.items():
            for file in split.files.values():
                if file not in known:
                    raise ValueError(f"splits.{name}: no file {file!r}: {closest(file, known)}")
        return self

    def split(self, name: str) -> Split:
        """A split by name."""
        if name not in self.splits:
            raise ValueError(f"{self.name} has no split {name!r}: {closest(name, self.splits)}")
        return self.splits[name]

    def terms(self, split: str) -> Terms:
        """On what terms a split may be used."""
        own = self.split(split)
        return Terms(
            own.licence or self.licence,
            self.redistributable if own.redistributable is None else own.redistributable,
            self.stand_in if own.stand_in is None else own.stand_in,
        )


def by_hand(manifest: Manifest, source: Source) -> str:
    """What to do for a source that is missing."""
    return (
        f"{manifest.name}: {source.name} is put in by hand: {source.instructions} Put it into a folder "
        f"{manifest.name} in the folder that PHRASEMODELS_SUPPLIED names."
    )


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a word that is not among the known ones."""
    known = sorted(known)
    match = difflib.get_close_matches(word, known, 1)
    return f"did you mean {match[0]!r}?" if match else "known: " + ", ".join(known)


def names() -> list[str]:
    """All corpora that have a manifest."""
    return sorted(path.stem for path in MANIFESTS.glob("*.toml"))


def load(name: str) -> Manifest:
    """The manifest of a corpus by name."""
    if name not in names():
        raise ValueError(f"no corpus {name!r}: {closest(name, names())}")
    found = read(path := MANIFESTS / f"{name}.toml")
    if found.name != name:
        raise ValueError(f"{path}: name is {found.name!r}; call the file so, or the corpus as the file")
    return found


def read(path: Path) -> Manifest:
    """A manifest file; a ValueError names the file and the key that is wrong."""
    return validated(path, Manifest)


M = TypeVar("M", bound=Strict)


def validated(path: Path, kind: type[M]) -> M:
    """A TOML file of this kind."""
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error)}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or without end
        raise ValueError(f"{path}: {error}") from error


def explain(error: ValidationError) -> str:
    """The first few mistakes in a line, with the nearest known key for an unknown one."""
    told = "; ".join(_explain(one) for one in _most_telling_first(error)[:5])
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in told)  # keys may hold anything


def _most_telling_first(error: ValidationError) -> list[Any]:
    """A misspelt key explains a missing one, so what is missing comes last."""
    return sorted(error.errors(), key=lambda one: one["type"] == "missing")


def _explain(one: Any) -> str:
    key = ".".join(str(part) for part in one["loc"])
    hint = ", " + closest(str(one["loc"][-1]), _keys(one["loc"])) if one["type"] == "extra_forbidden" else ""
    return f"{key}{': ' if key else ''}{one['msg'].removeprefix('Value error, ')}{hint}"


def _keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys that are known where an unknown one stands."""
    models: list[type[BaseModel]] = [Manifest]
    for part in location[:-1]:
        fields = [f for model in models for name, f in model.model_fields.items() if part in (name, f.alias)]
        tagged = [m for m in models if "transform" in m.model_fields and part in _tags(m)]
        models = [m for f in fields for m in _models(f.annotation)] or tagged or models
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["transform"].annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
