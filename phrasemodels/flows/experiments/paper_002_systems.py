"""The systems of paper 002 (PhraseTransformer with n-gram LSTM): its Transformer, models 1 to 6, and readings of both.

The paper leaves much open, and its released program differs from it; each preset is one reading of both.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.table import Row, Size
from phrasemodels.layers.blocks import AddNorm, PreNorm, Residual, Start, normal_by_width
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
    """One reading of how the models were trained. summed: an update sums up as many batches as in the released scripts.
    min_count: words seen less often are unknown. recurrent, total: the encoders of n-grams and of the Sum variant. updates:
    share of the paper's. marks: questions stand between <s> and </s>. inner: dropout also falls on attention weights and
    inside the feed-forward parts. start: of embeddings. unknown: unknown words may be predicted, and give way to words of the
    question."""

    slug: str
    betas: tuple[float, float]
    smoothing: float
    summed: bool
    residual: type[Residual]
    shared: bool
    min_count: int
    recurrent: GramEncoder
    total: GramEncoder
    updates: float
    marks: bool = True
    inner: bool = False
    start: Start = normal_by_width
    unknown: bool = False


# The paper's text to the letter, and the released scripts to the letter.
PAPERS = Preset("paper", (0.9, 0.998), 0.0, False, AddNorm, True, 1, NgramBiLSTM, NgramSum, 1.0)
OFFICIAL_CODE = Preset("official_code", (0.9, 0.98), 0.1, True, PreNorm, False, 3, NgramBiRNN, NgramMean, 0.4)
# What the released program trains, where the paper's own numbers allow it: only LSTMs and one vocabulary of both sides have
# the parameters of Tables 4 and 5. This is what is trained at the paper's size.
RELEASED = replace(
    OFFICIAL_CODE, slug="released", shared=True, recurrent=NgramBiLSTM, updates=1.0,
    marks=False, inner=True, start=nn.init.xavier_uniform_, unknown=True,
)  # fmt: skip
ALL_LAYERS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Grams:
    """The model of a row. sizes: words of the n-gram of each head, 0 for a single word. total: n-grams are sums of their
    words (the Sum variant). layers: those that have n-grams, from 1. preset: None until it is chosen by profile."""

    sizes: tuple[int, ...]
    gate: Gate = grams_alone
    total: bool = False
    layers: tuple[int, ...] = ALL_LAYERS
    preset: Preset | None = None

    def __call__(self, size: Size) -> TranslationConfig:
        preset = self.preset or PAPERS
        inner = size.dropout if preset.inner else 0.0
        return TranslationConfig(
            self.encoder(size, preset, inner), 0, 0, size.layers, size.d_ff, shared=preset.shared, output_bias=True,
            residual=preset.residual, inner_dropout=inner, start=preset.start,
        )  # fmt: skip

    def encoder(self, size: Size, preset: Preset, inner: float) -> EncoderConfig:
        """The encoder at a size; layers that a smaller size does not have are left out."""
        widths: dict[str, Any] = size.encoder | {"residual": preset.residual, "inner_dropout": inner}
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
