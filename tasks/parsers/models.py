"""Models of parsers, from a mirror or from Stanza's own server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phrasemodels.data.download.parser_manifest import load, obtain
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.parsers.stanza_parser import PROCESSORS


@dataclass(frozen=True)
class FetchParser:
    """A parser and the digests of its files; where they come from does not matter to what they are."""

    name: str
    digests: Mapping[str, str]


def fetch_parser(job: Job, settings: FetchParser) -> dict[str, Any]:
    """The models of a parser of data/manifests/parsers: every file whole and verified, or an error."""
    manifest = load(settings.name)
    origins = obtain(manifest, job.out, job.executor.sources)
    return {
        "parser": manifest.name,
        "from": {name: origin if "://" in origin else "a folder" for name, origin in origins.items()},
        "licences": [manifest.licence],
        "redistributable": manifest.redistributable,
        "stand_in": manifest.stand_in,
    }


def fetched(name: str) -> Step:
    """The step that yields the models of a parser by name."""
    return Step(fetch_parser, f"fetch parser {name}", FetchParser(name, load(name).digests))


@dataclass(frozen=True)
class DownloadParser:
    """Stanza's own models of a language, those that the installed version asks for. server: (list of resources,
    models), where they are not on Stanza's own."""

    language: str = "en"
    package: str = "default"
    processors: tuple[str, ...] = ("tokenize", *PROCESSORS)
    server: tuple[str, str] = ("", "")


def download_parser(job: Job, settings: DownloadParser) -> dict[str, Any]:
    """The models by Stanza's own download, which verifies what it gets; an OSError where there is no network."""
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
    except (OSError, ValueError) as error:  # what requests and Stanza raise
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
    """The step that yields Stanza's own models."""
    return Step(download_parser, f"download parser {settings.language} {settings.package}", settings)
