"""Parts of a Transformer besides attention: residual styles, feed-forward, positions and embeddings.

Shapes: B batch, n tokens, d model width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from phrasemodels.layers.dropout import Dropout

Sublayer = Callable[[Tensor], Tensor]
Start = Callable[[Tensor], Tensor]  # draws the weights of a table in place


class Residual(nn.Module):
    """A way to add a sublayer f to its input: (x, f) -> x, both (B, n, d)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__()

    @staticmethod
    def final_norm(d: int) -> nn.Module:
        """Return the module that follows the last layer."""
        return nn.Identity()


class AddNorm(Residual):
    """LN(x + Drop(f(x))): the post-norm residual of Vaswani et al. (2017, section 3.1)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(Residual):
    """x + Drop(f(LN(x))), and a norm after the last layer, as in OpenNMT (ε = 1e-6)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def final_norm(d: int) -> nn.Module:
        return nn.LayerNorm(d, eps=1e-6)


class Replace(Residual):
    """f(x), without residual and norm: Algorithm 1 of paper 000 as printed."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return sublayer(x)


class FeedForward(nn.Sequential):
    """d -> d_ff -> d with a ReLU between (Vaswani et al. 2017, Eq 2), and dropout behind the ReLU, as in OpenNMT."""

    def __init__(self, d: int, d_ff: int, dropout: float = 0.0) -> None:
        widen, narrow = nn.Linear(d, d_ff), nn.Linear(d_ff, d)
        super().__init__(widen, nn.Sequential(nn.ReLU(), Dropout(dropout)), narrow)
        for layer in (widen, narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def feed_forward(d: int, d_ff: int, dropout: float = 0.0) -> nn.Module:
    """Return a feed-forward sublayer with dropout inside, or the identity if d_ff is 0."""
    return FeedForward(d, d_ff, dropout) if d_ff else nn.Identity()


def sinusoids(positions: Tensor, d: int) -> Tensor:
    """Return the sinusoidal encodings (Vaswani et al. 2017, section 3.5) of positions (...): (..., d), float32.

    They are computed, not read from a table, so sentences may have any length.
    """
    rates = torch.exp(torch.arange(0, d, 2, device=positions.device) * (-torch.log(torch.tensor(10000.0)) / d))
    angles = positions.unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :d]


def normal_by_width(weight: Tensor) -> Tensor:
    """Draw the weights (V, d) of an embedding from N(0, 1/d)."""
    return nn.init.normal_(weight, std=weight.shape[1] ** -0.5)


class TokenEmbedding(nn.Module):
    """Embeddings plus sinusoidal positions, with dropout.

    Weights are scaled by √d here, so that the same table can be the output projection. start: how they are drawn; by
    default so that embeddings have variance 1.
    """

    def __init__(self, vocabulary: int, d: int, dropout: float, start: Start = normal_by_width) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d)
        start(self.table.weight)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, first: int = 0) -> Tensor:
        """tokens (B, n), the leftmost at position `first` -> (B, n, d)."""
        d = self.table.embedding_dim
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        vectors = self.table(tokens) * d**0.5
        return self.dropout(vectors + sinusoids(positions, d).to(vectors.dtype))


def token_mask(lengths: Tensor, n: int) -> Tensor:
    """lengths (B) -> (B, n) booleans: true for tokens, false for padding."""
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(1)
