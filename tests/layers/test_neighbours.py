"""Attention over lists of neighbours equals attention with all scores (paper 000, phase 2)."""

import plain_000 as plain
import pytest
import torch

from phrasemodels.encoders import hypernode
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard, softmax_within
from phrasemodels.layers.phrases import neighbours, phrase_graph

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


def nodes_with_lists(kind: str) -> hypernode.Nodes:
    lengths, members = batch(PHRASES[kind])
    nodes = hypernode.Nodes(phrase_graph(members, lengths, 9))
    nodes.lists = neighbours(nodes.graph.related, nodes.packing, int(nodes.graph.related.sum(2).max()))
    return nodes


def over_lists(attend, nodes, q, k, v):
    """Run the form of `attend` over lists on padded queries (B, R, h, dk), keys and values (B, N, h, dk)."""
    all_rows = q.shape[1] == k.shape[1]
    queries, lists = (nodes.packing, nodes.lists) if all_rows else (nodes.words, nodes.lists_of_words)
    out = hypernode.LISTS[attend](queries.pack(q), nodes.packing.pack(k), nodes.packing.pack(v), lists, nodes.packing)
    return queries.pad(out)


@READINGS
@pytest.mark.parametrize("rows", ["all", "words"])
@pytest.mark.parametrize("kind", PHRASES)
def test_lists_give_the_values_and_gradients_of_the_dense_form(kind, rows, attend):
    torch.manual_seed(0)
    nodes = nodes_with_lists(kind)
    N = nodes.graph.valid.shape[1]
    R = N if rows == "all" else 9
    real = nodes.graph.valid[:, :R, None, None]
    for scale, dtype, tolerance in ((1, torch.float32, 1e-6), (40, torch.float64, 1e-12)):
        inputs = [torch.randn(3, size, 2, 4, dtype=dtype) * s for size, s in ((R, scale), (N, scale), (N, 1))]
        weight = torch.randn(3, R, 2, 4, dtype=dtype) * real
        results = []
        for run in (
            lambda *x: attend(*(y.transpose(1, 2) for y in x), nodes.graph.first(R)).transpose(1, 2) * real,
            lambda *x: over_lists(attend, nodes, *x),
        ):
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = run(*leaves)
            results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
        for dense, lists in zip(*results, strict=True):
            torch.testing.assert_close(lists, dense, rtol=tolerance, atol=tolerance)


@READINGS
def test_gradients_over_lists_equal_finite_differences(attend):
    torch.manual_seed(0)
    nodes = nodes_with_lists("subtrees")
    N = nodes.graph.valid.shape[1]
    inputs = [torch.randn(3, size, 1, 2, dtype=torch.float64, requires_grad=True) for size in (9, N, N)]
    assert torch.autograd.gradcheck(lambda *x: over_lists(attend, nodes, *x), inputs, fast_mode=True)


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
        assert (hypernode.Nodes(phrase_graph(members, lengths, 9)).lists is None) == (least > 0)
        out = encoder(words, lengths, members)
        (out * weight).sum().backward()
        results.append([out, words.grad, *(p.grad for p in encoder.parameters())])
    for first, second, dense in zip(*results, strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(first, dense, rtol=1e-5, atol=1e-5)


def test_the_encoder_runs_over_lists_in_bfloat16(monkeypatch):
    monkeypatch.setattr(hypernode, "NODES_PER_NEIGHBOUR", 0)
    lengths, members = batch(PHRASES["edges"])
    encoder = HypernodeEncoderConfig(d=16, heads=2, layers=2, d_ff=8, dropout=0.0, longest=3).build()
    words = torch.randn(3, 9, 16)
    expected = encoder(words, lengths, members)
    with torch.autocast("cpu"):
        found = encoder(words, lengths, members)
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters() if p.grad is not None)
