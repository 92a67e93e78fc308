"""Question answering: from stories to answers and the facts behind them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from phrasemodels.data.store.step import Job, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.tasks.prepare.corpora import AnyCorpus
from phrasemodels.tasks.problems.answering.data import StoryLimits, stories, story_vocabulary
from phrasemodels.tasks.problems.answering.objective import (
    AnsweringObjective,
    MemoryConfig,
    RestartSettings,
    train_restarts,
)
from phrasemodels.tasks.problems.answering.predict import AnswerScoring, answer, score_answers
from phrasemodels.tasks.problems.answering.report import story_figure
from phrasemodels.tasks.problems.recipe import Recipe, Stage, one_model
from phrasemodels.tasks.problems.report import Figure, TrainedModel
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import train


@dataclass(frozen=True)
class AnsweringRecipe(Recipe):
    """Stories, the number of starts of each training, how much of a story is kept, its scoring, and what trains each start."""

    corpus: AnyCorpus
    restarts: int = 20
    kept: StoryLimits = field(default_factory=StoryLimits)
    scoring: AnswerScoring = field(default_factory=AnswerScoring)
    trainer: Callable[[Job, Any], dict[str, Any]] = train

    slug: ClassVar = "answering"
    answer_columns: ClassVar = ("answer", "predicted")

    def __post_init__(self) -> None:
        at_least(self, 1, "restarts")

    @property
    def averaged(self) -> int:
        """The number of starts over which facts are averaged: all, where there are fewer than are asked for."""
        return min(self.scoring.averaged, self.restarts)

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(story_vocabulary, f"vocabulary {self.corpus.name}", None, {"rows": raw["train"]})
        numbers = {
            split: Step(
                stories, f"stories {self.corpus.name} {split}", self.kept, {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words}

    def stages(self, model: MemoryConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = AnsweringObjective()
        data = {name: name for name in ("train", "dev", "vocabulary")}
        return {
            "model": Stage(
                train_restarts,
                RestartSettings(objective, model, config, seed, self.restarts, self.trainer),
                data,
                fans_out=True,
            ),
            "predictions": Stage(
                answer,
                PredictSettings(objective, model, 8192),
                {"model": "model", "stories": "test", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(score_answers, self.scoring, {"predictions": "predictions", "stories": "test"}),
        }

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return " / ".join(filter(None, (" ".join(record["facts"]), record["question"])))

    def draw(self, models: Sequence[TrainedModel], text: str, target: str) -> Figure:
        """Return the weights of a story's facts."""
        return story_figure(one_model(models), text)
