"""Apply, draw and export trained models by name, also to formats of other tools.

Weights are safetensors. A saved configuration only names classes and functions of its experiment. Nothing is unpickled.
"""

import contextlib
import dataclasses
import functools
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from phrasemodels.config import from_template
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.inputs import ExportedEncoderConfig, PretrainedConfig, export_encoder
from phrasemodels.flows.experiments.catalogue import experiment as find_experiment
from phrasemodels.flows.experiments.catalogue import experiments, replaced, resolved, with_encoders
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.experiments.published import divided, papers
from phrasemodels.flows.results.lineage import Lineage, setting
from phrasemodels.flows.results.records import sources_of
from phrasemodels.flows.results.results import TRAININGS
from phrasemodels.folders import check_folder, copy_folder, writing_folder
from phrasemodels.inference.export import check_plain, write_ctranslate2
from phrasemodels.inference.inputs import too_long
from phrasemodels.inference.loaded import README, LoadedModel, model_readme
from phrasemodels.inference.problems import Predictor
from phrasemodels.models.pretrained_words import ExportedWordsConfig, PretrainedWordsConfig
from phrasemodels.parsing.ids import ExportedPieces, Pieces
from phrasemodels.project import StudyFile
from phrasemodels.saved import LIBRARY, check_header, describe, first_line
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.recipe import PARTS
from phrasemodels.tasks.problems.translation import TranslationRecipe
from phrasemodels.tasks.train.checkpoints import load_trained
from phrasemodels.verdicts.significance import seed_group

CARD, ENCODER, FILES = "card.json", "encoder", "files"
ROWS = ("train", "rows", "corpus")  # the inputs that lead from a training to its corpus
MOST_TEXTS = 256  # answered at a time
DAMAGED = (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, AssertionError, SafetensorError)


