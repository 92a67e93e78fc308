"""Files that users supply (corpora, word vectors, pretrained encoders), resolved in experiments to their digests."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import phrasemodels.infra.environment  # noqa: F401  before transformers
from phrasemodels.data.download.corpora import find
from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.download.user_files import digests
from phrasemodels.encoders.inputs import PretrainedConfig, content_of, load_pretrained
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.pieces import Pieces
from phrasemodels.tasks.problems.entailment.data import VectorFile

Find = Callable[[Any, Sources], Any]  # from a part that names a file to one that has its digest


def with_user_files(table: Table, sources: Sources) -> Table:
    """Return the table with all its experiments resolved."""
    return dataclasses.replace(table, experiments=tuple(resolved(e, sources) for e in table.experiments))


def resolved(experiment: Experiment, sources: Sources) -> Experiment:
    """Return the experiment with its corpora, word vectors and encoders resolved to files in folders of the sources.

    Word vectors that are not there are learned, which the marks of the experiment tell.
    """
    recipe = _replaced(experiment.recipe, FINDERS, sources)
    return dataclasses.replace(experiment, recipe=recipe, model=_replaced(experiment.model, FINDERS, sources))


def with_encoders(part: Any, sources: Sources) -> Any:
    """Return a recipe or a model with only its pretrained encoders resolved, for a model that is trained already."""
    return _replaced(part, ENCODERS, sources)


def reads_encoders(experiment: Experiment) -> bool:
    """Return whether an experiment names a pretrained encoder."""
    found: list[Any] = []
    note = dict.fromkeys(ENCODERS, lambda part, sources: found.append(part))
    _replaced((experiment.recipe, experiment.model), note, Sources())
    return bool(found)


def missing_encoders(experiment: Experiment) -> set[str]:
    """Return the pretrained encoders that have no folder here and that the hub does not offer."""
    parts = getattr(experiment.model, "inputs", ())
    return {part.name for part in parts if isinstance(part, PretrainedConfig) and not _exists(part)}


def _exists(part: PretrainedConfig) -> bool:
    try:
        return bool(part.folder or load_pretrained("AutoConfig", part.name, offline=part.offline))
    except ValueError:
        return False


def _replaced(value: Any, finders: Mapping[type, Find], sources: Sources) -> Any:
    """Return a value of nested dataclasses and tuples with its parts resolved."""
    if find := finders.get(type(value)):
        return find(value, sources)
    if type(value) is tuple:
        return tuple(_replaced(part, finders, sources) for part in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    new = {name: _replaced(part, finders, sources) for name, part in parts.items()}
    changed = {name: part for name, part in new.items() if part is not parts[name]}
    return dataclasses.replace(value, **changed) if changed else value


def _corpus(corpus: Corpus, sources: Sources) -> Corpus:
    found = _digests(corpus.name, sources)
    return dataclasses.replace(corpus, supplied=found) if found else corpus


@cache
def _digests(corpus: str, sources: Sources) -> dict[str, str]:
    """Digests of the files that the user supplied for a corpus."""
    manifest = find(corpus)
    known = {file.name for file in manifest.files}
    return {name: digest for name, digest in digests(manifest, sources).items() if name not in known}


def _vectors(file: VectorFile, sources: Sources) -> VectorFile | None:
    return file.locate(sources.mirrors)


def _encoder(part: PretrainedConfig | Pieces, sources: Sources) -> PretrainedConfig | Pieces:
    """Resolve a pretrained encoder to its folder, whose digest becomes part of its name, or leave it to the hub."""
    folders = (folder / part.name for folder in (*sources.mirrors, Path()))
    folder = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    if folder is None:
        return dataclasses.replace(part, offline=sources.offline)
    name = f"{folder.name}@{content_of(folder)}"
    return dataclasses.replace(part, name=name, folder=str(folder.absolute()), offline=sources.offline)


ENCODERS: Mapping[type, Find] = {PretrainedConfig: _encoder, Pieces: _encoder}
FINDERS: Mapping[type, Find] = {Corpus: _corpus, VectorFile: _vectors, **ENCODERS}
