"""Semirings over tensors of log potentials (Goodman 1999, "Semiring Parsing").

A lifted tensor has an additional leading dimension of size S. In every semiring here the product is `+` on lifted
tensors, so an inside pass needs only `lift`, `sum`, `zero_like`, `one_like` and `lower`.

A semiring of your own is a subclass of `Log`, or any object with its five methods, where `sum` distributes over `+`. The functions
`total` of `chain`, `eisner`, `spans`, `joint` and of all derivations take it:

    class Variance(Log): ...  # pairs of a log weight and a number, say
    chain.total(Variance(), unary, pairwise)

The functions at the end need an inside pass alone: a function (semiring, *scores) → log Z lifted into the semiring, (S, B), for scores
(B, ...). They are the reference for the whole package. They run on any device, and can be differentiated any number of times.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def logsumexp(x: Tensor, dim: int) -> Tensor:
    """Return log Σ exp x over `dim`. Unlike in `torch.logsumexp`, all derivatives are 0, not NaN, if every term is -inf."""
    top = x.detach().amax(dim, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    total = (x - top).exp().sum(dim)
    empty = total == 0
    return torch.where(empty, -torch.inf, total.masked_fill(empty, 1).log() + top.squeeze(dim))


class Log:
    """(logsumexp, +): the inside pass gives log Z, and its gradient the marginals."""

    def lift(self, x: Tensor) -> Tensor:
        """Lift scores into the semiring: (...) → (S, ...)."""
        return x[None]

    def lower(self, x: Tensor) -> Tensor:
        """Return the result of an inside pass: (S, ...) → (...). Gradients stop at -inf, so that they do not reach the
        factors of an impossible product."""
        return x[0].masked_fill(x[0] == -torch.inf, -torch.inf)

    def zero_like(self, x: Tensor) -> Tensor:
        """Return the semiring's zero in the shape of the lifted tensor x."""
        return torch.full_like(x, -torch.inf)

    def one_like(self, x: Tensor) -> Tensor:
        """Return the semiring's one in the shape of the lifted tensor x."""
        return self.lift(torch.zeros_like(x[0]))

    def sum(self, x: Tensor, dim: int) -> Tensor:
        """Return ⊕ over `dim`, which is negative, since dimension 0 belongs to the semiring."""
        return logsumexp(x, dim)


class Max(Log):
    """(max, +): the gradient of the inside pass marks the parts of a best structure, one of them if there are ties."""

    def lower(self, x: Tensor) -> Tensor:
        return x[0]

    def sum(self, x: Tensor, dim: int) -> Tensor:
        # not amax, whose gradient is divided among ties
        return x.max(dim).values


class Entropy(Log):
    """Pairs (log Z, H) with the entropy H (Li and Eisner 2009). H is a sum of terms ≥ 0, so nothing cancels in it."""

    def lift(self, x: Tensor) -> Tensor:
        return torch.stack([x, torch.zeros_like(x)])

    def lower(self, x: Tensor) -> Tensor:
        return x[1].masked_fill(x[0] == -torch.inf, 0)

    def zero_like(self, x: Tensor) -> Tensor:
        return self.lift(torch.full_like(x[0], -torch.inf))

    def sum(self, x: Tensor, dim: int) -> Tensor:
        log_weight, entropy = x[0], x[1]
        log_z = logsumexp(log_weight, dim)
        finite_z = log_z.masked_fill(log_z == -torch.inf, 0).unsqueeze(dim)
        forbidden = log_weight == -torch.inf
        log_p = (log_weight - finite_z).masked_fill(forbidden, 0)
        p = log_p.exp().masked_fill(forbidden, 0)
        return torch.stack([log_z, (p * (entropy - log_p)).sum(dim)])


class Sample(Log):
    """(logsumexp, +) with another gradient: it marks the parts of one exact sample."""

    def __init__(self, generator: torch.Generator | None = None):
        self.generator = generator

    def sum(self, x: Tensor, dim: int) -> Tensor:
        return _SampleSum.apply(x, dim, self.generator)


