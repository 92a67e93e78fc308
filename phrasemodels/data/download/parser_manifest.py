"""Manifests of parser models to fetch: files, digests, licences. Each is a TOML file in data/manifests/parsers/."""

from pathlib import Path

from pydantic import Field

from phrasemodels.data.download.manifest import MANIFESTS, File, Strict, closest, validated
from phrasemodels.data.download.mirrors import Sources

PARSERS = MANIFESTS / "parsers"
VARIABLE = "PHRASEMODELS_PARSERS"  # the setting that names the folder of parser models


class ParserManifest(Strict):
    """A folder of models that Stanza loads. If the models are a stand-in, so is everything that is made with them."""

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
    """Return the names of all parsers."""
    return sorted(path.stem for path in PARSERS.glob("*.toml"))


def load(name: str) -> ParserManifest:
    """Load the manifest of a parser by name. ValueError: the name is unknown, or the file is wrong."""
    if name not in names():
        raise ValueError(f"no parser {name!r}: {closest(name, names())}")
    return read(PARSERS / f"{name}.toml")


def read(path: Path) -> ParserManifest:
    """Read a manifest. ValueError: it names the file and the key that is wrong."""
    return validated(path, ParserManifest)


def obtain(manifest: ParserManifest, target: Path, sources: Sources) -> dict[str, str]:
    """Fetch every file to a path below `target`; return the path or URL that each came from.

    OSError: a file cannot be fetched; the message holds the instructions of the manifest.
    """
    from phrasemodels.data.download.fetch import fetch_all  # a machine that only trains lacks its libraries

    try:
        return fetch_all(manifest.files, target, sources, VARIABLE)
    except OSError as error:
        raise OSError(f"{error}. {manifest.instructions}".strip()) from error
