"""The systems of paper 002 (PhraseTransformer with n-gram LSTM): its Transformer, models 1 to 6, and two readings of both.

Where the paper and the released scripts disagree there are two presets.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.blocks import AddNorm, PreNorm, Residual
from phrasemodels.layers.ngrams import (
    Gate,
    GramEncoder,
    NgramBiLSTM,
    NgramBiRNN,
    NgramMean,
    NgramSum,
    grams_alone,
    residual_gate,
)


@dataclass(frozen=True)
class Preset:
    """One reading of how the models were trained. batches: of how many an update is the sum; min_count: words seen less
    often are unknown; recurrent, total: what the n-gram LSTM and the Sum variant are; updates: how many, of the paper's."""

    slug: str
    betas: tuple[float, float]
    smoothing: float
    batches: int
    residual: type[Residual]
    shared: bool
    min_count: int
    recurrent: GramEncoder
    total: GramEncoder
    updates: float


PAPERS = Preset("paper", (0.9, 0.998), 0.0, 1, AddNorm, True, 1, NgramBiLSTM, NgramSum, 1.0)
OFFICIAL_CODE = Preset("official_code", (0.9, 0.98), 0.1, 8, PreNorm, False, 3, NgramBiRNN, NgramMean, 0.4)


@dataclass(frozen=True)
class Size:
    """Widths and depths shared by all rows."""

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048


@dataclass(frozen=True)
class Row:
    """A system of the paper by its number in Table 2; 0 is the Transformer. layers: those that have n-grams, from 1."""

    slug: str
    system: str
    sizes: tuple[int, ...]
    gate: Gate = grams_alone
    total: bool = False
    layers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)

    @property
    def variant(self) -> str:
        return f"n=[{';'.join(map(str, self.sizes))}]" if any(self.sizes) else "ours"

    def encoder(self, size: Size, preset: Preset, dropout: float) -> EncoderConfig:
        """The encoder of this row; layers that a smaller size does not have are left out."""
        widths: dict[str, Any] = dataclasses.asdict(size) | {"dropout": dropout, "residual": preset.residual}
        if not any(self.sizes):
            return TransformerEncoderConfig(**widths)
        return NgramEncoderConfig(
            **widths,
            gram_sizes=self.sizes,
            phrase_layers=tuple(layer for layer in self.layers if layer <= size.layers),
            gram_encoder=preset.total if self.total else preset.recurrent,
            gate=self.gate,
        )


PHRASE, MIXED = "PhraseTransformer", (0, 0, 2, 2, 3, 3, 4, 4)
TRANSFORMER = Row("transformer", "Transformer", (0,) * 8)
MODELS = (
    Row("model-1", PHRASE, (0, 0, 0, 0, 2, 2, 2, 2)),
    Row("model-2", PHRASE, (0, 0, 0, 0, 3, 3, 3, 3)),
    Row("model-3", PHRASE, (0, 0, 0, 0, 2, 2, 3, 3)),
    Row("model-4", PHRASE, MIXED),
    Row("model-5", f"{PHRASE} Res.", MIXED, residual_gate),
    Row("model-6", f"{PHRASE} Sum", MIXED, total=True),
)
LAYERS = {"[1]": (1,), "[1 - 2]": (1, 2), "[1 - 3]": (1, 2, 3), "[1 - 6]": (1, 2, 3, 4, 5, 6), "[3-6]": (3, 4, 5, 6)}
