"""Memory networks for questions about facts: hops of simple attention, and one chain of facts (paper 003).

The potentials of the chain are passed in (`ChainConfig`). There is one class for each reading of the slides and the code,
made from (hops, d, slots): the number of hops, the width, and the largest number of facts.

Shapes: B batch, n facts, w words of a fact, v words of a question, K hops, d width, V vocabulary. Facts (B, n, w) are word
ids in the order of the story, 0 for padding. A row of zeros is no fact. Rows without facts come first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels import config
from phrasemodels.layers.blocks import masked_softmax
from phrasemodels.structs import chain


class BinaryPotentials(nn.Module):
    """Unary potentials x_i^k · q^k and pairwise potentials x_i^k · x_j^{k+1}; q^{k+1} is a linear map of q^k.

    count: how often the unary potentials enter the score of a chain. In the released code it is twice, since each is part of
    two edges. (A normalisation of the pairwise potentials over all pairs of facts would only add a constant.)
    """

    count = 2

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d, d) for _ in range(hops - 1))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """query q^1 (B, d), keys x^k (B, n, d) of each hop -> q^1 .. q^K, each (B, d)."""
        queries = [query]
        for step in self.maps:
            queries.append(step(queries[-1]))
        return queries

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials.

        allowed (B, n, n): whether fact j may follow fact i; scores of other pairs are not used.
        """
        return self.count * _matches(queries, keys), _products(keys)


class BinaryPotentialsOnce(BinaryPotentials):
    """BinaryPotentials with each unary potential counted once."""

    count = 1


class RowNormalisedPotentials(BinaryPotentialsOnce):
    """Pairwise potentials log p(j | i) with p(j | i) = softmax_j(x_i^k · x_j^{k+1} + x_j^{k+1} · q^{k+1}), j ≠ i.

    The released code puts a log-softmax into θ_{k,k+1} after its linear start. Here it is along the possible next facts j of
    fact i. The unary potentials of the start and the end of the chain enter once more outside of it.
    """

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials. For `allowed` see BinaryPotentials."""
        unary = _matches(queries, keys)
        scores = _products(keys) + unary[:, 1:].unsqueeze(2)
        lowest = torch.finfo(scores.dtype).min  # not −∞: the only fact of a story has no other that follows it
        return unary, scores.masked_fill(~allowed.unsqueeze(1), lowest).log_softmax(-1)


class ReleasedPotentials(BinaryPotentials):
    """BinaryPotentials as the released code computes them after `linear_updates` training batches: without pairs.

    The log-softmax after its linear start is along an axis of one element, so all of θ_{k,k+1} becomes 0. No pairwise
    potentials remain, and of the unary potentials the first and the last of the chain, once. (For K = 3, which was not
    released, the fact in the middle also counts once.)
    """

    def __init__(self, hops: int, d: int, slots: int, linear_updates: int = 0) -> None:
        super().__init__(hops, d, slots)
        self.linear_updates = linear_updates
        # a parameter, so that a loaded model knows whether its linear start is over
        self.updates = nn.Parameter(torch.zeros(()), requires_grad=False)

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials. For `allowed` see BinaryPotentials."""
        if self.training:
            self.updates.add_(1)
        unary, pairs = super().forward(queries, keys, allowed)
        if self.linear_updates and self.updates <= self.linear_updates:
            return unary, pairs
        # `super` has counted them twice
        return unary / self.count, torch.zeros_like(pairs)


