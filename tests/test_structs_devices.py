"""The reference on other devices: its numbers where there is a GPU, and without one that it never leaves a device."""

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
    """Tensors without numbers: an operation between them and a processor's, or one that reads a number, is an error."""
    module, shapes = SHAPES[name]
    scores = [torch.empty(s, device="meta", requires_grad=True) for s in shapes]
    for f in (module.log_partition, module.marginals, module.entropy):
        for found in flat(f(*scores)):
            grads = torch.autograd.grad(found.sum(), scores, create_graph=True, materialize_grads=True)
            assert all(x.device.type == "meta" and x.requires_grad for x in (found, *grads))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_a_gpu_gives_what_a_processor_gives(name, dtype):
    module, shapes = SHAPES[name]
    lengths = torch.tensor([N, 3])
    scores = [torch.randn(s, generator=torch.Generator().manual_seed(0), dtype=dtype) for s in shapes]
    there = [s.cuda() for s in scores]
    for f in (module.log_partition, module.marginals, module.entropy, module.argmax):
        for got, want in zip(flat(f(*there, lengths=lengths.cuda())), flat(f(*scores, lengths=lengths)), strict=True):
            torch.testing.assert_close(got.cpu(), want)
    assert all(s.is_cuda for s in flat(module.sample(*there, k=3, lengths=lengths.cuda())))
