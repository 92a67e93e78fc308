"""Results in float16 and bfloat16, and of distributions at the edges: long chains, padding, other lengths, nothing allowed."""

import numpy as np
import pytest
import torch
from register import STRUCTURES
from torch import Tensor
from torch.distributions import kl_divergence

from phrasemodels.layers.attention_weights import SoftmaxWeights, TreeWeights
from phrasemodels.structs import chain, eisner, nonprojective, spans
from phrasemodels.structs.distributions import DependencyTree, LabelledSpans, LinearChain
from phrasemodels.structs.kernels import reference_only

PAIRWISE = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def scores(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("functions", "given"),
    [
        (chain, (scores(2, 60, 8), PAIRWISE)),
        (eisner.multi_root, (scores(2, 20, 20),)),
        (nonprojective.single_root, (scores(2, 20, 20),)),
        (spans, (scores(2, 12, 12, 3),)),
    ],
    ids=["chain", "projective", "nonprojective", "spans"],
)
def test_half_precision_is_computed_in_float32(functions, given, kind) -> None:
    """So an error is that of rounding the result; log Z stays float32."""
    half = [s.to(kind) for s in given]
    for name in ("log_partition", "marginals", "entropy"):
        found, exact = (getattr(functions, name)(*of) for of in (half, [s.double() for s in half]))
        kept = torch.float32 if name == "log_partition" else kind
        assert found.dtype == kept
        torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(kept).eps, atol=1e-6)
    half[0].requires_grad_()
    functions.log_partition(*half).sum().backward()
    exact = functions.marginals(*(s.detach().double() for s in half))
    torch.testing.assert_close(half[0].grad.double(), exact, rtol=torch.finfo(kind).eps, atol=1e-6)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_large_mask_over_a_whole_position_leaves_the_digits_of_others(name) -> None:
    """A device, and torch on the CPU, sum in float64 as kernels do: in float32, two numbers at 1e9 are 64 apart."""
    case = STRUCTURES[name]
    given = case.scores(torch.float32)
    given[0][:, 1] = -1e9
    exact = case.functions.expected_parts(*(s.double() for s in given), lengths=case.lengths)
    with reference_only():
        found = case.functions.expected_parts(*given, lengths=case.lengths)
        entropy = case.functions.entropy(*given, lengths=case.lengths)
    assert {x.dtype for x in (*found, entropy)} == {torch.float32}
    torch.testing.assert_close([x.double() for x in found], list(exact), rtol=0, atol=1e-5)
    right = case.functions.entropy(*(s.double() for s in given), lengths=case.lengths)
    torch.testing.assert_close(entropy.double(), right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_divergences_keep_their_digits(kind) -> None:
    p, q = (LinearChain((scores(2, 60, 8) * scale).to(kind), PAIRWISE.to(kind)) for scale in (100, 100.5))
    exact = kl_divergence(*(of._like(tuple(s.double() for s in of.scores)) for of in (p, q)))
    found = kl_divergence(p, q)
    assert found.dtype == kind
    torch.testing.assert_close(found.double(), exact, rtol=torch.finfo(kind).eps, atol=1e-7)


def test_the_entropy_of_a_long_chain_without_kernels() -> None:
    given = scores(2, 1200, 8), PAIRWISE
    with reference_only():
        torch.testing.assert_close(chain.entropy(*given), chain.entropy(*(s.double() for s in given)).float())


def test_the_padding_of_a_structure_may_hold_anything() -> None:
    tags = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    chains = LinearChain(scores(2, 4, 8), PAIRWISE, [2, 4])
    alone = LinearChain(scores(2, 4, 8)[:1, :2], PAIRWISE).log_prob(tags[:1, :2])
    torch.testing.assert_close(chains.log_prob(tags)[:1], alone)
    trees = DependencyTree(scores(2, 4, 4), [2, 3])
    heads = trees.mode.masked_fill(trees.mode < 0, 1)
    heads[:, 0] = -1
    torch.testing.assert_close(trees.log_prob(heads), trees.log_prob(trees.mode))


def test_distributions_over_other_structures_cannot_be_compared() -> None:
    unary, one = scores(2, 4, 8), LinearChain(scores(2, 4, 8), PAIRWISE, [2, 4])
    assert kl_divergence(one, LinearChain(unary, PAIRWISE, torch.tensor([2, 4]))).abs().max() < 1e-6
    for other in (LinearChain(unary, PAIRWISE), LinearChain(unary[:1], PAIRWISE), DependencyTree(scores(2, 4, 4))):
        with pytest.raises(NotImplementedError, match="both distributions must"):
            kl_divergence(one, other)


def test_edges_of_distributions() -> None:
    none = scores(2, 3, 8)
    none[0] = -torch.inf
    assert (LinearChain(none, PAIRWISE).topk(2)[0][:, 0] == -torch.inf).all()
    assert LabelledSpans(torch.zeros(2, 0, 0, 3)).event_shape == (0, 3)
    with pytest.raises(ValueError, match="enumerate_support"):
        LinearChain(torch.zeros(1, 1000, 5), torch.zeros(5, 5)).enumerate_support()
    for trees in (eisner.single_root, nonprojective.multi_root):
        assert trees.topk(torch.zeros(0, 4, 4), 2)[1].shape == (2, 0, 4)


@pytest.mark.parametrize("lengths", [[2.0, 3.0], [True, False], torch.tensor([True, False])])
def test_lengths_are_whole_numbers(lengths) -> None:
    with pytest.raises(ValueError, match="must be 2 integers"):
        chain.log_partition(scores(2, 4, 8), PAIRWISE, lengths)


@pytest.mark.parametrize("lengths", [(2, 4), np.array([2, 4]), torch.tensor([2, 4], dtype=torch.int32)])
def test_lengths_of_any_kind(lengths) -> None:
    given = scores(2, 4, 8), PAIRWISE
    torch.testing.assert_close(chain.log_partition(*given, lengths), chain.log_partition(*given, [2, 4]))


def test_results_of_scores_of_two_types_have_the_wider_one() -> None:
    assert chain.marginals(scores(2, 4, 8).bfloat16(), PAIRWISE).dtype == torch.float32


@pytest.mark.parametrize("weights", [SoftmaxWeights(), TreeWeights()])
def test_weights_of_a_sentence_without_words_are_0(weights) -> None:
    assert not weights(scores(2, 3, 3), torch.tensor([3, 0]))[1].any()
