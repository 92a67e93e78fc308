"""What a corpus is: its files, where to get them, what they must hash to, and on what terms.

One TOML file a corpus in data/manifests/. Unknown keys are refused.
"""

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

MANIFESTS = Path(__file__).parent / "manifests"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class File(Strict):
    """A file of a corpus. The digest is of the content after decompression; `mirror` is a path in a mirror folder."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(gt=0)
    urls: tuple[str, ...] = ()
    mirror: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")

    @field_validator("name", "mirror")
    @classmethod
    def stays_inside(cls, value: str) -> str:
        if ".." in value.split("/"):
            raise ValueError("a path must not contain '..'")
        return value

    @field_validator("urls")
    @classmethod
    def is_http(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            if not url.startswith(("https://", "http://")):
                raise ValueError(f"{url!r} is not an http(s) address")
        return value


class Split(Strict):
    """A division of a corpus: how many records it must have, and which file plays which part."""

    rows: int = Field(gt=0)
    files: dict[str, str]


class Manifest(Strict):
    """A corpus."""

    name: str = Field(pattern=r"^[a-z0-9_]+$")
    title: str
    schema_: Literal["bitext"] = Field(alias="schema")
    licence: str
    licence_text: str
    redistributable: bool
    citation: str
    homepage: str
    max_words: int = Field(default=1000, gt=0)
    files: tuple[File, ...]
    splits: dict[str, Split]


def closest(word: str, known: Iterable[str]) -> str:
    """A hint for a word that is not among the known ones."""
    known = sorted(known)
    match = difflib.get_close_matches(word, known, 1, 0.4)
    return f"did you mean {match[0]!r}?" if match else "known: " + ", ".join(known)


def names() -> list[str]:
    """All corpora that have a manifest."""
    return sorted(path.stem for path in MANIFESTS.glob("*.toml"))


def load(name: str) -> Manifest:
    """The manifest of a corpus by name."""
    if name not in names():
        raise ValueError(f"no corpus {name!r}: {closest(name, names())}")
    return read(MANIFESTS / f"{name}.toml")


def read(path: Path) -> Manifest:
    """A manifest file; a ValueError names the file and the key that is wrong."""
    try:
        return Manifest.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    except ValidationError as error:
        raise ValueError(f"{path}: " + "; ".join(_explain(one) for one in _most_telling_first(error)[:5])) from error


def _most_telling_first(error: ValidationError) -> list[Any]:
    """A misspelt key explains a missing one, so what is missing comes last."""
    return sorted(error.errors(), key=lambda one: one["type"] == "missing")


def _explain(one: Any) -> str:
    key = ".".join(str(part) for part in one["loc"])
    hint = ", " + closest(str(one["loc"][-1]), _keys(one["loc"])) if one["type"] == "extra_forbidden" else ""
    return f"{key}: {one['msg']}{hint}"


def _keys(location: tuple[str | int, ...]) -> Iterable[str]:
    model = File if "files" in location[:1] else Split if "splits" in location[:1] else Manifest
    return [field.alias or name for name, field in model.model_fields.items()]
