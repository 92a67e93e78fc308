"""BiLSTM-Max (Conneau et al. 2017, section 3.2): the first baseline of paper 001.

Shapes: B sentences, n tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from phrasemodels.layers.blocks import within
from phrasemodels.layers.pooling import max_over_tokens


@dataclass(frozen=True)
class BiLstmConfig:
    """pool: max_over_tokens, or max_with_padding as in the first InferSent."""

    d: int = 300
    hidden: int = 2048
    pool: Callable[[Tensor, Tensor], Tensor] = max_over_tokens

    def build(self) -> "BiLstm":
        return BiLstm(self)


class BiLstm(nn.Module):
    """The largest value of each unit over a sentence. Phrases, if given, are not looked at."""

    def __init__(self, config: BiLstmConfig) -> None:
        super().__init__()
        self.width, self.pool = 2 * config.hidden, config.pool
        self.lstm = nn.LSTM(config.d, config.hidden, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, 2 hidden)."""
        # the LSTM refuses empty sequences, so these read one row of padding, which the pooling leaves out again
        packed = pack_padded_sequence(words, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])
        return self.pool(states, within(lengths, words.shape[1]))
