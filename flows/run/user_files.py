"""What a user puts in by hand, in experiments: it is known by its digests, so that it is part of the keys."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import phrasemodels.infra.environment  # noqa: F401  before transformers
from phrasemodels.data.download.manifest import load
from phrasemodels.data.download.mirrors import Sources
from phrasemodels.data.download.user_files import digests
from phrasemodels.data.store.artifacts import sha256_of
from phrasemodels.data.store.step import digest_of
from phrasemodels.encoders.inputs import Found, PretrainedConfig, pretrained
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.pieces import Pieces
from phrasemodels.tasks.problems.entailment.data import VectorFile

READ = (".json", ".txt", ".model", ".safetensors", ".bin")  # of a folder of an encoder
LEARNED = "word vectors are learned: the paper's were not put in"
Find = Callable[[Any, Sources], Any]  # what was found in place of what was named


def with_supplied(experiment: Experiment, sources: Sources) -> Experiment:
    """The experiment with what lies in folders of the sources: corpora, word vectors, pretrained encoders. Where word
    vectors are not there they are learned, and the number is not comparable with the paper's."""
    recipe = _replaced(experiment.recipe, FINDERS, sources)
    found = dataclasses.replace(experiment, recipe=recipe, model=_replaced(experiment.model, FINDERS, sources))
    if not getattr(experiment.recipe, "vectors", None) or recipe.vectors:
        return found
    answers = tuple(dataclasses.replace(a, why_not=a.why_not or LEARNED) for a in experiment.answers)
    return dataclasses.replace(found, answers=answers, comparable=False)


def with_encoders(part: Any, sources: Sources) -> Any:
    """A recipe or a model with the folders of pretrained encoders alone, for a model that is trained."""
    return _replaced(part, ENCODERS, sources)


def missing_encoders(experiment: Experiment) -> set[str]:
    """Pretrained encoders that have no folder and cannot be had from the hub."""
    parts = getattr(experiment.model, "inputs", ())
    return {part.name for part in parts if isinstance(part, PretrainedConfig) and not _there(part.name)}


def _there(name: str) -> bool:
    if getattr(name, "where", name) != name:
        return True
    try:
        return bool(pretrained("AutoConfig", name))
    except ValueError:
        return False


def _replaced(value: Any, finders: Mapping[type, Find], sources: Sources) -> Any:
    """A value of nested dataclasses and tuples, with what was found in place of what was named."""
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
    """Of what was put in for a corpus, if it has any such files."""
    manifest = load(corpus)
    known = {file.name for file in manifest.files}
    return {name: digest for name, digest in digests(manifest, sources).items() if name not in known}


def _vectors(file: VectorFile, sources: Sources) -> VectorFile | None:
    return file.locate(sources.mirrors)


def _encoder(part: PretrainedConfig | Pieces, sources: Sources) -> PretrainedConfig | Pieces:
    return dataclasses.replace(part, name=_found(part.name, sources))


def _found(name: str, sources: Sources) -> str:
    """A pretrained encoder in its folder, or of the hub, which is not asked where the sources are offline."""
    folders = (folder / name for folder in (*sources.mirrors, Path()))
    folder = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    found = Found(name if folder is None else f"{folder.name}@{_content(folder)}")
    found.where, found.offline = name if folder is None else str(folder.absolute()), sources.offline
    return found


def _content(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.suffix in READ)
    return _digest(tuple((file, file.stat().st_mtime_ns) for file in files))


@cache
def _digest(files: tuple[tuple[Path, int], ...]) -> str:
    """Of names and contents of files, read again when one was changed."""
    return digest_of({path.name: sha256_of(path) for path, _ in files})


ENCODERS: Mapping[type, Find] = {PretrainedConfig: _encoder, Pieces: _encoder}
FINDERS: Mapping[type, Find] = {Corpus: _corpus, VectorFile: _vectors, **ENCODERS}
