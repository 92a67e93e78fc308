"""BiLSTM-Max (Conneau et al. 2017, section 3.2): the first baseline of paper 001.

Shapes: B sentences, n tokens, d width of a word.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from phrasemodels.layers import checks
from phrasemodels.layers.blocks import token_mask
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class BiLSTMMaxConfig:
    """hidden: units per direction. pool: max_over_tokens, or max_with_padding as in the first InferSent."""

    d: int = 300
    hidden: int = 2048
    pool: Callable[[Tensor, Tensor], Tensor] = max_over_tokens

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "d", "hidden")

    def build(self) -> "BiLSTMMax":
        return BiLSTMMax(self)


class BiLSTMMax(nn.Module):
    """A bidirectional LSTM, and the maximum of each unit over the sentence."""

    def __init__(self, config: BiLSTMMaxConfig) -> None:
        super().__init__()
        self.width, self.pool = 2 * config.hidden, config.pool
        self.lstm = nn.LSTM(config.d, config.hidden, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, 2 hidden). Phrases (`levels`) are not used."""
        # packing refuses empty sequences, so these read one row of padding, which the pooling leaves out
        packed = pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        return self.pool(states, token_mask(lengths, words.shape[1]))
