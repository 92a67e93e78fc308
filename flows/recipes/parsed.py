"""Records with trees: what a recipe puts between a corpus without trees and what reads them."""

from data.store import Step
from tasks.parse import Plant, plant
from tasks.parser_models import fetched
from tasks.stanza_parser import Stanza


def by_stanza(rows: Step) -> Step:
    """PAIRS or SENTENCES with a constituency tree wherever they had none, by the models that a mirror has. Words are
    apart by spaces."""
    settings = Plant(Stanza(processors=("pos", "constituency")))
    return Step(plant, f"trees of {rows.label} by Stanza", settings, {"rows": rows, "models": fetched("gum")})
