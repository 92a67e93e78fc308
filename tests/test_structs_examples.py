"""The examples of structured inference learn what they are about."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


def test_the_chain_tagger_learns_transitions():
    accuracy = run("chain_tagger")
    assert accuracy["chain"] > 0.8 > accuracy["words alone"]


def test_the_unsupervised_hmm_comes_near_the_true_model():
    losses = run("unsupervised_hmm")
    assert losses["last"] < losses["truth"] + 0.05 < losses["first"]


def test_the_tree_parser_learns_how_operators_bind():
    share = run("tree_parser")
    assert share["before"] < 0.2 < 0.9 < share["after"]
