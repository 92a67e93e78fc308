# mypy: disallow-untyped-defs=False
"""Structures by Triton, on a GPU: log Z, marginals and their derivatives, entropy, and the best structure. Chains, projective trees and
labelled spans have programs of their own, and all others one for any rule. The torch path computes samples, which stay on the device,
too; k best structures are found on the CPU."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phrasemodels.structs.dispatch import not_traced, transformed
from phrasemodels.structs.kernels import Kernel, Scores, allowed, column

MOST = 128  # tags of a chain, whose square a program holds


@cache
def _programs():
    """Return the Triton programs, or None where Triton is not installed."""
    if find_spec("triton") is None:
        return None
    from phrasemodels.structs.kernels import gpu_programs

    return gpu_programs


class Programs(Kernel):
    """Serves scores on a GPU, all float32 or all float64 and not empty; see `Kernel`."""

    waits = True

    def supports(self, structure: Any, scores: Scores) -> bool:
        device, dtype = scores[0].device.type, scores[0].dtype
        return (
            (device == "cuda" or (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"))
            and allowed("triton")
            and dtype in (torch.float32, torch.float64)
            and all(s.dtype == dtype and s.numel() > 0 for s in scores)
            and not transformed()
            and _programs() is not None
        )


def _block(size):
    return 1 << max(size - 1, 1).bit_length()


def _launch(program, like, *arguments, BLOCK, **options):
    """Run a program for each of a batch, on the device of its scores, which may not be the current one."""
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        at_once = warps(BLOCK * options.get("TILE", BLOCK))
        program[(len(like),)](*arguments, BLOCK=BLOCK, num_warps=at_once, num_stages=1, **options)


def warps(elements):
    """Return the warps of a program that holds arrays of so many numbers: 2 numbers a thread, on up to 512 threads, so that they are in
    registers (`benchmarks/triton_registers.py`)."""
    return min(max(elements // 64, 1), 16)


def tile(block):
    """Return how many splits of each of `block` spans, or tags before `block` tags, a program takes at once."""
    return min(block, max(1024 // block, 1))


def _strides(pairwise, T, C):
    """Return how far the transitions of a sequence, and of a position, are apart: pairwise (C, C), (B, C, C) or (B, T-1, C, C)."""
    return {2: (0, 0), 3: (C * C, 0), 4: ((T - 1) * C * C, C * C)}[pairwise.dim()]


def chain_passes(unary, pairwise, lengths, wanted, pairs_wanted=True):
    """Return log Z (B,), and the marginals (B, T, C) and (B, T-1, C, C), or for shared scores their sums (B, C, C); None unless
    wanted."""
    (B, T, C), run, block = unary.shape, _programs(), _block(unary.shape[2])
    unary, pairwise = unary.detach().contiguous(), pairwise.detach().contiguous()
    summed = pairwise.dim() == 2
    alpha, log_z = torch.empty_like(unary), unary.new_empty(B)
    given = unary, pairwise, lengths, alpha, log_z
    sizes = T, C, *_strides(pairwise, T, C)
    _launch(run.chain_forward, unary, *given, *sizes, BLOCK=block)
    if not wanted:
        return log_z, None, None
    p, work = torch.zeros_like(unary), unary.new_empty(B, 2, C)
    pairs = unary.new_zeros((B, C, C) if summed else (B, T - 1, C, C)) if pairs_wanted else None
    options = {"PAIRS": pairs_wanted, "SUMMED": summed, "MEAN": 0, "BLOCK": block, "TILE": tile(block)}
    outputs = p, p if pairs is None else pairs, p, work
    _launch(run.chain_backward, unary, *given, unary, pairwise, alpha, *outputs, *sizes, 0, 0, **options)
    return log_z, p, pairs


class ChainPrograms(Programs):
    """Linear chains of up to MOST tags."""

    def supports(self, structure: Any, scores: Scores) -> bool:
        return scores[0].shape[2] <= MOST and scores[1].dim() != 3 and super().supports(structure, scores)

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        log_z, p, pairs = chain_passes(scores[0], scores[1], lengths[:, 0], scale is not None, 1 in which)
        if scale is None:
            return log_z, ()
        found: list[Any] = [x if x is None else _times(x, scale) for x in (p, pairs)]
        if pairs is not None and scores[1].dim() == 2 and not each:
            found[1] = found[1].sum(0)
        return log_z, tuple(found[i] for i in which)

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        unary, pairwise = (s.detach().contiguous() for s in scores)
        (B, T, C), run, lengths = unary.shape, _programs(), lengths[:, 0]
        u, v = (torch.zeros_like(s) if g is None else g.contiguous() for s, g in zip(scores, grads, strict=True))
        summed, block = pairwise.dim() == 2, _block(C)
        alpha, moved, log_z = torch.empty_like(unary), torch.empty_like(unary), unary.new_empty(B)
        given, sizes, of_v = (unary, pairwise, lengths, alpha), (T, C, *_strides(pairwise, T, C)), _strides(v, T, C)
        _launch(run.chain_forward, unary, *given, log_z, *sizes, BLOCK=block)
        _launch(run.chain_forward_tangent, unary, *given, u, v, moved, *sizes, *of_v, BLOCK=block)
        p, p_u, work = torch.zeros_like(unary), torch.zeros_like(unary), unary.new_empty(B, 2, C)
        pairs = unary.new_zeros((B, C, C) if summed else (B, T - 1, C, C))
        options = {"PAIRS": True, "SUMMED": summed, "MEAN": 1, "BLOCK": block, "TILE": tile(block)}
        _launch(run.chain_backward, unary, *given, log_z, u, v, moved, p, pairs, p_u, work, *sizes, *of_v, **options)
        return p_u, pairs.sum(0) if summed else pairs

    def entropy(self, structure: Any, scores: Scores, lengths: Tensor) -> Tensor:
        unary, pairwise = (s.detach().contiguous() for s in scores)
        (B, T, C), run, lengths = unary.shape, _programs(), lengths[:, 0]
        alpha, log_z, entropy = torch.empty_like(unary), unary.new_empty(B), unary.new_empty(B)
        sizes = T, C, *_strides(pairwise, T, C)
        _launch(run.chain_forward, unary, unary, pairwise, lengths, alpha, log_z, *sizes, BLOCK=_block(C))
        _launch(run.chain_entropy, unary, pairwise, lengths, alpha, log_z, entropy, *sizes, BLOCK=_block(C))
        return entropy

    @not_traced
    def best(self, structure: Any, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        unary, pairwise = (s.detach().contiguous() for s in scores)
        (B, T, C), lengths = unary.shape, lengths[:, 0]
        tags = torch.full((B, T), -1, dtype=torch.int64, device=unary.device)
        best, back = unary.new_empty(B), torch.empty((B, T, C), dtype=torch.int32, device=unary.device)
        given = unary, pairwise, lengths, back, best, tags, T, C, *_strides(pairwise, T, C)
        _launch(_programs().chain_best, unary, *given, BLOCK=_block(C))
        return best, tags


def _times(x, scale):
    """Return x (B, ...) times scale (B,), 1.0 or None."""
    return x * column(scale.to(x), x) if isinstance(scale, torch.Tensor) else x


class Charts(Programs):
    """Trees whose programs fill a chart (B, *planes, N, N): `names` begins the names of `inside`, `outside` and `best`."""

    planes: tuple[int, ...] = ()
    names: str

    def _launch(self, what, like, *arguments, **options):
        block = _block(like.shape[-1])
        _launch(
            getattr(_programs(), f"{self.names}_{what}"), like, *arguments, BLOCK=block, TILE=tile(block), **options
        )

    def _chart(self, scores, value, dtype=None):
        B, N, _ = scores.shape
        return torch.full((B, *self.planes, N, N), value, dtype=dtype or scores.dtype, device=scores.device)

    def inside(self, scores, lengths, moves=None, mean=0, **options):
        """Return log Z (B,), the chart, and by `mean` the chart of its derivatives or entropies, and the entropies (B,)."""
        chart = self._chart(scores, -torch.inf)
        moved = self._chart(scores, 0) if mean else chart
        log_z, entropy = scores.new_empty(len(scores)), scores.new_zeros(len(scores))
        arguments = scores, scores if moves is None else moves, lengths, chart, moved, log_z, entropy, scores.shape[1]
        self._launch("inside", scores, *arguments, MEAN=mean, **options)
        return log_z, chart, moved, entropy


class EisnerPrograms(Charts):
    """Projective trees."""

    planes, names = (4,), "eisner"

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        if scale is None:
            return self.inside(scores[0].detach().contiguous(), lengths[:, 0], one_root=structure.one_root)[0], ()
        log_z, p = self._marginals(structure, scores, lengths)
        return log_z, (_times(p, scale),)

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        return (self._marginals(structure, scores, lengths, grads[0].contiguous(), 1)[1],)

    def _marginals(self, structure, scores, lengths, moves=None, mean=0):
        """Return log Z (B,), and the marginals (B, N, N) or with `mean` their derivatives in the direction `moves`."""
        arcs, words = scores[0].detach().contiguous(), lengths[:, 0]
        log_z, chart, moved, _ = self.inside(arcs, words, moves, mean, one_root=structure.one_root)
        found, p = torch.zeros_like(arcs), torch.zeros_like(chart)
        arguments = chart, moved, words, p, torch.zeros_like(p) if mean else p, log_z, found, arcs.shape[1]
        self._launch("outside", arcs, *arguments, MEAN=mean)
        return log_z, found

    def entropy(self, structure: Any, scores: Scores, lengths: Tensor) -> Tensor:
        return self.inside(scores[0].detach().contiguous(), lengths[:, 0], None, 2, one_root=structure.one_root)[3]

    @not_traced
    def best(self, structure: Any, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        arcs, words = scores[0].detach().contiguous(), lengths[:, 0]
        B, N, _ = arcs.shape
        back = torch.empty((B, 3, N, N), dtype=torch.int32, device=arcs.device)
        heads = torch.full((B, N), -1, dtype=torch.int64, device=arcs.device)
        chart, chosen, best = self._chart(arcs, -torch.inf), self._chart(arcs, 0, torch.int8), arcs.new_zeros(B)
        self._launch("best", arcs, arcs, words, chart, back, chosen, heads, best, N, one_root=structure.one_root)
        return best, heads


class SpanPrograms(Charts):
    """Labelled binary trees: for the programs, the score of a span is the log of the sum over its labels."""

    names = "spans"

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        spans, shares = _spans_and_labels(scores[0])
        if scale is None:
            return self.inside(spans, lengths[:, 0])[0], ()
        log_z, p, _ = self._marginals(spans, lengths)
        return log_z, (_of_labels(p, _times(p, scale)[..., None] * shares),)

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        spans, shares = _spans_and_labels(scores[0])
        of_spans = (shares * grads[0]).sum(3)
        _, p, p_moved = self._marginals(spans, lengths, of_spans, 1)
        found = shares * (p_moved[..., None] + p[..., None] * (grads[0] - of_spans[..., None]))
        return (_of_labels(p, found),)

    def _marginals(self, spans, lengths, moves=None, mean=0):
        """Return log Z (B,), the marginals of spans (B, n, n), and with `mean` their derivatives in the direction `moves`."""
        log_z, chart, moved, _ = self.inside(spans, lengths[:, 0], moves, mean)
        p = torch.zeros_like(chart)
        p_moved = torch.zeros_like(chart) if mean else p
        self._launch("outside", chart, chart, moved, lengths[:, 0], p, p_moved, log_z, spans.shape[1], MEAN=mean)
        return log_z, p, p_moved

    def entropy(self, structure: Any, scores: Scores, lengths: Tensor) -> Tensor:
        spans, shares = _spans_and_labels(scores[0])
        return self.inside(spans, lengths[:, 0], torch.special.entr(shares).sum(3), 2)[3]

    @not_traced
    def best(self, structure: Any, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        labels = scores[0].detach()
        spans, label = labels.max(3)
        spans = torch.where(labels.isnan().any(3), torch.nan, spans).contiguous()
        back, chosen = self._chart(spans, 0, torch.int32), self._chart(spans, 0, torch.int8)
        chart, best = self._chart(spans, -torch.inf), spans.new_zeros(len(spans))
        self._launch("best", spans, spans, lengths[:, 0], chart, back, chosen, best, spans.shape[1])
        flags = torch.zeros_like(labels, dtype=torch.int8).scatter_(3, label[..., None], chosen[..., None])
        return best, structure._rows(scores, [flags[None]], lengths)[0]


def _spans_and_labels(labels):
    """Return the scores of spans (B, n, n), and the shares of their labels (B, n, n, L), 0 for forbidden ones."""
    labels = labels.detach()
    return labels.logsumexp(3).contiguous(), torch.where(labels == -torch.inf, 0, labels.softmax(3))


def _of_labels(p, found):
    """Return results (B, n, n, L), 0 for spans that no tree has, also in the padding, whose scores may be anything."""
    return torch.where(p[..., None] == 0, 0, found)


class LevelRun(NamedTuple):
    """What the forward program of a rule leaves for the backward one, and the goals of sentences, E at most."""

    arrays: tuple[Tensor, ...]  # scores (B, P), nodes (B, V), moves (B, P), moved (B, V), choices (B, V)
    steps: tuple[
        Any, ...
    ]  # sizes, own scores and edges of a `DepthSchedule`, and the numbers P, V, of levels, and of edges
    options: dict[str, Any]
    place: Tensor  # nodes of the goals (B, E)
    part: Tensor  # their scores
    shares: Tensor  # their marginals
    log_z: Tensor  # (B,), or the largest score


class LevelPrograms(Programs):
    """Every structure without programs of its own: its rule level by level."""

    def supports(self, structure: Any, scores: Scores) -> bool:
        return structure.has_levels and super().supports(structure, scores)

    def _forward(self, structure, scores, lengths, mean=0, moves=None, best=False):
        """Return a `LevelRun`. mean: as in the programs; best: of the largest score in place of sums."""
        flat, steps, place, part = structure.steps(tuple(s.detach() for s in scores), lengths)
        flat = flat.contiguous()
        nodes = flat.new_zeros(len(flat), len(steps.own) + 1)
        moved = torch.zeros_like(nodes) if mean else nodes
        choices = torch.zeros_like(nodes, dtype=torch.int64) if best else nodes
        arrays = flat, nodes, flat if moves is None else moves, moved, choices
        numbers = flat.shape[1], nodes.shape[1], len(steps.sizes), steps.edges.shape[1]
        given = steps.sizes, steps.own, steps.edges, *numbers
        tile = _block(min(steps.widest, 32))
        options = {"MEAN": mean, "MAX": best, "BLOCK": 1024 // tile, "TILE": tile}
        _launch(_programs().levels_forward, flat, *arrays, *given, **options)
        ends = nodes.gather(1, place) + flat.gather(1, part)
        log_z = ends.amax(1) if best else ends.logsumexp(1)
        shares = torch.nn.functional.one_hot(ends.argmax(1), ends.shape[1]) if best else ends.softmax(1)
        shares = torch.where(log_z[:, None] == -torch.inf, 0, shares.to(ends))
        return LevelRun(arrays, given, options, place, part, shares, log_z)

    def _backward(self, run, share_moves=None):
        """Return the marginals of all scores (B, P - 2), or with moves of the shares of goals their derivatives."""

        def begun(shares):
            """Return of_nodes and of_scores with the shares of the goals."""
            empty = (torch.zeros_like(x) for x in reversed(run.arrays[:2]))
            return [x.scatter_add_(1, place, shares) for x, place in zip(empty, (run.place, run.part), strict=True)]

        found = begun(run.shares)
        moved = found if share_moves is None else begun(share_moves)
        _launch(_programs().levels_backward, run.arrays[0], *run.arrays, *found, *moved, *run.steps, **run.options)
        return moved[1][:, :-2]

    def _shaped(self, structure, scores, flat):
        shapes = [s.shape for s in structure._expanded(scores)]
        parts = flat.split([s[1:].numel() for s in shapes], 1)
        return [x.reshape(shape) for x, shape in zip(parts, shapes, strict=True)]

    def marginals(self, structure: Any, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        run = self._forward(structure, scores, lengths)
        if scale is None:
            return run.log_z, ()
        found = [_times(x, scale) for x in self._shaped(structure, scores, self._backward(run))]
        return run.log_z, tuple(
            found[i] if each or found[i].dim() == scores[i].dim() else found[i].sum(0) for i in which
        )

    def hessian_vector(self, structure: Any, scores: Scores, lengths: Tensor, grads: Sequence[Any]) -> Scores:
        expanded = structure._expanded(scores)
        own = [torch.zeros_like(s) if g is None else g for s, g in zip(expanded, grads, strict=True)]
        moves = torch.cat([g.flatten(1) for g in own] + [own[0].new_zeros(len(own[0]), 2)], 1).contiguous()
        run = self._forward(structure, scores, lengths, 1, moves)
        of_ends = run.arrays[3].gather(1, run.place) + moves.gather(1, run.part)
        share_moves = run.shares * (of_ends - (run.shares * of_ends).sum(1, keepdim=True))
        found = self._shaped(structure, scores, self._backward(run, share_moves))
        return tuple(x if x.dim() == s.dim() else x.sum(0) for x, s in zip(found, scores, strict=True))

    def entropy(self, structure: Any, scores: Scores, lengths: Tensor) -> Tensor:
        run = self._forward(structure, scores, lengths, 2)
        return (run.shares * run.arrays[3].gather(1, run.place) + torch.special.entr(run.shares)).sum(1)

    @not_traced
    def best(self, structure: Any, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        run = self._forward(structure, scores, lengths, best=True)
        flags = self._shaped(structure, scores, self._backward(run))
        return run.log_z, structure._rows(scores, [f[None] for f in flags], lengths)[0]
