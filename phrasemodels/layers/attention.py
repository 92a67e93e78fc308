"""Multi-head attention, and the ways in which scores become weights.

Shapes: B batch, h heads, d model width, dk = d/h, q query rows, k key rows.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


def softmax_within(q: Tensor, k: Tensor, v: Tensor, related: Tensor, valid: Tensor) -> Tensor:
    """Attention to related nodes only: unrelated scores are -inf (paper 000, Eq 5, reading `neg_inf`).

    related (B, 1, q, k) booleans with no empty row; valid (B, 1, 1, k) is implied by it.
    """
    return F.scaled_dot_product_attention(q, k, v, attn_mask=related)


def softmax_hadamard(q: Tensor, k: Tensor, v: Tensor, related: Tensor, valid: Tensor) -> Tensor:
    """softmax((QKᵀ/√dk) ∘ A)V as printed (paper 000, Eq 5, reading `hadamard`).

    An unrelated node keeps the score 0, hence a weight in proportion to e⁰ = 1; only padding is left out.
    """
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 * related
    return scores.masked_fill(~valid, float("-inf")).softmax(-1) @ v


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
        heads = self.attend(self.split(self.query(queries)), keys, values, *masks)
        return self.readout(self.sigma, heads.transpose(1, 2).flatten(2), self.output)

    def forward(self, queries: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        """queries (B, q, d) attend to memory (B, k, d); masks as the attend function takes them; (B, q, d)."""
        return self.over(queries, *self.keys_values(memory), *masks)
