"""Models of parsers that are fetched: their files and digests, as of a corpus. One TOML file each in manifests/parsers/."""

from pathlib import Path
from typing import Any

from pydantic import Field

from phrasemodels.data.download.manifest import MANIFESTS, File, Strict, closest, validated
from phrasemodels.data.download.mirrors import Sources

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
    return read(PARSERS / f"{name}.toml")


def read(path: Path) -> ParserManifest:
    """A manifest file; a ValueError names the file and the key that is wrong."""
    return validated(path, ParserManifest)


def obtain(manifest: ParserManifest, target: Path, sources: Sources) -> dict[str, Any]:
    """Put every file below `target` and say where each came from. OSError: nowhere to be had, with instructions."""
    from phrasemodels.data.download.fetch import fetch  # needs libraries that a box that only trains does without

    origins = {}
    for file in manifest.files:
        place = target / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            origins[file.name] = fetch(file, place, sources)
        except OSError as error:
            raise OSError(f"{error}. {manifest.instructions}".strip()) from error
    return origins
