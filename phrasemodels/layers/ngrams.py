"""Attention heads over n-grams (paper 002, section 3): the n-gram that ends at a word takes the place of the word.

The window of a word is its n-gram: the word and the s − 1 words before it, zeros before the sentence (Eq 10).
Shapes: n words, R rows (one per sentence, head, and q, k or v), w head width, s gram size, L = n + s − 1 padded words.
Words are the first dimension, so that the k-th words of all windows are one slice.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.attention import Attend, MultiHeadAttention, softmax_attention
from phrasemodels.layers.ngram_lstm import bilstm_over_windows

Readout = Callable[[Tensor, Tensor], Tensor]
Gate = Callable[[Tensor, Tensor], Tensor]


class GramEncoder(Protocol):
    """Builds, for head width w, a module: padded states (L, R, w) and s -> one vector per window, (n, R, w)."""

    def __call__(self, width: int, readout: Readout) -> nn.Module: ...


def final_states(hidden: Tensor, cells: Tensor) -> Tensor:
    """Add the final hidden states of both directions (paper 002, Eq 9): hidden, cells (2, n, R, w) -> (n, R, w)."""
    return hidden.sum(0)


def states_and_cells(hidden: Tensor, cells: Tensor) -> Tensor:
    """Add final hidden states and cells of both directions, as the released fairseq code does. Cells of an RNN are 0."""
    return hidden.sum(0) + cells.sum(0)


class NgramRecurrent(nn.Module):
    """The weights of a bidirectional recurrent layer, w -> w per direction: two biases as in torch, Xavier (section 4.2)."""

    gates: int

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()
        self.readout = readout
        self.input, self.recurrent = (nn.Parameter(torch.empty(2, self.gates * width, width)) for _ in range(2))
        self.input_bias, self.recurrent_bias = (nn.Parameter(torch.zeros(2, self.gates * width)) for _ in range(2))
        for weights in (*self.input, *self.recurrent):
            nn.init.xavier_uniform_(weights)

    @property
    def bias(self) -> Tensor:
        """The sum of both biases, (2, gates · w)."""
        return self.input_bias + self.recurrent_bias


class NgramBiLSTM(NgramRecurrent):
    """A bidirectional LSTM over each window (Eq 9); gates in torch's order i, f, g, o."""

    gates = 4

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        return self.readout(*bilstm_over_windows(states, size, self.input, self.recurrent, self.bias))


class NgramBiRNN(NgramRecurrent):
    """A bidirectional tanh RNN over each window, as in the released OpenNMT code."""

    gates = 1

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        n, rows, width = len(states) - size + 1, states.shape[1], states.shape[2]
        projected = torch.einsum("lrw,dgw->dlrg", states, self.input) + self.bias[:, None, None]
        hidden = None
        for step in range(size):
            total = torch.stack([projected[0, step : step + n], projected[1, size - 1 - step : size - 1 - step + n]])
            if hidden is not None:
                total = total + (hidden.flatten(1, 2) @ self.recurrent.transpose(1, 2)).view(2, n, rows, width)
            hidden = total.tanh()
        assert hidden is not None
        return self.readout(hidden, torch.zeros_like(hidden))


class NgramSum(nn.Module):
    """The sum of the words of each window (Eq 15); it has no weights, and `readout` is not used."""

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        n = len(states) - size + 1
        total = states[:n]
        for first in range(1, size):
            total = total + states[first : first + n]
        return total


class NgramMean(NgramSum):
    """The sum of a window divided by s, even where it has zeros; the released code calls this sum."""

    def forward(self, states: Tensor, size: int) -> Tensor:
        """states (L, R, w), size s -> (n, R, w)."""
        return super().forward(states, size) / size


def grams_alone(grams: Tensor, states: Tensor) -> Tensor:
    """Return the n-grams in place of the words (Eq 8): grams, states (n, R, w) -> (n, R, w)."""
    return grams


def residual_gate(grams: Tensor, states: Tensor) -> Tensor:
    """Return σ(S) ∘ gram + (1 − σ(S)) ∘ S (Eq 13), shapes as in `grams_alone`; the gate has no weights."""
    return torch.lerp(states, grams, states.sigmoid())


def _slice(places: list[int]) -> slice | list[int]:
    """Return adjacent places as a slice, which avoids a copy."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if places == list(range(first, last + 1)) else places


class PhraseHeads(nn.Module):
    """Phrase(·) of Eq 7: each head by the encoder of its gram size; heads of size 0 stay words (Eq 7 prints the reverse).

    sizes: the gram size of each head. Heads of one size share an encoder, and so do q, k and v.
    """

    def __init__(self, sizes: Sequence[int], width: int, encoder: GramEncoder, readout: Readout, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        by_size = sorted(range(len(sizes)), key=lambda head: sizes[head])
        self.groups = {s: _slice([head for head in by_size if sizes[head] == s]) for s in sorted(set(sizes))}
        self.order = _slice([by_size.index(head) for head in range(len(sizes))])
        self.encoders = nn.ModuleDict({str(s): encoder(width, readout) for s in sorted(set(sizes)) if s})

    def forward(self, *heads: Tensor) -> list[Tensor]:
        """q, k, v, or any number of tensors (B, n, h, w) -> tensors of the same shape, heads in the same order.

        Padding must follow the words; then no n-gram of a word holds padding.
        """
        parts = [[x[..., self.groups[0], :]] for x in heads] if 0 in self.groups else [[] for _ in heads]
        for name, encoder in self.encoders.items():
            size = int(name)
            words = torch.stack([x[..., self.groups[size], :].transpose(0, 1) for x in heads], 1)  # (n, 3, B, own, w)
            padded = F.pad(words.flatten(1, -2), (0, 0, 0, 0, size - 1, 0))
            grams = self.gate(encoder(padded, size), padded[size - 1 :]).view(words.shape)
            for part, gram in zip(parts, grams.transpose(0, 2).unbind(1), strict=True):
                part.append(gram)
        return [torch.cat(part, -2)[..., self.order, :] for part in parts]


class PhraseAttention(MultiHeadAttention):
    """Self-attention over n-grams: head_i = softmax(q'_i k'_iᵀ/√w) v'_i (paper 002, Eq 11-12). attend: of all heads."""

    def __init__(
        self,
        d: int,
        sizes: Sequence[int],
        encoder: GramEncoder,
        readout: Readout,
        gate: Gate,
        attend: Attend = softmax_attention,
    ) -> None:
        super().__init__(d, len(sizes), attend)
        self.phrases = PhraseHeads(sizes, d // len(sizes), encoder, readout, gate)

    def forward(self, queries: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        """queries and memory, the same x (B, n, d), and masks of `attend`, of `softmax_attention` one: which words may be seen,
        (B, 1, 1, n) -> (B, n, d)."""
        assert memory is queries, "n-grams are defined for self-attention alone"
        layers = (self.query, self.key, self.value)
        q, k, v = self.phrases(*(layer(queries).unflatten(-1, (self.heads, -1)) for layer in layers))
        heads = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *masks)
        return self.output(heads.transpose(1, 2).flatten(2))
