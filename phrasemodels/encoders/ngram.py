"""The PhraseTransformer encoder of paper 002: self-attention whose heads see n-grams in place of words."""

from dataclasses import dataclass

from phrasemodels.encoders.transformer import TransformerEncoder
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import AddNorm, Residual
from phrasemodels.layers.ngrams import BiLSTM, Gate, GramEncoder, PhraseAttention, Readout, final_states, grams_alone


@dataclass(frozen=True)
class NgramEncoderConfig:
    """The switches of paper 002, each a part that is passed in.

    gram_sizes: words of the n-gram of each head, 0 for the word alone. phrase_layers: which layers have n-grams, from 1
    (Table 4). gram_encoder: BiLSTM, BiRNN, Sum or Mean; gram_readout: final_states or states_and_cells; gate:
    grams_alone or residual_gate (the Res. model); residual: AddNorm (Eq 4-5) or PreNorm (the released code).
    """

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    gram_sizes: tuple[int, ...] = (0, 0, 2, 2, 3, 3, 4, 4)
    phrase_layers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    gram_encoder: GramEncoder = BiLSTM
    gram_readout: Readout = final_states
    gate: Gate = grams_alone
    residual: type[Residual] = AddNorm

    def __post_init__(self) -> None:
        if len(self.gram_sizes) != self.heads:
            raise ValueError(
                f"{len(self.gram_sizes)} gram sizes for {self.heads} heads: give one size a head, 0 for none"
            )
        if unknown := set(self.phrase_layers) - set(range(1, self.layers + 1)):
            raise ValueError(f"phrase_layers {sorted(unknown)}: layers are numbered 1 to {self.layers}")

    def attention(self, layer: int) -> MultiHeadAttention:
        """The self-attention of a layer, from 1: with n-grams, or plain."""
        if layer in self.phrase_layers:
            return PhraseAttention(self.d, self.gram_sizes, self.gram_encoder, self.gram_readout, self.gate)
        return MultiHeadAttention(self.d, self.heads)

    def build(self) -> TransformerEncoder:
        return TransformerEncoder(self)
