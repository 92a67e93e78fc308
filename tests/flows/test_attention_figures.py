"""Pages of attention show what the models compute, and say which sentence is too long."""

import numpy as np
import pytest
from running import trained

from phrasemodels.data.store.store import Store
from phrasemodels.flows.report.plots import attention_figures, in_words
from phrasemodels.tasks.problems.recipe import MOST_WORDS


def test_facts_and_soft_parents_are_pages_of_attention(tmp_path):
    store = Store(tmp_path).open()
    model = trained(store, "003/tablebabi/sample/binary-facts2", "recipe.restarts=1")
    (row,) = model.attend("Mary went home. She took the milk. Where is Mary?")
    assert row["tokens"] == ["Mary went home", "She took the milk"] and row["shape"] == [1, 2, 2]
    assert sorted(step.partition(": ")[2] for step in row["written"]) == sorted(row["tokens"]), "the best chain"
    for text in ("...", "Mary went home."):
        with pytest.raises(ValueError, match="no story"):
            model.attend(text)
    (tree,) = trained(store, "003/tablesnli/sample/structured").attend("a man sleeps")
    assert tree["tokens"] == ["root", "a", "man", "sleeps"] and tree["shape"] == [1, 3, 4]
    assert [arc.split(" ← ")[0] for arc in tree["written"]] == ["a", "man", "sleeps"]
    assert sum(arc.endswith(" ← root") for arc in tree["written"]) >= 1, "the best tree"
    with pytest.raises(ValueError, match="no soft parents"):
        trained(store, "003/tablesnli/sample/none").attend("a man")
    assert all("<svg" in figure["plot"] for figure in attention_figures([row, tree]))


@pytest.mark.parametrize(
    ("module", "heading"),
    [
        ("encoder.layers.0.attention", "Encoder, layer 1: self-attention"),
        ("encoder.layers.1.inside", "Encoder, layer 2: phrases and their words attend to each other (phase 2)"),
        ("decoder.5.source", "Decoder, layer 6: attention to the source"),
        ("attention 2", "Words attend inside their phrases, level 2"),
        ("summary", "The sentence attends to its words"),
        ("mine.heads", "mine.heads"),
    ],
)
def test_headings_of_figures_are_words(module: str, heading: str) -> None:
    assert in_words(module) == heading


@pytest.mark.parametrize(("words", "fits"), [(MOST_WORDS, True), (MOST_WORDS + 1, False)])
def test_a_page_says_which_sentence_is_too_long_to_be_drawn(words: int, fits: bool) -> None:
    weights = np.full(words * words, 1 / words)
    row = {"group": "", "module": "encoder.0", "tokens": ["w"] * words, "phrases": []}
    (figure,) = attention_figures([row | {"shape": [1, words, words], "weights": weights.tolist()}])
    assert ("<svg" in figure["plot"]) == fits
    assert (f"{words} by {words} words are too many" in figure["plot"]) != fits
