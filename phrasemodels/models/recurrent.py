"""An LSTM that writes a target, attending to a source: translation by segments, and tree transduction (paper 003).

Shapes: B batch, n source tokens, t target tokens, V target vocabulary, d width of the decoder, w of the memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.encoders import promised
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.layers.ids import PAD
from phrasemodels.layers.weights import Softmax


class MemoryConfig(Protocol):
    """A configuration that builds an encoder: (x (B, n, d), lengths (B), members) -> memory (B, n, width)."""

    @property
    def d(self) -> int: ...
    @property
    def width(self) -> int: ...
    def build(self) -> nn.Module: ...


@dataclass(frozen=True)
class RecurrentConfig:
    """An encoder, and an LSTM decoder as wide as what the encoder reads.

    weights: how the decoder's scores become weights, a class of layers.weights. All parameters begin in U(-initial,
    initial), the transitions of a chain too.
    """

    encoder: MemoryConfig = field(default_factory=LSTMEncoderConfig)
    source_vocabulary: int = 0
    target_vocabulary: int = 0
    layers: int = 2
    dropout: float = 0.3
    weights: Callable[[], nn.Module] = Softmax
    initial: float = 0.1

    def build(self) -> "RecurrentTranslator":
        return RecurrentTranslator(self)


@dataclass
class State:
    """A source, and where the decoder is: memory (B, n, w), lengths (B), hidden and cell (layers, B, d)."""

    memory: Tensor
    lengths: Tensor
    decoder: tuple[Tensor, Tensor] | None = None  # None: zeros, not the encoder's

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in their order: repeat, reorder or drop hypotheses."""
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        if self.decoder is not None:
            self.decoder = (self.decoder[0][:, rows], self.decoder[1][:, rows])


class RecurrentTranslator(nn.Module):
    """h = LSTM(y); s_i = x_iᵀWh; c = Σ_i w_i x_i; p(next) = softmax(V tanh(W_c [c; h]))."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        d, width = config.encoder.d, config.encoder.width
        self.width = width
        self.embed_source = nn.Embedding(config.source_vocabulary, d)
        self.embed_target = nn.Embedding(config.target_vocabulary, d)
        self.encoder = config.encoder.build()
        between = config.dropout if config.layers > 1 else 0.0
        self.decoder = nn.LSTM(d, d, config.layers, batch_first=True, dropout=between)
        self.score = nn.Linear(d, width, bias=False)
        self.weights = config.weights()
        self.combine = nn.Linear(width + d, d, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(d, config.target_vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.initial, config.initial)

    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B) -> memory (B, n, w)."""
        states = self.encoder(self.embed_source(source), lengths, members)
        return promised(states, self.encoder, "B, n, width", *source.shape, self.width)

    def start(self, memory: Tensor, lengths: Tensor) -> State:
        """Before the first target token."""
        return State(memory, lengths)

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Scores (B, t, V) of the token after each of target (B, t), which begins with BEGIN."""
        return self.project(self.advance(target, self.start(self.encode(source, lengths, members), lengths)))

    def advance(self, target: Tensor, state: State) -> Tensor:
        """States (B, t, d) of the next t target tokens (B, t); `state` moves on. No input feeding: one pass."""
        h, state.decoder = self.decoder(self.embed_target(target), state.decoder)
        context = self.weights(self.scores(h, state.memory), state.lengths) @ state.memory
        return self.dropout(torch.tanh(self.combine(torch.cat([context, h], -1))))

    def scores(self, h: Tensor, memory: Tensor) -> Tensor:
        """s (B, t, n) of decoder states (B, t, d)."""
        return self.score(h) @ memory.transpose(1, 2)

    @torch.inference_mode()
    def attention(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Weights (B, t, n) of the source tokens at each target token (B, t)."""
        memory = self.encode(source, lengths, members)
        return self.weights(self.scores(self.decoder(self.embed_target(target))[0], memory), lengths)

    def loss(self, scores: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        """Summed label-smoothed cross entropy (nats) of scores (B, t, V) at gold (B, t); PAD counts nothing."""
        return F.cross_entropy(
            scores.flatten(0, 1).float(), gold.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing
        )
