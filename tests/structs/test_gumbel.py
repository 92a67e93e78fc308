"""Relaxed samples of the Gumbel-CRF: exact where they are hard, and equal to a plain implementation, with its gradients."""

import pytest
import torch
from scipy.stats import chisquare
from test_enumeration import F64, problem

from phrasemodels.structs import chain
from phrasemodels.structs.distributions import LinearChain
from phrasemodels.structs.kernels import reference_only


def plain(unary, pairwise, temperature, noise):
    """Return relaxed samples (k, T, C) of one sentence, position by position, and the exact ones (k, T)."""
    alpha = [unary[0]]
    for t in range(1, len(unary)):
        alpha.append((alpha[-1][:, None] + pairwise).logsumexp(0) + unary[t])
    relaxed, hard = [], []
    for t in range(len(unary) - 1, -1, -1):
        logits = alpha[t] + pairwise[:, hard[0]].T if hard else alpha[t]
        relaxed.insert(0, ((logits + noise[:, t]) / temperature).softmax(-1))
        hard.insert(0, relaxed[0].argmax(-1))
    return torch.stack(relaxed, 1), torch.stack(hard, 1)


@pytest.mark.parametrize("path", ["kernels", "reference"])
@pytest.mark.parametrize("std", [1, 30])
def test_relaxed_samples_and_gradients_equal_a_plain_implementation(std, path):
    gen = torch.Generator().manual_seed(0)
    unary, pairwise = (std * torch.randn(*s, generator=gen, dtype=F64) for s in ((2, 5, 3), (3, 3)))
    pairwise[0, 1] = -torch.inf
    leaves = unary.requires_grad_(), pairwise.requires_grad_()
    weight, lengths = torch.randn(4, 2, 5, 3, generator=gen, dtype=F64), [5, 3]
    noise = -torch.empty(4, 2, 5, 3, dtype=F64).exponential_(generator=torch.Generator().manual_seed(1)).log()
    with reference_only() if path == "reference" else torch.enable_grad():
        own = lambda hard: chain.gumbel_sample(*leaves, 4, 0.7, lengths, hard, torch.Generator().manual_seed(1))  # noqa: E731
        found, hard = own(False), own(True)
        gradients = [torch.autograd.grad((x * weight).sum(), leaves) for x in (found, hard)]
    expected = torch.zeros_like(found)
    for b, n in enumerate(lengths):
        relaxed, tags = plain(unary[b, :n], pairwise, 0.7, noise[:, b])
        expected[:, b, :n] = relaxed
        assert torch.equal(hard[:, b, :n].argmax(-1), tags)
    torch.testing.assert_close(found, expected)
    each = pairwise.expand(2, 4, 3, 3)
    again = chain.gumbel_sample(unary, each, 4, 0.7, lengths, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(again, expected)
    for want, *got in zip(torch.autograd.grad((expected * weight).sum(), leaves), *gradients, strict=True):
        for x in got:
            torch.testing.assert_close(x, want.nan_to_num())


def test_hard_samples_follow_the_distribution():
    q, k = problem("chain", 3, B=1), 4000
    torch.manual_seed(0)
    drawn = LinearChain(*q.scores).gumbel_sample(1e-3, (k,), hard=True)
    assert ((drawn == 0) | (drawn == 1)).all()
    soft = LinearChain(*q.scores).gumbel_sample(1e-3, (k,))
    torch.testing.assert_close(soft.mean(0), chain.marginals(*q.scores), rtol=0, atol=0.04)
    which = (drawn[:, 0].flatten(1) @ q.parts[0].flatten(1).T).argmax(1)
    counts, expected = torch.bincount(which, minlength=27), q.p[0] * k
    common = expected >= 5
    observed = [*counts[common].tolist(), counts[~common].sum().item()]
    assert chisquare(observed, [*expected[common].tolist(), max(expected[~common].sum().item(), 1e-9)]).pvalue > 1e-3


def test_inputs_that_are_easily_forgotten():
    unary, pairwise = torch.randn(2, 2, 4, 3), torch.randn(3, 3)
    unary[0, 0], unary[0, 1, 0, 0] = -torch.inf, torch.nan
    x = chain.gumbel_sample(unary.bfloat16(), pairwise, 5, 1.0, [[4, 4], [0, 2]])
    assert x.shape == (5, 2, 2, 4, 3) and x.dtype == torch.float32
    assert (x[:, 0, 0] == 0).all() and x[:, 0, 1].isnan().all() and (x[:, 1, 0] == 0).all()
    assert x[:, 1, 1].sum((1, 2)).tolist() == pytest.approx([2] * 5)
    assert chain.gumbel_sample(unary[:, :, :0], pairwise, 1, 1.0).shape == (1, 2, 2, 0, 3)
    with pytest.raises(ValueError, match="temperature"):
        chain.gumbel_sample(unary, pairwise, 1, 0)
