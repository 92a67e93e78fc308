"""Who plants the trees: what a recipe puts between a corpus and what reads its trees."""

from dataclasses import dataclass

from phrasemodels.data.store.step import Step
from phrasemodels.tasks.parsers.models import fetched
from phrasemodels.tasks.parsers.parse import Plant, everywhere, plant
from phrasemodels.tasks.parsers.stanza_parser import Stanza
from phrasemodels.tasks.prepare.tokenise import Tokeniser, spaces


@dataclass(frozen=True)
class ByStanza:
    """PAIRS or SENTENCES with constituency trees by Stanza, with the models that a mirror has, over words that `divide`
    finds, or that spaces part."""

    divide: Tokeniser = spaces

    def __call__(self, rows: Step) -> Step:
        settings = Plant(Stanza(processors=("pos", "constituency")), everywhere, self.divide)
        return Step(plant, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})


by_stanza = ByStanza()
