"""Inference over dependency trees whose arcs may cross equals sums over the list of all trees."""

from functools import cache
from itertools import product

import pytest
import torch
from scipy.stats import chisquare
from test_enumeration import reaches_root

from phrasemodels.structs import nonprojective
from phrasemodels.structs.eisner import score_heads
from phrasemodels.structs.kernels import arborescences, reference_only
from phrasemodels.structs.kernels.arborescences import Determinants, factorised

F64 = torch.float64
MASKS = {"forbidden": -torch.inf, "masked": -1e4}
RULES = {"multi": nonprojective.multi_root, "single": nonprojective.single_root}


@cache
def trees(n, rule):
    """Return the heads (M, n+1) of all trees of n words, -1 at the root."""
    rows = [
        (-1, *heads)
        for heads in product(range(n + 1), repeat=n)
        if (rule == "multi" or heads.count(0) == 1) and all(reaches_root(heads, m) for m in range(1, n + 1))
    ]
    return torch.tensor(rows)


def problem(n, rule, kind, seed=0):
    """Return random arcs of one sentence, the scores (M,) of all trees, and the trees."""
    arcs = torch.randn(n + 1, n + 1, generator=torch.Generator().manual_seed(seed + n), dtype=F64)
    if kind in MASKS:
        arcs[torch.rand(arcs.shape, generator=torch.Generator().manual_seed(n)) < 0.4] = MASKS[kind]
    else:
        arcs *= kind
    heads = trees(n, rule)
    return arcs, torch.cat([score_heads(arcs[None], h[None]) for h in heads]), heads


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "reference"])
@pytest.mark.parametrize("kind", [1e-3, 1, 100, 1e4, *MASKS])
@pytest.mark.parametrize("rule", RULES)
def test_inference_equals_enumeration(rule, kind, kernels):
    for n in range(1, 6):
        arcs, total, heads = problem(n, rule, kind)
        module, p = RULES[rule], torch.zeros(1, n + 1, n + 1, dtype=F64)
        log_z = total.logsumexp(0, keepdim=True)
        if log_z > -torch.inf:
            for h, x in zip(heads, (total - log_z).exp(), strict=True):
                p[0, h[1:], torch.arange(1, n + 1)] += x
        terms = (total - log_z).exp() * (total - log_z)
        found = [f(arcs[None]) for f in (module.log_partition, module.marginals, module.entropy)] if kernels else []
        if not kernels:
            with reference_only():
                found = [f(arcs[None]) for f in (module.log_partition, module.marginals, module.entropy)]
        torch.testing.assert_close(found[0], log_z)
        torch.testing.assert_close(found[1], p, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(found[2], -terms.nansum(0, keepdim=True), rtol=1e-7, atol=1e-9)
        score, best = module.argmax(arcs[None])
        torch.testing.assert_close(score, total.amax(0, keepdim=True))
        if score > -torch.inf:
            assert (best[0] == heads).all(1).any()
            torch.testing.assert_close(score_heads(arcs[None], best), score)


@pytest.mark.parametrize("kind", [1, 1e4, "forbidden"])
@pytest.mark.parametrize("rule", RULES)
def test_the_k_best_trees_are_those_of_enumeration(rule, kind):
    for n in range(1, 6):
        arcs, total, heads = problem(n, rule, kind)
        allowed = total[total > -torch.inf].sort(descending=True).values
        k = len(allowed) + 2 if n < 5 else 40
        scores, best = RULES[rule].topk(arcs[None], k)
        found = min(k, len(allowed))
        torch.testing.assert_close(scores[:found, 0], allowed[:found])
        assert (scores[found:] == -torch.inf).all() and (best[found:] == -1).all()
        same = (best[:found, 0, None] == heads).all(2)
        assert (same.sum(1) == 1).all() and (same.sum(0) <= 1).all()
        torch.testing.assert_close(total[same.int().argmax(1)][:found], scores[:found, 0])


@pytest.mark.parametrize("rule", RULES)
def test_samples_follow_the_distribution(rule):
    k = 5000
    for n in (3, 4):
        arcs, total, heads = problem(n, rule, 1, seed=7)
        drawn = RULES[rule].sample(arcs[None], k, generator=torch.Generator().manual_seed(0))[:, 0]
        same = (drawn[:, None] == heads).all(2)
        assert (same.sum(1) == 1).all()
        expected, counts = total.softmax(0) * k, same.sum(0)
        rare = expected < 5
        observed = [*counts[~rare].tolist(), counts[rare].sum().item()]
        wanted = [*expected[~rare].tolist(), max(expected[rare].sum().item(), 1e-9)]
        assert chisquare(observed, wanted).pvalue > 1e-3


@pytest.mark.parametrize("rule", RULES)
def test_first_and_second_derivatives_equal_finite_differences(rule):
    arcs, lengths = torch.randn(2, 4, 4, dtype=F64, requires_grad=True), torch.tensor([3, 2])
    module = RULES[rule]
    for f in (module.log_partition, module.marginals, module.entropy):
        torch.autograd.gradcheck(lambda a, f=f: f(a, lengths), (arcs,))
        torch.autograd.gradgradcheck(lambda a, f=f: f(a, lengths), (arcs,))
    torch.autograd.gradcheck(lambda a: module.argmax(a, lengths)[0], (arcs,))
    torch.autograd.gradcheck(lambda a: module.topk(a, 2, lengths)[0], (arcs,))


def gradients(arcs, weights, inference):
    """Return the gradients of weighed marginals and entropies."""
    scores = arcs.clone().requires_grad_()
    p, entropy = inference(scores)
    return torch.autograd.grad((p * weights).sum() + entropy @ weights[:, 0, 0], scores)[0]


@pytest.mark.parametrize("std", [0, 1])
@pytest.mark.parametrize("rule", RULES)
def test_gradients_of_marginals_and_entropy_equal_those_of_the_reference(rule, std):
    arcs, weights = torch.randn(5, 13, 13, dtype=F64) * std, torch.randn(5, 13, 13, dtype=F64)
    arcs[1, 1, 2], arcs[2, 0, 1:], arcs[:, 6:, 3] = (
        -torch.inf,
        -torch.inf,
        -torch.inf,
    )  # no tree of the third sentence is allowed
    lengths, module = torch.tensor([12, 11, 5, 1, 0]), RULES[rule]

    def inference(scores):
        return module.marginals(scores, lengths), module.entropy(scores, lengths)

    got = gradients(arcs, weights, inference)
    with reference_only():
        torch.testing.assert_close(got, gradients(arcs, weights, inference), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [1, 100, 1e4, *MASKS])
@pytest.mark.parametrize("rule", RULES)
def test_gradients_of_marginals_and_entropy_equal_those_of_enumeration(rule, kind):
    torch.manual_seed(0)
    n, module = 5, RULES[rule]
    arcs, total, heads = problem(n, rule, kind, seed=1)
    weights, word = torch.randn(1, n + 1, n + 1, dtype=F64), torch.arange(1, n + 1)
    allowed = heads[total > -torch.inf][:, 1:]

    def enumerated(scores):
        log_p = scores[0, allowed, word].sum(1).log_softmax(0)
        p = torch.zeros_like(scores[0]).index_put((allowed, word), log_p.exp()[:, None], accumulate=True)
        return p[None], -(log_p.exp() * log_p).sum(0, keepdim=True)

    got = gradients(arcs[None], weights, lambda scores: (module.marginals(scores), module.entropy(scores)))
    torch.testing.assert_close(got, gradients(arcs[None], weights, enumerated), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", RULES)
def test_finite_masks_are_eliminated_as_forbidden_arcs(rule, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(arborescences, "_in_torch", None)  # it takes O(n³) memory a sentence, and more time
    arcs, module = torch.randn(3, 13, 13, dtype=F64), RULES[rule]
    mask, weights = torch.rand(arcs.shape) < 0.4, torch.randn(arcs.shape, dtype=F64)
    mask[:, 0] = False  # each sentence has trees

    def inference(scores):
        return module.marginals(scores), module.entropy(scores)

    finite, infinite = arcs.masked_fill(mask, -1e9), arcs.masked_fill(mask, -torch.inf)
    assert torch.equal(module.log_partition(finite), module.log_partition(infinite))
    torch.testing.assert_close(gradients(finite, weights, inference), gradients(infinite, weights, inference))


@pytest.mark.parametrize("std", [1, 1e5])
@pytest.mark.parametrize("rule", RULES)
def test_a_padded_batch_equals_its_sentences_and_the_reference(rule, std):
    torch.manual_seed(0)
    lengths = torch.tensor([4, 1, 9, 3])
    arcs = torch.randn(4, 10, 10, dtype=F64) * std
    for b, n in enumerate(lengths.tolist()):
        arcs[b, n + 1 :] = arcs[b, :, n + 1 :] = torch.nan
    module = RULES[rule]
    values = [module.log_partition(arcs, lengths), module.marginals(arcs, lengths), module.entropy(arcs, lengths)]
    score, best = module.argmax(arcs, lengths)
    if std == 1:
        with reference_only():
            exact = [
                module.log_partition(arcs, lengths), module.marginals(arcs, lengths), module.entropy(arcs, lengths),
            ]  # fmt: skip
    else:  # one tree has all of the probability
        single = torch.zeros(4, 10, 10, dtype=F64)
        for b, n in enumerate(lengths.tolist()):
            single[b, best[b, 1 : n + 1], torch.arange(1, n + 1)] = 1
        exact = [score, single, torch.zeros(4, dtype=F64)]
    for got, want in zip(values, exact, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=max(1e-11, 1e-14 * std))
    drawn = module.sample(arcs, 5, lengths)
    for b, n in enumerate(lengths.tolist()):
        one = arcs[b : b + 1, : n + 1, : n + 1]
        torch.testing.assert_close(values[0][b], module.log_partition(one)[0])
        assert torch.equal(best[b, : n + 1], module.argmax(one)[1][0]) and (best[b, n + 1 :] == -1).all()
        assert ((drawn[:, b] >= 0).sum(1) == n).all() and (score[b] == score[b]).all()
        assert std == 1 or (drawn[:, b] == best[b]).all()


def test_scores_that_are_no_numbers_affect_their_sentence_alone():
    arcs = torch.randn(2, 4, 4)
    arcs[0, 1, 2] = torch.nan
    for f in (nonprojective.single_root.log_partition, nonprojective.single_root.marginals):
        assert f(arcs)[0].isnan().any() and f(arcs)[1].isfinite().all()
    assert nonprojective.multi_root.argmax(arcs)[0].isnan().tolist() == [True, False]
    assert nonprojective.multi_root.log_partition(torch.zeros(0, 4, 4)).shape == (0,)


@pytest.mark.parametrize("mask", [None, -1e9, -torch.inf, -50.0])
@pytest.mark.parametrize("spread", [0.5, 5.0, 30.0, 300.0])
@pytest.mark.parametrize("rule", RULES)
def test_determinants_give_what_elimination_gives(rule, spread, mask):
    """The kernel of GPUs runs here on the CPU."""
    torch.manual_seed(0)
    lengths = torch.tensor([[9], [0], [1], [6], [9]])
    arcs, grads = torch.randn(5, 10, 10, dtype=F64) * spread, torch.randn(5, 10, 10, dtype=F64)
    if mask is not None:
        arcs = torch.where(torch.rand(arcs.shape) < 0.4, mask, arcs)
    arcs[:, :, 0] = torch.nan
    arcs[3, 7:] = arcs[3, :, 7:] = torch.nan
    pairs = []
    for kernel in (Determinants(), arborescences.Arborescences()):
        log_z, (p,) = kernel.marginals(RULES[rule], (arcs,), lengths, 1.0, (0,), True)
        pairs.append((log_z, p, *kernel.hessian_vector(RULES[rule], (arcs,), lengths, [grads])))
    torch.testing.assert_close(*pairs, rtol=1e-9, atol=1e-9)
    if spread == 0.5 and mask is None:
        assert factorised(RULES[rule], arcs, lengths).known.all()


@pytest.mark.parametrize("rule", RULES)
def test_lost_digits_of_determinants_are_known(rule):
    """Two words with each other as heads by 1, e^-k otherwise: a determinant is a difference of almost equal numbers."""
    for k, lost in ((1.0, False), (30.0, True), (710.0, True), (torch.inf, True)):
        arcs = torch.full((1, 4, 4), -k, dtype=F64)
        arcs[0, 1, 2] = arcs[0, 2, 1] = 0
        lengths = torch.tensor([[3]])
        assert bool(factorised(RULES[rule], arcs, lengths).known) != lost
        (log_z, _), (right, _) = (
            x.marginals(RULES[rule], (arcs,), lengths, None, (), False)
            for x in (Determinants(), RULES[rule].kernels[0])
        )
        assert torch.equal(log_z, right) or not lost
