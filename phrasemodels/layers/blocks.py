"""What stands around attention: residual styles, feed-forward, positions, embeddings.

Shapes: B batch, n tokens, d model width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Sublayer = Callable[[Tensor], Tensor]


class Residual(nn.Module):
    """What surrounds a sublayer: (x, sublayer) -> x, both (B, n, d)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__()

    @staticmethod
    def after(d: int) -> nn.Module:
        """What follows the last layer."""
        return nn.Identity()


class AddNorm(Residual):
    """LN(x + Drop(f(x))): the post-norm residual of Vaswani et al. (2017, section 3.1)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(Residual):
    """x + Drop(f(LN(x))), and a norm after the last layer, as OpenNMT has it (ε = 1e-6)."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__(d, dropout)
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))

    @staticmethod
    def after(d: int) -> nn.Module:
        return nn.LayerNorm(d, eps=1e-6)


class Replace(Residual):
    """f(x) alone, neither residual nor norm: Algorithm 1 of paper 000 to the letter."""

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return sublayer(x)


class FeedForward(nn.Sequential):
    """d -> d_ff -> d with a ReLU between (Vaswani et al. 2017, Eq 2)."""

    def __init__(self, d: int, d_ff: int) -> None:
        widen, narrow = nn.Linear(d, d_ff), nn.Linear(d_ff, d)
        super().__init__(widen, nn.ReLU(), narrow)
        for layer in (widen, narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def feed_forward(d: int, d_ff: int) -> nn.Module:
    """A feed-forward sublayer, or nothing where d_ff is 0."""
    return FeedForward(d, d_ff) if d_ff else nn.Identity()


def sinusoids(positions: Tensor, d: int) -> Tensor:
    """Sinusoidal encodings (Vaswani et al. 2017, section 3.5) of positions (...): (..., d), float32.

    Computed where they are needed, so there is no longest sentence.
    """
    rates = torch.exp(torch.arange(0, d, 2, device=positions.device) * (-torch.log(torch.tensor(10000.0)) / d))
    angles = positions.unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :d]


class TokenEmbedding(nn.Module):
    """Embeddings of variance 1 plus sinusoidal positions, with dropout.

    Weights are N(0, 1/d) and scaled by √d on the way in, so that the same table can serve as the output projection.
    """

    def __init__(self, vocabulary: int, d: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.table.weight, std=d**-0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, first: int = 0) -> Tensor:
        """tokens (B, n) of which the leftmost stands at position `first`; returns (B, n, d)."""
        d = self.table.embedding_dim
        positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
        return self.dropout(self.table(tokens) * d**0.5 + sinusoids(positions, d))


def within(lengths: Tensor, n: int) -> Tensor:
    """lengths (B) -> (B, n) booleans: true where there is a token."""
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(1)
