"""Multi-head attention with an activation σ that is passed in, and a probe that records attention weights while a model runs.

Shapes: B batch, h heads, d model width, dk = d/h width of a head, q query rows, k key rows.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.layers.blocks import GROUPS, Dropout, Packing, dot_product_attention, masked_softmax, untouched

Attend = Callable[..., Tensor]  # queries, keys and values of all heads, then masks -> outputs of all heads
Activation = Callable[[Tensor], Tensor]
SHORT = (torch.bfloat16, torch.float16)  # types shorter than float32
Drop = Callable[[Tensor], Tensor]  # attention weights -> some of them set to 0, the others scaled up


def identity(x: Tensor) -> Tensor:
    """Return x: the activation of the *linear* variants of paper 000."""
    return x


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, drop: Drop | None = None) -> Tensor:
    """Return softmax(QKᵀ/√dk)V over the allowed keys (Vaswani et al. 2017, Eq 1), (B, h, q, dk).

    q (B, h, q, dk); k, v (B, h, k, dk). allowed broadcasts to (B, h, q, k): booleans, or numbers that are added to the
    scores; None: all keys. Every row of numbers needs at least one key. drop: drops out weights.
    """
    with no_autocast_on_cpu(q):
        q, k, v = at_least_float32(q, k, v)
        if allowed is not None and allowed.dtype != torch.bool:
            # torch's attention takes a mask of numbers in the type of the queries alone
            allowed = allowed.to(q.dtype)
        if drop is None:
            return dot_product_attention(q, k, v, allowed)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if allowed is not None and allowed.dtype == torch.bool:
            return drop(masked_softmax(scores, allowed, -1)) @ v
        return drop((scores if allowed is None else scores + allowed).softmax(-1)) @ v


def at_least_float32(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors, on a processor in float32 if they are shorter: there torch's attention of bfloat16 takes five times
    as long."""
    return [x.float() if x.device.type == "cpu" and x.dtype in SHORT else x for x in tensors]


