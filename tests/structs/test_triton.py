"""Triton's programs, run by its interpreter on the CPU, equal the reference. Where Triton is missing, this is skipped."""

import os
from importlib.util import find_spec

import pytest

if find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install triton", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"

import torch

from phrasemodels.structs import chain, eisner, kernels

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
        assert type(found[0].grad_fn).__name__ in ("ChainLogPartitionBackward", "EisnerLogPartitionBackward")
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
