"""SparseMAP (Niculae et al. 2018): marginals as a mixture of few structures, by quadratic programs over any kind of structures.

Of all μ = Σ_s p_s a_s, with a_s the counts of the scores in a structure s, it takes the one with the largest

    ⟨scores, μ⟩ − ½ ‖u‖²,    u: the part of μ that says which structure it is

which are tags, segments, cells, arcs, labelled spans (of `joint` with arcs), or preterminals; the rest, as transitions, is not penalised.
u is unique, p is not always. u has exact zeros, and is one structure if its score exceeds the others' by enough. As temperature, divide the
scores.

The active set method (Nocedal and Wright 1999, §16.5) needs best structures only. Structures S with p > 0 solve

    G p + τ = θ,  Σ p = 1,    G = ⟨u of s, u of t⟩, θ: their scores

and the best structure by scores − u enters S, until its score is τ. Each time M, the inverse of that system, changes by a product of
vectors. A structure whose u is an affine combination of those in S takes the place of one. p is linear in θ by M, so derivatives are
exact, and second derivatives 0.

Every function takes a kind of structures (`chain.linear_chain`, `eisner.single_root`, `spans.labelled_spans`, ...) and scores and
lengths as that has them. All is computed in float64. Empty sentences have one structure; those without structure
have p and μ 0; those with a score that is NaN or +inf get NaN.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from phrasemodels.structs import dispatch
from phrasemodels.structs.dispatch import Lengths, untracked, without_transforms
from phrasemodels.structs.kernels import NONE
from phrasemodels.structs.semiring import in_float64
from phrasemodels.structs.structure import Scores, Structure

EXACT = 1e-9  # relative to the scores: the gap at which the search ends
FLAT = 1e-7  # relative to ⟨u, u⟩: the curvature below which u is taken for a combination of others


@dispatch.not_traced
def expected_parts(functions: Structure, *scores: Tensor, lengths: Lengths = None, steps: int = 1000) -> Scores:
    """Return μ, one tensor for each tensor of scores as `Structure.expected_parts`, differentiable.

    steps: the most structures that are tried; with fewer than are needed, the result is a mixture that is not yet the best.
    """
    return functions._call(partial(_expected_parts, functions, steps), scores, lengths)


@dispatch.not_traced
def structures(
    functions: Structure, *scores: Tensor, lengths: Lengths = None, steps: int = 1000
) -> tuple[Tensor, Tensor]:
    """Return the probabilities (m, B), differentiable, and the m structures (m, B, ...) of the mixture, the most probable first.

    Sentences that have fewer get the probability 0 and -1. For Σ_s p_s f(s), compute f on each (Correia et al. 2020).
    """
    p, rows = functions._call(partial(_structures, functions, steps), scores, lengths)
    axis = p.dim() - 1
    return p.movedim(axis, 0), rows.movedim(axis, 0)


def _structures(functions: Structure, steps: int, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    p, rows = _mixture(functions, steps, scores, lengths)
    p, order = p.sort(0, descending=True)
    most = max(int((p != 0).sum(0).max()), 1) if p.numel() else 1  # NaN is not 0
    order = order[:most].view(most, -1, *(1 for _ in rows.shape[2:])).expand(-1, -1, *rows.shape[2:])
    p, rows = p[:most], rows.gather(0, order)
    there = (p != 0).view(*p.shape, *(1 for _ in rows.shape[2:]))
    return p.T.to(scores[0].dtype), torch.where(there, rows, NONE).movedim(0, 1)


def _expected_parts(functions: Structure, steps: int, scores: Scores, lengths: Tensor) -> Scores:
    p, rows = _mixture(functions, steps, scores, lengths)
    return tuple(x.to(scores[0].dtype) for x in _parts(functions, scores, lengths, p, rows))


def _mixture(functions: Structure, steps: int, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return p (K, B), differentiable, and structures (K, B, ...) with p = 0 where there is none."""
    exact = in_float64(scores)
    with without_transforms(), torch.no_grad():
        p, inverse, rows, theta, active = _search(
            functions, tuple(untracked(s).detach() for s in exact), untracked(lengths), steps
        )
    own = functions.total_score(exact, rows, lengths).masked_fill(~active.T, 0).T
    return (p + torch.einsum("bij,bj->bi", inverse, own - theta)).T, rows


