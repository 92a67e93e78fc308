"""Figures of attention: phrases among words, the tree of phrases, text that is valid in any page."""

from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from phrasemodels.flows.report import render
from phrasemodels.flows.report.plots import attention, heads, svg_of, tree
from phrasemodels.layers.attention import attention_probe
from phrasemodels.layers.ngrams import NgramBiLSTM, PhraseAttention, final_states, grams_alone
from phrasemodels.tasks.problems.recipe import Matrix
from phrasemodels.tasks.problems.sentence_data import attention_rows, over_grams


def test_columns_of_n_gram_heads_become_n_grams():
    weights = torch.arange(1.0, 28.0).view(3, 3, 3)
    spread, grams = over_grams(weights, {0: slice(0, 1), 3: [2], 2: [1]})
    assert grams == [[0, 1], [1, 2], [0, 1, 2]]
    nothing = torch.zeros(3, 1)
    assert torch.equal(spread[0], torch.cat([weights[0], *[nothing] * 3], 1)), "words"
    # the n-gram of the first word has no word before it, that of the second word one
    assert torch.equal(spread[1], torch.cat([weights[1, :, :1], *[nothing] * 2, weights[1, :, 1:], nothing], 1))
    shortened = torch.cat([weights[2, :, :1], *[nothing] * 2, weights[2, :, 1:2], nothing, weights[2, :, 2:]], 1)
    assert torch.equal(spread[2], shortened)


def test_rows_of_n_gram_attention_are_distributions():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"one": PhraseAttention(8, (0, 2, 3, 2), NgramBiLSTM, final_states, grams_alone)})
    x, valid = torch.randn(1, 5, 8), torch.ones(1, 1, 1, 5, dtype=torch.bool)
    with attention_probe(model) as weights:
        model["one"](x, x, valid)
    (row,) = attention_rows(model, weights, list("abcde"), [])
    assert row["phrases"] == [[0, 1], [1, 2], [2, 3], [3, 4], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    weights = torch.tensor(row["weights"]).view(row["shape"])
    assert torch.allclose(weights.sum(-1), torch.ones(4, 5), atol=1e-5)
    assert weights[0, :, 5:].sum() == 0 and weights[1, :, 1:5].sum() == 0


def test_the_parts_of_a_phrase_are_the_largest_phrases_inside_of_it():
    parts, heights = tree([[0], [1], [2], [3], [0, 1], [0, 1, 2, 3], [2, 3]])
    assert parts[4:] == [[0, 1], [4, 6], [2, 3]] and heights == [0, 0, 0, 0, 1, 2, 1]
    overlapping, _ = tree([[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]])
    assert overlapping[5] == [3, 4]


@pytest.mark.parametrize("bad", ["\0", "\x07", "\x1b[2J", "\r", "\ud800", "\uffff"])
def test_characters_that_are_invalid_in_pages_are_replaced(bad):
    card = {"experiment": bad, "seed": 0, "weights": "", "licences": []}
    figure = dict.fromkeys(("sentence", "module", "plot", "heads"), bad)
    words, weights = [f"a{bad}", "b\tc"], np.eye(2)
    figures = [
        svg_of(Matrix(weights, words, words, (bad, "y"), bad)),
        heads(weights[None], words, words, bad),
        attention(words, [], weights, bad),
        render("attention.html.jinja", card=card, figures=[figure]),
    ]
    for text in figures:
        assert bad not in text and "\ufffd" in text
    for svg in figures[:-1]:
        ElementTree.fromstring(svg)
