"""The k best structures are those of the list of all structures."""

import pytest
import torch
from test_enumeration import F64, member_scores, problem

from phrasemodels.structs import chain, eisner


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["chain", "multi_root", "single_root"])
def test_the_k_best_structures_are_those_of_enumeration(name, n, k):
    q = problem(name, n, std=3.0)
    scores, best = q.module.topk(*q.scores, k)
    expected = q.total.sort(1, descending=True).values[:, :k].T
    found = len(expected)
    torch.testing.assert_close(scores[:found], expected)
    assert (scores[found:] == -torch.inf).all() and (best[found:] == -1).all()
    for r in range(found):
        torch.testing.assert_close(member_scores(name, q, best[r]), expected[r])
    torch.testing.assert_close(q.module.argmax(*q.scores)[1], best[0])


def test_forbidden_structures_are_not_among_the_best():
    unary = torch.zeros(1, 3, 2).index_put(
        (torch.tensor(0), torch.tensor(1), torch.tensor(0)), torch.tensor(-torch.inf)
    )
    assert chain.topk(unary, torch.zeros(2, 2), 8)[0][:, 0].tolist() == [0.0] * 4 + [-torch.inf] * 4


def test_k_best_of_a_padded_batch_equal_those_of_its_sentences():
    arcs, lengths = torch.randn(3, 7, 7, dtype=F64), torch.tensor([4, 1, 6])
    unary, pairwise = torch.randn(3, 6, 4, dtype=F64), torch.randn(3, 5, 4, 4, dtype=F64)
    for b, n in enumerate(lengths.tolist()):
        arcs[b, n + 1 :] = arcs[b, :, n + 1 :] = unary[b, n:] = torch.nan
        one, heads = eisner.single_root.topk(arcs[b : b + 1, : n + 1, : n + 1], 5)
        all_scores, all_heads = eisner.single_root.topk(arcs, 5, lengths)
        torch.testing.assert_close(all_scores[:, b], one[:, 0])
        assert torch.equal(all_heads[:, b, : n + 1], heads[:, 0]) and (all_heads[:, b, n + 1 :] == -1).all()
        one, tags = chain.topk(unary[b : b + 1, :n], pairwise[b : b + 1, : n - 1], 5)
        torch.testing.assert_close(chain.topk(unary, pairwise, 5, lengths)[0][:, b], one[:, 0])
        assert torch.equal(chain.topk(unary, pairwise, 5, lengths)[1][:, b, :n], tags[:, 0])


def test_scores_of_the_k_best_have_the_gradient_of_their_parts():
    arcs = torch.randn(2, 4, 4, dtype=F64, requires_grad=True)
    unary, pairwise = (
        torch.randn(2, 3, 3, dtype=F64, requires_grad=True),
        torch.randn(3, 3, dtype=F64, requires_grad=True),
    )
    torch.autograd.gradcheck(lambda a: eisner.multi_root.topk(a, 3)[0], (arcs,))
    torch.autograd.gradcheck(lambda u, p: chain.topk(u, p, 3)[0], (unary, pairwise))
