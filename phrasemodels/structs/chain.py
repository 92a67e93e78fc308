"""Linear-chain CRF (Lafferty et al. 2001): tags z have the score Σ_t unary[t, z_t] + Σ_t pairwise[z_t, z_t+1].

Shapes: B sequences, T positions, C tags. Arguments of every function:
    unary     (B, T, C) scores of tags
    pairwise  (C, C) scores of transitions [from, to], the same at all positions, or (B, T-1, C, C)
    lengths   (B,) integers in 0..T, a tensor or a list, or a mask (B, T); None: all are T

A score of -inf forbids a tag or a transition. If a score of a sequence is NaN or +inf, its log Z, marginals and gradients are NaN,
and its tags are undefined. Scores in the padding are not read. Add the scores of a start or an end to the first or last unary
scores, or take `crf.CRF`. An empty sequence has one structure, the empty one: log Z, entropy and score are 0; if all are forbidden,
log Z and scores are -inf and tags -1. Time is O(B·T·C²), and so is the memory of the torch path. ValueError: wrong shapes or lengths.

`HigherOrder(m)` has the functions over tags whose transitions depend on the m tags before: transitions (C, ..., C) with m + 1
dimensions [oldest, ..., newest], or (B, T-m, C, ..., C) by the position of the oldest, in place of pairwise; time is O(B·T·Cᵐ⁺¹).
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs import dispatch
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.kernels.chain import BestTags, NarrowChain
from phrasemodels.structs.kernels.engine import FIRST, NONE, add_node, add_run
from phrasemodels.structs.kernels.gpu import ChainPrograms
from phrasemodels.structs.kernels.simd import COMPILE
from phrasemodels.structs.semiring import Log, logsumexp
from phrasemodels.structs.structure import ENGINE, Integers, ScoreLayout, Scores, Structure, TableSizes


@njit(**COMPILE)
def _rule(T: Any, C: Any, order: Any, unary: Any, pairwise: Any, step: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Node 1 + (t · C^m) + state: the beginnings that end at t with the last m tags, or all if there are fewer."""
    v = r = 0
    most = C**order
    for t in range(T):
        states = C ** min(t + 1, order)
        for state in range(states):
            v = add_node(nodes, v, 1 + t * most + state, unary + t * C + state % C, r)
            before = 1 + (t - 1) * most
            if t == 0:
                r = add_run(runs, r, 0, 0, 0, 0, NONE, 0, 1)
            elif t < order:
                r = add_run(runs, r, before + state // C, 0, 0, 0, NONE, 0, 1)
            else:  # over the oldest of m + 1 tags
                r = add_run(
                    runs, r, before + state // C, most // C, 0, 0, pairwise + (t - order) * step + state, most, C
                )
        ends[t + 1] = v
    nodes[v, FIRST] = r
    return v


class HigherOrder(Structure):
    """The functions over sequences of tags whose transitions depend on the `order` tags before."""

    rule, names, event_scores, event_dims = _rule, ("unary", "pairwise"), 1, 1

    def __init__(self, order: int):
        if order < 1:
            raise ValueError(f"order={order}: must be at least 1")
        self.order = order
        self.dims, self.shared_dims = (3, order + 3), (0, order + 1)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.order == other.order

    def __hash__(self) -> int:
        return hash((type(self), self.order))

    def __repr__(self) -> str:
        return f"{super().__repr__()}({self.order})"

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        if len(scores) != 2 or scores[0].dim() != 3 or scores[0].shape[2] < 1:
            given = " and ".join(str(tuple(s.shape)) for s in scores)
            raise ValueError(f"unary must be (B, T, C) with at least one tag, then pairwise, not {given}")
        (B, T, C), pairwise = scores[0].shape, scores[1]
        transitions = (C,) * (self.order + 1)
        each = (B, max(T - self.order, 0), *transitions)
        if pairwise.shape not in (transitions, each):
            raise ValueError(f"pairwise must be {transitions} or {each}, not {tuple(pairwise.shape)}")
        return dispatch.check_lengths(lengths, B, T, scores[0].device)

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        _, T, C = numbered.shapes[0]
        states = C**self.order
        step = C ** (self.order + 1) if numbered.by_position[1] else 0
        return TableSizes(
            (T, C, self.order, *numbered.offsets, step), 1 + T * states, T * states, T * states, T, T, T + 1
        )

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        _, C, order = sizes.arguments[:3]
        n, goals = lengths[:, 0], np.zeros((len(lengths), 7), np.int64)
        goals[:, 0] = np.where(n > 0, 1 + (n - 1) * C**order, 0)
        goals[:, 1], goals[:, 4], goals[:, 6] = n > 0, NONE, np.where(n > 0, C ** np.minimum(n, order), 1)
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        inside = torch.arange(scores[0].shape[1], device=lengths.device) < lengths
        every = torch.ones((), dtype=torch.bool, device=lengths.device)
        pairs = inside[:, self.order :][(..., *(None for _ in range(self.order + 1)))]
        return inside[..., None], pairs if scores[1].dim() == self.dims[1] else every

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        C, T = scores[0].shape[2], scores[0].shape[1]
        tags = parts.new_full((*parts.shape[:2], T + 1), NONE)  # the first takes what is none
        return tags.scatter(2, parts // C + 1, parts % C)[..., 1:]

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(rows.shape[-1], device=rows.device) < lengths
        return ((rows >= 0) & (rows < scores[0].shape[2]) | ~inside).all(-1)

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        inside = torch.arange(rows.shape[-1], device=rows.device) < lengths
        tags = torch.where(inside, rows, NONE)  # what is in the padding may be any number
        return score_tags(scores[0], scores[1], tags, self.order).masked_fill((inside & (tags < 0)).any(-1), -torch.inf)

    def _minimum_risk(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tags with most expected right tags, each by its own marginal."""
        p, tags = self._expected_parts(scores, lengths, (0,))[0].max(-1)
        expected = p.sum(1)
        impossible = (expected == 0) & (lengths[:, 0] > 0)
        outside = (torch.arange(tags.shape[1], device=tags.device) >= lengths) | impossible[:, None]
        return expected.masked_fill(impossible, -torch.inf), tags.masked_fill(outside, NONE)


class LinearChains(HigherOrder):
    """The functions over sequences of tags with transitions between neighbours."""

    kernels = NarrowChain(), BestTags(), ChainPrograms(), ENGINE

    def __init__(self) -> None:
        super().__init__(1)

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """α_t(d) = unary_t(d) ⊗ ⊕_c α_t-1(c) ⊗ pairwise_t-1(c, d)."""
        # scores in the padding are replaced, not multiplied by 0: they may be NaN
        unary, pairwise = (
            semiring.lift(torch.where(m, s, 0)) for m, s in zip(self.valid(scores, lengths), scores, strict=True)
        )
        if unary.shape[2] == 0:
            return unary.sum((2, 3))  # one structure, the empty one
        alpha = unary[:, :, 0]
        for t in range(1, unary.shape[2]):
            step = semiring.sum(alpha[..., None] + pairwise[:, :, t - 1], -2) + unary[:, :, t]
            alpha = torch.where((t < lengths)[None], step, alpha)
        total = semiring.sum(alpha, -1)
        return torch.where(lengths[:, 0] == 0, semiring.one_like(total), total)

    @dispatch.not_traced
    def marginals(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Any:
        """Return p(z_t = c), (B, T, C); 0 in the padding."""
        return self._call(self._marginals_of_tags, self._given(scores, named), lengths)

    @dispatch.not_traced
    def pair_marginals(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Tensor:
        """Return p(z_t = c, z_t+1 = d), (B, T-1, C, C); 0 in the padding."""
        found: Tensor = self._call(self._pair_marginals, self._given(scores, named), lengths)
        return found

    @dispatch.not_traced
    def gumbel_sample(self, unary: Tensor, pairwise: Tensor, k: int, temperature: float | Tensor, lengths: Lengths = None,
                      hard: bool = False, generator: torch.Generator | None = None) -> Tensor:  # fmt: skip
        """Return k relaxed samples (k, B, T, C), differentiable, by the Gumbel-CRF (Fu et al. 2020); 0 in the padding.

        From the last position on, an exact sample of tags is drawn by Gumbel-max, each given the next; in its place stands the softmax
        of log p(tag | next tag) + Gumbel noise, divided by the temperature. hard: the exact sample itself, as 0 and 1, with the
        gradient of the relaxed one (straight-through).
        """
        if not temperature > 0:
            raise ValueError(f"temperature={temperature}: must be above 0")
        options: dict[str, Any] = {"temperature": temperature, "hard": hard, "generator": generator}
        found: Tensor = self._call(self._gumbel_sample, (unary, pairwise), lengths, k, ranked=True, **options)
        return found

    def _marginals_of_tags(self, scores: Scores, lengths: Tensor) -> Tensor:
        return self._expected_parts(scores, lengths, (0,))[0]

    def _pair_marginals(self, scores: Scores, lengths: Tensor) -> Tensor:
        unary, pairwise = scores
        return self._expected_parts(self._expanded((unary, pairwise)), lengths, (1,))[0]

    def _gumbel_sample(self, scores: Scores, lengths: Tensor, k: int, temperature: float | Tensor, hard: bool,
                       generator: torch.Generator | None) -> Tensor:  # fmt: skip
        unary, pairwise = (torch.where(mask, s, 0) for mask, s in zip(self.valid(scores, lengths), scores, strict=True))
        (B, T, C), device = unary.shape, unary.device
        at, sentence = torch.arange(T, device=device), torch.arange(B, device=device)
        # −log of an exponential variable is a Gumbel variable
        noise = -torch.empty(k, B, T, C, dtype=unary.dtype, device=device).exponential_(generator=generator).log()
        alpha = [unary[:, 0]] if T else []  # log weights of the beginnings, up to a constant
        for t in range(1, T):
            step = pairwise if pairwise.dim() == 2 else pairwise[:, t - 1]
            alpha.append(logsumexp(_centred(alpha[-1])[..., None] + step, 1) + unary[:, t])
        filtered, inside, last = torch.stack(alpha or [unary], 1).view_as(unary), at < lengths, at >= lengths - 1
        following = lengths.new_zeros(k, B, T)
        # the exact sample has no gradient; the relaxed one below is computed from it, all positions at once
        with torch.no_grad():
            for t in range(T - 1, 0, -1):
                given = _columns(pairwise, sentence, min(t, T - 2), following[:, :, t]).masked_fill(last[:, t, None], 0)
                following[:, :, t - 1] = (filtered[:, t] + given + noise[:, :, t]).argmax(-1)
        given = _columns(pairwise, sentence[:, None], at[:-1], following[..., :-1])
        given = torch.nn.functional.pad(given, (0, 0, 0, 1))[:, :, :T].masked_fill(last[..., None], 0)
        logits = filtered + given + noise
        none = ~inside[..., None] | (logits == -torch.inf).all(-1, keepdim=True)
        relaxed = (logits.masked_fill(none, 0) / temperature).softmax(-1)
        if hard:
            one = torch.nn.functional.one_hot(logits.argmax(-1), C)
            relaxed = one + (relaxed - relaxed.detach())
        return relaxed.masked_fill(none, 0)

    def _expanded(self, scores: Scores) -> Scores:
        unary, pairwise = scores
        (B, T, C), each = unary.shape, pairwise if pairwise.dim() != 3 else pairwise[:, None]
        return unary, each.expand(B, max(T - 1, 0), C, C)


linear_chain = LinearChains()


log_partition, marginals, pair_marginals, entropy = (
    linear_chain.log_partition,
    linear_chain.marginals,
    linear_chain.pair_marginals,
    linear_chain.entropy,
)
argmax, topk, sample, minimum_risk = (
    linear_chain.argmax,
    linear_chain.topk,
    linear_chain.sample,
    linear_chain.minimum_risk,
)
gumbel_sample, total = linear_chain.gumbel_sample, linear_chain.total


def _centred(x: Tensor) -> Tensor:
    """Return log weights (B, C) minus the largest of each row, so that they keep their digits over long sequences."""
    top = x.detach().amax(1, keepdim=True)
    return x - top.masked_fill(top == -torch.inf, 0)


def _columns(pairwise: Tensor, sentence: Tensor, at: Any, to: Tensor) -> Tensor:
    """Return the scores (..., C) of the transitions at positions `at` to the tags `to`."""
    return pairwise.T[to] if pairwise.dim() == 2 else pairwise.mT[sentence, at, to]


def score_tags(unary: Tensor, pairwise: Tensor, tags: Tensor, order: int = 1) -> Tensor:
    """Return the sum of the scores of tags (..., B, T), (..., B); a tag of -1 adds nothing. order: of `HigherOrder`."""
    B, T, _ = unary.shape
    known = tags.clamp(min=0)
    sequence = torch.arange(B, device=unary.device)[:, None]
    at = torch.arange(T, device=unary.device)
    single = torch.where(tags >= 0, unary[sequence, at, known], 0).sum(-1)
    steps = max(T - order, 0)
    each = tuple(known[..., i : i + steps] for i in range(order + 1))
    chosen = pairwise[each] if pairwise.dim() == order + 1 else pairwise[(sequence, at[:steps], *each)]
    return single + torch.where(tags[..., order:] >= 0, chosen, 0).sum(-1)


dispatch.register("chain", linear_chain.first_calls(), (1, 2, 4), (4, 4))
dispatch.register("chain", linear_chain.first_calls(), (1, 2, 4), (1, 1, 4, 4))
