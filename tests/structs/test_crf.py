"""CRF modules: as pytorch-crf computes, by enumeration, and with tags or heads that are unknown."""

from itertools import product

import pytest
import torch

from phrasemodels.structs import crf, eisner, nonprojective

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)


def scores_of_all(model, emissions, n):
    """Return all sequences of n tags, and their scores from the definition."""
    every = torch.tensor(list(product(range(model.num_tags), repeat=n)))
    total = model.start_transitions[every[:, 0]] + model.end_transitions[every[:, -1]]
    total = total + emissions[torch.arange(n), every].sum(1)
    return every, total + model.transitions[every[:, :-1], every[:, 1:]].sum(1)


@pytest.mark.parametrize("batch_first", [True, False])
def test_likelihood_and_best_tags_are_those_of_enumeration(batch_first):
    model = crf.CRF(3, batch_first).double()
    emissions, tags = torch.randn(2, 4, 3, dtype=torch.float64), torch.randint(3, (2, 4))
    given = (emissions, tags, MASK) if batch_first else (emissions.transpose(0, 1), tags.T, MASK.T)
    value, best = model(*given, reduction="none"), model.decode(given[0], given[2])
    for b, n in enumerate((4, 2)):
        every, total = scores_of_all(model, emissions[b], n)
        chosen = (every == tags[b, :n]).all(1)
        torch.testing.assert_close(value[b], (total - total.logsumexp(0))[chosen][0])
        assert best[b] == every[total.argmax()].tolist()
    torch.testing.assert_close(model(*given), value.sum())
    torch.testing.assert_close(model(*given, reduction="token_mean"), value.sum() / 6)


@pytest.mark.parametrize("unknown", [-1, -100])
def test_tags_that_are_unknown_are_summed_over(unknown):
    model, emissions = crf.CRF(3, batch_first=True).double(), torch.randn(1, 4, 3, dtype=torch.float64)
    tags = torch.tensor([[2, unknown, 0, unknown]])
    value = model(emissions, tags)
    every, total = scores_of_all(model, emissions[0], 4)
    fits = (every[:, 0] == 2) & (every[:, 2] == 0)
    torch.testing.assert_close(value, total[fits].logsumexp(0) - total.logsumexp(0))
    assert all(g.isfinite().all() for g in torch.autograd.grad(value, model.parameters()))


@pytest.mark.parametrize("trees", [eisner.single_root, nonprojective.multi_root])
def test_heads_that_are_unknown_are_summed_over(trees):
    model, arcs = crf.TreeCRF(trees), torch.randn(1, 4, 4, dtype=torch.float64)
    support = model.distribution(arcs).enumerate_support()[:, 0]
    log_p = model.distribution(arcs).log_prob(support[:, None])[:, 0]
    torch.testing.assert_close(model(arcs, support[:1]), log_p[0])
    fits = support[:, 2] == support[0, 2]
    partial = torch.tensor([[-1, -100, support[0, 2], -1]])
    torch.testing.assert_close(model(arcs, partial), log_p[fits].logsumexp(0))
    assert torch.equal(model.decode(arcs)[0], support[log_p.argmax()])


def test_what_is_no_tag_is_refused():
    model = crf.CRF(3, batch_first=True)
    for wrong in (3, -2):
        with pytest.raises(ValueError, match=r"integers in 0..2"):
            model(torch.zeros(1, 2, 3), torch.tensor([[0, wrong]]))
    with pytest.raises(ValueError, match="mask must be true from the first"):
        model.decode(torch.zeros(1, 3, 3), torch.tensor([[True, False, True]]))
    assert model(torch.zeros(1, 2, 3), torch.tensor([[0, 77]]), torch.tensor([[True, False]])).isfinite()
