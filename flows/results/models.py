"""Trained models by name: asked, looked into, and taken elsewhere. Weights are safetensors; nothing is unpickled."""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from safetensors import SafetensorError, safe_open

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import HasKey, Step, jsonable
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment as find_experiment
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.results.lineage import Lineage, setting
from phrasemodels.tasks.prepare.given import Given, given

PARTS = ("model", "vocabulary", "bpe")  # the last only where words are divided
CARD = "card.json"
ROWS = ("train", "rows", "corpus")  # the inputs that lead from a training to its corpus
TRAININGS = ("train", "train_restarts")  # steps that make weights


@runtime_checkable
class Answering(Protocol):
    """A recipe whose models can be asked about sentences that they are given."""

    def data(self) -> dict[str, Step]: ...
    def answering(self, model: Any, texts: HasKey, known: Mapping[str, HasKey]) -> Step: ...
    def attending(self, model: Any, texts: HasKey, known: Mapping[str, HasKey], sentences: int) -> Step: ...
    def spoken(self, row: Mapping[str, Any]) -> str: ...


@dataclass(frozen=True)
class Model:
    """A trained model: its experiment with the configuration that it was trained with, its weights and vocabulary, and
    the corpus that it was trained on, which may be another than its experiment's."""

    experiment: Experiment
    seed: int
    weights: Artifact
    vocabulary: Artifact
    bpe: Artifact | None = None
    corpus: str = "unknown"

    @property
    def said(self) -> str:
        """In a line, which training it is."""
        return f"{self.experiment.name} seed {self.seed}: {self.weights.meta['steps']} updates, corpus {self.corpus}"

    @property
    def recipe(self) -> Answering:
        if not isinstance(self.experiment.recipe, Answering):
            raise ValueError(f"{self.experiment.name}: models of this problem cannot be asked about single sentences")
        return self.experiment.recipe

    @property
    def known(self) -> dict[str, Artifact]:
        """What recipes know of it, by the names of PARTS; `bpe` only where words are divided."""
        parts = zip(PARTS, (self.weights, self.vocabulary, self.bpe), strict=True)
        return {name: part for name, part in parts if part is not None}

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The answers to sentences, by the same steps that made the predictions of the test set."""
        if not texts:
            return []
        step = self.recipe.answering(self.experiment.model, given_texts(texts), self.known)
        return [self.recipe.spoken(row) for row in self._made(step, "predictions.arrow")]

    def attend(self, text: str) -> list[dict[str, Any]]:
        """What each attention looks at: {tokens, phrases, module, shape (h, q, k), weights}."""
        step = self.recipe.attending(self.experiment.model, given_texts([text]), self.known, 1)
        return self._made(step, "attention.arrow")

    def _made(self, step: Step, name: str) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            return read_shard(Store(Path(folder)).open().run(step).file(name)).to_pylist()

    def export(self, to: Path) -> Path:
        """A folder that `load` reads: weights and vocabulary with their manifests, and a card. It takes the place of
        an exported model; a ValueError if something else is there, or what it would be copied from."""
        place = to.resolve()
        if any(_overlap(place, artifact.path.parent.resolve()) for artifact in self.known.values()):
            raise ValueError(f"{to}: the model itself is there; export it to another folder")
        if place.exists() and not (place / CARD).is_file() and not (place.is_dir() and not any(place.iterdir())):
            raise ValueError(f"{to}: there is something that is no exported model; name a folder that is not there")
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as aside:
            made, before = Path(aside, "made"), Path(aside, "before")
            for name, artifact in self.known.items():
                shutil.copytree(artifact.path, made / name)
            write_durably(made / CARD, json.dumps(self.card(), indent=1))
            if place.exists():
                os.replace(place, before)
            os.replace(made, place)
        return to

    def card(self) -> dict[str, Any]:
        """What to know of a model before one uses it."""
        e, meta = self.experiment, self.weights.meta
        told = {name: meta[name] for name in ("parameters", "dev_loss", "steps", "train_seconds")}
        terms = {name: meta[name] for name in ("licences", "redistributable", "stand_in")}
        known = {"experiment": e.name, "seed": self.seed, "corpus": self.corpus, "weights": self.weights.key}
        return {**known, **told, **terms}


class Said(dict[str, Any]):
    """What the manifest of an exported part says. ValueError: it does not say what it is asked."""

    def __init__(self, part: Artifact) -> None:
        super().__init__(part.meta)
        self.path = part.path

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{self.path}: says nothing of {name!r}; make the model again")


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def given_texts(texts: Sequence[str], groups: Sequence[str] = ()) -> Step:
    """A corpus of sentences that a user gives, one a text, in groups or not."""
    return Step(given, "given sentences", Given(tuple(texts), tuple(groups)))


def load(folder: Path) -> Model:
    """A model that was exported; a ValueError if it is damaged or of another version of the code."""
    weights, vocabulary, bpe = (Store(folder).load(folder / name) for name in PARTS)
    if weights is None or vocabulary is None or (bpe is None and (folder / PARTS[2]).exists()):
        raise ValueError(f"{folder}: not an exported model, or damaged; export it again with `phrasemodels export`")
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        model = _model(weights, vocabulary, bpe, str(card["corpus"]))
        model.card()
        for file in weights.path.glob("*.safetensors"):
            with safe_open(file, "numpy"):
                pass
        known = Artifact(vocabulary.path, {**vocabulary.manifest, "meta": Said(vocabulary)})
        return dataclasses.replace(model, vocabulary=known)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    except (KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise ValueError(
            f"{folder}: its card, its configuration or its weights are damaged ({error!r}); export it again"
        ) from error


def find(store: Store, what: str, run_ids: dict[str, str]) -> Model:
    """A model by folder, by experiment (its best seed on dev), or by key, label or MLflow run of a training or score."""
    if Path(what, PARTS[0]).is_dir():
        return load(Path(what))
    lineage = Lineage(store)
    if best := champion(lineage, what):
        return best
    if what in {experiment.name for experiment in experiments()}:
        raise ValueError(f"{what} is not trained here (store {store.root}): phrasemodels train {what} --local")
    artifact = lineage.find(what, run_ids)
    trained = [a for _, _, a, _ in lineage.back(artifact) if isinstance(a, Artifact) and a.manifest["step"] == "train"]
    if not trained:
        raise ValueError(f"{what!r} is {artifact.manifest['label']}, which rests on no training")
    return stored(lineage, trained[0])


def champion(lineage: Lineage, experiment: str) -> Model | None:
    """The training of an experiment with the lowest dev loss, of those with the settings and data of the newest."""
    labels = tuple(f"{step} {experiment} seed " for step in TRAININGS)
    found = [a for a in lineage.artifacts.values() if a.manifest["label"].startswith(labels)]
    newest = [a for a in found if setting(a) == setting(found[-1])]
    return stored(lineage, best_of(newest)) if newest else None


def best_of(trained: Sequence[Artifact]) -> Artifact:
    """The training with the lowest loss on dev."""
    return min(trained, key=lambda a: float(a.meta["dev_loss"]))


def stored(lineage: Lineage, trained: Artifact) -> Model:
    """The model of a training in the store."""
    key = trained.manifest["parts"]["inputs"].get("vocabulary", "")
    if (vocabulary := lineage.artifacts.get(key)) is None:
        raise ValueError(f"{trained.manifest['label']}: its vocabulary {key} is no longer in the store")
    return _model(trained, vocabulary, _made_by(lineage, vocabulary, "learn_bpe"), _corpus(lineage, trained))


def _corpus(lineage: Lineage, trained: Artifact) -> str:
    """The corpus that the rows of a training were read or generated from."""
    found: Artifact | None = trained
    while found is not None and "corpus" not in found.meta:
        inputs = found.manifest["parts"]["inputs"]
        found = lineage.artifacts.get(next((inputs[role] for role in ROWS if role in inputs), ""))
    return "unknown" if found is None else str(found.meta["corpus"])


def _made_by(lineage: Lineage, artifact: Artifact, step: str) -> Artifact | None:
    """What a step made that an artifact rests on."""
    found = (a for _, _, a, _ in lineage.back(artifact) if isinstance(a, Artifact))
    return next((a for a in found if a.manifest["step"] == step), None)


def _model(trained: Artifact, vocabulary: Artifact, bpe: Artifact | None, corpus: str) -> Model:
    name, _, seed = trained.manifest["label"].partition(" ")[2].rpartition(" seed ")
    from phrasemodels.flows.run.user_files import with_encoders

    from phrasemodels.data.download.mirrors import Sources
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    known = with_encoders(find_experiment(name), Sources(settings.mirrors, settings.offline))
    config = restored(known.model, trained.manifest["parts"]["settings"]["model"], name)
    return Model(dataclasses.replace(known, model=config), int(seed), trained, vocabulary, bpe, corpus)


def restored(template: Any, saved: Any, where: str) -> Any:
    """A configuration with the numbers that were saved, and the parts of the template, which must be those saved.

    So nothing that a file names is ever imported; a ValueError says which part is another now.
    """
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        kind = jsonable(template)["type"]
        if saved.get("type") != kind:
            raise ValueError(f"{where}: the model was made as {saved.get('type')}, which is {kind} now")
        values = {
            f.name: restored(getattr(template, f.name), saved[f.name], f"{where}.{f.name}")
            for f in dataclasses.fields(template)
            if f.compare
        }
        return dataclasses.replace(template, **values)
    if isinstance(template, tuple) and any(map(dataclasses.is_dataclass, template)):
        if len(template) != len(saved):
            raise ValueError(f"{where}: the model was made with {len(saved)} parts, there are {len(template)} now")
        return tuple(restored(part, one, where) for part, one in zip(template, saved, strict=True))
    if callable(template):
        if saved != jsonable(template):
            raise ValueError(f"{where}: the model was made with {saved}, which is {jsonable(template)} now")
        return template
    if template == saved:
        return template
    if isinstance(template, int | float | str) and not isinstance(saved, type(template) | int):
        raise ValueError(f"{where}: {saved!r} is none of what {template!r} is")
    return tuple(saved) if isinstance(template, tuple) else saved
