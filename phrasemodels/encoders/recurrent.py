"""LSTMs over token states (paper 003). Shapes: B batch, n tokens, d width, h units per direction."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from phrasemodels import config
from phrasemodels.layers.blocks import as_lengths, token_mask, without_padding
from phrasemodels.structs.dispatch import transformed


@dataclass(frozen=True)
class LSTMEncoderConfig:
    """An LSTM from left to right.

    Args:
        d: Features of a word, and of a state.
        layers: Number of layers.
        dropout: Dropout of features between two layers.
    """

    d: int = 500
    layers: int = 2
    dropout: float = 0.3

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "layers")
        config.share(self, "dropout")

    @property
    def width(self) -> int:
        """Width of the states."""
        return self.d

    def build(self) -> "LSTMEncoder":
        return LSTMEncoder(self)


class LSTMEncoder(nn.Module):
    """A stacked LSTM from left to right."""

    def __init__(self, config: LSTMEncoderConfig) -> None:
        super().__init__()
        dropout = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.d, config.d, config.layers, batch_first=True, dropout=dropout)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        """x (B, n, d), lengths (B) -> states (B, n, d); `members` are not used."""
        lengths = as_lengths(lengths, x)
        # not packed: from left to right, padding is read after the words
        x = without_padding(x, lengths)
        if x.is_cpu and torch.is_autocast_enabled("cpu"):  # oneDNN has no LSTM of bfloat16 for processors without AVX-512
            with torch.autocast("cpu", enabled=False):
                return self.lstm(x.to(next(self.lstm.parameters()).dtype))[0]
        return self.lstm(x)[0]


class BiLSTM(nn.Module):
    """One bidirectional layer: x (B, n, d), lengths (B) -> (B, n, 2h)."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, h, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        lengths = as_lengths(lengths, x)
        if not len(x):
            return x.new_zeros(*x.shape[:2], 2 * self.lstm.hidden_size)  # packing refuses an empty batch
        if transformed():
            return self._unpacked(x, lengths)
        # packed: the other direction would begin with the padding; packing refuses an empty sentence
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])[0]
        return states * (lengths > 0).to(states)[:, None, None]

    def _unpacked(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the states under transforms of `torch.func`, which packing refuses: the words are also read in reverse, by swapped
        weights."""
        place, inside = torch.arange(x.shape[1], device=x.device), token_mask(lengths, x.shape[1])
        turned = torch.where(inside, lengths[:, None] - 1 - place, place)
        weights: dict[str, Tensor] = dict(self.lstm.named_parameters())
        other = {name: weights[f"{name}_reverse"] for name in weights if not name.endswith("_reverse")}
        other |= {f"{name}_reverse": weights[name] for name in other}
        to_left = functional_call(self.lstm, other, (x.gather(1, turned[..., None].expand(x.shape)),))[0]
        to_right, to_left = self.lstm(x)[0].chunk(2, -1)[0], to_left.chunk(2, -1)[0]
        return torch.cat([to_right, to_left.gather(1, turned[..., None].expand_as(to_left))], -1) * inside[..., None]
