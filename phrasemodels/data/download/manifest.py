"""Manifests: files with URLs and digests, splits, licences. Each is TOML. Unknown keys are refused.

Corpora are in data/manifests/, in project folders and in packages of users. Models of parsers are in
data/manifests/parsers/.
"""

import difflib
import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from phrasemodels import project
from phrasemodels.data.download.archives import unpack
from phrasemodels.folders import check_inside


@dataclass(frozen=True)
class Sources:
    """The sources of downloads: mirror folders and then (unless offline) the URLs of the manifest.

    private: URLs may have addresses outside of the internet.
    """

    mirrors: tuple[Path, ...] = ()
    offline: bool = False
    private: bool = False
    wait: float = 1.0  # seconds before the second attempt, doubled for each further one, with jitter


FEW = 12  # known names that a hint lists
MANIFESTS = Path(__file__).parents[1] / "manifests"


class Strict(BaseModel):
    """A part of a TOML file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _inside(value: str) -> str:
    if ".." in value.split("/"):
        raise ValueError("a path must not contain '..'")
    return value


def _is_http(value: str) -> str:
    if not value.startswith(("https://", "http://")):
        raise ValueError(f"{value!r} is not an http(s) address")
    if "@" in urlsplit(value).netloc:  # URLs are printed and kept
        raise ValueError("an address must not contain a user or a password; put the file into a mirror folder")
    return value


Inside = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$"), AfterValidator(_inside)]
Url = Annotated[str, AfterValidator(_is_http)]
Kind = Literal["bitext", "tagged", "pairs", "sentences", "stories", "trees", "tagged_trees"]
Option = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


class Concatenation(Strict):
    """A file concatenated from upstream files. Each part in this order replaces the {} of the URL."""

    transform: Literal["concatenate"]
    url: Url
    parts: tuple[Inside, ...] = Field(min_length=1)


class FirstLines(Strict):
    """The first lines of an upstream file."""

    transform: Literal["first_lines"]
    url: Url
    lines: int = Field(gt=0)


class Member(Strict):
    """A file in an upstream archive."""

    transform: Literal["member"]
    url: Url
    member: Inside
    most_bytes: int = Field(default=100_000_000, gt=0, description="a larger archive is not downloaded")


class File(Strict):
    """A file of a corpus.

    sha256 and bytes are of the decompressed content. `mirror` is its path in a mirror folder. build: how to make the
    file from upstream files if no URL has it. The digest is the same.
    """

    name: Inside
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0)
    urls: tuple[Url, ...] = ()
    mirror: Inside
    build: Annotated[Concatenation | FirstLines | Member, Field(discriminator="transform")] | None = None


class UserFiles(Strict):
    """Files supplied by the user: those matching `pattern` in the user's folder, or in `archive` in that folder.

    A single file is called `name`. Several files go into a folder `name`, below as many folders as the pattern has.
    """

    name: Inside
    pattern: str = Field(min_length=1)
    count: int = Field(default=1, ge=0, description="number of files; 0: any")
    archive: str = ""
    git_blob: str = Field(default="", pattern=r"^([0-9a-f]{40})?$", description="git's hash of a single file")
    instructions: str


class Part(Strict):
    """A part of the rows: [start, stop) in a fixed random order. Rows with equal values of `by` stay together.

    alike: a column like label. Each of its values has its share of every part. A value of few rows belongs to the last
    part.
    """

    by: str = "id"
    alike: str = ""
    start: int = Field(default=0, ge=0)
    stop: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop = {self.stop} is not after start = {self.start}")
        return self


class Split(Strict):
    """A split of a corpus: its files by their roles for the reader and its number of records.

    rows: None only if the number cannot be known beforehand. reasons: numbers of unusable rows by reason. schema,
    reader, licence, redistributable and stand_in default to the manifest's.
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


class Languages(Strict):
    """The languages of parallel text as codes of ISO 639 (en, fr) and the tokeniser of both sides.

    tokeniser: moses, spaces (for divided text) or characters (for languages without spaces between words). Default: the
    experiment's own.
    """

    source: str = Field(pattern=r"^[a-z]{2,3}$")
    target: str = Field(pattern=r"^[a-z]{2,3}$")
    tokeniser: Literal["moses", "spaces", "characters"] | None = None

    @model_validator(mode="after")
    def two(self) -> Self:
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; name two languages")
        return self


class Terms(NamedTuple):
    """The terms of use of a split."""

    licence: str
    redistributable: bool
    stand_in: bool


