"""Recipes: the identity of their steps, what a problem inherits, and the metrics of groups of sentences."""

import numpy as np
import pytest
from running import small_corpus

from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment, experiments
from phrasemodels.tasks.metrics.scores import accuracies, by_group
from phrasemodels.tasks.problems.recipe import steps_of
from phrasemodels.tasks.problems.tagging import TaggingRecipe

ROW = "003/tabletrees/sample/none"


def test_the_manifest_of_a_training_says_for_whom_it_was_made(store: Store) -> None:
    small = *small_corpus(20, 5, 5), "train.steps=1"
    chosen = experiment(ROW, small)
    steps = steps_of(chosen.name, chosen.recipe, chosen.model, chosen.train, 3, {"paper": "003"})
    trained = store.run(steps["model"])
    assert trained.about == {"experiment": chosen.name, "seed": 3, "paper": "003"}
    assert steps["model"].key == chosen.steps(3).trained.key, "the key does not depend on it"


def test_every_recipe_that_answers_inputs_implements_all_three_methods() -> None:
    names = ("predict_step", "attention_step", "as_text")
    for recipe in {type(e.recipe) for e in experiments()}:
        own = [getattr(recipe, name) is not getattr(TaggingRecipe, name) for name in names]
        assert set(own) == {recipe.answers_inputs}, recipe


def test_a_recipe_that_takes_no_text_says_so() -> None:
    chosen = experiment("000/table2/sample/transformer")
    with pytest.raises(
        ValueError, match=r"^tagging-sample-tags: models of this problem cannot be asked about single sentences$"
    ):
        chosen.recipe.as_text({})


def test_accuracies_of_groups_by_hand() -> None:
    groups = ["b", "", "a", "b"]
    scores = accuracies(np.array([True, False, True, False]), groups, "share")
    assert {name: (score.value, score.sentences) for name, score in scores.items()} == {
        "accuracy": (50, 4), "accuracy/a": (100, 1), "accuracy/b": (50, 2)}  # fmt: skip
    assert [mask.sum() for mask in by_group(groups).values()] == [4, 1, 2]
