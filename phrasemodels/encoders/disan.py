"""DiSAN, directional self-attention (Shen et al. 2018): the strongest baseline of paper 001.

Shapes: B sentences, n tokens, d features. The weights of all pairs of tokens, (B, n, n, d), are stored, as by its authors.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.dense import Dense
from phrasemodels.layers.pooling import SourceToToken, masked_softmax

SCALE = 5.0  # c of the scaled tanh


@dataclass(frozen=True)
class DisanConfig:
    """d: width of the words. units: width of each direction (0: d), half of that of the sentence vector."""

    d: int = 300
    dropout: float = 0.25
    units: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d")
        checks.at_least(self, 0, "units")
        checks.share(self, "dropout")

    def build(self) -> "Disan":
        return Disan(self)


class Directional(nn.Module):
    """One direction: h = ELU(W_h x + b); f_ij = c tanh((W1 h_j + W2 h_i + b) / c); s_i = Σ_j softmax_j(f_ij) ∘ h_j;
    F = sigmoid(W3 h + W4 s + b); output F ∘ h + (1 − F) ∘ s. s is 0 for a token without any other to attend to."""

    def __init__(self, inputs: int, d: int, dropout: float) -> None:
        super().__init__()
        self.hidden = Dense(inputs, d, dropout)
        self.other, self.own = Dense(d, d, dropout, bias=False), Dense(d, d, dropout)
        self.keep, self.take = Dense(d, d, dropout), Dense(d, d, dropout, bias=False)

    def forward(self, words: Tensor, allowed: Tensor) -> Tensor:
        """words (B, n, inputs), allowed (B, n, n) [from, to] booleans -> (B, n, d)."""
        h = F.elu(self.hidden(words))
        logits = SCALE * ((self.other(h).unsqueeze(1) + self.own(h).unsqueeze(2)) / SCALE).tanh()
        s = (masked_softmax(logits, allowed.unsqueeze(-1), 2) * h.unsqueeze(1)).sum(2)
        fusion = (self.keep(h) + self.take(s)).sigmoid()
        return fusion * h + (1 - fusion) * s


class Disan(nn.Module):
    """Attention to the tokens before and to those after each token, and multi-dimensional pooling of both."""

    def __init__(self, config: DisanConfig) -> None:
        super().__init__()
        units = config.units or config.d
        self.width = 2 * units
        self.past, self.future = (Directional(config.d, units, config.dropout) for _ in range(2))
        self.summary = SourceToToken(2 * units, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, 2 units). Phrases (`levels`) are not used."""
        n = words.shape[1]
        valid = token_mask(lengths, n)
        before = torch.ones(n, n, dtype=torch.bool, device=words.device).tril(-1) & valid.unsqueeze(1)
        after = torch.ones(n, n, dtype=torch.bool, device=words.device).triu(1) & valid.unsqueeze(1)
        states = torch.cat([self.past(words, before), self.future(words, after)], -1)
        return self.summary(states, valid)
