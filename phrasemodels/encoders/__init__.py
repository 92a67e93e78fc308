"""Encoders: embedded tokens (and phrases) to token states."""

from typing import Protocol

from torch import nn


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
