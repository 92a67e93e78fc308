"""The systems of paper 002 (PhraseTransformer with n-gram LSTM): its Transformer, models 1 to 6, and two readings of both.

Where the paper and the released scripts disagree there are two presets.
"""

from dataclasses import dataclass, replace
from typing import Any

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.table import Row, Size
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
from phrasemodels.models.translation import TranslationConfig


@dataclass(frozen=True)
class Preset:
    """One reading of how the models were trained. batches: how many are summed up in an update. min_count: words seen less
    often are unknown. recurrent, total: the encoders of n-grams and of the Sum variant. updates: share of the paper's."""

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
ALL_LAYERS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Grams:
    """The model of a row. sizes: words of the n-gram of each head, 0 for a single word. total: n-grams are sums of their
    words (the Sum variant). layers: those that have n-grams, from 1."""

    sizes: tuple[int, ...]
    gate: Gate = grams_alone
    total: bool = False
    layers: tuple[int, ...] = ALL_LAYERS
    preset: Preset = PAPERS

    def __call__(self, size: Size) -> TranslationConfig:
        preset = self.preset
        return TranslationConfig(
            self.encoder(size), 0, 0, size.layers, size.d_ff,
            shared=preset.shared, output_bias=True, residual=preset.residual,
        )  # fmt: skip

    def encoder(self, size: Size) -> EncoderConfig:
        """The encoder at a size; layers that a smaller size does not have are left out."""
        widths: dict[str, Any] = size.encoder | {"residual": self.preset.residual}
        if not any(self.sizes):
            return TransformerEncoderConfig(**widths)
        return NgramEncoderConfig(
            **widths,
            gram_sizes=self.sizes,
            phrase_layers=tuple(layer for layer in self.layers if layer <= size.layers),
            gram_encoder=self.preset.total if self.total else self.preset.recurrent,
            gate=self.gate,
        )


PHRASE, MIXED = "PhraseTransformer", (0, 0, 2, 2, 3, 3, 4, 4)


def model(number: int, sizes: tuple[int, ...], system: str = PHRASE, **parts: Any) -> Row:
    """A model by its number in Table 2."""
    return Row(f"model-{number}", system, f"n=[{';'.join(map(str, sizes))}]", Grams(sizes, **parts))


TRANSFORMER = Row("transformer", "Transformer", "ours", Grams((0,) * 8))
MODELS = (
    model(1, (0, 0, 0, 0, 2, 2, 2, 2)),
    model(2, (0, 0, 0, 0, 3, 3, 3, 3)),
    model(3, (0, 0, 0, 0, 2, 2, 3, 3)),
    model(4, MIXED),
    model(5, MIXED, f"{PHRASE} Res.", gate=residual_gate),
    model(6, MIXED, f"{PHRASE} Sum", total=True),
)
LAYERS = {"[1]": (1,), "[1 - 2]": (1, 2), "[1 - 3]": (1, 2, 3), "[1 - 6]": ALL_LAYERS, "[3-6]": (3, 4, 5, 6)}


def changed(row: Row, **parts: Any) -> Row:
    """The row with n-grams in other layers, or with another preset."""
    return replace(row, model=replace(row.model, **parts))  # type: ignore[type-var]
