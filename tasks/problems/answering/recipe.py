"""Question answering: from stories to answers and the facts behind them."""

from dataclasses import dataclass, field
from typing import Self

from phrasemodels.data.store.step import Step
from phrasemodels.tasks.prepare.held_out import Divided
from phrasemodels.tasks.problems.answering.data import Stories, StoryWords, stories, story_vocabulary
from phrasemodels.tasks.problems.answering.objective import (
    Answering,
    AnswerScoring,
    AnswerSettings,
    MemoryConfig,
    RestartSettings,
    answer,
    score_answers,
    train_restarts,
)
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class AnsweringRecipe:
    """Stories with train, dev and test, how much of a story is kept, and from how many starts is trained."""

    corpus: Divided
    restarts: int = 20
    kept: Stories = field(default_factory=Stories)
    scoring: AnswerScoring = field(default_factory=AnswerScoring)

    @property
    def name(self) -> str:
        return f"answering-{self.corpus.name}"

    @property
    def curve(self) -> str:
        return "wrong answers on dev (share of questions)"

    def bare(self) -> Self:
        return self

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(story_vocabulary, f"vocabulary {self.corpus.name}", StoryWords(), {"rows": raw["train"]})
        numbers = {
            split: Step(
                stories, f"stories {self.corpus.name} {split}", self.kept, {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words}

    def stages(self, model: MemoryConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = Answering()
        data = {name: name for name in ("train", "dev", "vocabulary")}
        return {
            "model": Stage(
                train_restarts, RestartSettings(problem, model, config, seed, self.restarts), data, spread=True
            ),
            "predictions": Stage(
                answer,
                AnswerSettings(problem, model),
                {"model": "model", "stories": "test", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(score_answers, self.scoring, {"predictions": "predictions", "stories": "test"}),
        }
