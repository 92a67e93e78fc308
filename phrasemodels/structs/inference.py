"""Inference from an inside pass alone: log Z, marginals, best structure, samples and entropy.

An inside pass is a function (semiring, *scores) → log Z lifted into the semiring, (S, B), for scores (B, ...). These
functions are the reference for the whole package: they run on any device, and can be differentiated any number of times.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from phrasemodels.structs.private import transformed as transformed
from phrasemodels.structs.semiring import Entropy, Log, Max, Sample

InsidePass = Callable[..., Tensor]
# (B,) numbers of positions or words, or a mask (B, n) that is true inside of sentences
Lengths = Tensor | Sequence[int] | None


def log_partition(inside: InsidePass, *scores: Tensor) -> Tensor:
    """Return log Z, (B,); -inf if every structure is forbidden."""
    return _run(inside, Log(), scores)


def marginals(inside: InsidePass, *scores: Tensor) -> tuple[Tensor, ...]:
    """Return ∂ log Z / ∂ scores, one tensor per score tensor and of its shape; 0 if every structure is forbidden."""
    keep_graph = torch.is_grad_enabled() and any(s.requires_grad for s in scores)
    return _gradient(inside, Log(), scores, keep_graph)


def argmax(inside: InsidePass, *scores: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the score (B,), without gradient, and the parts of a best structure: 0 or 1, in the shape of each score tensor.

    If every structure is forbidden, or a score is NaN, the score is -inf or NaN and all parts are 0.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(_leaf(s) for s in scores)
        best = _run(inside, Max(), leaves)
        parts = torch.autograd.grad(best.sum(), leaves, materialize_grads=True)
        return best.detach(), tuple(_possible(p, best.detach()) for p in parts)


def _possible(parts: Tensor, best: Tensor) -> Tensor:
    """Return parts (B, ...) with 0 where the best score (B,) belongs to no structure."""
    return torch.where((best > -torch.inf).view(-1, *(1 for _ in parts.shape[1:])), parts, 0)


def sample(inside: InsidePass, *scores: Tensor, k: int, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
    """Return the parts of k independent samples: 0 or 1, (k, B, ...) for each score tensor (B, ...)."""
    repeated = tuple(s.detach().repeat(k, *(1 for _ in s.shape[1:])) for s in scores)
    parts = _gradient(inside, Sample(generator), repeated, keep_graph=False)
    return tuple(p.view(k, *s.shape) for p, s in zip(parts, scores, strict=True))


def entropy(inside: InsidePass, *scores: Tensor) -> Tensor:
    """Return −Σ p log p over all structures, in nats, (B,); 0 if every structure is forbidden.

    It is computed in float64: a difference to log Z, which grows with the length, loses its digits.
    """
    return _run(inside, Entropy(), in_float64(scores)).to(scores[0].dtype)


def in_float64(scores: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the scores in float64; as they are on Apple's GPUs, which lack the type."""
    return tuple(s if s.device.type == "mps" else s.double() for s in scores)


def _run(inside: InsidePass, semiring: Log, scores: tuple[Tensor, ...]) -> Tensor:
    return semiring.lower(inside(semiring, *scores))


def _gradient(inside: InsidePass, semiring: Log, scores: tuple[Tensor, ...], keep_graph: bool) -> tuple[Tensor, ...]:
    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(s if keep_graph and s.requires_grad else _leaf(s) for s in scores)
        total = _run(inside, semiring, leaves).sum()
        return torch.autograd.grad(total, leaves, create_graph=keep_graph, materialize_grads=True)


def _leaf(scores: Tensor) -> Tensor:
    """Return the scores as a leaf that requires gradients; a tensor from inference mode has to be copied."""
    return (scores.clone() if scores.is_inference() else scores.detach()).requires_grad_()


def check_lengths(lengths: Lengths, batch: int, longest: int, device: torch.device) -> Tensor:
    """Return lengths (batch, 1) as int64 on the device; None: all are `longest`. ValueError: a length is not in 0..longest, or a mask has
    gaps.

    The lengths that are a batch of a transform of `torch.func` are not checked.
    """
    if lengths is None:
        # only if needed, as the context takes longer than a short batch
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
            return torch.full((batch, 1), longest, dtype=torch.int64, device=device)
    with torch.inference_mode(False):
        lengths = torch.as_tensor(lengths)
        if (
            lengths.dtype == torch.bool
            and lengths.shape == (batch, longest)
            and (longest != batch or lengths.dim() == 2)
        ):
            mask, lengths = lengths, lengths.sum(1)
            if not transformed() and (mask != (torch.arange(longest, device=mask.device) < lengths[:, None])).any():
                raise ValueError(
                    "lengths: a mask must be true from the first word of a sentence to its last, and false after it"
                )
        integers = not lengths.is_floating_point() and lengths.dtype != torch.bool
        if lengths.shape != (batch,) or (batch and not integers):  # an empty list has no type
            raise ValueError(f"lengths must be {batch} integers, not {tuple(lengths.shape)} of {lengths.dtype}")
        if batch and not transformed() and ((lengths < 0) | (lengths > longest)).any():  # a GPU is waited for once
            raise ValueError(f"lengths must be in 0..{longest}, not {lengths.min().item()}..{lengths.max().item()}")
        return (lengths.clone() if lengths.is_inference() else lengths).to(device=device, dtype=torch.int64)[:, None]
