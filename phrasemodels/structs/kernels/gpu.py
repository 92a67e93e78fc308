# mypy: disallow-untyped-defs=False
"""Chains and projective trees by Triton: log Z and marginals on a GPU; of chains also derivatives of marginals, and the best tags.

The torch path computes derivatives of marginals of trees."""

import os
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec

import torch

from phrasemodels.structs.inference import transformed
from phrasemodels.structs.kernels import allowed
from phrasemodels.structs.private import not_traced

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


def _launch(program, like, *arguments, BLOCK, **options):
    """Run a program for each of a batch, on the device of its scores, which may not be the current one."""
    warps = min(max(BLOCK * BLOCK // 1024, 4), 16)  # a square of BLOCK is 16 to 32 registers of each thread
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        program[(len(like),)](*arguments, BLOCK=BLOCK, num_warps=warps, **options)


def _strides(pairwise, T, C):
    """Return how far the transitions of a sequence, and of a position, are apart: pairwise (C, C), (B, C, C) or (B, T-1, C, C)."""
    return {2: (0, 0), 3: (C * C, 0), 4: ((T - 1) * C * C, C * C)}[pairwise.dim()]


def chain_passes(unary, pairwise, lengths, wanted, pairs_wanted=True):
    """Return log Z (B,), and the marginals (B, T, C) and (B, T-1, C, C), or for shared scores their sums (B, C, C); None unless
    wanted."""
    (B, T, C), run, block = unary.shape, _programs(), _block(unary.shape[2])
    unary, pairwise = unary.detach().contiguous(), pairwise.detach().contiguous()
    summed = pairwise.dim() == 2
    alpha, log_z = torch.empty_like(unary), unary.new_empty(B)
    given = unary, pairwise, lengths.clamp(min=1), alpha, log_z
    sizes = T, C, *_strides(pairwise, T, C)
    _launch(run.chain_forward, unary, *given, *sizes, BLOCK=block)
    p = pairs = None
    if wanted:
        p = torch.zeros_like(unary)
        pairs = unary.new_zeros((B, C, C) if summed else (B, T - 1, C, C)) if pairs_wanted else p
        options = {"PAIRS": pairs_wanted, "SUMMED": summed}
        _launch(run.chain_backward, unary, *given, p, pairs, *sizes, BLOCK=block, **options)
        p, pairs = _known(p, lengths, log_z), pairs if pairs_wanted else None
    return log_z.masked_fill(lengths == 0, 0), p, pairs


def _known(p, lengths, log_z):
    """Return marginals (B, T, C) that are 0 in the padding, and NaN where log Z is."""
    inside = (torch.arange(p.shape[1], device=p.device) < lengths[:, None])[..., None]
    return torch.where(inside, torch.where(log_z.isnan()[:, None, None], torch.nan, p), 0)


def eisner_passes(arcs, read, lengths, one_root, wanted):
    """Return log Z (B,) and the marginals (B, N, N), which are 0 unless `wanted`; read (B, N, N): arcs that count."""
    (B, N, _), run = arcs.shape, _programs()
    arcs = arcs.detach().contiguous()
    chart, log_z = arcs.new_full((B, 5, N, N), -torch.inf), arcs.new_empty(B)
    _launch(run.eisner_inside, arcs, arcs, lengths, chart, log_z, N, one_root=one_root, BLOCK=_block(N))
    p = torch.zeros_like(arcs)
    if wanted:
        probabilities = torch.zeros_like(chart)
        _launch(run.eisner_outside, arcs, chart, lengths, probabilities, log_z, N, BLOCK=_block(N))
        p = probabilities[:, 2] + probabilities[:, 3].mT
        p = torch.where(log_z.isnan()[:, None, None] & read, torch.nan, p)
    return log_z.masked_fill(lengths == 0, 0), p


class ChainPrograms(Programs):
    """Linear chains of up to MOST tags."""

    def takes(self, structure, scores):
        return scores[0].shape[2] <= MOST and super().takes(structure, scores)

    def passes(self, structure, scores, lengths, scale, which, each):
        log_z, p, pairs = chain_passes(*scores, lengths[:, 0], scale is not None, 1 in which)
        if scale is None:
            return log_z, ()
        found = p, pairs
        if isinstance(scale, torch.Tensor):
            found = tuple(x if x is None else x * scale.to(p).view(-1, *(1 for _ in x.shape[1:])) for x in found)
        if pairs is not None and scores[1].dim() == 2 and not each:
            found = found[0], found[1].sum(0)
        return log_z, tuple(found[i] for i in which)

    def covariances(self, structure, scores, lengths, grads, scale=None):
        unary, pairwise = (s.detach().contiguous() for s in scores)
        (B, T, C), run, lengths = unary.shape, _programs(), lengths[:, 0]
        u, v = (torch.zeros_like(s) if g is None else g.contiguous() for s, g in zip(scores, grads, strict=True))
        summed, block = pairwise.dim() == 2, _block(C)
        alpha, moved, log_z = torch.empty_like(unary), torch.empty_like(unary), unary.new_empty(B)
        words, sizes = lengths.clamp(min=1), (T, C, *_strides(pairwise, T, C))
        given = unary, pairwise, words, alpha
        _launch(run.chain_forward, unary, *given, log_z, *sizes, BLOCK=block)
        of_v = _strides(v, T, C)
        _launch(run.chain_forward_tangent, unary, *given, u, v, moved, *sizes, *of_v, BLOCK=block)
        p, pairs = torch.zeros_like(unary), unary.new_zeros((B, C, C) if summed else (B, T - 1, C, C))
        _launch(
            run.chain_backward_tangent,
            unary,
            *given,
            log_z,
            u,
            v,
            moved,
            p,
            pairs,
            *sizes,
            *of_v,
            BLOCK=block,
            SUMMED=summed,
        )
        by = torch.ones_like(log_z) if scale is None else scale.to(log_z)
        by = torch.where(log_z.isnan(), torch.nan, by)
        pairs = pairs * by.view(-1, *(1 for _ in pairs.shape[1:]))
        return _known(p, lengths, log_z) * by[:, None, None], pairs.sum(0) if summed else pairs

    @not_traced
    def best(self, structure, scores, lengths):
        unary, pairwise = (s.detach().contiguous() for s in scores)
        (B, T, C), lengths = unary.shape, lengths[:, 0]
        tags = torch.full((B, T), -1, dtype=torch.int64, device=unary.device)
        best, back = unary.new_empty(B), torch.empty((B, T, C), dtype=torch.int32, device=unary.device)
        given = unary, pairwise, lengths.clamp(min=1), back, best, tags, T, C, *_strides(pairwise, T, C)
        _launch(_programs().chain_best, unary, *given, BLOCK=_block(C))
        return best.masked_fill(lengths == 0, 0), tags.masked_fill(lengths[:, None] == 0, -1)


class EisnerPrograms(Programs):
    """Projective trees."""

    def passes(self, structure, scores, lengths, scale, which, each):
        read = structure.read(scores, lengths)[0]
        log_z, p = eisner_passes(*scores, read, lengths[:, 0], structure.one_root, scale is not None)
        by = scale.to(p)[:, None, None] if isinstance(scale, torch.Tensor) else 1
        return log_z, () if scale is None else (p * by,)
