"""The base of all recipes: their steps and their sections, tables and figures for a report."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import HasKey, Job, Step
from phrasemodels.inference.inputs import DETOKENISERS, MARKED, TOKENISERS
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Predictor
from phrasemodels.tasks.metrics.scores import Metric, OwnScoring, check_metrics, score_with_own
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.train.checkpoints import best_device, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective, TrainSettings, train

MOST_WORDS = 80  # of a sentence that is drawn against itself; a figure has the square of them as cells


@dataclass(frozen=True)
class Outcome:
    """A finished training of one row and seed: its experiment, configurations and artifacts."""

    experiment: str
    row: str
    system: str
    variant: str
    seed: int
    recipe: "Recipe"
    model: Any
    train: TrainConfig
    trained: Artifact
    predicted: Artifact
    scored: Artifact


@dataclass(frozen=True)
class Matrix:
    """Numbers of any sign (rows, columns) with a scale. axes: the meaning of rows and columns. text: for a screen reader."""

    values: NDArray[Any]
    rows: Sequence[str]
    columns: Sequence[str]
    axes: tuple[str, str]
    text: str


@dataclass(frozen=True)
class Sweep:
    """Values in percent of all seeds by a varied number. Each name has a mean, lowest and highest line.

    axis: the name of the varied number. values: the name of the values.
    """

    lines: Mapping[str, Mapping[float, Sequence[float]]]
    axis: str
    values: str


Figure = Matrix | Sweep


@dataclass(frozen=True)
class ErrorKind:
    """A kind of errors: their number, share in percent and examples as named texts."""

    kind: str
    count: int
    share: float
    examples: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A section of a page: heading, text, rows of a table (column -> text), a figure, kinds of errors."""

    title: str
    text: str
    rows: Sequence[Mapping[str, str]] = ()
    figure: Figure | None = None
    errors: Sequence[ErrorKind] = ()


def too_large(rows: int, columns: int) -> str:
    """Return why a figure of so many words cannot be drawn. It is empty if it can."""
    if rows * columns <= MOST_WORDS**2:
        return ""
    return f"{rows} by {columns} words are too many for a figure; take a shorter sentence"


PARTS = ("model", "vocabulary", "bpe")  # the artifacts of a trained model; bpe: only if words are divided into pieces


@dataclass(frozen=True)
class Stage:
    """A step of one training: function, settings and inputs by names of data or earlier stages.

    fans_out: as in Step.
    """

    make: Callable[[Job, Any], dict[str, Any]]
    settings: Any
    inputs: Mapping[str, str]
    fans_out: bool = False


