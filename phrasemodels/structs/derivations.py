"""Structures that are the derivations of a graph: log Z, marginals, the k best, samples, entropy and minimum risk.

Kernels do the work for CPU scores (`kernels.derivations`); elsewhere the inside pass below, which takes any semiring.
Shapes: B sentences, P scores and one more that is -inf, E edges, A axes of length, R the most rows of a structure, w integers
in a row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phrasemodels.structs import inference, kernels
from phrasemodels.structs.calls import registers_kernels, with_kernel_fallback
from phrasemodels.structs.graphs import NONE, Edges, Graph
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.kernels import derivation_lists, derivations
from phrasemodels.structs.semiring import Log


class Problem:
    """A graph, the scores (B, P) of its edges and lengths (B, A), with every operation that needs no more.

    Scores shorter than float32 are computed in float32. Results have the type of the scores.
    """

    def __init__(self, graph: Graph, scores: Sequence[Tensor], lengths: Tensor):
        self.graph, self.lengths = graph, lengths
        self.shapes, self.dtype = [s.shape for s in scores], scores[0].dtype
        never = scores[0].new_full((len(scores[0]), 1), -torch.inf)
        flat = torch.cat([*(s.flatten(1) for s in scores), never], 1)
        self.scores = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat

    def log_partition(self) -> Tensor:
        """Return log Z, (B,)."""
        return self._both(False)[0].to(self.dtype)

    def marginals(self) -> tuple[Tensor, ...]:
        """Return the expected number of times that each score is in a structure, in the shape of each score tensor."""
        return self.apart(self._both(True)[1].to(self.dtype))

    def entropy(self) -> Tensor:
        """Return −Σ p log p over all derivations, in nats, (B,), as log Z − E[score] in float64."""
        exact = Problem(self.graph, [self.scores[:, :-1].double()], self.lengths)
        log_z, p = exact._both(True)
        expected = torch.where(p > 0, p * torch.where(p > 0, exact.scores, 0), p).sum(1)
        none = log_z == -torch.inf
        return torch.where(none, 0, log_z.masked_fill(none, 0) - expected).to(self.dtype)

    def _both(self, wanted: bool) -> tuple[Tensor, Tensor]:
        """Return log Z (B,) and the marginals (B, P) of scores, which are empty unless `wanted`."""
        if kernels.usable(None, self.scores):
            return _Passes.apply(self, self.scores, wanted)
        log_z = inference.log_partition(self.inside, self.scores)
        return log_z, inference.marginals(self.inside, self.scores)[0] if wanted else log_z.new_zeros(0, 0)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the scores (k, B), differentiable, and rows (k, B, R, w), -1 after the last, of the k best, best first."""
        best, edges = kernels.on_cpu(_topk, self.scores, self.lengths, self.graph, k)
        best, edges = best.to(self.scores), edges.to(self.scores.device)
        scored = kernels.with_gradient(best, lambda scores: self.score_edges(scores, edges), self.scores)
        return scored.to(self.dtype), self.rows(edges)

    def sample(self, k: int, generator: torch.Generator | None) -> Tensor:
        """Return the rows (k, B, R, w) of k independent samples."""
        shape = (k, len(self.scores), self.graph.most_edges)
        draws = torch.rand(shape, generator=generator, dtype=torch.float64, device=self.scores.device)
        edges = kernels.on_cpu(_sample, self.scores, self.lengths, draws, self.graph)
        return self.rows(edges.to(self.scores.device))

    def minimum_risk(self) -> tuple[Tensor, Tensor]:
        """Return the expected number (B,) of rows that are right, differentiable, and the rows (B, R, w) of the structure with
        most of them.

        Each row of an edge counts by its probability (Goodman 1996).
        """
        edges = len(self.graph.edges.left)
        graph = replace(self.graph, edges=self.graph.edges._replace(part=np.arange(edges, dtype=np.int32)))
        part = torch.as_tensor(self.graph.edges.part, device=self.scores.device).long()
        own = torch.where(part >= 0, self.scores[:, part.clamp(min=0)], 0)
        (p,) = Problem(graph, (own,), self.lengths).marginals()
        order = np.where((self.graph.rows >= 0).any(1), self.graph.order, -1)
        _, place = np.unique(order, return_inverse=True)
        at = torch.as_tensor(place, device=p.device).expand(p.shape)
        each = torch.zeros_like(p).scatter_add_(1, at, p).gather(1, at)
        counted = torch.as_tensor(order >= 0, device=p.device)
        allowed = torch.where(own == -torch.inf, own, torch.where(counted, each, 0))
        best, rows = Problem(graph, (allowed,), self.lengths).topk(1)
        return best[0], rows[0]

    def score(self, rows: Tensor) -> Tensor:
        """Return the scores (..., B) of structures given as rows (..., B, R, w), by an inside pass over their own edges.

        It is log Σ exp over the derivations whose rows are among them.
        """
        batch, B = rows.shape[:-3], len(self.scores)
        flat = rows.reshape(-1, *rows.shape[-2:])  # (copies · B, R, w)
        copies = len(flat) // max(B, 1)
        own = torch.as_tensor(self.graph.rows, device=rows.device)
        sizes = torch.as_tensor(self.graph.rows.max(0) + 2, device=rows.device)
        steps = sizes.flip(0).cumprod(0).flip(0) // sizes
        allowed = torch.zeros(len(flat), int(sizes.prod()), dtype=torch.bool, device=rows.device)
        allowed.scatter_(1, ((flat + 1) * steps).sum(-1), True)
        allowed[:, 0] = True  # edges without a row
        given = allowed[:, ((own + 1) * steps).sum(-1)]
        many = Problem(self.graph, [self.scores[:, :-1].repeat(copies, 1)], self.lengths.repeat(copies, 1))
        total = inference.log_partition(lambda semiring, scores: many.inside(semiring, scores, given), many.scores)
        return total.view(*batch, B).to(self.dtype)

    def rows(self, edges: Tensor) -> Tensor:
        """Return the rows (k, B, R, w) of derivations given as edges (k, B, ·), in order; -1 after the last."""
        order = torch.as_tensor(np.append(np.where((self.graph.rows >= 0).any(1), self.graph.order, _LAST), _LAST))
        rows = torch.as_tensor(np.append(self.graph.rows, np.full((1, self.graph.rows.shape[1]), NONE), 0))
        order, rows = order.to(edges.device), rows.to(edges.device)
        place = order[edges].argsort(stable=True, dim=-1)[..., : self.graph.most_rows]
        chosen = edges.gather(-1, place)
        found = rows[torch.where(order[chosen] < _LAST, chosen, -1)]
        missing = self.graph.most_rows - found.shape[-2]
        return torch.nn.functional.pad(found, (0, 0, 0, missing), value=NONE)

    def score_edges(self, scores: Tensor, edges: Tensor) -> Tensor:
        """Return the sums (k, B) of the scores (B, P) of edges (k, B, ·), -1 for none."""
        part = torch.as_tensor(np.append(self.graph.edges.part, NONE), device=edges.device).long()[edges]
        taken = scores.expand(len(edges), *scores.shape).gather(-1, part.clamp(min=0))
        return torch.where((part >= 0) & self.exists()[torch.arange(len(scores))[:, None], edges], taken, 0).sum(-1)

    def exists(self) -> Tensor:
        """Return whether each edge is one of each sentence, (B, E); others have the score 0."""
        size = torch.as_tensor(self.graph.edges.size, device=self.lengths.device)
        return (size <= self.lengths[:, None]).all(-1)

    def goals(self) -> Tensor:
        """Return the node of the whole structure of each sentence, (B,)."""
        nodes = torch.as_tensor(self.graph.goals, device=self.lengths.device).long()
        return nodes[tuple(self.lengths.unbind(-1))]

    def apart(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Return (B, P) as tensors of the shapes of the scores."""
        sizes = [s[1:].numel() for s in self.shapes]
        return tuple(x.reshape(s) for x, s in zip(flat[:, :-1].split(sizes, 1), self.shapes, strict=True))

    def inside(self, semiring: Log, scores: Tensor, given: Tensor | None = None) -> Tensor:
        """The inside pass, one step for all nodes of the same depth; given (B, E): edges that are not forbidden."""
        device = scores.device
        part = torch.as_tensor(self.graph.edges.part, device=device).long()
        scored = self.exists() & (part >= 0)
        lifted = semiring.lift(torch.where(scored, scores[:, part.clamp(min=0)], 0))
        lifted = torch.where(scored, lifted, semiring.one_like(lifted))
        if given is not None:
            lifted = torch.where(given, lifted, semiring.zero_like(lifted))
        lifted = torch.cat([lifted, semiring.zero_like(lifted[..., :1])], -1)
        nodes = semiring.one_like(lifted[..., :1])
        for left, right, edge in self.graph.levels:
            at = [torch.as_tensor(x, device=device) for x in (left, right, edge)]
            terms = nodes[..., at[0]] + nodes[..., at[1]] + lifted[..., at[2]]
            nodes = torch.cat([nodes, semiring.sum(terms, -1)], -1)
        places = torch.as_tensor(self.graph.places, device=device)[self.goals()]
        return nodes[:, torch.arange(len(scores), device=device), places]


_LAST = np.iinfo(np.int64).max


def _topk(scores: Tensor, lengths: Tensor, graph: Graph, k: int) -> tuple[Tensor, Tensor]:
    goals = graph.goals[tuple(lengths.numpy().T)].astype(np.int64)
    found = derivation_lists.topk(
        graph.edges, kernels.numbers(scores.double()), lengths.numpy(), goals, k, graph.most_edges
    )
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def _sample(scores: Tensor, lengths: Tensor, draws: Tensor, graph: Graph) -> Tensor:
    goals = graph.goals[tuple(lengths.numpy().T)].astype(np.int64)
    found = derivation_lists.sample(
        graph.edges, kernels.numbers(scores.double()), lengths.numpy(), goals, draws.numpy()
    )
    return torch.from_numpy(found)


class _Passes(torch.autograd.Function):
    """(problem, scores (B, P), whether marginals are wanted) → log Z (B,), marginals (B, P)."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, scores: Tensor, wanted: bool) -> tuple[Tensor, Tensor]:
        ctx.problem, ctx.wanted = problem, wanted
        ctx.save_for_backward(scores)
        ctx.set_materialize_grads(False)
        log_z, ctx.marginals = _run(problem, scores, wanted or ctx.needs_input_grad[1])
        return log_z, ctx.marginals if wanted else scores.new_zeros(0, 0)

    @staticmethod
    def backward(ctx: Any, to_log_z: Tensor | None, to_marginals: Tensor | None) -> tuple[None, Tensor | None, None]:
        (scores,), problem = ctx.saved_tensors, ctx.problem
        if torch.is_grad_enabled():
            return None, _again(problem, scores, to_log_z, to_marginals), None
        total = torch.zeros_like(scores)
        if to_log_z is not None:
            total = ctx.marginals * to_log_z[:, None]
        if to_marginals is not None and ctx.wanted:
            total = total + _run(problem, scores, True, to_marginals)[1]
        return None, total, None


def _again(problem: Problem, scores: Tensor, to_log_z: Tensor | None, to_marginals: Tensor | None) -> Tensor | None:
    """Return the gradient by the reference, which can be differentiated again."""

    def reference(x: Tensor) -> Tensor:
        log_z = inference.log_partition(problem.inside, x)
        if to_marginals is None:
            return log_z[:, None]
        return torch.cat([log_z[:, None], inference.marginals(problem.inside, x)[0]], 1)

    first = torch.zeros_like(scores[:, :1]) if to_log_z is None else to_log_z[:, None]
    grad = first if to_marginals is None else torch.cat([first, to_marginals], 1)
    return kernels.reference_vjp(reference, [scores], grad)[0]


def _run(problem: Problem, scores: Tensor, wanted: bool, grad: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return log Z and the marginals, or with `grad` to them the gradient to the scores; NaN where a score is NaN or +inf."""
    graph, lengths = problem.graph, problem.lengths.numpy()
    goals = graph.goals[tuple(lengths.T)].astype(np.int64)
    log_z, out, unknown = derivations.passes(
        graph.edges, kernels.numbers(scores.double()), lengths, goals, wanted, None if grad is None else grad.double()
    )
    if unknown.any():
        log_z[unknown] = np.nan
        if wanted:
            read = np.zeros(out.shape, bool)
            there = problem.exists().numpy() & (graph.edges.part >= 0)
            for b in np.flatnonzero(unknown):
                read[b, graph.edges.part[there[b]]] = True
            out[read] = np.nan
    return torch.from_numpy(log_z).to(scores.dtype), torch.from_numpy(out).to(scores.dtype)


class Derivations:
    """The functions over structures that are derivations of a graph; `problem` says of which one.

    Arguments are those of `problem`; structures are rows (B, R, w), -1 after the last.
    """

    def problem(self, *scores: Tensor, lengths: Lengths = None) -> Problem:
        """Return the graph for the shapes of the scores, with scores (B, ...) and lengths. ValueError: wrong shapes or lengths."""
        raise NotImplementedError

    @with_kernel_fallback
    def log_partition(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        """Return log Z, (B,)."""
        return self.problem(*scores, lengths=lengths).log_partition()

    @with_kernel_fallback
    def marginals(self, *scores: Tensor, lengths: Lengths = None) -> tuple[Tensor, ...]:
        """Return the expected number of times that each score is in a structure, in the shape of each score tensor."""
        return self.problem(*scores, lengths=lengths).marginals()

    @with_kernel_fallback
    def argmax(self, *scores: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the score (B,), differentiable, and the rows (B, R, w) of a best structure."""
        best, rows = self.topk(*scores, k=1, lengths=lengths)
        return best[0], rows[0]

    @with_kernel_fallback
    def topk(self, *scores: Tensor, k: int, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the scores (k, B), differentiable, and the rows (k, B, R, w) of the k best structures, best first.

        Where there are fewer that are not forbidden, the other scores are -inf and their rows -1. Scores on a GPU are copied
        to the CPU.
        """
        return self.problem(*scores, lengths=lengths).topk(k)

    @with_kernel_fallback
    def sample(
        self, *scores: Tensor, k: int, lengths: Lengths = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the rows (k, B, R, w) of k independent samples. Scores on a GPU are copied to the CPU."""
        return self.problem(*scores, lengths=lengths).sample(k, generator)

    @with_kernel_fallback
    def entropy(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        """Return −Σ p log p over all structures, in nats, (B,)."""
        return self.problem(*scores, lengths=lengths).entropy()

    @with_kernel_fallback
    def minimum_risk(self, *scores: Tensor, lengths: Lengths = None) -> tuple[Tensor, Tensor]:
        """Return the expected number (B,) of rows that are right, and the rows (B, R, w) of the structure with most of them."""
        return self.problem(*scores, lengths=lengths).minimum_risk()

    def total(self, semiring: Log, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        """Return ⊕ over all structures of the products ⊗ of their scores in any semiring, lowered."""
        problem = self.problem(*scores, lengths=lengths)
        return semiring.lower(problem.inside(semiring, problem.scores))

    @with_kernel_fallback
    def score(self, *scores: Tensor, rows: Tensor, lengths: Lengths = None) -> Tensor:
        """Return the scores (..., B), differentiable, of structures given as rows (..., B, R, w)."""
        return self.problem(*scores, lengths=lengths).score(rows)


@registers_kernels
def _first_calls(dtype: torch.dtype) -> Mapping[str, Callable[[], Any]]:
    one = Graph.of([Edges(head=0, part=0, size=1, row=(0,))], [NONE, 0], 1, 1, 1, (1,))
    problem = Problem(one, [torch.zeros(1, 1, dtype=dtype).requires_grad_()], torch.ones(1, 1, dtype=torch.long))
    return {
        "marginals": problem.marginals,
        "topk": partial(problem.topk, 1),
        "sample": partial(problem.sample, 1, None),
    }
