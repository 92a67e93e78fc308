"""Chains and dependency trees as `torch.distributions.Distribution`s: log_prob, sample, entropy, mode, kl_divergence.

The batch shape is (B,). An event is the tags (T,) of a sequence, or the heads (n+1,) of a tree with the root at 0; it is -1 in
the padding, and at the root. Values are not checked: heads that are no tree get the log probability of their score.
"""

import math
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints, register_kl

from phrasemodels.structs import chain, eisner
from phrasemodels.structs.eisner import Projective, score_heads
from phrasemodels.structs.inference import Lengths
from phrasemodels.structs.nonprojective import NonProjective


class Structured(Distribution):
    """A distribution over structures by a module or object with the functions of `chain` and `eisner`, and its scores."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.dependent

    def __init__(
        self,
        functions: ModuleType | Projective | NonProjective,
        scores: tuple[Tensor, ...],
        lengths: Lengths,
    ):
        self.functions: Any = functions  # the functions take one or two score tensors
        self.scores, self.lengths = scores, lengths
        super().__init__(scores[0].shape[:1], scores[0].shape[1:2], validate_args=False)

    @property
    def log_partition(self) -> Tensor:
        """log Z, (B,)."""
        return self.functions.log_partition(*self.scores, lengths=self.lengths)

    @property
    def marginals(self) -> Tensor:
        """Probabilities of tags (B, T, C) or arcs (B, n+1, n+1)."""
        return self.functions.marginals(*self.scores, lengths=self.lengths)

    @property
    def mode(self) -> Tensor:
        """A best structure, (B, event)."""
        return self.functions.argmax(*self.scores, lengths=self.lengths)[1]

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the log probabilities (k, B) and the k best structures (k, B, event). AttributeError for non-projective trees."""
        scores, best = self.functions.topk(*self.scores, k=k, lengths=self.lengths)
        return scores - self.log_partition, best

    def sample(self, sample_shape: Size | list[int] | tuple[int, ...] = ()) -> Tensor:
        """Return exact samples (*sample_shape, B, event), without gradient."""
        shape = Size(sample_shape)
        with torch.no_grad():
            drawn = self.functions.sample(*self.scores, k=math.prod(shape), lengths=self.lengths)
        return drawn.view(*shape, *drawn.shape[1:])

    def entropy(self) -> Tensor:
        """Return −Σ p log p, in nats, (B,)."""
        return self.functions.entropy(*self.scores, lengths=self.lengths)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log probabilities (...) of structures (..., event), whose dimensions end with the batch's."""
        return self.score(value) - self.log_partition

    def score(self, value: Tensor) -> Tensor:
        """Return the sums of the scores of structures, as `log_prob`."""
        raise NotImplementedError

    def expected_score(self, scores: tuple[Tensor, ...]) -> Tensor:
        """Return the expectation under this distribution of the score (B,) by other scores of the same shapes."""
        raise NotImplementedError


class LinearChain(Structured):
    """Tags by a linear-chain CRF: unary (B, T, C), pairwise (C, C) or (B, T-1, C, C), lengths (B,), as in `chain`."""

    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Lengths = None):
        super().__init__(chain, (unary, pairwise), lengths)

    def score(self, value: Tensor) -> Tensor:
        unary, pairwise = self.scores
        return chain.score_tags(unary, pairwise, value)

    def expected_score(self, scores: tuple[Tensor, ...]) -> Tensor:
        (own, own_pairs), (unary, pairwise) = self.scores, scores
        pairs = chain.pair_marginals(own, own_pairs, self.lengths)
        return _expectation(self.marginals, unary) + _expectation(pairs, pairwise)


class DependencyTree(Structured):
    """Dependency trees: arcs (B, n+1, n+1), lengths (B,), as in `eisner`; `trees` is `multi_root` or `single_root` of `eisner`
    or `nonprojective`."""

    def __init__(self, arcs: Tensor, lengths: Lengths = None, trees: Projective | NonProjective = eisner.multi_root):
        super().__init__(trees, (arcs,), lengths)

    def score(self, value: Tensor) -> Tensor:
        return score_heads(self.scores[0], value)

    def expected_score(self, scores: tuple[Tensor, ...]) -> Tensor:
        return _expectation(self.marginals, scores[0])


def _expectation(p: Tensor, scores: Tensor) -> Tensor:
    """Return Σ p · scores for each row, (B,); what has probability 0 adds 0, also if its score is -inf or NaN."""
    scores = scores.expand_as(p)
    return torch.where(p > 0, p * torch.where(p > 0, scores, 0), 0).flatten(1).sum(1)


@register_kl(Structured, Structured)
def _kl(p: Structured, q: Structured) -> Tensor:
    """Return Σ p log (p / q), (B,): E_p[score_p − score_q] − log Z_p + log Z_q. NotImplementedError: other structures."""
    if p.functions is not q.functions:
        raise NotImplementedError("kl_divergence: both distributions must be over the same structures")
    return p.expected_score(p.scores) - p.expected_score(q.scores) - p.log_partition + q.log_partition
