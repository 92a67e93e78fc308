"""Attention over lists of neighbours equals attention with all scores (paper 000, phase 2)."""

import dataclasses

import plain_000 as plain
import pytest
import torch

from phrasemodels.encoders import hypernode
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard, softmax_within
from phrasemodels.layers.phrases import PhraseGraph, band, phrase_graph

READINGS = pytest.mark.parametrize("attend", [softmax_within, softmax_hadamard], ids=["neg_inf", "hadamard"])
TREE = (1, 3, 1, -1, 3, 7, 7, 4)  # the head of each word; word 3 is the root
EDGES = [(word, head) for word, head in enumerate(TREE) if head >= 0]
PHRASES = {
    "spans of 2": plain.phrases(9, 2),
    "spans of 3": plain.phrases(9, 3),
    "edges": EDGES,
    "subtrees": EDGES + [(a, b, d) for a, b in EDGES for c, d in EDGES if b == c],
    "a phrase twice": [(0, 1), (0, 1), (1, 0, 2)],
}


def batch(phrases: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return lengths and members of sentences of 9, 4 and 1 words, each with those of the phrases that lie in it."""
    lengths = torch.tensor([9, 4, 1])
    members = torch.full((3, len(phrases), 3), -1)
    for row, n in enumerate(lengths.tolist()):
        for at, phrase in enumerate(p for p in phrases if max(p) < n):
            members[row, at, : len(phrase)] = torch.tensor(phrase)
    return lengths, members


def dense_and_lists(graph: PhraseGraph) -> tuple[PhraseGraph, PhraseGraph]:
    lists = band(graph.related, int(graph.related.sum(2).max()))
    return graph._replace(band=None), graph._replace(band=lists)


@READINGS
@pytest.mark.parametrize("rows", ["all", "words"])
@pytest.mark.parametrize("kind", PHRASES)
def test_lists_give_the_values_and_gradients_of_the_dense_form(kind, rows, attend):
    torch.manual_seed(0)
    lengths, members = batch(PHRASES[kind])
    graphs = dense_and_lists(phrase_graph(members, lengths, 9))
    N = graphs[0].valid.shape[1]
    R = N if rows == "all" else 9
    for scale, dtype, tolerance in ((1, torch.float32, 1e-6), (40, torch.float64, 1e-12)):
        inputs = [torch.randn(3, 2, size, 4, dtype=dtype) * s for size, s in ((R, scale), (N, scale), (N, 1))]
        weight = torch.randn(3, 2, R, 4, dtype=dtype)
        results = []
        for graph in graphs:
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = attend(*leaves, graph.first(R))
            results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
        for dense, lists in zip(*results, strict=True):
            torch.testing.assert_close(lists, dense, rtol=tolerance, atol=tolerance)


@READINGS
def test_gradients_over_lists_equal_finite_differences(attend):
    torch.manual_seed(0)
    lengths, members = batch(PHRASES["subtrees"])
    graph = dense_and_lists(phrase_graph(members, lengths, 9))[1].first(9)
    inputs = [
        torch.randn(3, 1, size, 2, dtype=torch.float64, requires_grad=True) for size in (9, *graph.valid.shape[1:] * 2)
    ]
    assert torch.autograd.gradcheck(lambda *x: attend(*x, graph), inputs, fast_mode=True)


@READINGS
@pytest.mark.parametrize("training", [True, False])
def test_encoder_gives_the_same_with_and_without_lists(monkeypatch, attend, training):
    """Two runs with lists are equal to the last bit."""
    config = HypernodeEncoderConfig(d=32, heads=4, layers=3, d_ff=48, dropout=0.0, longest=3, attend=attend)
    weight, results = torch.randn(3, 9, 32), []
    for least in (0, 0, 10**9):
        monkeypatch.setattr(hypernode, "NODES_PER_NEIGHBOUR", least)
        torch.manual_seed(0)
        encoder = config.build().train(training)
        words = torch.randn(3, 9, 32, requires_grad=True)
        lengths, members = batch(PHRASES["spans of 3"])
        assert (hypernode.with_lists(phrase_graph(members, lengths, 9)).band is None) == (least > 0)
        out = encoder(words, lengths, members)
        (out * weight).sum().backward()
        results.append([out, words.grad, *(p.grad for p in encoder.parameters())])
    for first, second, dense in zip(*results, strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, dense, rtol=1e-5, atol=1e-5)


def test_lists_work_in_bfloat16_and_without_gradients():
    lengths, members = batch(PHRASES["edges"])
    dense, lists = dense_and_lists(phrase_graph(members, lengths, 9))
    with torch.inference_mode():
        q = torch.randn(3, 2, dense.valid.shape[1], 8)
        expected = softmax_within(q, q, q, dense)
        torch.testing.assert_close(softmax_within(q, q, q, lists), expected)
        half = q.bfloat16()
        torch.testing.assert_close(softmax_within(half, half, half, lists).float(), expected, rtol=0.05, atol=0.05)
    with torch.autocast("cpu"):
        config = HypernodeEncoderConfig(d=16, heads=2, layers=1, d_ff=8, longest=3)
        encoder = dataclasses.replace(config, dropout=0.0).build()
        encoder(torch.randn(3, 9, 16), lengths, members).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)
