"""Who plants the trees: what a recipe puts between a corpus and what reads its trees. Words are apart by spaces."""

from dataclasses import dataclass

from data.store import Step
from flows.experiment import Experiment
from tasks.parse import Plant, everywhere, plant
from tasks.parser_models import fetched
from tasks.stanza_parser import Stanza
from tasks.trained_parser import Trained


def by_stanza(rows: Step) -> Step:
    """PAIRS or SENTENCES with constituency trees by Stanza, with the models that a mirror has."""
    settings = Plant(Stanza(processors=("pos", "constituency")), everywhere)
    return Step(plant, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})


@dataclass(frozen=True)
class ByParser:
    """PAIRS or SENTENCES with constituency trees by a parser of the project (paper 004), which is trained first."""

    parser: Experiment
    seed: int = 0

    def __call__(self, rows: Step) -> Step:
        recipe = self.parser.recipe
        trained = Trained(recipe.problem, self.parser.model, recipe.divide)  # type: ignore[attr-defined]
        inputs = {"weights": self.parser.steps(self.seed).trained, "vocabulary": recipe.data()["vocabulary"]}
        label = f"trees of {rows.label} by {self.parser.name}"
        return Step(plant, label, Plant(trained, everywhere), {"rows": rows, **inputs})
