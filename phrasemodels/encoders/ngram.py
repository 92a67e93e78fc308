"""The PhraseTransformer encoder of paper 002: self-attention whose heads see n-grams in place of words."""

from dataclasses import dataclass

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoder
from phrasemodels.layers import checks
from phrasemodels.layers.attention import MultiHeadAttention, softmax_with_dropout
from phrasemodels.layers.blocks import AddNorm, Residual
from phrasemodels.layers.ngrams import (
    Gate,
    GramEncoder,
    NgramBiLSTM,
    PhraseAttention,
    Readout,
    final_states,
    grams_alone,
)


@dataclass(frozen=True)
class NgramEncoderConfig(EncoderConfig):
    """The switches of paper 002; each is a function or class that does one reading of the text.

    gram_sizes: number of words in the n-grams of each head, 0 for the word itself. phrase_layers: the layers with
    n-grams, numbered from 1 (Table 4). gram_encoder: NgramBiLSTM, NgramBiRNN, NgramSum or NgramMean. gram_readout:
    final_states or states_and_cells. gate: grams_alone or residual_gate (the Res. model). residual: AddNorm (Eq 4-5) or
    PreNorm (the released code). inner_dropout: of attention weights, and inside the feed-forward part; in the released
    code as much as elsewhere.
    """

    gram_sizes: tuple[int, ...] = (0, 0, 2, 2, 3, 3, 4, 4)
    phrase_layers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    gram_encoder: GramEncoder = NgramBiLSTM
    gram_readout: Readout = final_states
    gate: Gate = grams_alone
    residual: type[Residual] = AddNorm
    inner_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "inner_dropout")
        checks.at_least(self, 0, "gram_sizes")
        checks.at_least(self, 1, "phrase_layers")
        if len(self.gram_sizes) != self.heads:
            raise ValueError(
                f"gram_sizes={self.gram_sizes}: must be {self.heads} sizes, one per head; 0 is the word itself"
            )
        if not set(self.phrase_layers) <= set(range(1, self.layers + 1)):
            raise ValueError(f"phrase_layers={self.phrase_layers}: must be numbers of layers, 1 to {self.layers}")

    def attention(self, layer: int) -> MultiHeadAttention:
        """Return the self-attention of a layer, numbered from 1: with n-grams, or plain."""
        attend = softmax_with_dropout(self.inner_dropout)
        if layer in self.phrase_layers:
            return PhraseAttention(self.d, self.gram_sizes, self.gram_encoder, self.gram_readout, self.gate, attend)
        return MultiHeadAttention(self.d, self.heads, attend)

    def build(self) -> TransformerEncoder:
        return TransformerEncoder(self)
