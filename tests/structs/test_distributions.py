"""Every distribution equals the list of its support: log_prob, entropy, KL, cross-entropy, minimum risk, relaxed samples."""

import copy
import pickle

import pytest
import torch
from register import STRUCTURES
from test_enumeration import F64
from torch.distributions import kl_divergence

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, spans
from phrasemodels.structs.distributions import HiddenMarkov, LinearChain
from phrasemodels.structs.semiring import Log


@pytest.fixture(params=STRUCTURES)
def pair(request):
    kind = STRUCTURES[request.param]
    scores = kind.scores(seed=3)
    return tuple(kind.distribution(*s, kind.lengths) for s in (scores, [s + 0.5 * s.sin() for s in scores]))


def test_copies_and_pickles_are_over_the_same_structures(pair):
    p, q = pair
    for copied in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        torch.testing.assert_close(kl_divergence(p, copied), kl_divergence(p, q), rtol=0, atol=0)


def test_every_operation_equals_the_sum_over_the_support(pair):
    p, q = pair
    support = p.enumerate_support()
    assert support.shape[1:] == p.batch_shape + p.event_shape
    there = (support >= 0).flatten(2).any(2)
    log_p, log_q = (x.log_prob(support).masked_fill(~there, -torch.inf) for x in (p, q))
    torch.testing.assert_close(log_p.exp().sum(0), torch.ones(2, dtype=F64))
    each = [torch.where(there, log_p.exp() * x, 0).sum(0) for x in (log_p, log_q)]
    torch.testing.assert_close(p.entropy(), -each[0])
    torch.testing.assert_close(p.cross_entropy(q), -each[1])
    torch.testing.assert_close(kl_divergence(p, q), each[0] - each[1])
    torch.testing.assert_close(p.log_prob(p.mode), log_p.amax(0))
    assert p.sample((2, 3)).shape == (2, 3, *p.batch_shape, *p.event_shape)
    with pytest.raises(ValueError, match="structures are more than 1"):
        p.enumerate_support(most=1)


def test_minimum_risk_has_most_right_rows_of_the_support(pair):
    p, _ = pair
    if p.scores[0].dim() < 3 or isinstance(p, LinearChain):
        pytest.skip("by positions; see below")
    leaves = tuple(s.clone().requires_grad_() for s in p.scores)
    p = p._like(leaves)
    support, chosen = p.enumerate_support(), p.minimum_risk
    expected = p.functions.minimum_risk(*leaves, lengths=p.lengths)[0]
    weight = p.log_prob(support).exp()
    for b in range(2):
        rows = [
            {i: tuple(r) for i, r in enumerate(s.tolist())} if s.dim() > 1 else dict(enumerate(s.tolist()))
            for s in support[:, b]
        ]
        sets = [set(r.values()) if support.dim() > 3 else set(r.items()) for r in rows]
        sets = [{r for r in s if (max(r) if support.dim() > 3 else r[1]) >= 0} for s in sets]
        risk = [sum(w * len(s & t) for w, t in zip(weight[:, b].tolist(), sets, strict=True) if t) for s in sets]
        mine = [i for i, s in enumerate(support[:, b]) if torch.equal(s, chosen[b])]
        assert mine and risk[mine[0]] == pytest.approx(max(risk))
        right = sum(w * len(s & sets[mine[0]]) for w, s in zip(weight[:, b], sets, strict=True) if s)
        torch.testing.assert_close(expected[b], right)
        gradients = (torch.autograd.grad(x, leaves, retain_graph=True) for x in (expected[b], right))
        torch.testing.assert_close(*gradients)


def test_minimum_risk_of_tags_and_joint_trees():
    unary, pairwise = torch.randn(1, 3, 2, dtype=F64), torch.randn(2, 2, dtype=F64)
    expected, tags = chain.minimum_risk(unary, pairwise)
    assert torch.equal(tags, chain.marginals(unary, pairwise).argmax(-1))
    torch.testing.assert_close(expected, chain.marginals(unary, pairwise).amax(-1).sum(1))
    expected, tags = chain.minimum_risk(unary, pairwise, [2])
    alone, first = chain.minimum_risk(unary[:, :2], pairwise)
    assert tags.tolist() == [[*first[0].tolist(), -1]], "nothing in the padding"
    torch.testing.assert_close(expected, alone)
    labels, arcs = torch.randn(2, 4, 4, 2), torch.randn(2, 5, 5)
    _, cells, heads = joint.minimum_risk(labels * 100, arcs * 100, [4, 2])
    _, best, best_heads = joint.argmax(labels * 100, arcs * 100, [4, 2])
    assert torch.equal(cells, best) and torch.equal(heads, best_heads)
    assert torch.equal(nonprojective.multi_root.minimum_risk(arcs * 100)[1], nonprojective.multi_root.argmax(arcs)[1])


def test_relaxed_samples_are_differentiable_and_near_structures_at_low_temperature(pair):
    p, _ = pair
    leaves = tuple(s.clone().requires_grad_() for s in p.scores)
    relaxed = p._like(leaves).relaxed_sample(0.5)
    assert all(g.isfinite().all() for g in torch.autograd.grad(sum(r.square().sum() for r in relaxed), leaves))
    for part in p.relaxed_sample(1e-4):
        assert (part - part.round()).abs().max() < 1e-3


