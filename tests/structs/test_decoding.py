"""Compiled decoders return what the reference returns, also for ties, forbidden parts and scores that are no numbers."""

from contextlib import nullcontext

import pytest
import torch

from phrasemodels.structs import chain, eisner
from phrasemodels.structs.kernels import reference_only

F32, F64 = torch.float32, torch.float64
SHAPES = [(5, 7, 3), (3, 1, 4), (9, 6, 20), (1, 30, 10), (4, 12, 1), (2, 9, 17)]  # B, T or n, C


def draw(shape, kind, gen):
    """Return scores: of a spread, small integers for many equal structures, or with a third of them forbidden."""
    x = torch.randn(*shape, generator=gen, dtype=F64)
    if kind == "forbidden":
        return x.masked_fill(torch.rand(shape, generator=gen) < 0.3, -torch.inf)
    return x.round() if kind == "equal" else x * kind


def problem(structure, shape, kind, dtype):
    """Return the function, its scores with NaN in the padding, and lengths."""
    gen = torch.Generator().manual_seed(sum(shape))
    B, n, C = shape
    lengths = torch.randint(1, n + 1, (B,), generator=gen)
    beyond = torch.arange(n) >= lengths[:, None]
    if structure == "chain" or (structure == "chain-each" and n > 1):
        unary = draw(shape, kind, gen).masked_fill(beyond[..., None], torch.nan)
        pairwise = draw((C, C) if structure == "chain" else (B, n - 1, C, C), kind, gen)
        return chain.argmax, [unary.to(dtype), pairwise.to(dtype)], lengths
    arcs = draw((B, n + 1, n + 1), kind, gen)
    arcs[:, 1:, 1:][beyond[:, :, None] | beyond[:, None]] = torch.nan
    arcs[:, :, 0] = torch.nan
    return (eisner.single_root if structure == "single-root" else eisner.multi_root).argmax, [arcs.to(dtype)], lengths


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("kind", [1, 1000, 1e5, "equal", "forbidden"])
@pytest.mark.parametrize("structure", ["chain", "chain-each", "multi-root", "single-root"])
def test_compiled_decoders_choose_the_structures_of_the_reference(structure, kind, dtype):
    for shape in SHAPES:
        argmax, scores, lengths = problem(structure, shape, kind, dtype)
        score, best = argmax(*scores, lengths)
        with reference_only():
            expected, reference = argmax(*scores, lengths)
        torch.testing.assert_close(score, expected)
        possible = expected > -torch.inf
        assert torch.equal(best[possible], reference[possible])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_scores_that_are_no_numbers_leave_other_sentences_alone(bad):
    for structure in ("chain", "multi-root"):
        argmax, scores, lengths = problem(structure, (6, 5, 3), 1, F32)
        good = argmax(*scores, lengths)
        scores[0][2, 0, 1] = bad
        score, best = argmax(*scores, lengths)
        others = torch.arange(6) != 2
        assert not score[2].isfinite()
        torch.testing.assert_close(score[others], good[0][others])
        assert torch.equal(best[others], good[1][others])


def test_scores_of_argmax_have_the_gradient_of_the_chosen_parts_twice():
    unary, pairwise = (
        torch.randn(2, 4, 3, dtype=F64, requires_grad=True),
        torch.randn(3, 3, dtype=F64, requires_grad=True),
    )
    arcs = torch.randn(2, 5, 5, dtype=F64, requires_grad=True)
    torch.autograd.gradcheck(lambda u, p: chain.argmax(u, p)[0], (unary, pairwise))
    torch.autograd.gradgradcheck(lambda u, p: chain.argmax(u, p)[0].square(), (unary, pairwise))
    torch.autograd.gradcheck(lambda a: eisner.single_root.argmax(a)[0], (arcs,))


def test_an_empty_batch_has_empty_results():
    assert [x.shape for x in chain.argmax(torch.zeros(0, 3, 2), torch.zeros(2, 2))] == [(0,), (0, 3)]
    assert [x.shape for x in eisner.multi_root.argmax(torch.zeros(0, 4, 4))] == [(0,), (0, 4)]


@pytest.mark.parametrize("context", [nullcontext, reference_only], ids=["kernels", "reference"])
def test_sentences_without_words_or_without_a_possible_structure(context):
    with context():
        for trees in (eisner.multi_root, eisner.single_root):
            empty = torch.zeros(2, 1, 1)
            assert trees.log_partition(empty).tolist() == trees.entropy(empty).tolist() == [0, 0]
            assert torch.equal(trees.marginals(empty), empty)
            assert [x.tolist() for x in trees.argmax(empty)] == [[0, 0], [[-1], [-1]]]
            assert trees.argmax(torch.full((1, 3, 3), -torch.inf))[0] == -torch.inf
        assert chain.argmax(torch.full((1, 3, 2), -torch.inf), torch.zeros(2, 2))[0] == -torch.inf
