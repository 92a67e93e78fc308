"""Natural language inference by decomposable attention: from pairs of sentences to accuracy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from phrasemodels.data.store.step import Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.decomposable import DecomposableConfig
from phrasemodels.tasks.prepare.corpora import AnyCorpus, as_they_are
from phrasemodels.tasks.problems.decomposition.data import (
    PairNumbers,
    PairVocabulary,
    Words,
    lower_case,
    pair_vocabulary,
    pairs,
)
from phrasemodels.tasks.problems.decomposition.objective import DecompositionObjective
from phrasemodels.tasks.problems.decomposition.predict import label, score_labels
from phrasemodels.tasks.problems.decomposition.report import parents_figure
from phrasemodels.tasks.problems.entailment.data import VectorFile
from phrasemodels.tasks.problems.recipe import Recipe, Stage, one_model, training_stage
from phrasemodels.tasks.problems.report import Figure, TrainedModel
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class DecompositionRecipe(Recipe):
    """Pairs of sentences. Words that occur fewer than min_count times in train are unknown.

    words: how a text becomes words, `lower_case` or `as_written`. vectors: a file of word vectors, which are not trained; then
    words without one share a hundred random vectors (`numbers_of`). Without a file vectors are learned.
    parsed: from records to the same records with trees, whose heads are the hard parents.
    """

    corpus: AnyCorpus
    min_count: int = 1
    parsed: Callable[[Step], Step] = as_they_are
    words: Words = lower_case
    vectors: VectorFile | None = None

    slug: ClassVar = "entailment"
    answer_columns: ClassVar = ("gold", "label")

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        name, settings = self.corpus.name, PairVocabulary(self.min_count, self.words, self.vectors)
        read = (
            raw if self.vectors else {"rows": raw["train"]}
        )  # vectors are not trained, so words of dev and test may have theirs
        words = Step(pair_vocabulary, f"vocabulary {name}", settings, read)

        def numbers(label: str, rows: Step) -> Step:
            return Step(pairs, label, PairNumbers(self.words), {"rows": rows, "vocabulary": words})

        known = {split: numbers(f"pairs {name} {split}", self.parsed(raw[split])) for split in raw}
        # `test` may have other trees for each row of a table; all are scored on the same test set
        return {**known, "test_set": numbers(f"pairs {name} test", raw["test"]), "vocabulary": words}

    def stages(self, model: DecomposableConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = DecompositionObjective()
        answers = {"model": "model", "pairs": "test", "vocabulary": "vocabulary"}
        return {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(label, PredictSettings(objective, model, 4096), answers),
            "scores": Stage(score_labels, None, {"predictions": "predictions", "pairs": "test_set"}),
        }

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return " / ".join(filter(None, (record["premise"], record["hypothesis"])))

    def draw(self, models: Sequence[TrainedModel], text: str, target: str) -> Figure:
        """Return the soft parents of a sentence."""
        return parents_figure(one_model(models), self.words(text))
