"""A probe that records the attention weights of a model while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from phrasemodels.layers.attention import Attend, MultiHeadAttention


@contextmanager
def attention_probe(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Yield a dict that each forward pass fills with the weights (B, h, q, k) of every MultiHeadAttention, by module name.

    Outputs are linear in the values, so the weights of any attend function are its outputs for the identity as values.
    """
    weights: dict[str, Tensor] = {}
    attentions = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    before = {name: module.attend for name, module in attentions.items()}
    for name, module in attentions.items():
        _replace(module, _recording(name, module.attend, weights))
    try:
        yield weights
    finally:
        for name, module in attentions.items():
            _replace(module, before[name])


def _replace(module: MultiHeadAttention, attend: Attend) -> None:
    """Give a module another attend function; torch lets no function take the place of a submodule."""
    del module.attend
    module.attend = attend


def _recording(name: str, attend: Attend, weights: dict[str, Tensor]) -> Attend:
    def attended(q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
        identity = torch.eye(k.shape[2], dtype=v.dtype, device=v.device).expand(*k.shape[:2], -1, -1)
        weights[name] = attend(q, k, identity, *masks).detach()
        return attend(q, k, v, *masks)

    return attended