@dataclass(frozen=True)
class Model:
    """A trained model of an experiment: configuration, seed, weights, vocabulary and byte-pair encoding.

    The configuration is the trained one. The corpus may differ from the experiment's. Scores on the test set are by
    metric. Each has its value and the mean and half_width over all seeds of this setting. It also has their number and
    how they were scored.
    """

    experiment: Experiment
    seed: int
    weights: Artifact
    vocabulary: Artifact
    bpe: Artifact | None = None
    corpus: str = "unknown"
    folder: Path | None = dataclasses.field(default=None, compare=False)  # of an exported model
    scores: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        return self.experiment.name

    @property
    def config(self) -> Any:
        return self.experiment.model

    @property
    def description(self) -> str:
        """One line with the name of the training."""
        return f"{self.name} seed {self.seed}: {self.weights.meta['steps']} updates, corpus {self.corpus}"

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """Its artifacts by the names of PARTS. There is a `bpe` only if words are divided into pieces."""
        parts = zip(PARTS, (self.weights, self.vocabulary, self.bpe), strict=True)
        return {name: part for name, part in parts if part is not None}

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the answers to texts. ValueError: the problem takes no text, or a text is too long."""
        if problem := next(filter(None, map(too_long, texts)), None):
            raise ValueError(problem)
        return [answer for answer, _ in self.answers(texts)]

    def answers(self, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the answer to each text and "", or "" and why it is not answered.

        MOST_TEXTS are answered at a time, so memory is bounded. ValueError: the problem takes no text.
        """
        left = iter(texts)
        while some := list(islice(left, MOST_TEXTS)):
            problems = [too_long(text) for text in some]
            short = [text for text, problem in zip(some, problems, strict=True) if not problem]
            with self._naming_damage():
                found = iter(self.loaded.predict(short))
                yield from (("", problem) if problem else (self._how.as_text(next(found)), "") for problem in problems)

    @functools.cached_property
    def loaded(self) -> LoadedModel:
        """The model in memory. ValueError: the problem takes no text."""
        return self.experiment.recipe.loaded(self.config, self.artifacts)

    @property
    def _how(self) -> Predictor:
        assert self.loaded.predictor is not None, "as `loaded` has checked"
        return self.loaded.predictor

    def unknown_words(self, texts: Sequence[str]) -> list[str]:
        """Return the unknown words of texts, each once. The model reads all of them as the same word."""
        return self._how.unknown_words(self.loaded, [text for text in texts if not too_long(text)])

    def attend(self, text: str) -> list[dict[str, Any]]:
        """Return rows of ATTENTION to a text.

        ValueError: the problem takes no text or the text is too long. Or the model has no attention.
        """
        if problem := too_long(text):
            raise ValueError(problem)
        with self._naming_damage():
            rows = self.experiment.recipe.attention(self.loaded, text)
        return [{"id": 0, "group": "", **row} for row in rows]

    @contextlib.contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Raise the errors of damaged exported files as a ValueError with the folder's name."""
        try:
            yield
        except (*DAMAGED, ValueError) as error:
            if self.folder is None:
                raise
            raise ValueError(f"{self.folder}: {first_line(error)}; export the model again") from error

    def export(self, to: Path, also: Sequence[Callable[["Model", Path], object]] = (), force: bool = False) -> Path:
        """Write a folder for `load`, and with torch alone for `phrasemodels.load`.

        It has weights and vocabulary with manifests. It has a card and the whole configuration. The functions `also` add
        files, for example `as_ctranslate2`. An unchanged exported model is replaced. ValueError: something else is there
        without `force`. Or the model's own artifacts are there.
        """
        place = to.resolve()
        own = [artifact.path.parent.resolve() for artifact in self.artifacts.values()]
        if any(place.is_relative_to(one) or one.is_relative_to(place) for one in own):
            raise ValueError(f"{to}: the model itself is there; export it to another folder")
        with writing_folder(to, force) as new:
            for name, artifact in self.artifacts.items():
                copy_folder(artifact.folder(), new / name)
            write_durably(new / CARD, json.dumps(self.card(), indent=1))
            predictor = self.experiment.recipe.predictor(self.vocabulary)
            parts = {name: artifact.path for name, artifact in self.artifacts.items()}
            parts |= {name: new / name for name in (ENCODER, FILES)}
            config = self._with_files_in(new)
            write_durably(new / README, model_readme(self.card(), predictor, config))
            how = predictor.described() if predictor and predictor.portable else None
            write_durably(new / LIBRARY, json.dumps(describe(config, parts, how), indent=1))
            for write in also:
                write(self, new)
        return to

    def _with_files_in(self, folder: Path) -> Any:
        """Copy files (for example a pretrained encoder) to a folder. Return the configuration with new names."""

        def written(part: PretrainedConfig | ExportedEncoderConfig, _: Any) -> ExportedEncoderConfig:
            if isinstance(part, ExportedEncoderConfig):
                copy_folder(Path(part.folder), folder / ENCODER)
            else:
                export_encoder(part, folder / ENCODER)
            return ExportedEncoderConfig(str(folder / ENCODER))

        def copied(file: StudyFile, _: Any) -> StudyFile:
            to = folder / FILES / file.sha256[:16] / file.path.name
            copy = shutil.copytree if file.path.is_dir() else shutil.copy
            to.parent.mkdir(parents=True, exist_ok=True)
            copy(file.path, to)
            return StudyFile(str(to), file.sha256)

        def words(part: PretrainedWordsConfig | ExportedWordsConfig, _: Any) -> ExportedWordsConfig:
            if isinstance(part, ExportedWordsConfig):
                copy_folder(Path(part.folder), folder / ENCODER)
            else:
                export_encoder(PretrainedConfig(str(part.folder.path), offline=True), folder / ENCODER)
            return ExportedWordsConfig(replaced(part.over, own, None), str(folder / ENCODER), part.pieces)

        own: dict[type, Callable[[Any, Any], Any]] = {PretrainedConfig: written, ExportedEncoderConfig: written}
        own |= {StudyFile: copied, PretrainedWordsConfig: words, ExportedWordsConfig: words}
        return replaced(self.configured, own, None)

    def card(self) -> dict[str, Any]:
        """Return the card of the model: its paper and training, corpus and scores, and licences."""
        meta = self.weights.meta
        known = {"experiment": self.name, "seed": self.seed, "corpus": self.corpus, "weights": self.weights.key}
        training = {name: meta[name] for name in ("parameters", "dev_loss", "steps", "train_seconds")}
        terms = {name: meta[name] for name in ("licences", "redistributable", "stand_in")}
        paper = papers().get(self.experiment.paper)
        cited = {"name": paper.name, "citation": paper.citation, "bibtex": paper.bibtex} if paper else None
        return {**known, **training, **terms, "scores": self.scores, **({"paper": cited} if cited else {})}

    @property
    def configured(self) -> Any:
        """The model's configuration with the sizes of its vocabulary. ValueError: the vocabulary's manifest lacks one."""
        stages = self.experiment.recipe.stages(self.config, self.experiment.train, self.seed)
        try:
            return stages["model"].settings.objective.configure(self.config, self.vocabulary)
        except KeyError as error:
            raise ValueError(f"{self.vocabulary.path}: its manifest lacks {error}; make the model again") from error

    def check(self) -> None:
        """Check that card, vocabulary and weights can be read. ValueError: the vocabulary's manifest lacks a value."""
        self.card()
        config = self.configured
        for file in self.weights.path.glob("*.safetensors"):
            check_header(config.build, file)


