"""Kernels equal the float64 reference for scores of any spread.

The error of a tensor x with reference y is max |x − y| / max(1, max |y|): for marginals the absolute error of a probability,
for gradients the error relative to the largest.
"""

import contextlib
import gc
import weakref

import pytest
import torch

from phrasemodels.structs import chain, eisner, joint, spans
from phrasemodels.structs.kernels import reference_only

F32, F64 = torch.float32, torch.float64
LENGTHS = torch.tensor([24, 1, 24, 9, 2, 17])


def error(got, want):
    return ((got.double() - want).abs().max() / want.abs().max().clamp(min=1)).item()


def outcome(module, scores, weight):
    """Return log Z, marginals, and the gradients of a loss on each."""
    log_z, p = module.log_partition(*scores, lengths=LENGTHS), module.marginals(*scores, lengths=LENGTHS)
    loss = (p * weight.to(p.dtype)).sum()
    return log_z, p, torch.autograd.grad(loss, scores), torch.autograd.grad(log_z.sum(), scores)


def scores_of(module, std, dtype, seed=0):
    gen = torch.Generator().manual_seed(seed)
    B, n = len(LENGTHS), int(LENGTHS.max())
    shapes = module.shapes(B, n) if isinstance(module, Chain) else [(B, n + 1, n + 1)]
    return [(torch.randn(*s, generator=gen, dtype=F64) * std).to(dtype).requires_grad_() for s in shapes]


class Chain:
    """The functions of `chain` for C tags, with pairwise scores that all positions share or not."""

    def __init__(self, C, shared=True):
        self.C, self.shared, self.log_partition, self.marginals = C, shared, chain.log_partition, chain.marginals

    def shapes(self, B, n):
        return [(B, n, self.C), (self.C, self.C) if self.shared else (B, n - 1, self.C, self.C)]


STRUCTURES = {
    "chain-2": Chain(2),
    "chain-20": Chain(20),
    "chain-3-each": Chain(3, shared=False),
    "multi-root": eisner.multi_root,
    "single-root": eisner.single_root,
}


@pytest.mark.parametrize("std", [1e-3, 1, 5, 10, 50, 100, 1000])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_kernels_are_precise_at_any_spread(name, dtype, std):
    module = STRUCTURES[name]
    scores = scores_of(module, std, dtype)
    weight = torch.randn(scores[0].shape, generator=torch.Generator().manual_seed(1), dtype=F64)
    log_z, p, grads, log_z_grads = outcome(module, scores, weight)
    with reference_only():
        exact = outcome(module, [s.detach().double().requires_grad_() for s in scores], weight)
    small = dtype == F64
    assert error(log_z, exact[0]) < (1e-12 if small else 1e-6)
    assert error(p, exact[1]) < (1e-10 if small else 1e-6)
    for got, want in zip((*grads, *log_z_grads), (*exact[2], *exact[3]), strict=True):
        assert error(got, want) < (1e-9 if small else 1e-5)


