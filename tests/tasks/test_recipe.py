"""Recipes: the identity of their steps, what a problem inherits, and the metrics of groups of sentences."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from running import small_corpus

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment, experiments
from phrasemodels.tasks.metrics.scores import accuracies, by_group
from phrasemodels.tasks.problems.recipe import Recipe, steps_of
from phrasemodels.tasks.problems.tagging import TaggingRecipe

ROW = "003/tabletrees/sample/none"


def test_the_manifest_of_a_training_says_for_whom_it_was_made(store: Store) -> None:
    small = *small_corpus(20, 5, 5), "train.steps=1"
    chosen = experiment(ROW, small)
    steps = steps_of(chosen.name, chosen.recipe, chosen.model, chosen.train, 3, {"paper": "003"})
    trained = store.run(steps["model"])
    assert trained.about == {"experiment": chosen.name, "seed": 3, "paper": "003"}
    assert steps["model"].key == chosen.steps(3).trained.key, "the key does not depend on it"


def test_every_recipe_that_takes_text_shows_attention_and_predicts() -> None:
    for recipe in {type(e.recipe) for e in experiments() if e.recipe.trains}:
        assert not recipe.takes_text or recipe.attention is not Recipe.attention, recipe
        assert recipe.predictor is not Recipe.predictor, recipe


@dataclass(frozen=True)
class Silent(TaggingRecipe):
    def predictor(self, vocabulary: Artifact) -> None:
        return None


def test_a_recipe_that_takes_no_text_says_so() -> None:
    chosen = experiment("000/table2/sample/transformer")
    wanted = "tagging-sample-tags: models of this problem cannot be asked about single sentences"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        Silent(chosen.recipe.corpus).loaded(chosen.model, {"vocabulary": Artifact(Path(), {})})


def test_accuracies_of_groups_by_hand() -> None:
    groups = ["b", "", "a", "b"]
    scores = accuracies(np.array([True, False, True, False]), groups, "share")
    assert {name: (score.value, score.sentences) for name, score in scores.items()} == {
        "accuracy": (50, 4), "accuracy/a": (100, 1), "accuracy/b": (50, 2)}  # fmt: skip
    assert [mask.sum() for mask in by_group(groups).values()] == [4, 1, 2]
