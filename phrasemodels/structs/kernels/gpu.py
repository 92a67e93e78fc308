# mypy: disallow-untyped-defs=False
"""Chains and projective trees by Triton: log Z and marginals on a GPU. The torch path computes derivatives of marginals."""

import os
from functools import cache
from importlib.util import find_spec

import torch

from phrasemodels.structs.inference import transformed
from phrasemodels.structs.kernels import allowed

MOST = 128  # tags of a chain, whose square a program holds


@cache
def _programs():
    """Return the Triton programs, or None where Triton is not installed."""
    if find_spec("triton") is None:
        return None
    from phrasemodels.structs.kernels import gpu_programs

    return gpu_programs


class Programs:
    """Serves scores on a GPU, all float32 or all float64 and not empty; see `structure.Implementation`."""

    def takes(self, structure, scores):
        device, dtype = scores[0].device.type, scores[0].dtype
        return (
            (device == "cuda" or (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"))
            and allowed("triton")
            and dtype in (torch.float32, torch.float64)
            and all(s.dtype == dtype and s.numel() > 0 for s in scores)
            and not transformed()
            and _programs() is not None
        )


def _block(size):
    return 1 << max(size - 1, 1).bit_length()


def chain_passes(unary, pairwise, lengths, wanted):
    """Return log Z (B,), and the marginals (B, T, C) and (B, T-1, C, C), which are 0 unless `wanted`."""
    (B, T, C), run = unary.shape, _programs()
    unary, pairwise = unary.detach().contiguous(), pairwise.detach().contiguous()
    shared = pairwise.dim() == 2
    strides = (0, 0) if shared else ((T - 1) * C * C, C * C)
    alpha, log_z = torch.empty_like(unary), unary.new_empty(B)
    given = unary, pairwise, lengths.clamp(min=1), alpha, log_z
    run.chain_forward[(B,)](*given, T, C, *strides, BLOCK=_block(C))
    p, pairs = torch.zeros_like(unary), unary.new_zeros(B, T - 1, C, C)
    if wanted:
        run.chain_backward[(B,)](*given, p, pairs, T, C, *strides, BLOCK=_block(C))
        inside = (torch.arange(T, device=unary.device) < lengths[:, None])[..., None]
        p = torch.where(inside, torch.where(log_z.isnan()[:, None, None], torch.nan, p), 0)
    return log_z.masked_fill(lengths == 0, 0), p, pairs


def eisner_passes(arcs, read, lengths, one_root, wanted):
    """Return log Z (B,) and the marginals (B, N, N), which are 0 unless `wanted`; read (B, N, N): arcs that count."""
    (B, N, _), run = arcs.shape, _programs()
    arcs = arcs.detach().contiguous()
    chart, log_z = arcs.new_full((B, 5, N, N), -torch.inf), arcs.new_empty(B)
    run.eisner_inside[(B,)](arcs, lengths, chart, log_z, N, one_root=one_root, BLOCK=_block(N))
    p = torch.zeros_like(arcs)
    if wanted:
        probabilities = torch.zeros_like(chart)
        run.eisner_outside[(B,)](chart, lengths, probabilities, log_z, N, BLOCK=_block(N))
        p = probabilities[:, 2] + probabilities[:, 3].mT
        p = torch.where(log_z.isnan()[:, None, None] & read, torch.nan, p)
    return log_z.masked_fill(lengths == 0, 0), p


class ChainPrograms(Programs):
    """Linear chains of up to MOST tags."""

    def takes(self, structure, scores):
        return scores[0].shape[2] <= MOST and super().takes(structure, scores)

    def passes(self, structure, scores, lengths, scale, which, each):
        log_z, p, pairs = chain_passes(*scores, lengths[:, 0], scale is not None)
        if scale is None:
            return log_z, ()
        if isinstance(scale, torch.Tensor):
            by = scale.to(p)
            p, pairs = p * by[:, None, None], pairs * by[:, None, None, None]
        if scores[1].dim() == 2:
            pairs = pairs.sum(1) if each else pairs.sum((0, 1))
        return log_z, tuple((p, pairs)[i] for i in which)


class EisnerPrograms(Programs):
    """Projective trees."""

    def passes(self, structure, scores, lengths, scale, which, each):
        read = structure.read(scores, lengths)[0]
        log_z, p = eisner_passes(*scores, read, lengths[:, 0], structure.one_root, scale is not None)
        by = scale.to(p)[:, None, None] if isinstance(scale, torch.Tensor) else 1
        return log_z, () if scale is None else (p * by,)
