"""Approximate marginals of trees with scores of pairs of arcs: exact where they must be, and near enumeration for weak pairs."""

from itertools import product

import pytest
import torch

from phrasemodels.structs.second_order import belief_propagation, mean_field

N, F64 = 4, torch.float64


def exact(arcs, siblings, grandparents):
    """Return p(arc) of one sentence over all choices of a head for each word, by enumeration."""
    words = range(1, N)
    total, weighted = torch.zeros((), dtype=F64), torch.zeros(N, N, dtype=F64)
    for heads in product(*([h for h in range(N) if h != m] for m in words)):
        head = dict(zip(words, heads, strict=True))
        score = sum(arcs[h, m] for m, h in head.items())
        for m, h in head.items():
            score = score + sum(siblings[h, m, s] for s in words if s > m and head[s] == h)
            score = score + (grandparents[head[h], h, m] if h else 0)
        total = total + score.exp()
        for m, h in head.items():
            weighted[h, m] += score.exp()
    return weighted / total


@pytest.mark.parametrize("infer", [mean_field, belief_propagation])
def test_marginals_are_those_of_enumeration_for_weak_pairs_and_without(infer):
    generator = torch.Generator().manual_seed(0)
    arcs = torch.randn(N, N, generator=generator, dtype=F64)
    pairs = [torch.randn(N, N, N, generator=generator, dtype=F64) for _ in range(2)]
    siblings = pairs[0] + pairs[0].mT
    none = torch.zeros(N, N, N, dtype=F64)
    torch.testing.assert_close(infer(arcs[None])[0], exact(arcs, none, none))
    for strength, error in ((0.01, 1e-4), (0.1, 1e-2)):
        found = infer(arcs[None], strength * siblings[None], strength * pairs[1][None], steps=20)[0]
        wanted = exact(arcs, strength * siblings, strength * pairs[1])
        assert (found - wanted).abs().max() < error
        assert (found - wanted).abs().max() < (infer(arcs[None])[0] - wanted).abs().max()
    torch.testing.assert_close(found.sum(0)[1:], torch.ones(N - 1, dtype=F64))


@pytest.mark.parametrize("infer", [mean_field, belief_propagation])
def test_padding_and_forbidden_arcs_have_probability_0_and_gradients_are_right(infer):
    arcs, siblings, grandparents = torch.randn(2, N, N, dtype=F64), *torch.randn(2, 2, N, N, N, dtype=F64)
    arcs[0, 1, 2] = -torch.inf
    p = infer(arcs, siblings, grandparents, [3, 2])
    assert p[0, 1, 2] == 0 and (p[1, 3] == 0).all() and (p[1, :, 3] == 0).all() and p.isfinite().all()
    arcs[0, :, 3] = torch.finfo(torch.float32).min
    scores = [x.float() for x in (arcs, siblings, grandparents)]
    with torch.autocast("cpu", torch.bfloat16):
        half = infer(*scores, [3, 2])
    assert (half[0, :, 3] == 0).all() and torch.equal(half, infer(*scores, [3, 2]))
    p = infer(arcs, siblings, grandparents, [3, 2])
    siblings[1, :, :, 3], grandparents[1, 3] = torch.nan, torch.nan
    torch.testing.assert_close(infer(arcs, siblings, grandparents, [3, 2]), p)
    given = [x.requires_grad_() for x in (torch.randn(1, N, N, dtype=F64), *torch.randn(2, 1, N, N, N, dtype=F64))]
    assert torch.autograd.gradcheck(lambda *x: infer(*x, steps=2), given)
