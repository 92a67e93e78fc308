"""Multi-dimensional attention inside phrases: a weight for every feature of every pair of words (paper 001, Eq 1-2).

The words of all sentences of a batch are packed one after another, and divided into phrases. So nothing is computed for
padding or across phrases, and memory is at most the sum of squared phrase lengths. On a CPU in float32, `multidim_kernel`
recomputes the weights in the backward pass, and memory is linear.
Shapes: B sentences, n tokens, N packed words, d features, P phrases, l words of a phrase.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.layers import multidim_kernel
from phrasemodels.structs import kernels


def boundaries(level: Tensor, valid: Tensor) -> Tensor:
    """Return the positions of the first words of phrases among the packed words, and N: (P + 1).

    level (B, n): the number of each token's phrase; adjacent tokens with the same number are one phrase. valid (B, n):
    true for tokens.
    """
    fresh = F.pad(level[:, 1:] != level[:, :-1], (1, 0), value=True)[valid]
    return torch.cat([fresh.nonzero().squeeze(1), fresh.new_full((1,), len(fresh), dtype=torch.long)])


def weights_within(u: Tensor, w: Tensor) -> Tensor:
    """Return a_ij = softmax_j(ELU(u_i + w_j)) over j ≠ i for every feature: u, w (P, l, d) -> (P, l, l, d), l > 1."""
    logits = F.elu(u.unsqueeze(2) + w.unsqueeze(1))
    itself = torch.eye(u.shape[1], dtype=torch.bool, device=u.device)[..., None]
    return logits.masked_fill(itself, float("-inf")).softmax(2)


def attend_blocks(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """Compute `attend_within` in torch, for all phrases of one length at a time, as a block (P, l, l, d)."""
    starts, lengths = bounds[:-1], bounds.diff()
    places, outputs = [], []
    for length in lengths.unique().tolist():
        rows = starts[lengths == length].unsqueeze(1) + torch.arange(length, device=u.device)
        places.append(rows.flatten())
        inside = torch.zeros_like(p[rows]) if length == 1 else _block(u[rows], w[rows], p[rows])
        outputs.append(inside.flatten(0, 1))
    return torch.cat(outputs)[torch.cat(places).argsort()] if outputs else torch.zeros_like(p)


def _block(u: Tensor, w: Tensor, p: Tensor) -> Tensor:
    return (weights_within(u, w) * p.unsqueeze(1)).sum(2)


def attend_within(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """Return p̃_i = Σ_j a_ij ∘ p_j over the other words of i's phrase, (N, d); 0 for a phrase of one word.

    u, w, p (N, d): the term of each word in its own logits, its term in the logits of other words, and its value. bounds
    (P + 1) from `boundaries`.
    """
    if kernels.usable(None, u, w, p) and u.dtype == torch.float32:
        return multidim_kernel.AttendWithin.apply(attend_blocks, u, w, p, bounds)
    return attend_blocks(u, w, p, bounds)


Alone = Callable[[Tensor], Tensor]


def itself(p: Tensor) -> Tensor:
    """Let a phrase of one word attend to itself. The other choice is torch.zeros_like: it attends to nothing."""
    return p


def fill_alone(attended: Tensor, p: Tensor, bounds: Tensor, alone: Alone) -> Tensor:
    """Replace the outputs of phrases of one word, for which Eq 1 has no key, by alone(p): attended, p (N, d) -> (N, d)."""
    single = (bounds.diff() == 1).repeat_interleave(bounds.diff())
    return torch.where(single.unsqueeze(1), alone(p), attended)
