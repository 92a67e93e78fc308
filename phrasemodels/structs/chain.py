"""Linear-chain CRF (Lafferty et al. 2001): tags z have the score Σ_t unary[t, z_t] + Σ_t pairwise[z_t, z_t+1].

Shapes: B sequences, T positions, C tags. Arguments of every function:
    unary     (B, T, C) scores of tags
    pairwise  (C, C) scores of transitions [from, to], the same at all positions, or (B, T-1, C, C)
    lengths   (B,) integers in 0..T, a tensor or a list; None: all are T

A score of -inf forbids a tag or a transition. If a score of a sequence is NaN or +inf, its log Z, marginals and gradients
are NaN, and its tags are undefined. Scores in the padding are not read. Add the scores of a start or an end to the first or
last unary scores.
An empty sequence has one structure, the empty one: log Z, entropy and score are 0.
Time and memory of the reference are O(B·T·C²). ValueError: wrong shapes or lengths.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import chain as kernel
from phrasemodels.structs.kernels import entropies, gpu, kbest, sampling, viterbi
from phrasemodels.structs.semiring import Log


@with_kernel_fallback
def log_partition(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> Tensor:
    """Return log Z, (B,)."""
    inside, scores = _prepare(unary, pairwise, lengths)
    if kernels.usable(inside.lengths, unary, pairwise):
        reference = partial(log_partition, lengths=lengths)
        return kernel.LogPartition.apply(reference, unary, pairwise, inside.lengths)
    if _by_triton(inside, unary, pairwise):
        reference = partial(log_partition, lengths=lengths)
        return gpu.ChainLogPartition.apply(reference, unary, pairwise, inside.lengths)
    return inference.log_partition(inside, *scores)


@with_kernel_fallback
def marginals(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> Tensor:
    """Return p(z_t = c), (B, T, C); 0 in the padding."""
    inside, scores = _prepare(unary, pairwise, lengths)
    if kernels.usable(inside.lengths, unary, pairwise):
        return kernel.Marginals.apply(partial(marginals, lengths=lengths), unary, pairwise, inside.lengths)
    if _by_triton(inside, unary, pairwise):
        return gpu.ChainMarginals.apply(partial(marginals, lengths=lengths), unary, pairwise, inside.lengths, False)
    return inference.marginals(inside, *scores)[0]


@with_kernel_fallback
def pair_marginals(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> Tensor:
    """Return p(z_t = c, z_t+1 = d), (B, T-1, C, C); 0 in the padding."""
    inside, scores = _prepare(unary, pairwise, lengths)
    if unary.shape[1] > 1 and kernels.usable(inside.lengths, unary, pairwise):
        return kernel.PairMarginals.apply(partial(pair_marginals, lengths=lengths), unary, pairwise, inside.lengths)
    if _by_triton(inside, unary, pairwise):
        reference = partial(pair_marginals, lengths=lengths)
        return gpu.ChainMarginals.apply(reference, unary, pairwise, inside.lengths, True)
    return inference.marginals(inside, *scores)[1]


@with_kernel_fallback
def argmax(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the score (B,), differentiable, and the tags (B, T) of a best sequence; tags are -1 in the padding."""
    inside, scores = _prepare(unary, pairwise, lengths)
    found = viterbi.argmax(unary, pairwise, inside.lengths) if kernels.usable(inside.lengths, unary, pairwise) else None
    if found is not None:
        return kernels.with_gradient(found[0], partial(score_tags, tags=found[1]), unary, pairwise), found[1]
    best, (parts, pairs) = inference.argmax(inside, *scores)
    score = _selected(scores[0], parts).sum((1, 2)) + _selected(scores[1], pairs).sum((1, 2, 3))
    return torch.where(best > -torch.inf, score, best), _tags(parts)


