"""Encoders: embedded tokens (and phrases) to token states or sentence vectors."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.layers.blocks import as_lengths
from phrasemodels.structs.dispatch import Lengths


@dataclass(frozen=True)
class EncoderConfig:
    """The base of configurations of token encoders, with the sizes of Vaswani et al. (2017). A decoder reads them, too.

    Args:
        d: Features of a state.
        heads: Attention heads, with d / heads features each.
        layers: Number of layers.
        d_ff: Hidden units of the feed-forward part.
        dropout: Dropout of features.
    """

    d: int = 512
    heads: int = 8
    layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "heads", "layers")
        config.at_least(self, 0, "d_ff")
        config.share(self, "dropout")
        config.divides(self, "heads", "d")

    def build(self) -> nn.Module:
        """Build the encoder: x (B, n, d), lengths (B), members (B, m, k) -> states (B, n, d)."""
        raise NotImplementedError


def check_output(states: Any, encoder: nn.Module, names: str, *shape: int) -> Tensor:
    """Return the output of an encoder. ValueError: it is no tensor of this shape. `names` lists the dimensions."""
    if not isinstance(states, Tensor) or states.shape != shape:
        output = tuple(states.shape) if isinstance(states, Tensor) else f"a {type(states).__name__}"
        raise ValueError(f"encoder {type(encoder).__name__} returned {output}, not ({names}) = {shape}")
    return states


def check_input(words: Any, lengths: Lengths, d: int) -> Tensor:
    """Return the lengths (B) of an encoder's input as `layers.blocks.as_lengths` does. Numbers are looked at on the CPU alone.

    ValueError: words are no floating-point tensor (B, n, d), or lengths no integers (B) up to n, nor a mask (B, n).
    """
    if not isinstance(words, Tensor) or words.dim() != 3 or not words.is_floating_point():
        shape = f"{tuple(words.shape)} of {words.dtype}" if isinstance(words, Tensor) else f"a {type(words).__name__}"
        raise ValueError(f"words must be a floating-point tensor (B, n, {d}), not {shape}")
    if words.shape[2] != d:
        raise ValueError(f"words must be (B, n, {d}), not {tuple(words.shape)}")
    return as_lengths(lengths, words)