class Manifest(Strict):
    """A corpus. A stand-in replaces an unavailable corpus. Its scores can't be compared with the paper's."""

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
    languages: Languages | None = None
    lists: dict[str, tuple[Inside, ...]] = {}
    files: tuple[File, ...] = ()
    sources: tuple[UserFiles, ...] = ()
    splits: dict[str, Split]

    @model_validator(mode="before")
    @classmethod
    def lists_become_parts(cls, value: Any) -> Any:
        """Replace the name of a list (`parts = "train"`) by the list."""
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

    @model_validator(mode="after")
    def files_have_the_languages(self) -> "Manifest":
        """Check that the languages name the two files of a split, so neither is taken for the other."""
        for name, split in self.splits.items():
            if self.languages and (split.reader or self.reader) == "bitext":
                wanted = {self.languages.source, self.languages.target}
                if wanted != split.files.keys():
                    found = " and ".join(split.files)
                    raise ValueError(
                        f"splits.{name}.files: {found}, but the languages are {' and '.join(sorted(wanted))}; name each file "
                        "by its language"
                    )
        return self

    def split(self, name: str) -> Split:
        """Return a split by name."""
        if name not in self.splits:
            raise ValueError(f"{self.name} has no split {name!r}: {closest(name, self.splits)}")
        return self.splits[name]

    def terms(self, split: str) -> Terms:
        """Return the terms of use of a split."""
        own = self.split(split)
        return Terms(
            own.licence or self.licence,
            self.redistributable if own.redistributable is None else own.redistributable,
            self.stand_in if own.stand_in is None else own.stand_in,
        )


def how_to_supply(manifest: Manifest, files: UserFiles) -> str:
    """Return instructions for missing user files."""
    return (
        f"{manifest.name}: {files.name} must be supplied by the user: {files.instructions} Put it into a folder "
        f"{manifest.name} in the folder that PHRASEMODELS_SUPPLIED names."
    )


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the nearest known word or all known words if they are few."""
    known = sorted(known)
    if match := difflib.get_close_matches(word, known, 1):
        return f"did you mean {match[0]!r}?"
    shown = ", ".join(known[:FEW]) or "none"
    return f"known: {shown}" + (f" and {len(known) - FEW} more" if len(known) > FEW else "")


def names() -> list[str]:
    """Return the names of all corpora."""
    return sorted(path.stem for path in MANIFESTS.glob("*.toml"))


def load(name: str) -> Manifest:
    """Load the manifest of a corpus by name."""
    if name not in names():
        raise ValueError(f"no corpus {name!r}: {closest(name, names())}")
    manifest = read(path := MANIFESTS / f"{name}.toml")
    if manifest.name != name:
        raise ValueError(f"{path}: name is {manifest.name!r}, but the file is called {name!r}; make them the same")
    return manifest


def read(path: Path) -> Manifest:
    """Read a manifest. ValueError: it names the file and the wrong key."""
    return validated(path, Manifest)


M = TypeVar("M", bound=Strict)


def validated(path: Path, kind: type[M]) -> M:
    """Read a TOML file as an instance of a model. ValueError: it names the file and the wrong keys."""
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error)}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise ValueError(f"{path}: {error}") from error


def explain(error: ValidationError) -> str:
    """Return the first five errors on one line, with the nearest known key for each unknown key."""
    # missing keys last: a misspelt key often explains a missing one
    errors = sorted(error.errors(), key=lambda one: one["type"] == "missing")
    text = "; ".join(map(_explain, errors[:5]))
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)  # keys may hold control characters


def _explain(one: Any) -> str:
    key = ".".join(str(part) for part in one["loc"])
    hint = ", " + closest(str(one["loc"][-1]), _keys(one["loc"])) if one["type"] == "extra_forbidden" else ""
    return f"{key}{': ' if key else ''}{one['msg'].removeprefix('Value error, ')}{hint}"


def _keys(location: tuple[str | int, ...]) -> list[str]:
    """Return the known keys at the place of an unknown key."""
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


def corpus_names() -> list[str]:
    """Return the names of all corpora. ValueError: a user's corpus has the name of one of ours."""
    added = project.manifests()
    if taken := sorted(set(added) & set(names())):
        raise ValueError(f"{added[taken[0]]}: there is a corpus {taken[0]!r} already; choose another name")
    return sorted({*added, *names()})


def find_corpus(name: str) -> Manifest:
    """Load the manifest of a corpus by name. ValueError: there is none, or it is wrong."""
    if name not in (known := corpus_names()):
        raise ValueError(f"no corpus {name!r}: {closest(name, known)}")
    if not is_added(name):
        return load(name)
    manifest = read(path := project.manifests()[name])
    if manifest.name != name:
        raise ValueError(f"{path}: name is {manifest.name!r}, but the file is called {name!r}; make them the same")
    return manifest


