"""The figures of paper 003 show what the models say."""

import functools
import re

import numpy as np
import pytest
import torch

from phrasemodels.data.store.store import Store
from phrasemodels.encoders.parents import SoftParentsConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.cli import parse
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.experiment import override
from phrasemodels.flows.report import structures
from phrasemodels.flows.report.attention_pages import MOST, attention_figures
from phrasemodels.flows.report.drawn import draw
from phrasemodels.flows.results.lineage import Lineage
from phrasemodels.flows.results.models import champion
from phrasemodels.layers.attention_weights import SegmentWeights, SigmoidWeights, SoftmaxWeights, TreeWeights
from phrasemodels.models.memory import ChainConfig, HopsConfig
from phrasemodels.models.recurrent import RecurrentConfig


def told(svg):
    """What a reader is told who does not see the figure, and that it is one."""
    assert svg.count("<svg") == 1 and "<image" in svg
    return re.search(r"<title[^>]*>([^<]*)</title>|aria-label=\"([^\"]*)\"", svg)[0]


def test_segments_of_three_models_side_by_side():
    models = {
        w.__name__: RecurrentConfig(LSTMEncoderConfig(6, 1), 9, 9, 1, weights=w).build()
        for w in (SoftmaxWeights, SigmoidWeights, SegmentWeights)
    }
    svg = structures.segments(
        models, "a b c d".split(), "x y z".split(), (torch.tensor([4, 5, 6, 7]), torch.tensor([2, 4, 5]))
    )
    assert svg.count("<image") == 3 and "SoftmaxWeights, SigmoidWeights, SegmentWeights" in told(svg)


@pytest.mark.parametrize("config", [HopsConfig(2, 6, 5, 9), ChainConfig(2, 6, 5, 9)])
def test_facts_with_the_best_sequence(config):
    torch.manual_seed(0)
    model, facts, question = config.build(), torch.randint(1, 9, (4, 3)), torch.randint(1, 9, (3,))
    names = ["first", "second", "third", "fourth"]
    best = model.evidence(facts[None], question[None])[0].tolist()
    assert ", ".join(names[i] for i in best) in told(structures.facts(model, names, "where?", (facts, question)))


@pytest.mark.parametrize("weights", [TreeWeights, SoftmaxWeights])
def test_parents_with_the_best_tree(weights):
    torch.manual_seed(0)
    parser, embedded = SoftParentsConfig(6, 3, weights).build(), torch.randn(4, 6)
    arcs = re.findall(r"(\w+)→(\w+)", told(structures.parents(parser, embedded, "he reads books".split())))
    heads = {word: head for head, word in arcs}
    assert heads.keys() == {"he", "reads", "books"} and "root" in heads.values()


def trained(store, name, *changes):
    """A model of the sample's data after two updates."""
    small = ("train.steps=2", "train.evaluate_every=1", "recipe.corpus.train=60", "recipe.corpus.dev=10", *changes)
    store.run(functools.reduce(override, small, experiment(name)).steps(0).trained)
    return champion(Lineage(store), name)


def test_trained_models_are_drawn_on_a_text(tmp_path):
    store = Store(tmp_path).open()
    kinds = [trained(store, f"003/tablenmt/sample/char-{kind}") for kind in ("simple", "structured")]
    svg = draw(kinds, "the red house", "das haus")
    assert svg.count("<image") == 2 and "Simple attention, Structured attention" in told(svg)
    model = trained(store, "003/tablebabi/sample/binary-facts2", "recipe.restarts=1")
    assert "Facts for Where is Mary?" in told(draw([model], "Mary went home. She took the milk. Where is Mary?"))
    assert "root→" in told(draw([trained(store, "003/tablesnli/sample/structured")], "a man"))
    with pytest.raises(ValueError, match="no soft parents"):
        draw([trained(store, "003/tablesnli/sample/none")], "a man")
    for text in ("", " ", "...", "Mary went home."):
        with pytest.raises(ValueError, match=r"no story|an empty text"):
            draw([model], text)
    with pytest.raises(ValueError, match="side by side"):
        draw([model, model], "Mary went home. Where is Mary?")


@pytest.mark.parametrize(("words", "drawn"), [(MOST, True), (MOST + 1, False)])
def test_a_sentence_too_long_to_be_drawn_is_said_to_be(words: int, drawn: bool) -> None:
    weights = np.full(words * words, 1 / words)
    row = {"group": "", "module": "encoder.0", "tokens": ["w"] * words, "phrases": []}
    (figure,) = attention_figures([row | {"shape": [1, words, words], "weights": weights.tolist()}])
    assert ("<svg" in figure["plot"]) == drawn
    assert (f"{words} by {words} words are too many" in figure["plot"]) != drawn


def test_a_structure_of_too_many_words_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    words, many = ["w"] * (MOST + 1), torch.ones(MOST + 1, dtype=torch.int64)
    said = f"^{MOST + 1} by {MOST + 1} words are too many for a figure; take a shorter sentence$"
    translator = RecurrentConfig(LSTMEncoderConfig(6, 1), 9, 9, 1).build()
    with pytest.raises(ValueError, match=said):
        structures.segments({"": translator}, words, words, (many, many))
    with pytest.raises(ValueError, match=said):
        structures.facts(HopsConfig(2, 6, 5, 9).build(), words, "where?", (many[:, None], many))
    with pytest.raises(ValueError, match=said):
        structures.parents(SoftParentsConfig(6, 3, TreeWeights).build(), torch.randn(MOST + 2, 6), words)
    monkeypatch.setattr(parse, "_parser", lambda name: (experiment("004/table1/sample/2").recipe, None))
    with pytest.raises(ValueError, match=said):
        parse.labels("lal", " ".join(words))
