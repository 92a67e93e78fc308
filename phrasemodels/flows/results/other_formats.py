"""Trained models in formats of other tools."""

from pathlib import Path

from phrasemodels.flows.results.models import Model
from phrasemodels.models.ctranslate2 import check_plain, write_ctranslate2
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe
from phrasemodels.tasks.train.checkpoints import load_trained

CTRANSLATE2 = "ctranslate2"  # a folder in that of an exported model


def as_ctranslate2(model: Model, folder: Path) -> Path:
    """Write a translator for CTranslate2 to a folder within `folder`. ValueError: it is not a plain Transformer."""
    recipe = model.experiment.recipe
    check_plain(model.config)
    assert isinstance(recipe, TranslationRecipe)  # no other problem has such a configuration
    inputs = {"model": model.weights, "vocabulary": model.vocabulary}
    translator = load_trained(recipe.problem, model.config, inputs)
    source, target = (read_words(model.vocabulary, side) for side in ("source", "target"))
    return write_ctranslate2(translator, model.configured, source, target, recipe.phrases.marks, folder / CTRANSLATE2)