def test_gradients_of_divergences_reach_both(pair):
    p, q = pair
    a, b = ([s.clone().requires_grad_() for s in x.scores] for x in (p, q))

    def divergence(*scores):
        return kl_divergence(p._like(scores[: len(a)]), q._like(scores[len(a) :]))

    torch.autograd.gradcheck(divergence, (*a, *b), fast_mode=True)


def test_the_likelihood_of_a_hidden_markov_model_sums_over_its_states():
    gen = torch.Generator().manual_seed(0)
    initial, transition, emission = (
        torch.randn(*s, generator=gen, dtype=F64).log_softmax(-1) for s in ((3,), (3, 3), (3, 5))
    )
    observed = torch.tensor([[0, 4, 2, 2], [1, 3, 0, 0]])
    model = HiddenMarkov(initial, transition, emission, observed, [4, 2])
    for b, n in enumerate((4, 2)):
        alpha = initial.exp() * emission[:, observed[b, 0]].exp()
        for t in range(1, n):
            alpha = (alpha @ transition.exp()) * emission[:, observed[b, t]].exp()
        torch.testing.assert_close(model.log_partition[b].exp(), alpha.sum())
    each = HiddenMarkov(initial, transition, emission, torch.tensor([[0, v, 2] for v in (*range(5), -1, -100)]))
    *known, unknown, other = each.log_partition.exp()
    torch.testing.assert_close(torch.stack([unknown, other]), sum(known).expand(2))


class LogAndMean(Log):
    """(log Z, E[number of scores added]): an expectation semiring (Eisner 2002)."""

    def lift(self, x):
        return torch.stack([x, torch.ones_like(x)])

    def one_like(self, x):
        return torch.zeros_like(x)

    def zero_like(self, x):
        return torch.stack([torch.full_like(x[0], -torch.inf), torch.zeros_like(x[0])])

    def sum(self, x, dim):
        return torch.stack([x[0].logsumexp(dim), (x[0].softmax(dim).nan_to_num() * x[1]).sum(dim)])

    def lower(self, x):
        return x[1]


def test_a_semiring_of_ones_own_gives_expectations():
    labels, arcs = torch.randn(1, 3, 3, 2), torch.randn(1, 4, 4)
    assert chain.total(LogAndMean(), torch.randn(2, 4, 3), torch.randn(3, 3)).tolist() == pytest.approx([7, 7])
    assert eisner.multi_root.total(LogAndMean(), arcs).item() == pytest.approx(3)
    assert spans.total(LogAndMean(), labels).item() == pytest.approx(5)
    assert joint.total(LogAndMean(), labels, arcs).item() == pytest.approx(8)
    assert alignment.frames.total(LogAndMean(), torch.randn(1, 4, 2)).item() == pytest.approx(4)


def test_batch_dimensions_and_expansion_are_those_of_torch(pair):
    p, q = pair
    wide = p.expand((3, 2))
    assert wide.batch_shape == (3, 2) and wide.event_shape == p.event_shape
    torch.testing.assert_close(wide.log_partition, p.log_partition.expand(3, 2))
    torch.testing.assert_close(wide.log_prob(p.mode.expand(3, 2, *p.event_shape)), p.log_prob(p.mode).expand(3, 2))
    assert wide.sample((5,)).shape == (5, 3, 2, *p.event_shape)
    assert torch.equal(wide.topk(2)[1][:, 1], p.topk(2)[1])
    torch.testing.assert_close(kl_divergence(wide, q.expand((3, 2))), kl_divergence(p, q).expand(3, 2))
    for one, other in zip(wide.parts(), p.parts(), strict=True):
        torch.testing.assert_close(one, other.expand(3, *other.shape))


def test_an_impossible_sentence_has_the_cross_entropy_of_its_support(pair):
    p, _ = pair
    no = p._like((torch.full_like(p.scores[0], -torch.inf), *p.scores[1:]))
    inf, zero = torch.full_like(p.log_partition, torch.inf), torch.zeros_like(p.log_partition)
    assert torch.equal(p.cross_entropy(no), inf) and torch.equal(kl_divergence(p, no), inf)
    for q in (p, no):
        assert torch.equal(no.cross_entropy(q), zero) and torch.equal(kl_divergence(no, q), zero)


def test_the_divergence_of_shared_transitions_from_others_and_without_lengths():
    unary, shared = torch.randn(2, 4, 3, dtype=F64), torch.randn(3, 3, dtype=F64)
    each = torch.randn(2, 3, 3, 3, dtype=F64)
    p, same, q = (
        LinearChain(unary, shared),
        LinearChain(unary, shared.expand_as(each), [4, 4]),
        LinearChain(unary, each),
    )
    torch.testing.assert_close(kl_divergence(p, q), kl_divergence(same, q))
    torch.testing.assert_close(kl_divergence(p, same), torch.zeros(2, dtype=F64), atol=1e-12, rtol=0)


def test_values_broadcast_to_the_batch_and_need_its_positions():
    p = LinearChain(torch.randn(2, 4, 3), torch.randn(3, 3))
    torch.testing.assert_close(p.expand((3, 2)).log_prob(p.mode), p.log_prob(p.mode).expand(3, 2))
    torch.testing.assert_close(p.log_prob(torch.zeros(4).long()), p.log_prob(torch.zeros(2, 4).long()))
    with pytest.raises(ValueError, match=r"\(2, 4\)\), not \(2, 3\)"):
        p.log_prob(p.mode[:, :3])