@pytest.mark.parametrize("std", [1, 1000])
@pytest.mark.parametrize("name", STRUCTURES)
def test_second_derivatives_at_any_spread(name, std):
    """The gradients of kernels have no graph, so that under create_graph=True the reference has to compute them."""
    module, results = STRUCTURES[name], []
    for context in (contextlib.nullcontext, reference_only):
        scores = scores_of(module, std, F64)
        with context():
            loss = module.marginals(*scores, lengths=LENGTHS).square().sum()
            first = torch.autograd.grad(loss, scores, create_graph=True)
            results.append(torch.autograd.grad(sum(g.square().sum() for g in first), scores))
    assert all(error(a, b) < 1e-9 for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("std", [1, 1000])
@pytest.mark.parametrize("shared", [True, False])
def test_pair_marginals_and_their_gradients_equal_the_reference(shared, std):
    scores = scores_of(Chain(4, shared), std, F64)
    p = chain.pair_marginals(*scores, lengths=LENGTHS)
    grads = torch.autograd.grad((p * p).sum(), scores)
    with reference_only():
        exact = chain.pair_marginals(*scores, lengths=LENGTHS)
        expected = torch.autograd.grad((exact * exact).sum(), scores)
    assert error(p, exact) < 1e-10
    assert all(error(a, b) < 1e-9 for a, b in zip(grads, expected, strict=True))


@pytest.mark.parametrize("std", [1e-3, 1, 100, 1e5])
@pytest.mark.parametrize("name", STRUCTURES)
def test_entropies_and_their_gradients_are_precise_at_any_spread(name, std):
    module = STRUCTURES[name]
    entropy = chain.entropy if isinstance(module, Chain) else module.entropy
    scores = scores_of(module, std, F64)
    h = entropy(*scores, lengths=LENGTHS)
    grads = torch.autograd.grad(h.sum(), scores)
    with reference_only():
        exact = entropy(*scores, lengths=LENGTHS)
        expected = torch.autograd.grad(exact.sum(), scores)
    # the rounding of a sum of scores, in log Z as well as in the reference
    limit = 1e-12 * max(1.0, std)
    assert error(h, exact) < limit
    assert all(error(a, b) < 10 * limit for a, b in zip(grads, expected, strict=True))


@pytest.mark.parametrize("std", [1e-3, 1, 100, 1e5])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_entropies_of_spans_are_precise_at_any_spread(dtype, std):
    gen, n = torch.Generator().manual_seed(0), int(LENGTHS.max())
    labels = (torch.randn(len(LENGTHS), n, n, 9, generator=gen, dtype=F64) * std).to(dtype).requires_grad_()
    exact = labels.detach().double().requires_grad_()
    h = spans.entropy(labels, LENGTHS)
    (grad,) = torch.autograd.grad(h.sum(), labels)
    with reference_only():
        wanted = spans.entropy(exact, LENGTHS)
        (wanted_grad,) = torch.autograd.grad(wanted.sum(), exact)
    limit = (1e-6 if dtype == F32 else 1e-12) * max(1.0, std if dtype == F64 else 1.0)
    assert error(h, wanted) < 10 * limit and error(grad, wanted_grad) < 100 * limit


@pytest.mark.parametrize("std", [1e-3, 1, 100, 1000])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_kernels_of_spans_are_precise_at_any_spread(dtype, std):
    gen = torch.Generator().manual_seed(0)
    B, n = len(LENGTHS), int(LENGTHS.max())
    scores = [(torch.randn(B, n, n, 3, generator=gen, dtype=F64) * std).to(dtype).requires_grad_()]
    weight = torch.randn(scores[0].shape, generator=gen, dtype=F64)
    log_z, p, grads, log_z_grads = outcome(spans, scores, weight)
    with reference_only():
        exact = outcome(spans, [scores[0].detach().double().requires_grad_()], weight)
    small = dtype == F64
    assert error(log_z, exact[0]) < (1e-12 if small else 1e-6)
    assert error(p, exact[1]) < (1e-10 if small else 1e-6)
    for got, want in zip((*grads, *log_z_grads), (*exact[2], *exact[3]), strict=True):
        assert error(got, want) < (1e-9 if small else 1e-5)


@pytest.mark.parametrize("std", [1e-3, 1, 15, 40, 1000])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("shared", [True, False])
def test_chains_of_little_spread_equal_the_reference(shared, dtype, std):
    """Chains of 4 tags or more, or of one or two sequences, take kernels of their own, unless scores spread by more than 200."""
    gen, all_lengths, weights = torch.Generator().manual_seed(1), torch.tensor([9, 5, 1, 9, 2]), torch.randn(5)
    for B, C in ((2, 2), (2, 5), (5, 4), (5, 20)):
        lengths, weight = all_lengths[:B], weights[:B]
        unary = torch.randn(B, 9, C, generator=gen, dtype=F64) * std
        pairs = torch.randn(*((C, C) if shared else (B, 8, C, C)), generator=gen, dtype=F64) * std
        found, exact = ([x.to(t).requires_grad_() for x in (unary, pairs)] for t in (dtype, F64))
        exact = [x.to(dtype).double().detach().requires_grad_() for x in exact]

        def outcome_of(scores, lengths=lengths, w=weight):
            log_z = chain.log_partition(*scores, lengths)
            parts = chain.marginals(*scores, lengths), chain.pair_marginals(*scores, lengths)
            to_log_z = torch.autograd.grad((log_z * w.to(log_z)).sum(), scores)
            return log_z, *parts, *to_log_z, *torch.autograd.grad(parts[0].square().sum(), scores)

        with reference_only():
            wanted = outcome_of(exact)
        for got, want in zip(outcome_of(found), wanted, strict=True):
            assert error(got, want) < (5e-7 if dtype == F32 else 1e-12)


def test_graphs_are_freed_without_the_garbage_collector():
    gc.disable()
    try:
        for f, scores in (
            (chain.marginals, scores_of(Chain(2), 1, F32)),
            (eisner.multi_root.marginals, [torch.randn(2, 4, 4)]),
        ):
            p = weakref.ref(f(*(s.detach().requires_grad_() for s in scores)).grad_fn)
            assert p() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_decoders_find_the_trees_of_the_reference(dtype):
    gen = torch.Generator().manual_seed(0)
    B, n = len(LENGTHS), int(LENGTHS.max())
    labels = torch.randn(B, n, n, 5, generator=gen, dtype=F64).to(dtype).requires_grad_()
    arcs = torch.randn(B, n + 1, n + 1, generator=gen, dtype=F64).to(dtype).requires_grad_()
    for module, scores in ((spans, [labels]), (joint, [labels, arcs])):
        score, *tree = module.argmax(*scores, lengths=LENGTHS)
        with reference_only():
            exact, *expected = module.argmax(*scores, lengths=LENGTHS)
        torch.testing.assert_close(score, exact)
        assert all(torch.equal(a, b) for a, b in zip(tree, expected, strict=True))


def test_kernels_work_under_no_grad_and_with_strided_scores():
    arcs = torch.randn(3, 8, 8, dtype=F64).mT
    with torch.no_grad():
        torch.testing.assert_close(eisner.multi_root.marginals(arcs), eisner.multi_root.marginals(arcs.contiguous()))
    unary, labels = torch.randn(3, 4, 6).mT, torch.randn(2, 3, 5, 5).permute(0, 2, 3, 1)
    torch.testing.assert_close(chain.marginals(unary, torch.zeros(4, 4)), unary.softmax(-1))
    assert torch.equal(spans.argmax(labels)[1], spans.argmax(labels.contiguous())[1])


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("unreachable", [False, True])
def test_chains_with_forbidden_scores_equal_the_reference(by_position: bool, unreachable: bool) -> None:
    """Where a part that decays, or that no path reaches, is all that the last position allows, the engine takes over."""
    gen = torch.Generator().manual_seed(0)
    T = 400 if unreachable else 9
    unary = torch.randn(3, T, 8, generator=gen, dtype=torch.float64) * 3
    pairwise = torch.randn(*((3, T - 1) if by_position else ()), 8, 8, generator=gen, dtype=torch.float64)
    pairwise[torch.rand(pairwise.shape, generator=gen) < 0.4] = -torch.inf
    if unreachable:
        pairwise[..., :4, 4:] = pairwise[..., 4:, :4] = -torch.inf
        pairwise[..., 4:, 4:] -= 5
        unary[0, 0, :4], unary[1, -1, :4] = -torch.inf, -torch.inf
    lengths = torch.tensor([T, T, 2])

    def results() -> list[torch.Tensor]:
        scores = [x.clone().requires_grad_() for x in (unary, pairwise)]
        found = []
        for function in (chain.log_partition, chain.entropy):
            value = function(*scores, lengths)
            found += [value, *torch.autograd.grad(value[value > -torch.inf].sum(), scores)]
        return found

    ours = results()
    with reference_only():
        for one, other in zip(ours, results(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    drawn = chain.sample(unary, pairwise, 500, lengths, generator=gen)
    assert (chain.linear_chain.score(unary, pairwise, rows=drawn, lengths=lengths) > -torch.inf).all()
    p = chain.marginals(unary, pairwise, lengths)
    counts = torch.nn.functional.one_hot(drawn.clamp(min=0), 8).double().mean(0)[:, :2]
    assert (counts - p[:, :2]).abs().max() < 0.1