def load(folder: Path) -> Model:
    """Load an exported model. ValueError: it is damaged, or of another version of the code."""
    check_folder(folder)
    weights, vocabulary, bpe = (Store(folder).load(folder / name) for name in PARTS)
    if weights is None or vocabulary is None or (bpe is None and (folder / PARTS[2]).exists()):
        raise ValueError(f"{folder}: not an exported model, or damaged; export it again with `phrasemodels export`")
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        model = _model(weights, vocabulary, bpe, str(card["corpus"]), experiment_of(weights), folder)
        model = dataclasses.replace(model, scores=card.get("scores", {}))
        model.check()
        return model
    except ValueError as error:
        raise ValueError(f"{folder}: {first_line(error)}") from error
    except DAMAGED as error:
        raise ValueError(
            f"{folder}: its card, its configuration or its weights are damaged ({first_line(error)}); export it again"
        ) from error


def find(store: Store, what: str, run_ids: dict[str, str]) -> Model:
    """Return a model by folder, by experiment or by a training or score.

    An experiment means its best seed on dev. A training or score has a key, label or MLflow run. ValueError: it is not
    trained here.
    """
    if Path(what, PARTS[0]).is_dir():
        return load(Path(what))
    lineage = Lineage(store)
    if best := champion(lineage, what):
        return best
    row, changes = divided(what)
    if row in {experiment.name for experiment in experiments(row.partition("/")[0])}:
        sets = "".join(f" --set {change}" for change in changes)
        others = dict.fromkeys(name for name in named(lineage) if divided(name)[0] == row and name != what)
        near = f"; trained here with other settings: {', '.join(others)}" if others else ""
        raise ValueError(
            f"{what} is not trained here (store {store.root}): phrasemodels train {row} --local{sets}{near}"
        )
    try:
        artifact = lineage.find(what, run_ids)
    except ValueError:
        if Path(what).exists():
            raise ValueError(
                f"{what} is no model: name a folder that `phrasemodels export` wrote, or an experiment; "
                "the folder of a parser is for `parse`, `serve` and `parsers score`"
            ) from None
        if "/" in row and " " not in row:
            find_experiment(row)  # names the nearest one
        raise
    trained = [a for _, _, a, _ in lineage.back(artifact) if isinstance(a, Artifact) and a.manifest["step"] == "train"]
    if not trained:
        raise ValueError(
            f"{what!r} is {artifact.manifest['label']}, which no training led to; name a training or a score"
        )
    return stored(lineage, trained[0], experiment_of(trained[0]))


def experiment_of(trained: Artifact) -> Experiment:
    """Return the row of a training today: the row of its name, or one with the same training.

    ValueError: there is none any more.
    """
    from phrasemodels.flows.results.results import renamed

    name = str(trained.about["experiment"])
    try:
        return find_experiment(name)
    except ValueError as error:
        if (known := renamed(name, trained.manifest["parts"]["settings"])) is None:
            raise ValueError(
                f"{name}: no row is trained in this way any more, so nothing says how it answers: {error}"
            ) from None
        return known


def champion(lineage: Lineage, experiment: str) -> Model | None:
    """Return the model of an experiment with the lowest dev loss, among its trainings with the named settings and data.

    A row's own name never means a model with overrides or of another corpus.
    """
    from phrasemodels.flows.results.results import code_of, matches
    from phrasemodels.infra.settings import Settings

    sources = sources_of(Settings())
    try:
        known = find_experiment(experiment)
    except ValueError:
        return None
    by_name = named(lineage)
    seeds = sorted({int(artifact.about["seed"]) for own in by_name.values() for artifact in own})
    keys = []
    with contextlib.suppress(ValueError, OSError):  # a file of the user is missing
        today = resolved(known, sources)
        keys = [today.steps(seed).trained.key for seed in seeds] if today.recipe.trains else []
    # a name is a label, which another row may have had: what has the keys of today comes first
    if not (defined := [lineage.artifacts[key] for key in keys if key in lineage.artifacts]):
        defined = [one for one in by_name.get(experiment, []) if matches(one, known, lineage.artifacts, sources)]
    newest = [artifact for artifact in defined if setting(artifact) == setting(defined[-1])]
    if not newest:
        return None
    now = known.steps(int(newest[-1].about["seed"])).trained.parts
    if (then := code_of([newest[-1].manifest["parts"]])) and then != code_of([now]):
        print(f"{experiment}: its weights are of older code of the study; train it again", file=sys.stderr)
    return stored(lineage, best_of(newest), known)


