"""Pooling: token states to one vector per sentence. The vector of a sentence without tokens is 0; batches have n ≥ 1.

Shapes: B sentences, n tokens, d features; valid (B, n) is true for tokens, false for padding.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.dense import Dense


def masked_softmax(logits: Tensor, valid: Tensor, dim: int) -> Tensor:
    """Return the softmax over the valid entries; all 0, not NaN, if none is valid."""
    least = torch.finfo(logits.dtype).min
    return logits.masked_fill(~valid, least).softmax(dim) * valid


def max_over_tokens(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum of each feature over the tokens: (B, n, d) -> (B, d)."""
    if not states.shape[1]:
        return states.sum(1)
    least = torch.finfo(states.dtype).min
    highest = states.masked_fill(~valid.unsqueeze(-1), least).amax(1)
    return highest * valid.any(1, keepdim=True)


def max_with_padding(states: Tensor, valid: Tensor) -> Tensor:
    """Return the maximum with padding as 0, as the first version of InferSent does; a vector depends on its batch."""
    return (states * valid.unsqueeze(-1)).amax(1)


class SourceToToken(nn.Module):
    """v = Σ_i softmax_i(e_i) ∘ m_i with e_i = W2 ELU(W1 m_i + b1) + b2, feature by feature.

    Multi-dimensional attention from the sentence to its tokens (paper 001, Eq 5; Shen et al. 2018, section 3.2).
    """

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer = Dense(d, d, dropout), Dense(d, d, dropout)

    def weights(self, states: Tensor, valid: Tensor) -> Tensor:
        """Return the weights (B, n, d), which sum to 1 over the tokens for each feature."""
        return masked_softmax(self.outer(F.elu(self.inner(states))), valid.unsqueeze(-1), 1)

    def forward(self, states: Tensor, valid: Tensor) -> Tensor:
        """states (B, n, d) -> (B, d)."""
        return (self.weights(states, valid) * states.masked_fill(~valid.unsqueeze(-1), 0)).sum(1)
