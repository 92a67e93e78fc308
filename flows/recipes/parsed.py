"""Who plants the trees: what a recipe puts between a corpus and what reads its trees."""

from dataclasses import dataclass

from data.store import Step
from flows.experiment import Experiment
from tasks.parse import Plant, everywhere, plant
from tasks.parser_models import fetched
from tasks.stanza_parser import Stanza
from tasks.tokenise import Tokeniser, spaces
from tasks.trained_parser import Trained


@dataclass(frozen=True)
class ByStanza:
    """PAIRS or SENTENCES with constituency trees by Stanza, with the models that a mirror has, over words that `divide`
    finds, or that spaces part."""

    divide: Tokeniser = spaces

    def __call__(self, rows: Step) -> Step:
        settings = Plant(Stanza(processors=("pos", "constituency")), everywhere, self.divide)
        return Step(plant, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})


by_stanza = ByStanza()


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
