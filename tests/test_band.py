"""Lists of neighbours against the dense form of the same equations."""

import dataclasses

import plain_000 as plain
import pytest
import torch

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.layers import phrases as layer
from phrasemodels.layers.attention import softmax_hadamard, softmax_within
from phrasemodels.layers.band import band
from phrasemodels.layers.phrases import phrase_graph

READINGS = pytest.mark.parametrize("attend", [softmax_within, softmax_hadamard], ids=["neg_inf", "hadamard"])
TREE = (1, 3, 1, -1, 3, 7, 7, 4)  # heads: word 3 is the root
EDGES = [(word, head) for word, head in enumerate(TREE) if head >= 0]
PHRASES = {
    "spans of 2": plain.phrases(9, 2),
    "spans of 3": plain.phrases(9, 3),
    "edges": EDGES,
    "subtrees": EDGES + [(a, b, d) for a, b in EDGES for c, d in EDGES if b == c],
    "twice the same": [(0, 1), (0, 1), (1, 0, 2)],
}


def batch(phrases: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    """lengths and members: a sentence of 9 words with these phrases, one of 4 with those within it, one word."""
    lengths = torch.tensor([9, 4, 1])
    members = torch.full((3, len(phrases), 3), -1)
    for row, n in enumerate(lengths.tolist()):
        for at, phrase in enumerate(p for p in phrases if max(p) < n):
            members[row, at, : len(phrase)] = torch.tensor(phrase)
    return lengths, members


def both(graph: layer.PhraseGraph) -> tuple[layer.PhraseGraph, layer.PhraseGraph]:
    lists = band(graph.related, int(graph.related.sum(2).max()))
    return graph._replace(band=None), graph._replace(band=lists)


@READINGS
@pytest.mark.parametrize("rows", ["all", "words"])
@pytest.mark.parametrize("kind", PHRASES)
def test_lists_give_what_the_dense_form_gives(kind, rows, attend):
    torch.manual_seed(0)
    lengths, members = batch(PHRASES[kind])
    graphs = both(phrase_graph(members, lengths, 9))
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
def test_gradients_by_differences(attend):
    torch.manual_seed(0)
    lengths, members = batch(PHRASES["subtrees"])
    graph = both(phrase_graph(members, lengths, 9))[1].first(9)
    inputs = [
        torch.randn(3, 1, size, 2, dtype=torch.float64, requires_grad=True) for size in (9, *graph.valid.shape[1:] * 2)
    ]
    assert torch.autograd.gradcheck(lambda *x: attend(*x, graph), inputs, fast_mode=True)


@READINGS
@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_is_the_same_with_lists_and_without(monkeypatch, attend, training):
    """And twice the same with them, to the last bit."""
    config = HypernodeEncoderConfig(d=32, heads=4, layers=3, d_ff=48, dropout=0.0, longest=3, attend=attend)
    weight, found = torch.randn(3, 9, 32), []
    for nodes_a_neighbour in (0, 0, 10**9):
        monkeypatch.setattr(layer, "NODES_A_NEIGHBOUR", nodes_a_neighbour)
        torch.manual_seed(0)
        encoder = config.build().train(training)
        words = torch.randn(3, 9, 32, requires_grad=True)
        lengths, members = batch(PHRASES["spans of 3"])
        assert (phrase_graph(members, lengths, 9).band is None) == (nodes_a_neighbour > 0)
        out = encoder(words, lengths, members)
        (out * weight).sum().backward()
        found.append([out, words.grad, *(p.grad for p in encoder.parameters())])
    for first, second, dense in zip(*found, strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, dense, rtol=1e-5, atol=1e-5)


def test_lists_in_bfloat16_and_without_gradients():
    lengths, members = batch(PHRASES["edges"])
    dense, lists = both(phrase_graph(members, lengths, 9))
    with torch.inference_mode():
        q = torch.randn(3, 2, dense.valid.shape[1], 8)
        expected = softmax_within(q, q, q, dense)
        torch.testing.assert_close(softmax_within(q, q, q, lists), expected)
        half = q.bfloat16()
        torch.testing.assert_close(softmax_within(half, half, half, lists).float(), expected, rtol=0.05, atol=0.05)
    with torch.autocast("cpu"):
        config = HypernodeEncoderConfig(d=16, heads=2, layers=1, d_ff=8, longest=3)
        big = dataclasses.replace(config, dropout=0.0).build()
        big(torch.randn(3, 9, 16), lengths, members).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in big.parameters() if p.grad is not None)
