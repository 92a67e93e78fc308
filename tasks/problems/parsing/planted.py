"""Trees by a parser of the project, for corpora of other problems."""

from dataclasses import dataclass

from phrasemodels.data.store.step import Step
from phrasemodels.models.parser import ParserConfig
from phrasemodels.tasks.parsers.parse import Plant, everywhere, plant
from phrasemodels.tasks.parsers.trained import Trained
from phrasemodels.tasks.problems.parsing.recipe import ParsingRecipe
from phrasemodels.tasks.problems.recipe import steps_of
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class ByParser:
    """Plants constituency trees into PAIRS or SENTENCES with a parser of paper 004, which is trained first.

    name: of the experiment that trains the parser; recipe, model, train and seed are that experiment's.
    """

    name: str
    recipe: ParsingRecipe
    model: ParserConfig
    train: TrainConfig
    seed: int = 0

    def __call__(self, rows: Step) -> Step:
        steps = steps_of(self.name, self.recipe, self.model, self.train, self.seed)
        trained = Trained(self.recipe.problem, self.model, self.recipe.divide)
        inputs = {"weights": steps["model"], "vocabulary": self.recipe.data()["vocabulary"]}
        return Step(
            plant, f"trees of {rows.label} by {self.name}", Plant(trained, everywhere), {"rows": rows, **inputs}
        )
