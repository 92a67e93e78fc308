"""Paper 002: Table 1 and the vocabulary of MSParS, which are counted, and the parameters of Tables 4 and 5, whose models are
only built."""

from dataclasses import replace

from phrasemodels.flows.experiments.counting import CORPUS, counted, exact
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.flows.experiments.paper_002 import PAPER, SIZES
from phrasemodels.flows.experiments.paper_002_data import ATIS
from phrasemodels.flows.experiments.paper_002_systems import LAYERS, MODELS, PHRASE, RELEASED, TRANSFORMER, changed
from phrasemodels.flows.experiments.table import Row
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.tokenise import spaces
from phrasemodels.tasks.problems.counting.corpora import CorpusSizeRecipe
from phrasemodels.tasks.problems.counting.parameters import ModelSizeRecipe
from phrasemodels.tasks.problems.counting.vocabulary import VocabularyRecipe

SPLITS = ("train", "dev", "test")
OF_TRAIN = {
    "types source": "src_vocab_size",
    "types target": "tgt_vocab_size",
    "length source": "src_avg_length",
    "length target": "tgt_avg_length",
}
MSPARS, MSPARS_WORDS = "MSParS (BPE6k)", 5854  # of both sides, as Table 1 prints the target's
ONE_SIDE = f"both sides share {MSPARS_WORDS:,} words, which Table 1 prints of the target"
# The authors' scripts leave out words that are seen less than three times; both sides share one vocabulary (section 4.2).
LEFT_OUT = "words that are seen less than three times are left out, as in the released script"
ATIS_WORDS = replace(ATIS.recipe, forms=replace(ATIS.recipe.forms, min_count=3, joint=True))


def _examples(dataset: str, splits: tuple[str, ...]) -> tuple[Answer, ...]:
    cell = Cell(PAPER, "Table 1", CORPUS, "", "n_examples", dataset)
    return tuple(exact(f"rows {split}", replace(cell, split=split)) for split in splits)


def table_1(profile: str) -> list[Experiment]:
    """Table 1: examples, types and mean lengths of Geo and Atis; of MSParS what is public of its examples."""
    table, rows = TableName(PAPER, "1", "table1"), []
    for dataset, corpus in (("Geo", "geoquery"), ("Atis", "atis")):
        of_train = tuple(
            exact(ours, Cell(PAPER, "Table 1", CORPUS, "", theirs, dataset, "train"))
            for ours, theirs in OF_TRAIN.items()
        )
        recipe = CorpusSizeRecipe(Corpus(corpus), {split: split for split in SPLITS}, spaces)
        answers = _examples(dataset, SPLITS) + of_train
        rows.append(counted(table, dataset.lower(), (CORPUS, dataset), recipe, answers))
    for part, splits in (("questions", ("train", "test")), ("official", ("dev",))):
        recipe = CorpusSizeRecipe(Corpus("mspars", part), {split: split for split in splits})
        rows.append(counted(table, f"mspars-{part}", (CORPUS, "MSParS"), recipe, _examples(MSPARS, splits)))
    return rows


def vocabulary(profile: str) -> list[Experiment]:
    """Sections 4.1 and 4.3.1: the words of MSParS before BPE, and how many of them are seen less than four times."""
    note = "ours is of the questions, and the paper does not say whether it is of these"
    about = Cell(PAPER, "text 4.1", CORPUS, "original (no BPE)", "vocab_size_thousand_about", "MSParS")
    share = Cell(
        PAPER, "text 4.3.1", CORPUS, "words seen fewer than 4 times", "share_of_vocabulary_more_than", "MSParS"
    )
    answers = (exact("thousand words", about, note=note), exact("rare", share, note=note))
    recipe = VocabularyRecipe(Corpus("mspars", "questions"), below=4)
    table = TableName(PAPER, "1-vocabulary", "table1-vocabulary")
    return [counted(table, "mspars-questions", (CORPUS, "MSParS"), recipe, answers)]


def _model(row: Row, words: int = 0) -> TranslationConfig:
    """The model of a row at the paper's size, with a vocabulary of so many words."""
    model: TranslationConfig = changed(row, preset=RELEASED).model(SIZES["paper"])
    return replace(model, source_vocabulary=words, target_vocabulary=words)


def parameters(profile: str) -> list[Experiment]:
    """Table 5 and section 4.3.1: parameters with MSParS' vocabulary, whose size Table 1 prints."""
    table, rows = TableName(PAPER, "5-parameters", "table5-parameters"), []
    transformer = _model(TRANSFORMER, MSPARS_WORDS)
    for row in (TRANSFORMER, MODELS[3], MODELS[4]):
        answers: tuple[Answer, ...] = (
            exact("parameters", Cell(PAPER, "Table 5", row.system, row.variant, "parameters", "MSParS"), note=ONE_SIDE),
        )
        if row is MODELS[3]:
            more = Cell(PAPER, "text 4.3.1", PHRASE, "vs Transformer", "parameter_increase")
            answers += (exact("increase", more, note=ONE_SIDE),)
        recipe = ModelSizeRecipe(other=None if row is TRANSFORMER else transformer)
        model = _model(row, MSPARS_WORDS)
        rows.append(counted(table, row.slug, (row.system, row.variant), recipe, answers, model))
    return rows


def layers(profile: str) -> list[Experiment]:
    """Table 4: parameters with n-grams in some layers, with Atis' vocabulary."""
    table, rows = TableName(PAPER, "4-parameters", "table4-parameters"), []
    for name, chosen in LAYERS.items():
        cell = Cell(PAPER, "Table 4", PHRASE, f"layers={name}", "parameters", "Atis")
        model = _model(changed(MODELS[3], layers=chosen))
        recipe = ModelSizeRecipe(ATIS_WORDS.corpus, ATIS_WORDS)
        slug = "layers-" + name.strip("[]").replace(" ", "")
        answers = (exact("parameters", cell, note=LEFT_OUT),)
        rows.append(counted(table, slug, (PHRASE, f"layers={name}"), recipe, answers, model))
    return rows


TABLES = {"1": table_1, "1-vocabulary": vocabulary, "4-parameters": layers, "5-parameters": parameters}
