"""A score that is NaN or +inf makes the results of its sentence NaN, and leaves those of all other sentences alone."""

import pytest
import torch

from phrasemodels.structs import chain, eisner, joint, spans
from phrasemodels.structs.kernels import reference_only

B, N, L = 11, 5, 3  # more sentences than a block of the kernels holds
LENGTHS = torch.tensor([5, 5, 1, 4, 5, 2, 3, 5, 4, 5, 3])
LOST = 3  # a sentence of length 4, which gets the bad score
# shapes of scores, functions, an index of a score of the lost sentence, and one in its padding
CHAIN = (chain.log_partition, chain.marginals, chain.pair_marginals, chain.entropy)
STRUCTURES = {
    "chain": ([(B, N, L), (L, L)], CHAIN, (3, 1), (4, 1)),
    "chain-each": ([(B, N, L), (B, N - 1, L, L)], CHAIN, (3, 1), (4, 1)),
    "spans": ([(B, N, N, L)], (spans.log_partition, spans.marginals, spans.entropy), (1, 3, 2), (1, 4, 2)),
    "joint": (
        [(B, N, N, L), (B, N + 1, N + 1)],
        (joint.log_partition, joint.marginals, joint.entropy),
        (1, 3, 2),
        (1, 4, 2),
    ),
} | {
    name: ([(B, N + 1, N + 1)], (trees.log_partition, trees.marginals, trees.entropy), (4, 2), (5, 2))
    for name, trees in (("multi-root", eisner.multi_root), ("single-root", eisner.single_root))
}


def outcome(function, scores):
    """Return the values of a function, and the gradients of a loss on them."""
    leaves = [score.detach().clone().requires_grad_() for score in scores]
    result = function(*leaves, lengths=LENGTHS)
    values = result if isinstance(result, tuple) else (result,)
    loss = sum((value * torch.arange(value[0].numel()).view(value[0].shape)).sum() for value in values)
    return [*(value.detach() for value in values), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=["32", "64", "16"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_score_that_is_no_number_affects_its_sentence_alone(name, dtype, bad):
    shapes, functions, where, _ = STRUCTURES[name]
    generator = torch.Generator().manual_seed(0)
    good = [torch.randn(*shape, generator=generator).to(dtype) for shape in shapes]
    broken = [score.clone() for score in good]
    broken[0][LOST][where] = bad
    others = torch.arange(B) != LOST
    for function in functions:
        results = outcome(function, broken)
        for got, want in zip(results, outcome(function, good), strict=True):
            if len(got) == B:
                assert torch.equal(got[others], want[others])
                assert got[LOST].isnan().any()
            else:  # a gradient that sentences share
                assert got.isnan().all()
        if dtype != torch.bfloat16:
            with reference_only():
                for got, want in zip(results, outcome(function, broken), strict=True):
                    assert torch.equal(got[LOST % len(got)].isnan(), want[LOST % len(got)].isnan())


@pytest.mark.parametrize("name", STRUCTURES)
def test_scores_in_the_padding_are_not_read(name):
    shapes, functions, _, beyond = STRUCTURES[name]
    good = [torch.randn(*shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    padded = [score.clone() for score in good]
    padded[0][LOST][beyond] = torch.nan
    for function in functions:
        for got, want in zip(outcome(function, padded), outcome(function, good), strict=True):
            assert torch.equal(got, want)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "each"])
def test_a_transition_that_is_no_number_affects_the_sequences_that_use_it(shared):
    unary, pairs = torch.randn(B, N, L), torch.randn(*((L, L) if shared else (B, N - 1, L, L)))
    pairs[(0, 1) if shared else (LOST, 2, 0, 1)] = torch.nan
    lost = LENGTHS > 1 if shared else torch.arange(B) == LOST  # one word has no transition
    assert torch.equal(chain.log_partition(unary, pairs, LENGTHS).isnan(), lost)
    assert torch.equal(chain.marginals(unary, pairs, LENGTHS)[:, 0].isnan().all(1), lost)


def test_forbidden_parts_give_no_nan():
    arcs = torch.randn(2, N, N)
    arcs[0, 1:, 2] = -torch.inf
    assert eisner.multi_root.marginals(arcs).isfinite().all()
    assert chain.log_partition(torch.full((1, 2, 2), -torch.inf), torch.zeros(2, 2)).tolist() == [-torch.inf]
