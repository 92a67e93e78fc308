"""The structured hinge loss equals that of the list of all trees, and so does its gradient."""

import pytest
import torch
from test_enumeration import F64, members
from test_gradients import scores_of

from phrasemodels.structs import spans
from phrasemodels.structs.kernels import reference_only
from phrasemodels.structs.spans import margin


@pytest.mark.parametrize("path", ["kernels", "reference"])
def test_margin_equals_enumeration(path):
    (parts,) = members("spans", 4)
    labels = scores_of("spans", n=4)[0]
    gold = spans.argmax(torch.randn(2, 4, 4, 2))[1]
    right = torch.zeros_like(labels)
    for b, cells in enumerate(gold):
        right[b][tuple(cells.T)] = 1
    total = torch.einsum("bijl,mijl->bm", labels, parts)
    wrong = torch.einsum("bijl,mijl->bm", 1 - right, parts)
    expected = (total + 0.5 * wrong).amax(1) - (labels * right).sum((1, 2, 3))
    before, version = labels.detach().clone(), labels._version
    if path == "kernels":
        loss = margin(labels, gold, cost=0.5)
    else:
        with reference_only():
            loss = margin(labels, gold, cost=0.5)
    torch.testing.assert_close(loss, expected)
    assert torch.equal(labels, before) and labels._version == version
    weight = torch.tensor([1.0, 2.0], dtype=F64)
    got, want = (torch.autograd.grad((x * weight).sum(), labels, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(got, want)


def test_margin_has_the_type_of_the_scores():
    labels = torch.zeros(1, 2, 2, 1)
    cells = spans.argmax(labels)[1]
    torch.set_default_dtype(F64)
    try:
        assert margin(labels, cells).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_margin_of_a_padded_batch():
    labels, gold = torch.randn(2, 5, 5, 3), spans.argmax(torch.randn(2, 5, 5, 3), [5, 2])[1]
    both = margin(labels, gold, [5, 2])
    alone = margin(labels[1:, :2, :2], gold[1:, :3], None)
    torch.testing.assert_close(both[1:], alone)