class UnaryPotentials(nn.Module):
    """Unary potentials x_i^k · q^k, and learned transitions between slots; q^{k+1} = Σ_i (q^k · x_i^k) x_i^{k+1}.

    The transitions from the start and to the end are means over all slots, including slots without facts.
    """

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(slots, slots))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """query q^1 (B, d), keys x^k (B, n, d) of each hop -> q^1 .. q^K, each (B, d)."""
        queries = [query]
        for one, other in pairwise(keys):
            match = (one @ queries[-1].unsqueeze(-1)).transpose(1, 2)
            queries.append((match @ other).squeeze(1))
        return queries

    def forward(self, queries: list[Tensor], keys: list[Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unary (B, K, n) and pairwise (B, K-1, n, n) potentials. For `allowed` see BinaryPotentials."""
        B, n, _ = keys[0].shape
        start, end = self.transitions.mean(0)[-n:], self.transitions.mean(1)[-n:]
        first, *between, last = _matches(queries, keys).unbind(1)
        unary = torch.stack([first + start, *between, last + end], 1)
        return unary, self.transitions[-n:, -n:].expand(B, len(keys) - 1, n, n)


Potentials = BinaryPotentials | UnaryPotentials


def _matches(queries: list[Tensor], keys: list[Tensor]) -> Tensor:
    """Return x_i^k · q^k, (B, K, n)."""
    return torch.stack([(x @ q.unsqueeze(-1)).squeeze(-1) for x, q in zip(keys, queries, strict=True)], 1)


def _products(keys: list[Tensor]) -> Tensor:
    """Return x_i^k · x_j^{k+1}, (B, K-1, n, n)."""
    return torch.stack([one @ other.transpose(1, 2) for one, other in pairwise(keys)], 1)


EmbedSentence = Callable[[Tensor, Tensor], Tensor]


def bag_of_words(words: Tensor, real: Tensor) -> Tensor:
    """Return Σ_j x_j: embeddings (..., w, d), mask `real` (..., w) of words -> (..., d)."""
    return (words * real.unsqueeze(-1)).sum(-2)


def by_position(words: Tensor, real: Tensor) -> Tensor:
    """Return Σ_j l_j ∘ x_j with l_kj = (1 − j/J) − (k/d)(1 − 2j/J) for J words (Sukhbaatar et al. 2015, section 4.1)."""
    d = words.shape[-1]
    count = real.to(words.dtype)
    place = (count.cumsum(-1) / count.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(-1)
    k = torch.arange(1, d + 1, dtype=words.dtype, device=words.device) / d
    return bag_of_words(words * ((1 - place) - k * (1 - 2 * place)), real)


@dataclass(frozen=True)
class HopsConfig:
    """An end-to-end memory network (Sukhbaatar et al. 2015) with adjacent weight tying.

    Args:
        hops: Number of hops K.
        d: Features of a fact.
        slots: Largest number of facts.
        vocabulary: Number of words, set from the data.
        encode: by_position or bag_of_words.
        linear_updates: Number of training batches without softmax (linear start).
        deviation: Parameters start in N(0, deviation²).
    """

    hops: int = 2
    d: int = 20
    slots: int = 25
    vocabulary: int = 0
    encode: EmbedSentence = by_position
    linear_updates: int = 0
    deviation: float = 0.1

    def __post_init__(self) -> None:
        config.at_least(self, 1, "hops", "d", "slots")
        config.at_least(self, 0, "vocabulary", "linear_updates")
        config.positive(self, "deviation")

    def build(self) -> "Hops":
        return Hops(self)


@dataclass(frozen=True)
class ChainConfig:
    """One chain of K = `hops` facts.

    Args:
        potentials: One of phrasemodels.models.memory, BinaryPotentials (the model of the slides) or another reading of it, or
            UnaryPotentials (of the full paper).
        hops: Number of facts K.
        d: Features of a fact.
        slots: Largest number of facts.
        vocabulary: Number of words, set from the data.
        encode: by_position or bag_of_words.
        deviation: Parameters start in N(0, deviation²).
    """

    hops: int = 2
    d: int = 20
    slots: int = 25
    vocabulary: int = 0
    encode: EmbedSentence = by_position
    potentials: Callable[[int, int, int], Potentials] = BinaryPotentials
    deviation: float = 10**-0.5

    def __post_init__(self) -> None:
        config.at_least(self, 2, "hops")
        config.at_least(self, 1, "d", "slots")
        config.at_least(self, 0, "vocabulary")
        config.positive(self, "deviation")

    def build(self) -> "Chain":
        return Chain(self)


class FactEmbedding(nn.Module):
    """Embeds a fact: its words by `encode`, plus a learned vector for its age, counted back from the last fact."""

    def __init__(self, config: HopsConfig | ChainConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.d, padding_idx=0)
        self.ago = nn.Parameter(torch.empty(config.slots, config.d))
        self.encode = config.encode

    def sentence(self, ids: Tensor) -> Tensor:
        """Embed sentences without their age: ids (..., w) -> (..., d)."""
        return self.encode(self.words(ids), ids > 0)

    def forward(self, facts: Tensor) -> Tensor:
        """facts (B, n, w) -> (B, n, d), 0 where there is no fact. ValueError: a story has more facts than slots."""
        n, slots = facts.shape[1], len(self.ago)
        if n > slots:
            raise ValueError(f"a story has {n} facts, the model {slots} slots: leave the oldest facts out")
        embedded = self.sentence(facts) + self.ago[slots - n :]
        return embedded * fact_mask(facts).unsqueeze(-1)


def fact_mask(facts: Tensor) -> Tensor:
    """facts (B, n, w) -> (B, n) booleans: true for facts, false for padding."""
    return (facts > 0).any(-1)


def initialise(model: nn.Module, deviation: float) -> None:
    """Draw all trained parameters from N(0, deviation²), and set the embeddings of padding to 0."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=deviation)
    for module in model.modules():
        if isinstance(module, FactEmbedding):
            nn.init.zeros_(module.words.weight[0])


class Hops(nn.Module):
    """p_k = softmax(x_i^k · q^k), q^{k+1} = q^k + Σ_i p_ki o_i^k; o of one hop is x of the next."""

    def __init__(self, config: HopsConfig) -> None:
        super().__init__()
        self.tables = nn.ModuleList(FactEmbedding(config) for _ in range(config.hops + 1))
        self.linear_updates = config.linear_updates
        # a parameter, so that a loaded model knows whether its linear start is over
        self.updates = nn.Parameter(torch.zeros(()), requires_grad=False)
        initialise(self, config.deviation)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """facts (B, n, w) and question (B, v) -> scores (B, V) of the answer."""
        if self.training:
            self.updates.add_(1)
        query = self._hops(facts, question)[1]
        return query @ cast(FactEmbedding, self.tables[-1]).words.weight.T

    def evidence(self, facts: Tensor, question: Tensor) -> Tensor:
        """Return the fact with the largest weight at each hop, (B, K)."""
        return self._hops(facts, question)[0].argmax(-1)

    def weights(self, facts: Tensor, question: Tensor) -> Tensor:
        """Return the weights of the facts at each hop, (B, K, n)."""
        return self._hops(facts, question)[0]

    def _hops(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (B, K, n) and the last query (B, d)."""
        real = fact_mask(facts)
        memories = [table(facts) for table in self.tables]
        query, weights = cast(FactEmbedding, self.tables[0]).sentence(question), []
        for keys, values in pairwise(memories):
            p = self._select((keys @ query.unsqueeze(-1)).squeeze(-1), real)
            # q^{k+1} = q^k + Σ p o (Sukhbaatar et al. 2015, section 2.2)
            query = query + (p.unsqueeze(1) @ values).squeeze(1)
            weights.append(p)
        return torch.stack(weights, 1), query

    def _select(self, scores: Tensor, real: Tensor) -> Tensor:
        if self.linear_updates and self.updates <= self.linear_updates:
            return scores * real
        return masked_softmax(scores, real, -1)


class Chain(nn.Module):
    """c = Σ_k Σ_i p(z_k = i) o_i^k for a chain z_1..z_K with the facts as states; answer W(c + q^K).

    A fact does not follow itself. This is the sequential attention of paper 003. The paper prints K = 2; K = 3 has one more step.
    """

    def __init__(self, config: ChainConfig) -> None:
        super().__init__()
        self.keys = nn.ModuleList(FactEmbedding(config) for _ in range(config.hops))
        self.values = nn.ModuleList(FactEmbedding(config) for _ in range(config.hops))
        self.potentials = config.potentials(config.hops, config.d, config.slots)
        self.answer = nn.Linear(config.d, config.vocabulary, bias=False)
        initialise(self, config.deviation)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """facts (B, n, w) and question (B, v) -> scores (B, V) of the answer."""
        unary, pairs, query = self._scores(facts, question)
        p = chain.marginals(unary, pairs)
        values = torch.stack([table(facts) for table in self.values], 1)
        return self.answer((p.unsqueeze(2) @ values).sum((1, 2)) + query)

    def evidence(self, facts: Tensor, question: Tensor) -> Tensor:
        """Return the best chain of facts, (B, K)."""
        return chain.argmax(*self._scores(facts, question)[:2])[1]

    def weights(self, facts: Tensor, question: Tensor) -> Tensor:
        """Return the marginals p(z_k = i), (B, K, n)."""
        return chain.marginals(*self._scores(facts, question)[:2])

    def _scores(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return unary (B, K, n) and pairwise (B, K-1, n, n) potentials, and q^K (B, d)."""
        keys = [table(facts) for table in self.keys]
        queries = self.potentials.queries(cast(FactEmbedding, self.keys[0]).sentence(question), keys)
        real = fact_mask(facts)
        same = torch.eye(facts.shape[1], dtype=torch.bool, device=facts.device)
        unary, pairs = self.potentials(queries, keys, real.unsqueeze(1) & ~same)
        return unary.masked_fill(~real.unsqueeze(1), -torch.inf), pairs.masked_fill(same, -torch.inf), queries[-1]
