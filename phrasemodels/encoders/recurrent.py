"""Long short-term memories over token states (paper 003). Shapes: B batch, n tokens, d width."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@dataclass(frozen=True)
class LSTMEncoderConfig:
    """Layers of an LSTM that reads from left to right, with dropout between them."""

    d: int = 500
    layers: int = 2
    dropout: float = 0.3

    @property
    def width(self) -> int:
        """Of the states that come out."""
        return self.d

    def build(self) -> "LSTMEncoder":
        return LSTMEncoder(self)


class LSTMEncoder(nn.Module):
    """Embedded tokens (B, n, d) and lengths (B) to states (B, n, d). What stands behind a sentence cannot reach it."""

    def __init__(self, config: LSTMEncoderConfig) -> None:
        super().__init__()
        dropout = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.d, config.d, config.layers, batch_first=True, dropout=dropout)

    def forward(self, x: Tensor, lengths: Tensor, members: Tensor | None = None) -> Tensor:
        return self.lstm(x)[0]


class BiLSTM(nn.Module):
    """One layer in both directions: x (B, n, d) and lengths (B) -> (B, n, 2h)."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, h, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])[0]
