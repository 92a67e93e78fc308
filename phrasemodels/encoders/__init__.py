"""Encoders: embedded tokens (and phrases) to token states or sentence vectors."""

from typing import Any, Protocol

from torch import Tensor, nn


class EncoderConfig(Protocol):
    """A configuration that builds an encoder: x (B, n, d), lengths (B), members (B, m, k) -> states (B, n, d)."""

    @property
    def d(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    def build(self) -> nn.Module: ...


def check_output(states: Any, encoder: nn.Module, names: str, *shape: int) -> Tensor:
    """Return the output of an encoder. ValueError: it is no tensor of this shape, whose dimensions `names` lists."""
    if not isinstance(states, Tensor) or states.shape != shape:
        output = tuple(states.shape) if isinstance(states, Tensor) else f"a {type(states).__name__}"
        raise ValueError(f"encoder {type(encoder).__name__} returned {output}, not ({names}) = {shape}")
    return states