class _SampleSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
        return logsumexp(x, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.dim, ctx.generator = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        x, total = ctx.saved_tensors
        # float64: a float32 cumulative sum can end below the uniform draw
        p = (x - total.masked_fill(total == -torch.inf, 0).unsqueeze(ctx.dim)).double().exp()
        upto = p.cumsum(ctx.dim)
        draw = torch.rand(total.shape, generator=ctx.generator, dtype=torch.float64, device=x.device)
        reached = upto > draw.unsqueeze(ctx.dim) * upto.select(ctx.dim, -1).unsqueeze(ctx.dim)
        chosen = reached & (reached.cumsum(ctx.dim) == 1)
        return chosen * grad.unsqueeze(ctx.dim), None, None


class Chart:
    """A chart of spans that grows by one width at a time, and is never written in place, so that autograd can follow it.

    It has the cells of spans [i, i+d] for d = d₀, d₀+1, ... A diagonal (S, B, n-d, ...) has the cells of one width, by i. S is the
    size of the semiring, B the batch, n the number of words.
    """

    def __init__(self, diagonal: Tensor):
        self.from_left = diagonal.unsqueeze(3)  # (S, B, i, d, ...), by left end i
        # (S, B, j, d, ...), by right end j, counted from the right end of the first cell
        self.from_right = diagonal.unsqueeze(3)

    def append(self, diagonal: Tensor) -> None:
        """Add the diagonal of the next width."""
        m = diagonal.shape[2]
        self.from_left = torch.cat([self.from_left[:, :, :m], diagonal.unsqueeze(3)], 3)
        self.from_right = torch.cat([self.from_right[:, :, 1:], diagonal.unsqueeze(3)], 3)

    def prefixes(self, m: int) -> Tensor:
        """Return the cells of the first m left ends, narrowest first, (S, B, m, widths, ...)."""
        return self.from_left[:, :, :m]

    def suffixes(self, m: int) -> Tensor:
        """Return the cells of the last m right ends, widest first, (S, B, m, widths, ...)."""
        return self.from_right[:, :, -m:].flip(3)


InsidePass = Callable[..., Tensor]


def log_partition(inside: InsidePass, *scores: Tensor) -> Tensor:
    """Return log Z, (B,); -inf if every structure is forbidden."""
    return _run(inside, Log(), scores)


def marginals(inside: InsidePass, *scores: Tensor) -> tuple[Tensor, ...]:
    """Return ∂ log Z / ∂ scores, one tensor per score tensor and of its shape; 0 if every structure is forbidden."""
    keep_graph = torch.is_grad_enabled() and any(s.requires_grad for s in scores)
    return _gradient(inside, Log(), scores, keep_graph)


def argmax(inside: InsidePass, *scores: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the score (B,), without gradient, and the parts of a best structure: 0 or 1, in the shape of each score tensor.

    If every structure is forbidden, or a score is NaN, the score is -inf or NaN and all parts are 0.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(_leaf(s) for s in scores)
        best = _run(inside, Max(), leaves)
        parts = torch.autograd.grad(best.sum(), leaves, materialize_grads=True)
        return best.detach(), tuple(_possible(p, best.detach()) for p in parts)


def _possible(parts: Tensor, best: Tensor) -> Tensor:
    """Return parts (B, ...) with 0 where the best score (B,) belongs to no structure."""
    return torch.where((best > -torch.inf).view(-1, *(1 for _ in parts.shape[1:])), parts, 0)


def sample(inside: InsidePass, *scores: Tensor, k: int, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
    """Return the parts of k independent samples: 0 or 1, (k, B, ...) for each score tensor (B, ...)."""
    repeated = tuple(s.detach().repeat(k, *(1 for _ in s.shape[1:])) for s in scores)
    parts = _gradient(inside, Sample(generator), repeated, keep_graph=False)
    return tuple(p.view(k, *s.shape) for p, s in zip(parts, scores, strict=True))


def entropy(inside: InsidePass, *scores: Tensor) -> Tensor:
    """Return −Σ p log p over all structures, in nats, (B,); 0 if every structure is forbidden.

    It is computed in float64: a difference to log Z, which grows with the length, loses its digits.
    """
    return _run(inside, Entropy(), in_float64(scores)).to(scores[0].dtype)


def in_float64(scores: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the scores in float64; as they are on Apple's GPUs, which lack the type."""
    return tuple(s if s.device.type == "mps" else s.double() for s in scores)


def _run(inside: InsidePass, semiring: Log, scores: tuple[Tensor, ...]) -> Tensor:
    return semiring.lower(inside(semiring, *scores))


def _gradient(inside: InsidePass, semiring: Log, scores: tuple[Tensor, ...], keep_graph: bool) -> tuple[Tensor, ...]:
    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(s if keep_graph and s.requires_grad else _leaf(s) for s in scores)
        total = _run(inside, semiring, leaves).sum()
        return torch.autograd.grad(total, leaves, create_graph=keep_graph, materialize_grads=True)


def _leaf(scores: Tensor) -> Tensor:
    """Return the scores as a leaf that requires gradients; a tensor from inference mode has to be copied."""
    return (scores.clone() if scores.is_inference() else scores.detach()).requires_grad_()
