"""The figures of problems show what the models compute (paper 003), and refuse sentences that are too long."""

from pathlib import Path

import numpy as np
import pytest
import torch
from running import trained

from phrasemodels.data.store.store import Store
from phrasemodels.encoders.parents import SoftParentsConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.cli import models as commands
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.report.plots import attention_figures, draw, in_words, svg_of
from phrasemodels.layers.attention_weights import SegmentWeights, SigmoidWeights, SoftmaxWeights, TreeWeights
from phrasemodels.models.memory import ChainConfig, HopsConfig
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.tasks.problems.answering import fact_weights
from phrasemodels.tasks.problems.decomposition import soft_parents
from phrasemodels.tasks.problems.recipe import MOST_WORDS, Heatmaps
from phrasemodels.tasks.problems.translation import attention_panels


def drawn(figure: Heatmaps) -> str:
    """The figure as SVG, after a check that it is one image a panel with a text for screen readers."""
    svg = svg_of(figure)
    assert svg.count("<svg") == 1 and svg.count("<image") == len(figure.panels)
    assert 'aria-label="' in svg
    return svg


def test_attention_of_three_translators_stands_side_by_side():
    models = {
        w.__name__: RecurrentConfig(LSTMEncoderConfig(6, 1), 9, 9, 1, weights=w).build()
        for w in (SoftmaxWeights, SigmoidWeights, SegmentWeights)
    }
    ids = torch.tensor([4, 5, 6, 7]), torch.tensor([2, 4, 5])
    figure = attention_panels(models, "a b c d".split(), "x y z".split(), ids)
    assert "SoftmaxWeights, SigmoidWeights, SegmentWeights" in figure.text and len(figure.panels) == 3
    assert figure.text in drawn(figure)


@pytest.mark.parametrize("config", [HopsConfig(2, 6, 5, 9), ChainConfig(2, 6, 5, 9)])
def test_the_best_sequence_of_facts_is_framed(config):
    torch.manual_seed(0)
    model, facts, question = config.build(), torch.randint(1, 9, (4, 3)), torch.randint(1, 9, (3,))
    names = ["first", "second", "third", "fourth"]
    best = model.evidence(facts[None], question[None])[0].tolist()
    figure = fact_weights(model, names, "where?", (facts, question))
    assert figure.panels[0].boxes == [(fact, step) for step, fact in enumerate(best)]
    assert ", ".join(names[i] for i in best) in figure.text and figure.text in drawn(figure)


@pytest.mark.parametrize("weights", [TreeWeights, SoftmaxWeights])
def test_soft_parents_have_the_arcs_of_the_best_tree(weights):
    torch.manual_seed(0)
    parser, embedded = SoftParentsConfig(6, 3, weights).build(), torch.randn(4, 6)
    figure = soft_parents(parser, embedded, "he reads books".split())
    (panel,) = figure.panels
    heads = {panel.columns[word]: panel.columns[head] for head, word in panel.arcs}
    assert heads.keys() == {"he", "reads", "books"} and "root" in heads.values()
    assert all(f"{head}→{word}" in figure.text for word, head in heads.items()) and figure.text in drawn(figure)


def test_trained_models_are_drawn_on_a_text(tmp_path):
    store = Store(tmp_path).open()
    kinds = [trained(store, f"003/tablenmt/sample/char-{kind}") for kind in ("simple", "structured")]
    svg = draw(kinds, "the red house", "das haus")
    assert svg.count("<image") == 2 and "Simple attention, Structured attention" in svg
    model = trained(store, "003/tablebabi/sample/binary-facts2", "recipe.restarts=1")
    assert "Facts for Where is Mary?" in draw([model], "Mary went home. She took the milk. Where is Mary?")
    assert "root→" in draw([trained(store, "003/tablesnli/sample/structured")], "a man")
    with pytest.raises(ValueError, match="no soft parents"):
        draw([trained(store, "003/tablesnli/sample/none")], "a man")
    for text in ("", " ", "...", "Mary went home."):
        with pytest.raises(ValueError, match=r"no story|an empty text"):
            draw([model], text)
    with pytest.raises(ValueError, match="side by side"):
        draw([model, model], "Mary went home. Where is Mary?")


def test_a_problem_without_a_figure_says_so(tmp_path):
    model = trained(Store(tmp_path).open(), "000/table1/sample/transformer")
    with pytest.raises(
        ValueError, match=r"^000/table1/sample/transformer\+.* has no figure of its own; see .*attention.html`$"
    ):
        draw([model], "the red house")


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


def test_a_sentence_that_is_too_long_is_refused_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    words, many = ["w"] * (MOST_WORDS + 1), torch.ones(MOST_WORDS + 1, dtype=torch.int64)
    message = f"^{MOST_WORDS + 1} by {MOST_WORDS + 1} words are too many for a figure; take a shorter sentence$"
    translator = RecurrentConfig(LSTMEncoderConfig(6, 1), 9, 9, 1).build()
    with pytest.raises(ValueError, match=message):
        attention_panels({"": translator}, words, words, (many, many))
    with pytest.raises(ValueError, match=message):
        fact_weights(HopsConfig(2, 6, 5, 9).build(), words, "where?", (many[:, None], many))
    with pytest.raises(ValueError, match=message):
        soft_parents(SoftParentsConfig(6, 3, TreeWeights).build(), torch.randn(MOST_WORDS + 2, 6), words)
    monkeypatch.setattr(commands, "parser_of", lambda model: (experiment("004/table1/sample/2").recipe, None))
    with pytest.raises(ValueError, match=message):
        commands._draw([None], " ".join(words), "", 24, Path("labels.html"))
