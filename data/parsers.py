"""Models of parsers that are fetched: their files and digests, as of a corpus. One TOML file each in manifests/parsers/."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from data.manifest import MANIFESTS, File, Strict, closest, explain
from data.sources import Sources

PARSERS = MANIFESTS / "parsers"


class ParserManifest(Strict):
    """A folder of models that Stanza loads; what rests on them is a stand-in if they are."""

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


def names() -> list[str]:
    """All parsers that have a manifest."""
    return sorted(path.stem for path in PARSERS.glob("*.toml"))


def load(name: str) -> ParserManifest:
    """A parser's manifest by name; a ValueError says what is wrong with the name, or with the file."""
    if name not in names():
        raise ValueError(f"no parser {name!r}: {closest(name, names())}")
    path = PARSERS / f"{name}.toml"
    try:
        return ParserManifest.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error)}") from error


def obtain(manifest: ParserManifest, target: Path, sources: Sources) -> dict[str, Any]:
    """Put every file below `target` and say where each came from. OSError: nowhere to be had, with instructions."""
    from data.fetch import fetch  # needs libraries that a box that only trains does without

    origins = {}
    for file in manifest.files:
        place = target / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            origins[file.name] = fetch(file, place, sources)
        except OSError as error:
            raise OSError(f"{error}. {manifest.instructions}".strip()) from error
    return origins
