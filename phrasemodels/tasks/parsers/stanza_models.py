"""Stanza's models, from a mirror or from Stanza's server; and trees by Stanza for corpora of other problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phrasemodels.data.download.parser_manifest import load, obtain
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.parsers.parse import PlantTrees, everywhere, plant
from phrasemodels.tasks.parsers.stanza import PROCESSORS, Stanza
from phrasemodels.tasks.prepare.tokenise import Tokeniser, spaces


@dataclass(frozen=True)
class FetchParser:
    """A parser by name, the digests of its files, and its terms: licence, redistributable, stand_in. Mirrors are not part of
    it: they do not change the bytes."""

    name: str
    digests: Mapping[str, str]
    terms: tuple[str, bool, bool]


def fetch_parser(job: Job, settings: FetchParser) -> dict[str, Any]:
    """Download all models of a parser of data/manifests/parsers, and verify them. OSError: a file cannot be had."""
    manifest = load(settings.name)
    origins = obtain(manifest, job.out, job.executor.sources)
    return {
        "parser": manifest.name,
        "from": {name: origin if "://" in origin else "a folder" for name, origin in origins.items()},
        "licences": [settings.terms[0]],
        "redistributable": settings.terms[1],
        "stand_in": settings.terms[2],
    }


def fetched(name: str) -> Step:
    """Return the step that yields the models of a parser by name."""
    manifest = load(name)
    terms = (manifest.licence, manifest.redistributable, manifest.stand_in)
    return Step(fetch_parser, f"fetch parser {name}", FetchParser(name, manifest.digests, terms))


@dataclass(frozen=True)
class DownloadParser:
    """Stanza's own models of a language for the installed version. server: URLs of (list of resources, models) in place of
    Stanza's."""

    language: str = "en"
    package: str = "default"
    processors: tuple[str, ...] = ("tokenize", *PROCESSORS)
    server: tuple[str, str] = ("", "")


def download_parser(job: Job, settings: DownloadParser) -> dict[str, Any]:
    """Download models by Stanza's own program, which verifies them. OSError: there is no network, or it may not be used."""
    import stanza

    if job.executor.sources is not None and job.executor.sources.offline:
        raise OSError("offline: Stanza's own models cannot be downloaded; fetch or train others")
    resources, models = settings.server
    places = {name: url for name, url in (("resources_url", resources), ("model_url", models)) if url}
    try:
        stanza.download(
            settings.language,
            model_dir=str(job.out),
            package=None,
            processors=dict.fromkeys(settings.processors, settings.package),
            logging_level="ERROR",
            **places,
        )
    except (OSError, ValueError) as error:  # of requests and of Stanza
        raise OSError(
            f"Stanza's models for {settings.language!r} cannot be downloaded ({error}): is there a network? "
            "`phrasemodels parsers fetch gum` takes models from a mirror folder"
        ) from error
    return {
        "parser": f"{settings.language} {settings.package}",
        "from": {"models": models or "Stanza's own server"},
        "licences": ["LicenseRef-Stanza-models"],
        "redistributable": False,
        "stand_in": False,
    }


def downloaded(settings: DownloadParser) -> Step:
    """Return the step that yields Stanza's own models."""
    return Step(download_parser, f"download parser {settings.language} {settings.package}", settings)


@dataclass(frozen=True)
class ByStanza:
    """PAIRS or SENTENCES with constituency trees by Stanza (the models `gum`), over the words of a tokeniser."""

    divide: Tokeniser = spaces

    def __call__(self, rows: Step) -> Step:
        """Return the step that gives records Stanza's trees."""
        settings = PlantTrees(Stanza(processors=("pos", "constituency")), everywhere, self.divide)
        return Step(plant, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})


by_stanza = ByStanza()
