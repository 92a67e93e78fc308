"""Paper 000: the sizes of Multi30k that section 4.1 names."""

from phrasemodels.flows.experiments.counting import counted, exact
from phrasemodels.flows.experiments.experiment import Cell, Experiment, TableName
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.problems.counting.corpora import CorpusSizeRecipe

PAPER = "000"
SPLITS = ("train", "dev", "test")


def sizes(profile: str) -> list[Experiment]:
    """Sentences of Multi30k, in thousands."""
    name = "Multi30k (WMT16 multimodal)"
    answers = tuple(
        exact(f"thousands {split}", Cell(PAPER, "text 4.1", "dataset", "", "n_samples_thousand", name, split))
        for split in SPLITS
    )
    recipe = CorpusSizeRecipe(Corpus("multi30k"), {split: split for split in SPLITS})
    return [counted(TableName(PAPER, "sizes", "sizes"), "multi30k", ("dataset", "Multi30k"), recipe, answers)]


TABLES = {"sizes": sizes}
