"""Multi-head attention, and the ways in which scores become weights.

Shapes: B batch, h heads, d model width, dk = d/h, q query rows, k key rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.band import dots, mix
from phrasemodels.layers.phrases import PhraseGraph

Attend = Callable[..., Tensor]
Activation = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """The activation of the *linear* variants: none."""
    return x


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """softmax(QKᵀ/√dk)V over the allowed keys (Vaswani et al. 2017, Eq 1).

    q (B, h, q, dk); k, v (B, h, k, dk); allowed broadcasts to (B, h, q, k): booleans, or numbers that are added to
    the scores. Every row needs one allowed key.
    """
    if allowed.dtype != torch.bool:
        allowed = allowed.to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def softmax_within(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """Attention to related nodes only: unrelated scores are -inf (paper 000, Eq 5, reading `neg_inf`).

    q (B, h, R, dk); k, v (B, h, N, dk); the graph is that of R query rows, each of which is related to one node or more.
    """
    if graph.band is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=graph.related.unsqueeze(1))
    along = graph.band.over(q.shape[1])
    scores = dots(q, k, along) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~graph.band.real.unsqueeze(2), float("-inf")).softmax(-1)
    return mix(weights, v, along).transpose(1, 2)


def softmax_hadamard(q: Tensor, k: Tensor, v: Tensor, graph: PhraseGraph) -> Tensor:
    """softmax((QKᵀ/√dk) ∘ A)V as printed (paper 000, Eq 5, reading `hadamard`).

    An unrelated node keeps the score 0, hence a weight in proportion to e⁰ = 1; only padding is left out. So the sums
    are Σ (eˢ - 1) v over the related and Σ v over all; where all are related there is no 1, only Σ eˢ v.
    """
    if graph.band is None:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 * graph.related.unsqueeze(1)
        return scores.masked_fill(~graph.valid[:, None, None], float("-inf")).softmax(-1) @ v
    along = graph.band.over(q.shape[1])
    known = (graph.band.real & graph.valid[:, : q.shape[2], None]).unsqueeze(2)  # related to padding is padding alone
    scores = (dots(q, k, along) / q.shape[-1] ** 0.5).masked_fill(~known, float("-inf"))
    valid = graph.valid.to(v.dtype)
    others = valid.sum(1)[:, None, None, None] - known.sum(-1, keepdim=True)
    highest = scores.detach().amax(-1, keepdim=True)
    highest = torch.where(others > 0, highest.clamp(min=0), highest)
    one, near = torch.where(others > 0, (-highest).exp(), 0), (scores - highest).exp()
    more = mix((near - one).masked_fill(~known, 0), v, along)
    everyone = (v * valid[:, None, :, None]).sum(2).unsqueeze(1)  # in pairs, which a product does not promise
    return ((more + one * everyone) / (near.sum(-1, keepdim=True) + one * others)).transpose(1, 2)


def sigma_on_heads(sigma: Activation, heads: Tensor, project: nn.Module) -> Tensor:
    """σ on each head's output, before Wᴼ (paper 000, Eq 5 and 7). The same, element by element, after the concat."""
    return project(sigma(heads))


def sigma_on_projection(sigma: Activation, heads: Tensor, project: nn.Module) -> Tensor:
    """σ after Wᴼ: the other place where the text lets it stand."""
    return sigma(project(heads))


class MultiHeadAttention(nn.Module):
    """Concat(head_1..head_h) Wᴼ (paper 000, Eq 3).

    attend maps heads q, k, v and masks to head outputs; sigma and where it is applied serve Eq 5.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        attend: Attend = softmax_attention,
        sigma: Activation = identity,
        readout: Callable[[Activation, Tensor, nn.Module], Tensor] = sigma_on_heads,
    ) -> None:
        super().__init__()
        if d % heads:
            raise ValueError(f"d={d} cannot be divided among {heads} heads: choose a multiple")
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(d, d) for _ in range(4))
        self.attend, self.sigma, self.readout = attend, sigma, readout
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def split(self, x: Tensor) -> Tensor:
        """(B, n, d) -> (B, h, n, dk)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What a cache keeps of x (B, n, d): keys and values (B, h, n, dk)."""
        return self.split(self.key(x)), self.split(self.value(x))

    def over(self, queries: Tensor, keys: Tensor, values: Tensor, *masks: Tensor) -> Tensor:
        """Attention of queries (B, q, d) over projected keys and values (B, h, k, dk); returns (B, q, d)."""
        return self.among(self.split(self.query(queries)), keys, values, *masks)

    def among(self, queries: Tensor, keys: Tensor, values: Tensor, *masks: Any) -> Tensor:
        """Attention of what is projected already: (B, h, q, dk) and (B, h, k, dk) -> (B, q, d)."""
        heads = self.attend(queries, keys, values, *masks)
        return self.readout(self.sigma, heads.transpose(1, 2).flatten(2), self.output)

    def forward(self, queries: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        """queries (B, q, d) attend to memory (B, k, d); masks as the attend function takes them; (B, q, d)."""
        return self.over(queries, *self.keys_values(memory), *masks)
