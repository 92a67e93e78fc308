"""Encoders: embedded tokens (and phrases) to token states."""

from typing import Any, Protocol

from torch import Tensor, nn


class EncoderConfig(Protocol):
    """A configuration that builds an encoder: (x (B, n, d), lengths (B), members (B, m, k)) -> (B, n, d)."""

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


def promised(states: Any, encoder: nn.Module, names: str, *shape: int) -> Tensor:
    """What an encoder gave, which every model asks for by its shape; a ValueError names the encoder if it is another."""
    if not isinstance(states, Tensor) or states.shape != shape:
        gave = tuple(states.shape) if isinstance(states, Tensor) else f"a {type(states).__name__}"
        raise ValueError(f"encoder {type(encoder).__name__} gave {gave}, ({names}) = {shape} is wanted")
    return states