@with_kernel_fallback
def topk(unary: Tensor, pairwise: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the scores (k, B), differentiable, and the tags (k, B, T) of the k best sequences, best first.

    Where there are fewer sequences that are not forbidden, the other scores are -inf and their tags -1. Time is
    O(B·T·C²·k) at most; scores on a GPU are copied to the CPU.
    """
    lengths = _prepare(unary, pairwise, lengths)[0].lengths
    best, tags = kernels.on_cpu(kbest.chains, unary, pairwise, lengths, k)
    best, tags = best.to(unary), tags.to(unary.device)
    return kernels.with_gradient(best, partial(score_tags, tags=tags), unary, pairwise), tags


@with_kernel_fallback
def sample(
    unary: Tensor, pairwise: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None
) -> Tensor:
    """Return the tags of k independent samples, (k, B, T); -1 in the padding."""
    inside, scores = _prepare(unary, pairwise, lengths)
    if kernels.usable(inside.lengths, unary, pairwise):
        draws = torch.rand((k, *unary.shape[:2]), generator=generator, dtype=torch.float64)
        return sampling.tags(unary, pairwise, inside.lengths, draws)
    inside = _InsidePass(inside.lengths.repeat(k))
    return _tags(inference.sample(inside, *scores, k=k, generator=generator)[0])


@with_kernel_fallback
def entropy(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> Tensor:
    """Return −Σ p log p over all sequences, in nats, (B,)."""
    inside, scores = _prepare(unary, pairwise, lengths)
    if kernels.usable(inside.lengths, unary, pairwise):
        return entropies.Entropy.apply(partial(entropy, lengths=lengths), unary, pairwise, inside.lengths)
    return inference.entropy(inside, *scores)


def minimum_risk(unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
    """Return the expected number (B,) of right tags, and the tags (B, T) with most of them, each by its own marginal."""
    p, tags = marginals(unary, pairwise, lengths).max(-1)
    lengths = _prepare(unary, pairwise, lengths)[0].lengths
    impossible = (p.sum(1) == 0) & (lengths > 0)
    outside = (torch.arange(unary.shape[1], device=unary.device) >= lengths[:, None]) | impossible[:, None]
    return p.sum(1).masked_fill(impossible, -torch.inf), tags.masked_fill(outside, -1)


def total(semiring: Log, unary: Tensor, pairwise: Tensor, lengths: Lengths = None) -> Tensor:
    """Return ⊕ over all sequences of the products ⊗ of their scores in any semiring, lowered; see `semiring`."""
    inside, scores = _prepare(unary, pairwise, lengths)
    return semiring.lower(inside(semiring, *scores))


def score_tags(unary: Tensor, pairwise: Tensor, tags: Tensor) -> Tensor:
    """Return the sum of the scores of tags (..., B, T), (..., B); a tag of -1 adds nothing."""
    B, T, _ = unary.shape
    known = tags.clamp(min=0)
    sequence = torch.arange(B, device=unary.device)[:, None]
    at = torch.arange(T, device=unary.device)
    single = torch.where(tags >= 0, unary[sequence, at, known], 0).sum(-1)
    pair = known[..., :-1], known[..., 1:]
    chosen = pairwise[pair] if pairwise.dim() == 2 else pairwise[(sequence, at[:-1], *pair)]
    return single + torch.where(tags[..., 1:] >= 0, chosen, 0).sum(-1)


def _by_triton(inside: "_InsidePass", unary: Tensor, pairwise: Tensor) -> bool:
    return unary.shape[2] <= gpu.MOST and gpu.usable(inside.lengths, unary, pairwise)


class _InsidePass:
    """The inside pass, a forward recursion: α_t(d) = unary_t(d) ⊗ ⊕_c α_t-1(c) ⊗ pairwise_t-1(c, d)."""

    def __init__(self, lengths: Tensor):
        self.lengths = lengths

    def __call__(self, semiring: Log, unary: Tensor, pairwise: Tensor) -> Tensor:
        # scores in the padding are replaced, not multiplied by 0: they may be NaN
        inside = torch.arange(unary.shape[1], device=unary.device) < self.lengths[:, None]
        unary = semiring.lift(torch.where(inside[:, :, None], unary, 0))
        pairwise = semiring.lift(torch.where(inside[:, 1:, None, None], pairwise, 0))
        if unary.shape[2] == 0:
            return unary.sum((2, 3))  # one structure, the empty one
        alpha = unary[:, :, 0]
        for t in range(1, unary.shape[2]):
            step = semiring.sum(alpha[..., None] + pairwise[:, :, t - 1], -2) + unary[:, :, t]
            alpha = torch.where(inside[None, :, t, None], step, alpha)
        total = semiring.sum(alpha, -1)
        return torch.where(self.lengths == 0, semiring.one_like(total), total)


def _prepare(unary: Tensor, pairwise: Tensor, lengths: Lengths) -> tuple[_InsidePass, tuple[Tensor, Tensor]]:
    if unary.dim() != 3:
        raise ValueError(f"unary must be (B, T, C), not {tuple(unary.shape)}")
    B, T, C = unary.shape
    if C < 1:
        raise ValueError("unary must be (B, T, C) with at least one tag")
    pairs = max(T - 1, 0)
    if pairwise.shape not in ((C, C), (B, pairs, C, C)):
        raise ValueError(f"pairwise must be {(C, C)} or {(B, pairs, C, C)}, not {tuple(pairwise.shape)}")
    lengths = inference.check_lengths(lengths, B, T, unary.device)
    return _InsidePass(lengths), (unary, pairwise.expand(B, pairs, C, C))


def _selected(scores: Tensor, parts: Tensor) -> Tensor:
    # not a product: 0 · -inf is NaN at forbidden parts
    return torch.where(parts > 0, scores, 0)


def _tags(parts: Tensor) -> Tensor:
    return torch.where(parts.sum(-1) > 0, parts.argmax(-1), -1)


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    unary, pairs = torch.zeros(1, 2, 2, dtype=dtype).requires_grad_(), torch.zeros(2, 2, dtype=dtype).requires_grad_()
    functions = (log_partition, marginals, pair_marginals, entropy, argmax)
    calls = {function.__name__: partial(function, unary, pairs) for function in functions}
    wide = torch.tensor(
        [[[0.0, 1e3]]], dtype=dtype
    ).requires_grad_()  # other kernels than those of scores that spread little
    for function in (log_partition, marginals):
        calls[f"{function.__name__} of a wide spread"] = partial(function, wide, pairs)
    return calls | {"sample": partial(sample, unary, pairs, 1), "topk": partial(topk, unary, pairs, 1)}
