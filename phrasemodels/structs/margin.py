"""Max-margin training of labelled spans (Taskar et al. 2004; Stern et al. 2017), whose gradient costs no pass over memory.

Shapes: B sentences, n words, L labels; cells (B, 2n-1, 3) are those of `spans.argmax`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import kernels, spans
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.inference import Lengths, check_lengths
from phrasemodels.structs.kernels import decode


@with_kernel_fallback
def margin(labels: Tensor, gold: Tensor, lengths: Lengths = None, cost: float = 1.0) -> Tensor:
    """Return the structured hinge loss (B,): the most of a tree's score + cost · its wrong cells, minus the score of `gold`.

    labels (B, n, n, L), and gold: the cells of the right trees, one label for a span at most. The gradient is memory that the
    system gives as 0, of which only the cells of two trees are written.
    """
    if (
        gold.dim() != 3
        or gold.shape[::2] != (len(labels), 3)
        or ((gold < -1) | (gold >= gold.new_tensor(labels.shape[1:]))).any()
    ):
        raise ValueError(f"gold must be cells (B, R, 3): spans and labels inside {tuple(labels.shape[1:])}, or -1")
    lengths, right = check_lengths(lengths, len(labels), labels.shape[1], labels.device), _positions(labels, gold)
    if not kernels.usable(lengths, labels):
        lowered = labels.detach() - cost * _indicators(labels, right)
        best = _positions(labels, spans.argmax(lowered, lengths)[1])
        return _scores(labels, best) - _scores(labels, right) + cost * _wrong(best, right).to(labels.dtype)
    best = _positions(labels, decode.spans(labels, lengths, gold, cost)[1])
    return _Difference.apply(labels, best, right) + cost * _wrong(best, right).to(labels.dtype)


def _positions(labels: Tensor, cells: Tensor) -> Tensor:
    """Return the positions (B, 2n-1) of cells in the memory of the labels, -1 for none."""
    B, n, _, L = labels.shape
    i, j, label = cells.unbind(-1)
    sentence = torch.arange(B, device=cells.device)[:, None]
    return torch.where(i >= 0, ((sentence * n + i) * n + j) * L + label, -1)


def _scores(labels: Tensor, at: Tensor) -> Tensor:
    """Return the sums (B,) of the labels at positions (B, 2n-1)."""
    return torch.where(at >= 0, labels.reshape(-1)[at.clamp(min=0)], 0).sum(1)


def _indicators(labels: Tensor, at: Tensor) -> Tensor:
    flat = labels.new_zeros(labels.numel())
    flat[at[at >= 0]] = 1
    return flat.view(labels.shape)


def _wrong(found: Tensor, right: Tensor) -> Tensor:
    """Return the numbers (B,) of positions that are not among the right ones."""
    same = (found[:, :, None] == right[:, None]).any(2)
    return ((found >= 0) & ~same).sum(1)


class _Difference(torch.autograd.Function):
    """(labels, best positions, right positions) → the score of the best minus that of the right ones, (B,)."""

    @staticmethod
    def forward(ctx: Any, labels: Tensor, best: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(labels, best, right)
        return _scores(labels, best) - _scores(labels, right)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        labels, best, right = ctx.saved_tensors
        if torch.is_grad_enabled():
            both = lambda x: _scores(x, best) - _scores(x, right)  # noqa: E731
            return kernels.reference_vjp(both, [labels], grad)[0], None, None
        # np.zeros, unlike torch.zeros, leaves pages of zeros to the system until they are written
        out = torch.from_numpy(np.zeros(labels.numel(), kernels.numbers(labels[:0]).dtype))
        for at, sign in ((best, 1), (right, -1)):
            out.index_add_(0, at.clamp(min=0).flatten(), torch.where(at >= 0, sign * grad[:, None], 0).flatten())
        return out.view(labels.shape), None, None


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    return {"margin": partial(margin, torch.zeros(1, 1, 1, 2, dtype=dtype), torch.zeros(1, 1, 3, dtype=torch.int64))}