def named(lineage: Lineage) -> dict[str, list[Artifact]]:
    """Return all trainings in the store by the name of their experiment. The oldest is first."""
    found: dict[str, list[Artifact]] = {}
    for artifact in lineage.artifacts.values():
        if artifact.manifest["step"] in TRAININGS and "experiment" in artifact.about:
            found.setdefault(str(artifact.about["experiment"]), []).append(artifact)
    return found


def best_of(trained: Sequence[Artifact]) -> Artifact:
    """Return the training with the lowest loss on dev."""
    return min(trained, key=lambda a: float(a.meta["dev_loss"]))


def stored(lineage: Lineage, trained: Artifact, known: Experiment) -> Model:
    """Return the model of a training in the store. known: its experiment. ValueError: its vocabulary is gone."""
    key = trained.manifest["parts"]["inputs"].get("vocabulary", "")
    if (vocabulary := lineage.artifacts.get(key)) is None:
        raise ValueError(f"{trained.manifest['label']}: its vocabulary {key} is no longer in the store; train it again")
    bpe = lineage.made_by(vocabulary, "learn_bpe")
    model = _model(trained, vocabulary, bpe, _corpus(lineage, trained), known)
    return dataclasses.replace(model, scores=_scores(lineage, trained))


def _scores(lineage: Lineage, trained: Artifact) -> dict[str, Any]:
    """Return the scores of a training, with mean and interval over all scored seeds of its setting in the store."""
    alike = named(lineage).get(str(trained.about["experiment"]), [trained])
    groups = [_scored(lineage, one) for one in alike if setting(one) == setting(trained)]
    found: dict[str, Any] = {}
    for name, score in _scored(lineage, trained).items():
        seeds = seed_group([of[name]["value"] for of in groups if name in of] or [score["value"]])
        how = {
            "mean": seeds.mean,
            "half_width": None if math.isnan(seeds.half_width) else seeds.half_width,
            "seeds": seeds.n,
            "how": score["signature"],
        }
        found[name] = {"value": score["value"], **how}
    return found


def _scored(lineage: Lineage, trained: Artifact) -> dict[str, Any]:
    """Return the scores of a training by metric, if it has any."""
    found = [
        scored
        for predicted in lineage.made_from.get(trained.key, [])
        for scored in lineage.made_from.get(predicted.key, [])
        if "scores" in scored.meta and scored.about == predicted.about
    ]
    # rows that share a training may score other predictions; after another name those of this row have the new one
    own = [scored for scored in found if scored.about == trained.about] or found[-1:]
    return dict(own[0].meta["scores"]) if own else {}


def _corpus(lineage: Lineage, trained: Artifact) -> str:
    """Return the corpus behind the rows of a training, read or generated."""
    found: Artifact | None = trained
    while found is not None and "corpus" not in found.meta:
        inputs = found.manifest["parts"]["inputs"]
        found = lineage.artifacts.get(next((inputs[role] for role in ROWS if role in inputs), ""))
    return "unknown" if found is None else str(found.meta["corpus"])


def _model(
    trained: Artifact,
    vocabulary: Artifact,
    bpe: Artifact | None,
    corpus: str,
    known: Experiment,
    exported: Path | None = None,
) -> Model:
    """Return a model. exported: its exported folder. It then has the encoder from there."""
    from phrasemodels.infra.settings import Settings

    encoder = str((exported or Path()) / ENCODER)
    if exported is None:
        known = with_encoders(known, sources_of(Settings()))
    config = from_template(known.model, trained.manifest["parts"]["settings"]["model"], known.name)
    made = dataclasses.replace(known, model=config)
    if exported is not None:
        own: dict[type, Callable[[Any, Any], Any]] = {
            PretrainedConfig: lambda *_: ExportedEncoderConfig(encoder),
            PretrainedWordsConfig: lambda part, _: ExportedWordsConfig(part.over, encoder, part.pieces),
            Pieces: lambda *_: ExportedPieces(encoder),
        }
        made = replaced(made, own, None)
    return Model(made, int(trained.about["seed"]), trained, vocabulary, bpe, corpus, exported)


CTRANSLATE2 = "ctranslate2"  # a folder in the folder of an exported model


def as_ctranslate2(model: Model, folder: Path) -> Path:
    """Write a translator for CTranslate2 to a folder within `folder`. ValueError: it is not a plain Transformer."""
    recipe = model.experiment.recipe
    check_plain(model.config)
    assert isinstance(recipe, TranslationRecipe)  # no other problem has such a configuration
    inputs = {"model": model.weights, "vocabulary": model.vocabulary}
    translator = load_trained(recipe.problem, model.config, inputs)
    source, target = (read_words(model.vocabulary, side) for side in ("source", "target"))
    return write_ctranslate2(translator, model.configured, source, target, recipe.phrases.marks, folder / CTRANSLATE2)
