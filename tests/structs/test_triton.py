"""Triton's programs, run by its interpreter on the CPU, equal the reference. Where Triton is missing, this is skipped."""

import os
from importlib.util import find_spec

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install triton", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"

import torch

from phrasemodels.structs import chain, eisner, kernels
from phrasemodels.structs.kernels import gpu

F64 = torch.float64
LENGTHS = torch.tensor([5, 1, 3])
CASES = {
    "chain": (chain, [(3, 5, 3), (3, 3)]),
    "chain, each": (chain, [(3, 5, 4), (3, 4, 4, 4)]),
    "multi-root": (eisner.multi_root, [(3, 6, 6)]),
    "single-root": (eisner.single_root, [(3, 6, 6)]),
}


def scores_of(name, std, dtype):
    gen = torch.Generator().manual_seed(0)
    return [(torch.randn(*s, generator=gen, dtype=F64) * std).to(dtype).requires_grad_() for s in CASES[name][1]]


def outcome(module, scores):
    log_z, p = module.log_partition(*scores, lengths=LENGTHS), module.marginals(*scores, lengths=LENGTHS)
    pairs = [module.pair_marginals(*scores, lengths=LENGTHS)] if module is chain else []
    grads = torch.autograd.grad(log_z.sum() + p.square().sum(), scores)
    return [log_z, p, *pairs, *grads]


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("std", [1.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_programs_equal_the_reference(name, std, dtype):
    module, scores = CASES[name][0], scores_of(name, std, dtype)
    with kernels.reference_only():
        expected = outcome(module, scores)
    with kernels.only("triton"):
        found = outcome(module, scores)
        assert type(found[0].grad_fn).__name__ == "LogPartitionBackward"
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter
@pytest.mark.parametrize("name", ["chain, each", "single-root"])
def test_forbidden_parts_and_scores_that_are_no_numbers(name):
    module, scores = CASES[name][0], [s.detach() for s in scores_of(name, 1.0, F64)]
    scores[0][0, 1] = -torch.inf
    scores[0][0, :, 1] = -torch.inf
    scores[0][2, 2, 1] = torch.nan
    with kernels.only("triton"):
        log_z, p = module.log_partition(*scores, lengths=LENGTHS), module.marginals(*scores, lengths=LENGTHS)
    with kernels.reference_only():
        exact, q = module.log_partition(*scores, lengths=LENGTHS), module.marginals(*scores, lengths=LENGTHS)
    torch.testing.assert_close(log_z, exact, equal_nan=True)
    torch.testing.assert_close(p[:2], q[:2])
    assert log_z[0] == -torch.inf and (p[0] == 0).all() and log_z[2].isnan() and p[2].isnan().any()


@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")  # of the interpreter
@pytest.mark.parametrize("lengths", [[4, 4], [0, 3], [1, 2], [4, 1]])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3, 3)], ids=["shared", "by position"])
@pytest.mark.parametrize("case", ["plain", "forbidden tags", "forbidden transition", "nothing allowed", "unknown"])
def test_derivatives_of_marginals_and_best_tags_of_chains(case, shape, lengths, monkeypatch):
    gen = torch.Generator().manual_seed(1)
    scores = [torch.randn(s, generator=gen, dtype=F64) * 3 for s in ((2, 4, 3), shape)]
    lengths = torch.tensor(lengths)
    if case == "forbidden tags":
        scores[0][:, 1, :2] = -torch.inf
    if case == "forbidden transition":
        scores[1][..., 0, 1] = -torch.inf
    if case == "nothing allowed":
        scores[0][0, 0] = -torch.inf
    if case == "unknown":
        scores[0][1, 0, 0] = torch.nan
    scores = [s.requires_grad_() for s in scores]
    weight = torch.randn(2, 4, 3, generator=gen, dtype=F64)

    def outcome():
        p, pairs = chain.TAGS.expected_parts(*scores, lengths=lengths)
        pairs = pairs.sum(1) if shape == (3, 3) and pairs.dim() == 4 else pairs  # the reference has them by position
        grads = torch.autograd.grad((p * weight).sum() + pairs.sin().sum(), scores)
        best, tags = chain.argmax(*scores, lengths=lengths)
        return [p, pairs, *grads, best], tags

    with kernels.reference_only():
        expected, tags = outcome()
    with kernels.only("triton"), monkeypatch.context() as patch:
        patch.setattr(kernels, "reference_vjp", None)  # no derivative is that of the reference
        found, found_tags = outcome()
    known = [0] if case == "unknown" else [0, 1]
    for x, y in zip(found, expected, strict=True):
        if x.dim() and len(x) == 2:
            torch.testing.assert_close(x[known], y[known])
        elif case != "unknown":
            torch.testing.assert_close(x, y)
    assert torch.equal(found_tags[known], tags[known])
    assert case != "unknown" or lengths[1] == 0 or (found[-1][1].isnan() and found[0][1].isnan().any())


def test_marginals_of_a_long_chain_sum_to_1():
    gen = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(1, 400, 4, generator=gen) * 5, torch.randn(4, 4, generator=gen) * 5
    with kernels.only("triton"):
        p = chain.marginals(unary, pairwise)
    torch.testing.assert_close(p.sum(2), torch.ones(1, 400), rtol=0, atol=1e-6)
    with kernels.reference_only():
        torch.testing.assert_close(p, chain.marginals(unary.double(), pairwise.double()).float(), rtol=0, atol=1e-5)


def test_no_transition_of_a_position_is_kept_where_they_are_shared():
    unary, pairwise = torch.randn(2, 9, 4), torch.randn(4, 4)
    lengths = torch.tensor([9, 5])
    assert gpu.chain_passes(unary, pairwise, lengths, True)[2].shape == (2, 4, 4)
    assert gpu.chain_passes(unary, pairwise, lengths, True, False)[2] is None