def is_added(name: str) -> bool:
    """Return whether a user adds the corpus."""
    return name in project.manifests()


PARSERS = MANIFESTS / "parsers"
VARIABLE = "PHRASEMODELS_PARSERS"  # the setting that names the folder of parser models


class ParserManifest(Strict):
    """A folder of models for Stanza. If the models are a stand-in, so is all of their output."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    title: str
    language: str
    licence: str
    licence_text: str
    redistributable: bool
    stand_in: bool = False
    note: str = ""
    instructions: str = ""
    files: tuple[File, ...]

    @property
    def digests(self) -> dict[str, str]:
        return {file.name: file.sha256 for file in self.files}


def parser_names() -> list[str]:
    """Return the names of all parsers."""
    return sorted(path.stem for path in PARSERS.glob("*.toml"))


def load_parser(name: str) -> ParserManifest:
    """Load the manifest of a parser by name. ValueError: the name is unknown, or the file is wrong."""
    if name not in parser_names():
        raise ValueError(f"no parser {name!r}: {closest(name, parser_names())}")
    return read_parser(PARSERS / f"{name}.toml")


def read_parser(path: Path) -> ParserManifest:
    """Read a manifest. ValueError: it names the file and the wrong key."""
    return validated(path, ParserManifest)


MOST_BYTES = 20_000_000_000  # of an unpacked archive of the user


def supplied_folders(manifest: Manifest, sources: Sources) -> list[Path]:
    """Return the folders to search for user files: one named like the corpus in each folder of the sources."""
    return [mirror / manifest.name for mirror in sources.mirrors]


def copy_user_files(manifest: Manifest, wanted: UserFiles, sources: Sources, target: Path) -> dict[str, Path]:
    """Copy user files to paths below `target`. Return the folder of origin of each (or {} for no files)."""
    for folder in supplied_folders(manifest, sources):
        with _opened(wanted, folder) as root:
            found = locate(wanted, root)
            for name, path in found.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / name)
        if found:
            return dict.fromkeys(found, folder)
    return {}


def digests(manifest: Manifest, sources: Sources) -> dict[str, str]:
    """Return the sha256 of every file of a corpus: of downloads as the manifest states it, of user files as it is."""
    known = {file.name: file.sha256 for file in manifest.files}
    for wanted in manifest.sources:
        for folder in supplied_folders(manifest, sources):
            with _opened(wanted, folder) as root:
                found = locate(wanted, root)
                known |= {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
            if found:
                break
    return known


@contextmanager
def _opened(wanted: UserFiles, folder: Path) -> Iterator[Path]:
    """Yield the folder or a temporary folder with the content of its archive of the user files."""
    if wanted.archive and (folder / wanted.archive).is_file():
        with tempfile.TemporaryDirectory() as temporary:
            unpack(folder / wanted.archive, Path(temporary) / "unpacked", MOST_BYTES)
            yield Path(temporary) / "unpacked"
    else:
        yield folder


def locate(wanted: UserFiles, folder: Path) -> dict[str, Path]:
    """Search a folder and all folders below it for user files. Return paths by the files' new names.

    Case is ignored. ValueError: another number of files than expected or another content.
    """
    pattern = wanted.pattern.lower().split("/")
    found: dict[str, Path] = {}
    for path in _files_below(folder):
        tail = path.parts[-len(pattern) :]
        if all(map(fnmatchcase, (part.lower() for part in tail), pattern)) and len(tail) == len(pattern):
            name = wanted.name if wanted.count == 1 else f"{wanted.name}/{'/'.join(tail).lower()}"
            if name in found:
                raise ValueError(f"{path} and {found[name]} are both {name}; remove one of them")
            check_inside(path, folder.resolve())
            found[name] = path
    if found and wanted.count and len(found) != wanted.count:
        raise ValueError(
            f"{folder} has {len(found)} files {wanted.pattern}, {wanted.count} are expected; copy all of them again"
        )
    if wanted.git_blob:
        _check_blobs(wanted, found.values())
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    for where, below, names in os.walk(folder):
        below.sort()
        yield from (Path(where) / name for name in sorted(names))


def _check_blobs(wanted: UserFiles, paths: Iterable[Path]) -> None:
    """Raise a ValueError if the git hash of a file differs from the manifest's."""
    for path in paths:
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        if blob != wanted.git_blob:
            raise ValueError(f"{path}: git blob {blob}, the manifest states {wanted.git_blob}; download the file again")
