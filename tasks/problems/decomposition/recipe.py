"""Natural language inference by decomposable attention: from pairs of sentences to accuracy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from phrasemodels.data.store.step import Step
from phrasemodels.models.decomposable import DecomposableConfig
from phrasemodels.tasks.prepare.held_out import Divided
from phrasemodels.tasks.problems.decomposition.data import Pairs, PairWords, pair_vocabulary, pairs
from phrasemodels.tasks.problems.decomposition.objective import (
    Accuracy,
    Decomposition,
    LabelSettings,
    label,
    score_labels,
)
from phrasemodels.tasks.problems.entailment.recipe import as_they_are
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train


@dataclass(frozen=True)
class DecompositionRecipe:
    """Pairs of sentences with train, dev and test; words seen fewer than min_count times are unknown.

    parsed: from records to the same records with trees, whose heads are the hard parents.
    """

    corpus: Divided
    min_count: int = 1
    parsed: Callable[[Step], Step] = as_they_are

    @property
    def name(self) -> str:
        return f"entailment-{self.corpus.name}"

    @property
    def curve(self) -> str:
        return "wrong labels on dev (share of pairs)"

    def bare(self) -> Self:
        return self

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        name, settings = self.corpus.name, PairWords(self.min_count)
        words = Step(pair_vocabulary, f"vocabulary {name}", settings, {"rows": raw["train"]})

        def numbers(label: str, rows: Step) -> Step:
            return Step(pairs, label, Pairs(), {"rows": rows, "vocabulary": words})

        known = {split: numbers(f"pairs {name} {split}", self.parsed(raw[split])) for split in raw}
        # rows with other trees are scored on the same test set
        return {**known, "asked": numbers(f"pairs {name} test", raw["test"]), "vocabulary": words}

    def stages(self, model: DecomposableConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = Decomposition()
        data = {name: name for name in ("train", "dev", "vocabulary")}
        answers = {"model": "model", "pairs": "test", "vocabulary": "vocabulary"}
        return {
            "model": Stage(train, TrainSettings(problem, model, config, seed), data),
            "predictions": Stage(label, LabelSettings(problem, model), answers),
            "scores": Stage(score_labels, Accuracy(), {"predictions": "predictions", "pairs": "asked"}),
        }