def no_autocast_on_cpu(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast makes nothing shorter than float32, if x is on a processor."""
    return torch.autocast("cpu", enabled=False) if x.device.type == "cpu" else nullcontext()


class DroppedAttention(nn.Module):
    """`softmax_attention` whose weights drop out in training, as in OpenNMT and tensor2tensor."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.drop = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None) -> Tensor:
        """Shapes as in `softmax_attention`."""
        return softmax_attention(q, k, v, allowed, self.drop if self.training else None)


def softmax_with_dropout(dropout: float) -> Attend:
    """Return softmax attention whose weights drop out in training with this probability."""
    return DroppedAttention(dropout) if dropout else softmax_attention


def sigma_on_heads(sigma: Activation, heads: Tensor, project: nn.Module) -> Tensor:
    """Apply σ to the output of each head, before Wᴼ (paper 000, Eq 5 and 7): heads (B, q, d) -> (B, q, d)."""
    return project(sigma(heads))


def sigma_on_projection(sigma: Activation, heads: Tensor, project: nn.Module) -> Tensor:
    """Apply σ after Wᴼ, the other place that the text of paper 000 allows: heads (B, q, d) -> (B, q, d)."""
    return sigma(project(heads))


class MultiHeadAttention(nn.Module):
    """Concat(head_1..head_h) Wᴼ (paper 000, Eq 3).

    Args:
        attend: Computes the outputs of the heads from their queries, keys, values and masks.
        sigma: The activation.
        readout: Its place, sigma_on_heads or sigma_on_projection.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        attend: Attend = softmax_attention,
        sigma: Activation = identity,
        readout: Callable[[Activation, Tensor, nn.Module], Tensor] = sigma_on_heads,
    ) -> None:
        super().__init__()
        if d % heads:
            raise ValueError(f"heads={heads}: must be a divisor of d={d}")
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(d, d) for _ in range(4))
        self.attend, self.sigma, self.readout = attend, sigma, readout
        self.most_groups = GROUPS
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)

    def split(self, x: Tensor) -> Tensor:
        """Divide features among heads: (B, n, d) -> (B, h, n, dk)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values (B, h, n, dk) of x (B, n, d), which a decoder caches."""
        return self.split(self.key(x)), self.split(self.value(x))

    def attend_heads(self, queries: Tensor, keys: Tensor, values: Tensor, *masks: Any) -> Tensor:
        """Attend from projected queries (B, h, q, dk) to projected keys and values (B, h, k, dk); return (B, q, d)."""
        heads = self.attend(queries, keys, values, *masks)
        return self.read(heads.transpose(1, 2).flatten(2))

    def read(self, heads: Tensor) -> Tensor:
        """Apply σ and the output projection to heads (..., d), which attention computes in float32 at least."""
        dtype = getattr(self.output.weight, "dtype", None)  # the weight of a quantised projection is a method
        short = dtype in SHORT and not torch.is_autocast_enabled(heads.device.type)
        return self.readout(self.sigma, heads.to(dtype) if short else heads, self.output)

    def forward(self, queries: Tensor, memory: Any, *masks: Any) -> Tensor:
        """Attend from queries (B, q, d) to memory (B, k, d), or to its `keys_values`; return (B, q, d).

        masks: As `attend` takes them.
        """
        keys, values = memory if isinstance(memory, tuple) else self.keys_values(memory)
        return self.attend_heads(self.split(self.query(queries)), keys, values, *masks)

    def projected(self, x: Tensor, *projections: nn.Linear) -> Tensor:
        """Return several projections of x (T, d) by one product, (T, projections, h, dk)."""
        if not all(untouched(p, nn.Linear) and p.bias is not None for p in projections):
            return torch.stack([projection(x) for projection in projections], -2).unflatten(-1, (self.heads, -1))
        # joined at each call: the parameters stay apart, as they are saved and drawn
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        return F.linear(x, weight, bias).unflatten(-1, (len(projections), self.heads, -1))

    def queries_keys_values(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the projections of packed tokens x (T, d), (T, 3, h, dk)."""
        return self.projected(x, self.query, self.key, self.value)

    def packed(self, x: Tensor, packing: Packing, causal: bool = False) -> Tensor:
        """Self-attention: attend from packed tokens x (T, d) to the tokens of their sentences; return (T, d).

        Args:
            causal: A token sees only itself and those before it.
        """
        groups, heads = packing.groups(min(packing.best_groups, self.most_groups)), []
        # projected before it is divided into groups: one product of all rows
        padded = self.queries_keys_values(x, packing).split([group.tokens for group in groups])
        for group, own in zip(groups, padded, strict=True):
            q, k, v = group.pad(own).permute(2, 0, 3, 1, 4)
            mask = group.causal if causal else group.mask
            heads.append(group.pack(self.attend(q, k, v, mask).transpose(1, 2).flatten(2)))
        return self.read(torch.cat(heads))

    def packed_to(self, x: Tensor, packing: Packing, memory: Tensor, memory_packing: Packing) -> Tensor:
        """Attend from packed tokens x (T, d) to packed tokens memory (M, d) of the same sentences; return (T, d)."""
        count = min(max(packing.best_groups, memory_packing.best_groups), self.most_groups)
        groups, sources, heads = packing.groups(count), memory_packing.groups(count), []
        queries = self.projected(x, self.query).split([group.tokens for group in groups])
        keys_values = self.projected(memory, self.key, self.value).split([group.tokens for group in sources])
        for group, source, own, other in zip(groups, sources, queries, keys_values, strict=True):
            (q,), (k, v) = group.pad(own).permute(2, 0, 3, 1, 4), source.pad(other).permute(2, 0, 3, 1, 4)
            heads.append(group.pack(self.attend(q, k, v, source.mask).transpose(1, 2).flatten(2)))
        return self.read(torch.cat(heads))


def self_attention(attention: nn.Module, x: Tensor, packing: Packing, *kinds: type, causal: bool = False) -> Tensor:
    """Return `MultiHeadAttention.packed` of an untouched module of these kinds; any other is called with padded tokens and a mask."""
    if untouched(attention, MultiHeadAttention, *kinds):
        return cast(MultiHeadAttention, attention).packed(x, packing, causal)
    (group,) = packing.groups(1)
    padded = group.pad(x)
    return group.pack(attention(padded, padded, group.causal if causal else group.mask))


def source_attention(attention: nn.Module, x: Tensor, packing: Packing, memory: Tensor, sources: Packing) -> Tensor:
    """Return `MultiHeadAttention.packed_to` as `self_attention` does."""
    if untouched(attention, MultiHeadAttention):
        return cast(MultiHeadAttention, attention).packed_to(x, packing, memory, sources)
    (group,), (source,) = packing.groups(1), sources.groups(1)
    return group.pack(attention(group.pad(x), source.pad(memory), source.mask))


@contextmanager
def attention_probe(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Yield a dict that each forward pass fills with the weights (B, h, q, k) of every MultiHeadAttention, by module name.

    Outputs are linear in the values, so the weights of any attend function are its outputs for the identity as values.
    """
    weights: dict[str, Tensor] = {}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadAttention):
                stack.enter_context(with_attend(module, _recording(name, module.attend, weights)))
        yield weights


@contextmanager
def with_attend(module: MultiHeadAttention, attend: Attend) -> Iterator[None]:
    """Let a module attend by another function, which gets all sentences of a batch at once, while the block runs."""
    before = module.attend, module.most_groups
    del module.attend  # torch lets no function take the place of a submodule
    module.attend, module.most_groups = attend, 1
    try:
        yield
    finally:
        del module.attend
        module.attend, module.most_groups = before


def _recording(name: str, attend: Attend, weights: dict[str, Tensor]) -> Attend:
    def attended(q: Tensor, k: Tensor, v: Tensor, *masks: Any) -> Tensor:
        identity = torch.eye(k.shape[2], dtype=v.dtype, device=v.device).expand(*k.shape[:2], -1, -1)
        weights[name] = attend(q, k, identity, *masks).detach()
        return attend(q, k, v, *masks)

    return attended
