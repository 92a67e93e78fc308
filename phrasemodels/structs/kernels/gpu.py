# mypy: disallow-untyped-defs=False
"""Chains and projective trees on a GPU by Triton, as autograd functions; without Triton the vectorised torch path serves.

With TRITON_INTERPRET=1 in the environment the same programs run on CPU tensors, for tests. Derivatives of marginals, and second
derivatives, are those of the reference. Shapes: B sequences, T positions, C tags, N tree positions.
"""

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from phrasemodels.structs.inference import transformed
from phrasemodels.structs.kernels import allowed, reference_vjp

MOST = 128  # tags of a chain, whose square a program holds


@cache
def _programs():
    """Return the Triton programs, or None where Triton is not installed."""
    if find_spec("triton") is None:
        return None
    from phrasemodels.structs.kernels import gpu_programs

    return gpu_programs


def usable(lengths: Tensor, *scores: Tensor) -> bool:
    """Return whether Triton takes these scores: on a GPU, all float32 or all float64, not empty, and all lengths above 0."""
    device, dtype = scores[0].device.type, scores[0].dtype
    return (
        allowed("triton")
        and (device == "cuda" or (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"))
        and dtype in (torch.float32, torch.float64)
        and all(s.dtype == dtype and s.numel() > 0 for s in scores)
        and not transformed()
        and _programs() is not None
        and bool(lengths.all())
    )


def _block(size: int) -> int:
    return 1 << max(size - 1, 1).bit_length()


def chain_passes(unary: Tensor, pairwise: Tensor, lengths: Tensor, wanted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return log Z (B,), and the marginals (B, T, C) and (B, T-1, C, C), which are 0 unless `wanted`."""
    (B, T, C), run = unary.shape, _programs()
    unary, pairwise = unary.detach().contiguous(), pairwise.detach().contiguous()
    shared = pairwise.dim() == 2
    strides = (0, 0) if shared else ((T - 1) * C * C, C * C)
    alpha, log_z = torch.empty_like(unary), unary.new_empty(B)
    given = unary, pairwise, lengths, alpha, log_z
    run.chain_forward[(B,)](*given, T, C, *strides, BLOCK=_block(C))
    p, pairs = torch.zeros_like(unary), unary.new_zeros(B, T - 1, C, C)
    if wanted:
        run.chain_backward[(B,)](*given, p, pairs, T, C, *strides, BLOCK=_block(C))
        p = torch.where(log_z.isnan()[:, None, None] & _within(unary, lengths), torch.nan, p)
    return log_z, p, pairs


def _within(unary: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(unary.shape[1], device=unary.device) < lengths[:, None])[..., None]


def eisner_passes(arcs: Tensor, lengths: Tensor, one_root: bool, wanted: bool) -> tuple[Tensor, Tensor]:
    """Return log Z (B,) and the marginals (B, N, N), which are 0 unless `wanted`."""
    (B, N, _), run = arcs.shape, _programs()
    arcs = arcs.detach().contiguous()
    chart, log_z = arcs.new_full((B, 5, N, N), -torch.inf), arcs.new_empty(B)
    run.eisner_inside[(B,)](arcs, lengths, chart, log_z, N, one_root=one_root, BLOCK=_block(N))
    p = torch.zeros_like(arcs)
    if wanted:
        probabilities = torch.zeros_like(chart)
        run.eisner_outside[(B,)](chart, lengths, probabilities, log_z, N, BLOCK=_block(N))
        p = probabilities[:, 2] + probabilities[:, 3].mT
        at = torch.arange(N, device=arcs.device)
        word = at <= lengths[:, None]
        read = word[:, :, None] & (word & (at > 0))[:, None] & (at[:, None] != at)
        p = torch.where(log_z.isnan()[:, None, None] & read, torch.nan, p)
    return log_z, p


class ChainLogPartition(torch.autograd.Function):
    """(reference, unary, pairwise, lengths) → log Z."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths):
        ctx.reference = reference
        ctx.save_for_backward(unary, pairwise)
        log_z, ctx.p, ctx.pairs = chain_passes(unary, pairwise, lengths, any(ctx.needs_input_grad))
        return log_z

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None
        pairs = ctx.pairs * grad[:, None, None, None]
        return None, ctx.p * grad[:, None, None], pairs.sum((0, 1)) if ctx.saved_tensors[1].dim() == 2 else pairs, None


class ChainMarginals(torch.autograd.Function):
    """(reference, unary, pairwise, lengths, whether of pairs) → marginals."""

    @staticmethod
    def forward(ctx, reference, unary, pairwise, lengths, of_pairs):
        ctx.reference = reference
        ctx.save_for_backward(unary, pairwise)
        return chain_passes(unary, pairwise, lengths, True)[2 if of_pairs else 1]

    @staticmethod
    def backward(ctx, grad):
        return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None


class EisnerLogPartition(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → log Z."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference = reference
        ctx.save_for_backward(arcs)
        log_z, ctx.p = eisner_passes(arcs, lengths, one_root, ctx.needs_input_grad[1])
        return log_z

    @staticmethod
    def backward(ctx, grad):
        if torch.is_grad_enabled():
            return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
        return None, ctx.p * grad[:, None, None], None, None


class EisnerMarginals(torch.autograd.Function):
    """(reference, arcs, lengths, whether the root has one arc) → p(arc)."""

    @staticmethod
    def forward(ctx, reference, arcs, lengths, one_root):
        ctx.reference = reference
        ctx.save_for_backward(arcs)
        return eisner_passes(arcs, lengths, one_root, True)[1]

    @staticmethod
    def backward(ctx, grad):
        return None, *reference_vjp(ctx.reference, ctx.saved_tensors, grad), None, None