@dataclass(frozen=True)
class Recipe(ABC):
    """A problem on a corpus. With a model and a training configuration it is an experiment.

    A problem has to give its data and stages. The other methods have defaults. A problem with text or a figure of its own
    overrides them.

    Args:
        metrics: Metrics of your own, beside the problem's.
    """

    corpus: Any
    metrics: tuple[Metric, ...] = field(default=(), kw_only=True)  # of one's own, beside the problem's

    slug: ClassVar[str] = ""  # the problem in `name`
    answer_columns: ClassVar[tuple[str, str] | None] = None  # of predictions.arrow: gold answer, predicted answer
    trains: ClassVar[bool] = True  # whether there are the stages `model` and `predictions`; if not, one run is enough
    takes_text: ClassVar[bool] = False  # whether `attention` is implemented, and models answer texts

    @property
    def name(self) -> str:
        """Problem and corpus. Trainings with equal names can be compared."""
        return f"{self.slug}-{self.corpus.name}"

    @property
    def problem_name(self) -> str:
        """The problem in words, or the name of the count if nothing is trained."""
        words = self.slug.replace("-", " ")
        return words if self.trains else f"count: {words}"

    @abstractmethod
    def data(self) -> dict[str, Step]:
        """Return the steps shared by all models and seeds, by name."""

    @abstractmethod
    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        """Return `model`, `predictions`, `scores` and perhaps others, each after the stages it needs.

        It returns `scores` alone if nothing is trained.
        """

    def measured_stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        """Return the stages, whose scores also have the metrics of one's own. ValueError: the answers are no columns."""
        stages = self.stages(model, config, seed)
        if not self.metrics:
            return stages
        if self.answer_columns is None:
            raise ValueError(f"{self.name}: this problem has no answers as text, which metrics of one's own need")
        check_metrics(self.metrics)
        scores = stages["scores"]
        settings = OwnScoring(scores.make, scores.settings, self.answer_columns, self.metrics)
        return stages | {"scores": dataclasses.replace(scores, make=score_with_own, settings=settings)}

    def without_optional_libraries(self) -> Self:
        """Return the recipe for a machine with torch, pyarrow and sacrebleu alone (`train --local --data`).

        Parts with other libraries are left out, such as a detokeniser with the metrics on running text.
        """
        return self

    def test_rows(self) -> Step:
        """Return the step that yields the records of the test set, with trees if the model reads them."""
        return self.corpus.split("test")

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        """Return the question of a row of predictions as text. record: the test record with the same id."""
        return " ".join(prediction["source"])

    def predictor(self, vocabulary: Artifact) -> Predictor | None:
        """Return how a trained model answers texts. None: it takes no texts. vocabulary: the model's."""
        return None

    def own_parts(self) -> Mapping[str, Any]:
        """Return the user's functions in the predictor."""
        return {}

    def loaded(self, model: Any, artifacts: Mapping[str, Artifact]) -> LoadedModel:
        """Return a trained model that answers texts. model: its configuration. artifacts: its parts (PARTS).

        Raises:
            ValueError: The problem takes no text, or the weights don't fit.
        """
        vocabulary = artifacts["vocabulary"]
        if (how := self.predictor(vocabulary)) is None:
            raise ValueError(f"{self.name}: models of this problem cannot be asked about single sentences")
        objective = self.stages(model, TrainConfig(), 0)["model"].settings.objective
        module = load_trained(objective, model, artifacts, best_device())
        words = {path.stem: read_words(vocabulary, path.stem) for path in sorted(vocabulary.folder().glob("*.txt"))}
        bpe = artifacts["bpe"].file("bpe.json") if "bpe" in artifacts else None
        return LoadedModel(module, model, words, predictor=how, parts=self.own_parts(), bpe=bpe)

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        """Return the attention to a text as rows of ATTENTION without id and group. ValueError: the model has none."""
        raise ValueError(f"{self.name}: models of this problem have no attention to single sentences")

    def sections(self, outcomes: Sequence[Outcome], run: Callable[[Step], Artifact]) -> list[Section]:
        """Return the parts of a table's report beside its numbers. run: runs a further step."""
        return []


def text_name(function: Any) -> str:
    """Return the name of a tokeniser or detokeniser in an exported model: its own, or "module:name" of a user's."""
    if (inner := getattr(function, "tokeniser", None)) is not None:
        return MARKED + text_name(inner)
    name = getattr(function, "__name__", type(function).__name__)
    ours = function.__module__.startswith("phrasemodels.") and name in {*TOKENISERS, *DETOKENISERS}
    return name if ours else f"{function.__module__}:{name}"


def training_stage(objective: Objective, model: Any, config: TrainConfig, seed: int) -> Stage:
    """Return the stage that trains a model on the data `train`, `dev` and `vocabulary`."""
    inputs = {name: name for name in ("train", "dev", "vocabulary")}
    return Stage(train, TrainSettings(objective, model, config, seed), inputs)


def steps_of(
    name: str,
    recipe: Recipe,
    model: Any,
    config: TrainConfig,
    seed: int,
    about: Mapping[str, Any] | None = None,
    data: Mapping[str, HasKey] | None = None,
) -> dict[str, Step]:
    """Return the steps of one training of the experiment `name`, by stage.

    Args:
        about: Further facts for the manifests, beside experiment and seed.
        data: In place of the recipe's own data, by name.
    """
    known: dict[str, HasKey] = {**(recipe.data() if data is None else data)}
    stages = recipe.measured_stages(model, config, seed)
    identity, made = {"experiment": name, "seed": seed, **(about or {})}, dict[str, Step]()
    for stage_name, stage in stages.items():
        inputs = {ours: known[theirs] for ours, theirs in stage.inputs.items()}
        label = f"{stage.make.__name__} {name} seed {seed}"
        known[stage_name] = made[stage_name] = Step(stage.make, label, stage.settings, inputs, identity, stage.fans_out)
    return made
