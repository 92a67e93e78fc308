"""The reference runs on any device: results on a GPU equal those of the CPU, and no operation leaves the device."""

import pytest
import torch

from phrasemodels.structs import chain, eisner, joint, spans

B, N = 2, 5
SHAPES = {
    "chain": (chain, [(B, N, 3), (B, N - 1, 3, 3)]),
    "multi-root": (eisner.multi_root, [(B, N + 1, N + 1)]),
    "single-root": (eisner.single_root, [(B, N + 1, N + 1)]),
    "spans": (spans, [(B, N, N, 2)]),
    "joint": (joint, [(B, N, N, 2), (B, N + 1, N + 1)]),
}


def flat(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", SHAPES)
def test_every_operation_stays_on_the_device_of_the_scores(name):
    """Meta tensors have no numbers: an operation with a CPU tensor, or one that reads a number, raises an error."""
    module, shapes = SHAPES[name]
    scores = [torch.empty(s, device="meta", requires_grad=True) for s in shapes]
    for f in (module.log_partition, module.marginals, module.entropy):
        for result in flat(f(*scores)):
            grads = torch.autograd.grad(result.sum(), scores, create_graph=True, materialize_grads=True)
            assert all(x.device.type == "meta" and x.requires_grad for x in (result, *grads))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_results_on_a_gpu_equal_those_of_the_cpu(name, dtype):
    module, shapes = SHAPES[name]
    lengths = torch.tensor([N, 3])
    scores = [torch.randn(s, generator=torch.Generator().manual_seed(0), dtype=dtype) for s in shapes]
    on_gpu = [s.cuda() for s in scores]
    for f in (module.log_partition, module.marginals, module.entropy, module.argmax):
        for got, want in zip(flat(f(*on_gpu, lengths=lengths.cuda())), flat(f(*scores, lengths=lengths)), strict=True):
            torch.testing.assert_close(got.cpu(), want)
    assert all(s.is_cuda for s in flat(module.sample(*on_gpu, k=3, lengths=lengths.cuda())))
