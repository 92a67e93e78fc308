"""Structures as `torch.distributions.Distribution`s: log_prob, sample, entropy, mode, kl_divergence, and what they derive.

The batch shape is (B,), or any other that the scores begin with. An event is what `argmax` of the functions returns: the tags (T,) of
a sequence, the heads (n+1,) of a tree with the root at 0, or the rows (R, w) of a segmentation, an alignment or a parse; -1 in the
padding, and at the root.
Three rules hold for all of them:
    an empty sentence has one structure, which is -1 everywhere, with the log probability 0
    a sentence whose structures are all forbidden has the mode and samples -1 everywhere, and log Z = -inf
    a value that is no structure of its sentence has the score and the log probability -inf: one that leaves a word out, as the rows
    of `topk` where there are fewer than k structures, heads with a cycle, arcs that cross where they may not, a label or a word that
    does not exist. What stands in the padding is not looked at
Scores shorter than float32 are computed in float32, of several types in the type that torch promotes them to; results have that
type, in one rounding at the end, but log Z stays float32.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints, register_kl

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, pcfg, spans
from phrasemodels.structs.dispatch import FORBIDS, Lengths, at_least_float32, common_type, forbidding
from phrasemodels.structs.eisner import Projective
from phrasemodels.structs.nonprojective import NonProjective
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.structs.semiring import in_float64


class Structured(Distribution):
    """A distribution over structures by functions as `chain` has them, with their scores and lengths."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.dependent
    has_enumerate_support = True
    _dtype: torch.dtype | None = None

    def __init__(self, functions: Any, scores: tuple[Tensor, ...], lengths: Lengths):
        self.functions = functions
        self.scores, self.lengths = scores, lengths
        batch = scores[0].shape[: max(scores[0].dim() - functions.dims[0] + 1, 0)]
        super().__init__(batch, self.event(), validate_args=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy or pickle, with functions that all distributions share by their name."""
        names = {id(known): name for name, known in _shared().items()}
        return self.__dict__ | {"functions": names.get(id(self.functions), self.functions)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        functions = state["functions"]
        self.__dict__.update(state, functions=_shared()[functions] if isinstance(functions, str) else functions)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.functions!r}, batch {tuple(self.batch_shape)}, event {tuple(self.event_shape)})"

    def event(self) -> Size:
        """Return the event shape: tags of positions or heads of positions, unless a class says otherwise."""
        return self._sizes()[:1]

    def _sizes(self) -> Size:
        """Return the shape of the first scores of one structure."""
        return self.scores[0].shape[1 - self.functions.dims[0] :]

    def expand(self, batch_shape: Size | list[int] | tuple[int, ...], _instance: Any = None) -> "Structured":
        """Return the distribution with batch dimensions that its own broadcast to, in the same memory."""
        shape, own = Size(batch_shape), len(self.batch_shape)
        other = self._like(
            tuple(
                s if common and s.dim() == common else s.expand(*shape, *s.shape[own:])
                for s, common in zip(self.scores, self.functions.shared_dims, strict=False)
            )
        )
        if self.lengths is not None:
            lengths = torch.as_tensor(self.lengths)
            other.lengths = lengths.expand(*shape, *lengths.shape[own:])
        other._batch_shape, other._dtype = shape, self._dtype
        return other

    @property
    def dtype(self) -> torch.dtype:
        """The type of results: the one that torch promotes the scores to."""
        return self._dtype or common_type({s.dtype for s in self.scores})

    @property
    def log_partition(self) -> Tensor:
        """log Z, (B,), at least float32."""
        found = self.functions.log_partition(*self.scores, lengths=self.lengths)
        return found.to(at_least_float32(self.dtype))

    @property
    def marginals(self) -> Any:
        """Probabilities of tags (B, T, C), of arcs (B, n+1, n+1), or of all scores, as the functions return them."""
        p = self.functions.marginals(*self.scores, lengths=self.lengths)
        return tuple(x.to(self.dtype) for x in p) if isinstance(p, tuple) else p.to(self.dtype)

    @property
    def mode(self) -> Tensor:
        """A best structure, (B, event)."""
        return self.functions.argmax(*self.scores, lengths=self.lengths)[1]

    @property
    def minimum_risk(self) -> Tensor:
        """The structure (B, event) with the largest expected number of right parts."""
        return self.functions.minimum_risk(*self.scores, lengths=self.lengths)[1]

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the log probabilities (k, B) and the k best structures (k, B, event)."""
        exact = self._promoted()
        scores, best = self.functions.topk(*exact.scores, k=k, lengths=self.lengths)
        return log_probability(scores, exact.log_partition).to(self.dtype), best

    def sample(self, sample_shape: Size | list[int] | tuple[int, ...] = ()) -> Tensor:
        """Return exact samples (*sample_shape, B, event), without gradient; they are Gumbel-max samples over structures."""
        shape = Size(sample_shape)
        with torch.no_grad():
            drawn = self.functions.sample(*self.scores, k=math.prod(shape), lengths=self.lengths)
        return drawn.view(*shape, *drawn.shape[1:])

    def perturbed(self) -> "Structured":
        """Return the distribution with a Gumbel number added to each score: its mode is a sample by perturb-and-MAP (Papandreou
        and Yuille 2011), which is not exact."""
        return self._like(tuple(s - torch.empty_like(s).exponential_().log() for s in self.scores))

    def relaxed_sample(self, temperature: float) -> tuple[Tensor, ...]:
        """Return the marginals of perturbed scores divided by the temperature, one tensor for each score tensor.

        They are differentiable, and near one structure at low temperatures (Corro and Titov 2019; Paulus et al. 2020).
        """
        noisy = self._promoted().perturbed()
        relaxed = self._like(tuple(s / temperature for s in noisy.scores)).parts()
        return tuple(p.to(self.dtype) for p in relaxed)

    def enumerate_support(self, expand: bool = True, most: int = 10_000) -> Tensor:
        """Return all structures that are not forbidden, (M, B, event), -1 where a sentence has fewer. ValueError: more than `most`."""
        free = tuple(
            torch.zeros_like(s, dtype=torch.float64).masked_fill(s.double() < FORBIDS, -torch.inf) for s in self.scores
        )
        counts = self.functions.log_partition(*free, lengths=self.lengths)
        if (counts > math.log(most + 0.5)).any():
            largest = counts.max().item()
            number = f"{math.exp(largest):.6g}" if largest < 30 else f"e^{largest:.0f}"
            raise ValueError(f"enumerate_support: {number} structures are more than {most}; use topk")
        count = max((round(n) for n in counts.exp().tolist()), default=1)
        return self.functions.topk(*free, k=max(count, 1), lengths=self.lengths)[1]

    def entropy(self) -> Tensor:
        """Return −Σ p log p, in nats, (B,)."""
        return self.functions.entropy(*self.scores, lengths=self.lengths).to(self.dtype)

    def cross_entropy(self, other: "Structured") -> Tensor:
        """Return −Σ p log q for another distribution q, in nats, (B,), computed in float64.

        It is inf where q forbids what p does not, and 0 where p has no structure, as the entropy is.

        NotImplementedError: it is over other structures, or of other lengths.
        """
        p, q = _comparable(self, other)
        return _cross_entropy(p.parts(), q).to(self.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probabilities (...) of structures (..., event), whose dimensions end with the batch's, or broadcast to it.

        ValueError: they have another number of positions.
        """
        exact = self._promoted()
        return log_probability(exact._score(value), exact.log_partition).to(self.dtype)

    def score(self, value: Tensor) -> Tensor:
        """Return the sums of the scores of structures, as `log_prob`."""
        return self._promoted()._score(value).to(self.dtype)

    def _score(self, value: Tensor) -> Tensor:
        batch, event = self.batch_shape, self.event_shape
        if len(event) == 1 and value.shape[-1:] != event:
            raise ValueError(f"structures must be (..., {(*batch, *event)}), not {tuple(value.shape)}")
        if len(event) <= value.dim() < len(batch) + len(event):
            value = value.expand(*batch, *value.shape[-len(event) :])
        return self.functions.score(*self.scores, rows=value, lengths=self.lengths)

    def _promoted(self) -> "Structured":
        """Return the distribution with all scores in one type, at least float32."""
        return self._like(tuple(s.to(at_least_float32(self.dtype)) for s in self.scores))

    def parts(self) -> tuple[Tensor, ...]:
        """Return the expected number of times that each score is in a structure, one tensor for each score tensor."""
        return tuple(p.to(self.dtype) for p in self.functions.expected_parts(*self.scores, lengths=self.lengths))

    def expected_score(self, scores: tuple[Tensor, ...]) -> Tensor:
        """Return the expectation under this distribution of the score (B,) by other scores of the same shapes."""
        return _expected(self.parts(), scores, len(self.batch_shape))

    def _like(self, scores: tuple[Tensor, ...]) -> "Structured":
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__, scores=scores, _dtype=None)
        return other


class LinearChain(Structured):
    """Tags by a linear-chain CRF: unary (B, T, C), pairwise (C, C) or (B, T-1, C, C), lengths (B,), as in `chain`."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Lengths = None):
        super().__init__(chain.linear_chain, (unary, pairwise), lengths)

    def gumbel_sample(self, temperature: float | Tensor, sample_shape: Size | list[int] | tuple[int, ...] = (),
                      hard: bool = False) -> Tensor:  # fmt: skip
        """Return relaxed samples (*sample_shape, B, T, C) of the Gumbel-CRF, differentiable; see `chain.gumbel_sample`."""
        shape = Size(sample_shape)
        unary, pairwise = self.scores
        drawn = chain.gumbel_sample(unary, pairwise, math.prod(shape), temperature, self.lengths, hard)
        return drawn.view(*shape, *drawn.shape[1:]).to(self.dtype)


class HiddenMarkov(LinearChain):
    """The posterior of the states of a hidden Markov model, given what is observed.

    initial (C,), transition (C, C) from → to and emission (C, V) are log probabilities; observed (B, T) integers, below 0 where
    nothing is known. The likelihood of the observations is exp of `log_partition`.
    """

    def __init__(
        self, initial: Tensor, transition: Tensor, emission: Tensor, observed: Tensor, lengths: Lengths = None
    ):
        given = common_type({initial.dtype, transition.dtype, emission.dtype})
        initial, transition, emission = (x.to(at_least_float32(given)) for x in (initial, transition, emission))
        unary = torch.where((observed >= 0)[..., None], emission.T[observed.clamp(min=0)], 0)
        first = (torch.arange(observed.shape[-1], device=observed.device) == 0)[:, None]
        super().__init__(torch.where(first, unary + initial, unary), transition, lengths)
        self._dtype = given  # the sums above are rounded once, at the end


class DependencyTree(Structured):
    """Dependency trees: arcs (B, n+1, n+1), lengths (B,), as in `eisner`; `trees` is `single_root` or `multi_root` of `eisner`
    or `nonprojective`, by default projective with one root arc."""

    def __init__(self, arcs: Tensor, lengths: Lengths = None, trees: Projective | NonProjective = eisner.single_root):
        super().__init__(trees, (arcs,), lengths)


class LabelledSpans(Structured):
    """Labelled binary trees: labels (B, n, n, L), lengths (B,), as in `spans`; events are cells (2n-1, 3)."""

    def __init__(self, labels: Tensor, lengths: Lengths = None):
        super().__init__(spans.labelled_spans, (labels,), lengths)

    def event(self) -> Size:
        return Size((max(2 * self._sizes()[0] - 1, 0), 3))


class JointTree(Structured):
    """Trees of labelled spans with heads: labels (B, n, n, L), arcs (B, n+1, n+1), lengths (B,), as in `joint`; events are rows of
    cells and arcs (3n-1, 5), as in `joint.joint_trees`."""

    def __init__(self, labels: Tensor, arcs: Tensor, lengths: Lengths = None):
        super().__init__(joint.joint_trees, (labels, arcs), lengths)

    def event(self) -> Size:
        return Size((max(3 * self._sizes()[0] - 1, 0), 5))


class SemiMarkovChain(Structured):
    """Segmentations: segments (B, T, K, C), pairwise (C, C) or (B, T-1, C, C), lengths (B,), as in `semimarkov`."""

    def __init__(self, segments: Tensor, pairwise: Tensor, lengths: Lengths = None):
        super().__init__(segmentations, (segments, pairwise), lengths)

    def event(self) -> Size:
        return Size((self._sizes()[0], 3))


class MonotoneAlignment(Structured):
    """Paths through a grid: cells (B, n, m), and steps (B, m, moves) or not, lengths (B, 2), as in `alignment`."""

    def __init__(self, *scores: Tensor, lengths: Lengths = None, moves: alignment.Alignment = alignment.warping):
        super().__init__(moves, scores, lengths)

    def event(self) -> Size:
        return Size((max(sum(self._sizes()) - 1, 0), 2))


class Parse(Structured):
    """The parses of sentences by a grammar: terms (B, n, P), rules (N, S, S), roots (N,), lengths (B,), as in `pcfg`."""

    def __init__(self, terms: Tensor, rules: Tensor, roots: Tensor, lengths: Lengths = None):
        super().__init__(pcfg.trees, (terms, rules, roots), lengths)

    def event(self) -> Size:
        return Size((max(2 * self._sizes()[0] - 1, 0), 3))


def _expected(parts: tuple[Tensor, ...], scores: tuple[Tensor, ...], batch: int) -> Tensor:
    """Return the expectation of the score (B,), given those of the parts."""
    return torch.stack([_expectation(p, s, batch) for p, s in zip(parts, scores, strict=True)]).sum(0)


def _cross_entropy(parts: tuple[Tensor, ...], q: Structured) -> Tensor:
    """Return `Structured.cross_entropy` (B,) of the distribution with these expected parts, which are 0 if it has no structure."""
    batch, log_z = len(q.batch_shape), q.log_partition
    value = log_z.masked_fill(log_z == -torch.inf, torch.inf) - _expected(parts, q.scores, batch)
    return value.masked_fill((parts[0] == 0).flatten(batch).all(batch), 0)


def _expectation(p: Tensor, scores: Tensor, batch: int) -> Tensor:
    """Return Σ p · scores for each index of the first `batch` dimensions; what has probability 0 adds 0, even if its score is
    -inf or NaN.
    """
    scores = scores.expand_as(p)
    return torch.where(p > 0, p * torch.where(p > 0, scores, 0), 0).flatten(batch).sum(batch)


@register_kl(Structured, Structured)
def _kl(p: Structured, q: Structured) -> Tensor:
    """Return Σ p log (p / q), (B,): the cross entropy minus that of p with itself, computed in float64.

    NotImplementedError: other structures, or other lengths.
    """
    dtype = p.dtype
    p, q = _comparable(p, q)
    parts = p.parts()
    return (_cross_entropy(parts, q) - _cross_entropy(parts, p)).to(dtype)


def _shared() -> dict[str, Any]:
    """Return the functions that all distributions of a kind share, by name."""
    several = {"eisner": eisner, "nonprojective": nonprojective}
    roots = {
        f"{name}.{root}": getattr(of, root) for name, of in several.items() for root in ("multi_root", "single_root")
    }
    paths = {f"alignment.{name}": of for name, of in vars(alignment).items() if isinstance(of, alignment.Alignment)}
    others = {"joint": joint.joint_trees, "segmentations": segmentations, "pcfg": pcfg.trees}
    return {"chain": chain.linear_chain, "spans": spans.labelled_spans, **roots, **paths, **others}


def _comparable(p: Structured, q: Structured) -> tuple[Structured, Structured]:
    """Return both distributions in float64. NotImplementedError: they are over other structures, or of other lengths."""
    if p.functions != q.functions or p.scores[0].shape != q.scores[0].shape:
        raise NotImplementedError("both distributions must be over the same structures, with scores of the same shape")
    if p.lengths is not q.lengths:
        one, other = map(_lengths, (p, q))
        if one is None or other is None or not torch.equal(one, other):
            raise NotImplementedError("both distributions must have the same lengths, or none")
    # transitions that all positions of p share, but not those of q
    p = p._like(tuple(s.expand_as(o) if s.dim() < o.dim() else s for s, o in zip(p.scores, q.scores, strict=True)))
    p, q = (x._like(tuple(map(forbidding, in_float64(x.scores)))) for x in (p, q))
    return p, q


def _lengths(p: Structured) -> Tensor | None:
    """Return the lengths, on the CPU; None: they are not known, as those of several batch dimensions."""
    if len(p.batch_shape) == 1:
        checked: Tensor = p.functions.check(*p.scores, lengths=p.lengths)
        return checked.cpu()
    return None if p.lengths is None else torch.as_tensor(p.lengths).cpu().long()


def log_probability(scores: Tensor, log_z: Tensor) -> Tensor:
    """Return scores − log Z; -inf for what is forbidden, also if everything is. What rounding leaves above 0 is taken away, but
    not from the gradient."""
    found = torch.where(scores == -torch.inf, scores, scores - log_z)
    return found - found.detach().clamp(min=0)
