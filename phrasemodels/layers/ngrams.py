"""n-gram encoders of head states (paper 002, section 3): what stands for a word is its n-gram, the word last.

Shapes: n words, R rows (sentences, heads and q, k, v alike), w head width, s gram size, L = n + s − 1. Words come first
and s − 1 zeros before them (Eq 10), so that the k-th words of all windows are one slice.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.attention import MultiHeadAttention, softmax_attention
from phrasemodels.layers.gram_lstm import lstm_over_grams

Readout = Callable[[Tensor, Tensor], Tensor]
Gate = Callable[[Tensor, Tensor], Tensor]


class GramEncoder(Protocol):
    """Builds, for head width w, a module: padded states (L, R, w) and s to one vector a window (n, R, w)."""

    def __call__(self, width: int, readout: Readout) -> nn.Module: ...


def final_states(hidden: Tensor, cells: Tensor) -> Tensor:
    """Final hidden states, forward plus backward (paper 002, Eq 9); hidden, cells (2, n, R, w) -> (n, R, w)."""
    return hidden.sum(0)


def states_and_cells(hidden: Tensor, cells: Tensor) -> Tensor:
    """Final hidden states and cells, both directions, summed: the released fairseq code. For an RNN cells are zero."""
    return hidden.sum(0) + cells.sum(0)


class Recurrent(nn.Module):
    """Weights of one bidirectional layer w -> w per direction, with two biases as torch has them; Xavier (section 4.2)."""

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
        """The two biases are only ever added to each other: (2, gates · w)."""
        return self.input_bias + self.recurrent_bias


class BiLSTM(Recurrent):
    """Bidirectional LSTM over each window (Eq 9); gates in torch's order i, f, g, o."""

    gates = 4

    def forward(self, states: Tensor, size: int) -> Tensor:
        """(L, R, w) -> (n, R, w)."""
        return self.readout(*lstm_over_grams(states, size, self.input, self.recurrent, self.bias))


class BiRNN(Recurrent):
    """The same with tanh units, as in the released OpenNMT code."""

    gates = 1

    def forward(self, states: Tensor, size: int) -> Tensor:
        """(L, R, w) -> (n, R, w)."""
        n, rows, width = len(states) - size + 1, states.shape[1], states.shape[2]
        projected = torch.einsum("lrw,dgw->dlrg", states, self.input) + self.bias[:, None, None]
        hidden = None
        for step in range(size):
            seen = torch.stack([projected[0, step : step + n], projected[1, size - 1 - step : size - 1 - step + n]])
            if hidden is not None:
                seen = seen + (hidden.flatten(1, 2) @ self.recurrent.transpose(1, 2)).view(2, n, rows, width)
            hidden = seen.tanh()
        assert hidden is not None
        return self.readout(hidden, torch.zeros_like(hidden))


class Sum(nn.Module):
    """The sum of the words of each window (Eq 15); no weights, no readout."""

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()

    def forward(self, states: Tensor, size: int) -> Tensor:
        """(L, R, w) -> (n, R, w)."""
        n = len(states) - size + 1
        total = states[:n]
        for first in range(1, size):
            total = total + states[first : first + n]
        return total


class Mean(Sum):
    """The same divided by s, zeros counted: what the released code calls sum."""

    def forward(self, states: Tensor, size: int) -> Tensor:
        """(L, R, w) -> (n, R, w)."""
        return super().forward(states, size) / size


def grams_alone(grams: Tensor, states: Tensor) -> Tensor:
    """The n-gram takes the place of the word (Eq 8)."""
    return grams


def residual_gate(grams: Tensor, states: Tensor) -> Tensor:
    """σ(S) ∘ gram + (1 − σ(S)) ∘ S (Eq 13); the gate has no weights."""
    return torch.lerp(states, grams, states.sigmoid())


def _slice(places: list[int]) -> slice | list[int]:
    """Adjacent places as a slice, which copies nothing."""
    first, last = places[0], places[-1]
    return slice(first, last + 1) if places == list(range(first, last + 1)) else places


class PhraseHeads(nn.Module):
    """Phrase(·) of Eq 7: every head by the encoder of its gram size, size 0 as it is (the text prints it reversed).

    Heads of one size share an encoder, and q, k, v do too.
    """

    def __init__(self, sizes: Sequence[int], width: int, encoder: GramEncoder, readout: Readout, gate: Gate) -> None:
        super().__init__()
        if min(sizes) < 0:
            raise ValueError(f"gram sizes {tuple(sizes)}: a size is 0 (the word alone) or the words of a window")
        self.gate = gate
        by_size = sorted(range(len(sizes)), key=lambda head: sizes[head])
        self.groups = {s: _slice([head for head in by_size if sizes[head] == s]) for s in sorted(set(sizes))}
        self.order = _slice([by_size.index(head) for head in range(len(sizes))])
        self.encoders = nn.ModuleDict({str(s): encoder(width, readout) for s in sorted(set(sizes)) if s})

    def forward(self, *heads: Tensor) -> list[Tensor]:
        """q, k, v, or any number of tensors (B, n, h, w), to the same shapes, heads in the same order.

        Padding must stand right of the words: then no word's n-gram reaches it.
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
    """Self-attention over n-grams: head_i = softmax(q'_i k'_iᵀ/√w) v'_i (paper 002, Eq 11-12)."""

    def __init__(self, d: int, sizes: Sequence[int], encoder: GramEncoder, readout: Readout, gate: Gate) -> None:
        super().__init__(d, len(sizes), softmax_attention)
        self.phrases = PhraseHeads(sizes, d // len(sizes), encoder, readout, gate)

    def forward(self, queries: Tensor, memory: Tensor, *masks: Tensor) -> Tensor:
        """x (B, n, d) twice, and allowed keys as softmax_attention takes them -> (B, n, d)."""
        assert memory is queries, "a gram is made of the words before it: this is self-attention"
        layers = (self.query, self.key, self.value)
        q, k, v = self.phrases(*(layer(queries).unflatten(-1, (self.heads, -1)) for layer in layers))
        heads = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *masks)
        return self.output(heads.transpose(1, 2).flatten(2))
