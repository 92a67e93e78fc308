"""Attention that separates content from position (Kitaev and Klein 2018; paper 004, section 2.2).

A state is [content; position], and every linear map is one map of the content and one of the position.
Shapes: B batch, N positions, d model width, half = d/2, h heads, dk width of a head, half of it content.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import Sublayer, dot_product_attention, untouched

Scale = Callable[[int, int], float]


def by_model_width(d: int, dk: int) -> float:
    """Return 1/√d, by which the released code of paper 004 scales scores."""
    return d**-0.5


def by_head_width(d: int, dk: int) -> float:
    """Return 1/√dk (paper 004, Eq 1)."""
    return dk**-0.5


class StandardNorm(nn.Module):
    """a (x − mean) / (std + 1e-3) + b with the unbiased std, as in the released code of paper 004."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        # clamped because the square root has no gradient at 0, where all features are equal
        least = max(1e-20, torch.finfo(x.dtype).tiny)
        deviation = (centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)).clamp(min=least).sqrt()
        return self.weight * (centred / (deviation + 1e-3)) + self.bias


class SharedDropout(nn.Module):
    """Dropout of features (..., N, d) with one mask (..., 1, d) for all N positions."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return x * F.dropout(torch.ones_like(x[..., :1, :]), self.p)


class SharedAddNorm(nn.Module):
    """LN(x + Drop(f(x))) with StandardNorm and SharedDropout."""

    def __init__(self, d: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = StandardNorm(d), SharedDropout(dropout)

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class PartitionedLinear(nn.Module):
    """Two linear maps, of content (..., widths[0]) and position (..., widths[1]), to `outputs`; Xavier."""

    def __init__(self, widths: tuple[int, int], outputs: tuple[int, int], bias: bool = False) -> None:
        super().__init__()
        self.widths = widths
        self.content, self.position = (nn.Linear(*sizes, bias=bias) for sizes in zip(widths, outputs, strict=True))
        for linear in (self.content, self.position):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., d) -> content (..., outputs[0]) and position (..., outputs[1])."""
        content, position = x.split(self.widths, -1)
        return self.content(content), self.position(position)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.halves(x), -1)


def halves(part: nn.Module, x: Tensor) -> Sequence[Tensor]:
    """Return the equal halves of a PartitionedLinear's output, without joining them if the module is untouched."""
    return (
        part.halves(x)
        if isinstance(part, PartitionedLinear) and untouched(part, PartitionedLinear)
        else part(x).chunk(2, -1)
    )


class PartitionedAttention(nn.Module):
    """Multi-head attention without biases; a score is the score of the contents plus the score of the positions."""

    def __init__(self, d: int, heads: int, dk: int, scale: Scale, dropout: float) -> None:
        super().__init__()
        half, inner = d // 2, heads * dk // 2
        self.heads, self.scale, self.dropout = heads, scale(d, dk), dropout
        self.query, self.key, self.value = (PartitionedLinear((half, half), (inner, inner)) for _ in range(3))
        self.output = PartitionedLinear((inner, inner), (half, half))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (B, N, d), valid (B, 1, 1, N) true for real positions -> (B, N, d)."""
        q, k, v = (self._split(*halves(part, x)) for part in (self.query, self.key, self.value))
        p = self.dropout if self.training else 0.0
        heads = dot_product_attention(q, k, v, valid, dropout_p=p, scale=self.scale)
        content, position = heads.transpose(1, 2).chunk(2, -1)
        return self.output(torch.cat([content.flatten(2), position.flatten(2)], -1))

    def _split(self, content: Tensor, position: Tensor) -> Tensor:
        """content, position (B, N, h·dk/2) -> (B, h, N, dk)."""
        parts = [x.unflatten(-1, (self.heads, -1)) for x in (content, position)]
        return torch.cat(parts, -1).transpose(1, 2)


class PartitionedFeedForward(nn.Sequential):
    """Two feed-forward layers of `hidden` units each: of the first d − position features, and of the last `position`."""

    def __init__(self, d: int, position: int, hidden: int, dropout: float) -> None:
        if not 0 < position < d:
            raise ValueError(f"{d} features cannot have {position} position features: raise d_out, or set d_ff=0")
        widths, inner = (d - position, position), (hidden, hidden)
        widen, narrow = PartitionedLinear(widths, inner, bias=True), PartitionedLinear(inner, widths, bias=True)
        super().__init__(widen, nn.ReLU(), SharedDropout(dropout), narrow)
