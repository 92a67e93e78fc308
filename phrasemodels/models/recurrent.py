"""An LSTM decoder with attention to an encoded source: translation and tree transduction (paper 003).

Shapes: B batch, n source tokens, t target tokens, V target vocabulary, d width of the decoder, w width of the memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.encoders import check_output
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.layers.attention_weights import SoftmaxWeights
from phrasemodels.layers.blocks import Dropout, Packing, on_device


class SourceEncoderConfig(Protocol):
    """A configuration of an encoder: x (B, n, d), lengths (B), members -> memory (B, n, width)."""

    @property
    def d(self) -> int: ...
    @property
    def width(self) -> int: ...
    def build(self) -> nn.Module: ...


@dataclass(frozen=True)
class RecurrentConfig:
    """An encoder, and an LSTM decoder of its width d.

    Args:
        encoder: The configuration of the encoder.
        layers, dropout: Of the decoder.
        source_vocabulary, target_vocabulary: Numbers of words, set from the data.
        weights: A class of `layers.attention_weights`. It turns the decoder's scores into weights.
        initial: All parameters, also the transitions of a chain, start in U(-initial, initial).
    """

    encoder: SourceEncoderConfig = field(default_factory=LSTMEncoderConfig)
    source_vocabulary: int = 0
    target_vocabulary: int = 0
    layers: int = 2
    dropout: float = 0.3
    weights: Callable[[], nn.Module] = SoftmaxWeights
    initial: float = 0.1

    def __post_init__(self) -> None:
        config.at_least(self, 0, "source_vocabulary", "target_vocabulary")
        config.at_least(self, 1, "layers")
        config.share(self, "dropout")
        config.positive(self, "initial")

    def build(self) -> "RecurrentTranslator":
        return RecurrentTranslator(self)


@dataclass
class DecoderState:
    """The memory of a source, and the state of the decoder after some target tokens."""

    memory: Tensor  # (B, n, w)
    lengths: Tensor  # (B,)
    decoder: tuple[Tensor, Tensor] | None = None  # hidden states and cells (layers, B, d); None: zeros

    def select(self, rows: Tensor) -> None:
        """Repeat, reorder or drop hypotheses: replace the batch by some of its rows, on the CPU."""
        (rows,) = on_device(self.memory.device, rows)
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
        self.dropout = Dropout(config.dropout)
        self.project = nn.Linear(d, config.target_vocabulary)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.initial, config.initial)

    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B) -> memory (B, n, w)."""
        states = self.encoder(self.embed_source(source), lengths, members)
        return check_output(states, self.encoder, "B, n, width", *source.shape, self.width)

    def start(self, memory: Tensor, lengths: Tensor) -> DecoderState:
        """Return the state before the first target token: memory (B, n, w), lengths (B)."""
        return DecoderState(memory, lengths)

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Return the scores (B, t, V) of the token after each token of target (B, t). The target begins with BEGIN."""
        return self.project(self.advance(target, self.start(self.encode(source, lengths, members), lengths)))

    def states(self, memory: Tensor, lengths: Tensor, target: Tensor, packing: Packing) -> Tensor:
        """Return the states (r, d) of the tokens after the r real ones among target (B, t): memory (B, n, w), lengths (B)."""
        return packing.pack(self.advance(target, self.start(memory, lengths)))

    def advance(self, target: Tensor, state: DecoderState) -> Tensor:
        """Return the states (B, t, d) of the next t target tokens (B, t), and update `state`.

        There is no input feeding, so one pass computes all t states.
        """
        h, state.decoder = self.decoder(self.embed_target(target), state.decoder)
        context = self.weights(self.scores(h, state.memory), state.lengths) @ state.memory
        return self.dropout(torch.tanh(self.combine(torch.cat([context, h], -1))))

    def scores(self, h: Tensor, memory: Tensor) -> Tensor:
        """h (B, t, d), memory (B, n, w) -> scores s (B, t, n)."""
        return self.score(h) @ memory.transpose(1, 2)

    @torch.inference_mode()
    def attention(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Return the weights (B, t, n) of the source tokens at each target token (B, t)."""
        memory = self.encode(source, lengths, members)
        return self.weights(self.scores(self.decoder(self.embed_target(target))[0], memory), lengths)
