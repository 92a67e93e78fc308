"""Token states to one vector a sentence. A sentence without tokens gets zeros.

Shapes: B sentences, n tokens, d features; valid (B, n) is true where there is a token.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.dense import Dense


def masked_softmax(logits: Tensor, valid: Tensor, dim: int) -> Tensor:
    """softmax over the valid entries; all zeros, not NaN, where none is valid."""
    least = torch.finfo(logits.dtype).min
    return logits.masked_fill(~valid, least).softmax(dim) * valid


def max_over_tokens(states: Tensor, valid: Tensor) -> Tensor:
    """The maximum of each feature, (B, n, d) -> (B, d)."""
    least = torch.finfo(states.dtype).min
    found = states.masked_fill(~valid.unsqueeze(-1), least).amax(1)
    return found * valid.any(1, keepdim=True)


def max_with_padding(states: Tensor, valid: Tensor) -> Tensor:
    """The same with padding counted as zeros, as the first version of InferSent has it: a vector depends on its batch."""
    return (states * valid.unsqueeze(-1)).amax(1)


class SourceToToken(nn.Module):
    """Multi-dimensional attention from the sentence to its tokens (paper 001, Eq 5; Shen et al. 2018, section 3.2).

    e_i = W2 ELU(W1 m_i + b1) + b2;  v = Σ_i softmax_i(e_i) ∘ m_i, feature by feature.
    """

    def __init__(self, d: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.outer = Dense(d, d, dropout), Dense(d, d, dropout)

    def weights(self, states: Tensor, valid: Tensor) -> Tensor:
        """(B, n, d), each feature summing to 1 over the tokens of a sentence."""
        return masked_softmax(self.outer(F.elu(self.inner(states))), valid.unsqueeze(-1), 1)

    def forward(self, states: Tensor, valid: Tensor) -> Tensor:
        """(B, n, d) -> (B, d)."""
        return (self.weights(states, valid) * states.masked_fill(~valid.unsqueeze(-1), 0)).sum(1)