def _parts(functions: Structure, scores: Scores, lengths: Tensor, p: Tensor, rows: Tensor,
           which: Sequence[int] | None = None) -> Scores:  # fmt: skip
    """Return Σ_s p_s a_s of each sentence for the scores `which`, all if it is None: of shared ones (B, ...), too."""
    which = range(len(scores)) if which is None else which
    zeros = [torch.zeros(s.shape, dtype=p.dtype, device=p.device) for s in scores]
    found: dict[int, Tensor] = {}
    for shared in (False, True):
        some = [i for i in which if (scores[i].dim() == functions.shared_dims[i]) == shared]
        if not some:
            continue

        def total(*given: Tensor, some: list[int] = some) -> Tensor:
            values = dict(zip(some, given, strict=True))
            each = tuple(values.get(i, zero) for i, zero in enumerate(zeros))
            return functions.total_score(each, rows, lengths)

        transposed = torch.func.vjp(total, *(zeros[i] for i in some))[1]
        if shared:
            each = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)[:, None] * p
            found.update(zip(some, torch.func.vmap(transposed)(each), strict=True))
        else:
            found.update(zip(some, transposed(p), strict=True))
    return tuple(found[i] for i in which)


def _search(
    functions: Structure, scores: Scores, lengths: Tensor, steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return p (B, K), the inverse M without the row of τ (B, K, K), structures (K, B, ...), their scores and which are in use, (B, K)."""
    known = tuple(torch.where(s < torch.inf, s, 0) for s in scores)
    best, rows = functions._best(known, lengths)
    state = _ActiveSet(functions, known, lengths, best, rows)
    for _ in range(steps):
        if not state.improve():
            break
    p = state.p * state.active
    p = torch.where((best > -torch.inf)[:, None], p, 0)
    for s, mask, common in zip(scores, functions.valid(scores, lengths), functions.shared_dims, strict=False):
        wrong = mask & ~(s < torch.inf)
        unknown = wrong.any() & (lengths[:, 0] > 1) if s.dim() == common else wrong.flatten(1).any(1)
        p[unknown, 0] = torch.nan
    return p, state.M[:, 1:, 1:], state.rows, state.theta, state.active


class _ActiveSet:
    """S of each sentence in K slots: p, scores θ and whether a slot is in use (B, K); structures (K, B, ...); M (B, 1 + K, 1 + K) with
    0 for unused slots, whose first row belongs to τ."""

    def __init__(self, functions: Structure, scores: Scores, lengths: Tensor, best: Tensor, rows: Tensor):
        self.functions, self.scores, self.lengths = functions, scores, lengths
        self.sentence = torch.arange(len(best), device=best.device)
        self.open = best > -torch.inf  # sentences whose p is not found yet
        self.theta, self.rows = best.masked_fill(~self.open, 0)[:, None], rows[None]
        self.p, self.active = torch.ones_like(self.theta), self.open[:, None]
        one = torch.ones_like(best)
        self.M = torch.stack([-self._products(rows)[:, 0], one, one, 0 * one], 1).view(-1, 2, 2)

    def improve(self) -> bool:
        """Let a structure enter the sets of sentences where one is better than τ; return whether there was any."""
        seen = range(self.functions.event_scores)
        u = _parts(self.functions, self.scores, self.lengths, self.p.T, self.rows, seen)
        lowered = (
            tuple(s - x for s, x in zip(self.scores, u, strict=False)) + self.scores[self.functions.event_scores :]
        )
        best, rows = self.functions._best(lowered, self.lengths)
        same = (self.rows == rows).flatten(2).all(2).T if rows.numel() else self.active
        size = self.theta.abs().amax(1).clamp(min=1)
        self.open = self.open & (best - self._solution()[:, 0] > EXACT * size) & ~(same & self.active).any(1)
        if not self.open.any():
            return False
        self._enter(rows)
        while True:
            q = self._solution()[:, 1:]
            over = (self.open[:, None] & (q < 0)).any(1)
            step = torch.where(over[:, None], q - self.p, 0)
            if not over.any():
                self.p = torch.where(self.open[:, None], q, self.p)
                return True
            self._leave(over, step)

    def _solution(self) -> Tensor:
        """Return τ and p of the system, (B, 1 + K)."""
        return self.M[:, :, 0] + torch.einsum("bij,bj->bi", self.M[:, :, 1:], self.theta)

    def _enter(self, rows: Tensor) -> None:
        if (self.active.all(1) & self.open).any():
            pad = torch.nn.functional.pad
            self.p, self.theta, self.active = (pad(x, (0, 1)) for x in (self.p, self.theta, self.active))
            self.M, self.rows = pad(self.M, (0, 1, 0, 1)), torch.cat([self.rows, rows[None]])
        new = self.open.nonzero()[:, 0]
        slot = self.active.long().argmin(1)[new]
        self.rows[slot, new] = rows[new]
        self.theta[new, slot] = self.functions.total_score(self.scores, rows, self.lengths)[new]
        products = self._products(rows)
        single = products[new, slot]
        b = torch.nn.functional.pad(torch.where(self.active, products, 0), (1, 0), value=1)[new]
        direction, curvature = self._direction(new, slot, b, single)
        flat = torch.zeros_like(self.open)
        flat[new] = curvature <= FLAT * single
        if flat.any():
            step = torch.zeros_like(self.p)
            step[new] = direction[:, 1:]
            self._leave(flat, torch.where(flat[:, None], step, 0))
            b[:, 1:] = torch.where(self.active[new], b[:, 1:], 0)
            direction, curvature = self._direction(new, slot, b, single)
        self.M[new] += direction[:, :, None] * direction[:, None] / curvature[:, None, None]
        self.active[new, slot] = True

    def _direction(self, new: Tensor, slot: Tensor, b: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
        """Return how τ and p change with the p of the new structures, and the curvature of the program along it."""
        change = -torch.einsum("bij,bj->bi", self.M[new], b)
        curvature = single + (b * change).sum(1)
        change[torch.arange(len(new), device=new.device), slot + 1] = 1
        return change, curvature

    def _leave(self, which: Tensor, step: Tensor) -> None:
        """Go along `step` (B, K) in some sentences, as far as p ≥ 0, and let the structure that limits it leave."""
        ratio = torch.where(self.active & (step < 0), self.p / -step, torch.inf)
        far, slot = ratio.min(1)
        self.p = self.p + torch.where(which, far, 0)[:, None] * step
        some, slot = which.nonzero()[:, 0], slot[which]
        self.p[some, slot], self.active[some, slot] = 0, False
        column = self.M[some, :, slot + 1]
        pivot = column[torch.arange(len(some), device=some.device), slot + 1]
        self.M[some] -= column[:, :, None] * column[:, None] / pivot[:, None, None]
        self.M[some, slot + 1], self.M[some, :, slot + 1] = 0, 0

    def _products(self, rows: Tensor) -> Tensor:
        """Return ⟨u of structures (B, ...), u of each slot⟩, (B, K)."""
        seen = range(self.functions.event_scores)
        one = torch.ones(1, len(rows), dtype=self.p.dtype, device=rows.device)
        u = _parts(self.functions, self.scores, self.lengths, one, rows[None], seen)
        rest = (torch.zeros_like(s) for s in self.scores[self.functions.event_scores :])
        found = self.functions.total_score((*u, *rest), self.rows, self.lengths)
        return found.masked_fill(found == -torch.inf, 0).T
