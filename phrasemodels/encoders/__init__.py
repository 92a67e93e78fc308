"""Encoders: embedded tokens (and phrases) to token states or sentence vectors."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from phrasemodels import config


@dataclass(frozen=True)
class EncoderConfig:
    """The base of configurations of token encoders, with the sizes of Vaswani et al. (2017); a decoder reads them too.

    d: features of a state. heads: attention heads, with d / heads features each. layers: number of layers. d_ff: hidden units
    of the feed-forward part. dropout: share of features that training sets to 0.
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
    """Return the output of an encoder. ValueError: it is no tensor of this shape, whose dimensions `names` lists."""
    if not isinstance(states, Tensor) or states.shape != shape:
        output = tuple(states.shape) if isinstance(states, Tensor) else f"a {type(states).__name__}"
        raise ValueError(f"encoder {type(encoder).__name__} returned {output}, not ({names}) = {shape}")
    return states
