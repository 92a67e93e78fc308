"""Multi-dimensional attention inside phrases: a weight for every feature of every pair of words (paper 001, Eq 1-2).

Words of all sentences of a batch lie packed, one after another, and so do the phrases that they are divided into. So
nothing is computed for padding or across phrases, and memory is the sum of squared phrase lengths at most; on a CPU, in
float32, a kernel that recomputes the weights in the backward pass needs no square at all.
Shapes: N words, d features, P phrases, l words of a phrase.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.layers import multidim_kernel
from phrasemodels.structs import kernels


def boundaries(level: Tensor, valid: Tensor) -> Tensor:
    """Where phrases begin among the packed words, and N: (P + 1).

    level (B, n) numbers the phrases of each sentence; neighbours of one number are one phrase. valid (B, n).
    """
    fresh = F.pad(level[:, 1:] != level[:, :-1], (1, 0), value=True)[valid]
    return torch.cat([fresh.nonzero().squeeze(1), fresh.new_full((1,), len(fresh), dtype=torch.long)])


def weights_within(u: Tensor, w: Tensor) -> Tensor:
    """a_ij = softmax_j(ELU(u_i + w_j)) over j ≠ i, for every feature: (P, l, d) twice -> (P, l, l, d), l > 1."""
    logits = F.elu(u.unsqueeze(2) + w.unsqueeze(1))
    itself = torch.eye(u.shape[1], dtype=torch.bool, device=u.device)[..., None]
    return logits.masked_fill(itself, float("-inf")).softmax(2)


def attend_blocks(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """The reference: phrases of one length at a time, as one block (P, l, l, d)."""
    starts, lengths = bounds[:-1], bounds.diff()
    places, found = [], []
    for length in lengths.unique().tolist():
        rows = starts[lengths == length].unsqueeze(1) + torch.arange(length, device=u.device)
        places.append(rows.flatten())
        inside = torch.zeros_like(p[rows]) if length == 1 else _block(u[rows], w[rows], p[rows])
        found.append(inside.flatten(0, 1))
    return torch.cat(found)[torch.cat(places).argsort()] if found else torch.zeros_like(p)


def _block(u: Tensor, w: Tensor, p: Tensor) -> Tensor:
    return (weights_within(u, w) * p.unsqueeze(1)).sum(2)


def attend_within(u: Tensor, w: Tensor, p: Tensor, bounds: Tensor) -> Tensor:
    """p̃_i = Σ_j a_ij ∘ p_j over the other words of i's phrase; zeros for a phrase of one word.

    u, w, p (N, d): what a word brings to its logits as the one that attends and as the one attended to, and its value.
    bounds (P + 1) from `boundaries`.
    """
    if kernels.usable(u, w, p) and u.dtype == torch.float32:
        return multidim_kernel.Within.apply(attend_blocks, u, w, p, bounds)
    return attend_blocks(u, w, p, bounds)


Alone = Callable[[Tensor], Tensor]


def itself(p: Tensor) -> Tensor:
    """A phrase of one word attends to itself; the other choice is torch.zeros_like, to nothing."""
    return p


def fill_alone(attended: Tensor, p: Tensor, bounds: Tensor, alone: Alone) -> Tensor:
    """What `alone` says for phrases of one word, where Eq 1 has no key: (N, d)."""
    single = (bounds.diff() == 1).repeat_interleave(bounds.diff())
    return torch.where(single.unsqueeze(1), alone(p), attended)
