"""Memory networks that answer questions about facts: hops of simple attention, and one chain of facts (paper 003).

Shapes: B batch, n facts, w words of a fact, K hops, d width, V vocabulary. Facts (B, n, w) are word ids, 0 for none;
the last fact was told last, and rows of zeros in front of the first one are no facts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from phrasemodels.structs import chain

Encode = Callable[[Tensor, Tensor], Tensor]


def bag_of_words(words: Tensor, real: Tensor) -> Tensor:
    """Σ_j x_j of word embeddings (..., w, d), of which `real` (..., w) are words; (..., d)."""
    return (words * real.unsqueeze(-1)).sum(-2)


def by_position(words: Tensor, real: Tensor) -> Tensor:
    """Σ_j l_j ∘ x_j with l_kj = (1 − j/J) − (k/d)(1 − 2j/J) for J words (Sukhbaatar et al. 2015, section 4.1)."""
    d = words.shape[-1]
    count = real.to(words.dtype)
    place = (count.cumsum(-1) / count.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(-1)
    k = torch.arange(1, d + 1, dtype=words.dtype, device=words.device) / d
    return bag_of_words(words * ((1 - place) - k * (1 - 2 * place)), real)


class Binary(nn.Module):
    """Potentials x_i^k · q^k and x_i^k · x_j^{k+1}; q^{k+1} is a linear map of q^k.

    `count`: how often the former enter the score of a chain. Twice in the released code, where each is part of two
    edges. (To normalise the latter over all pairs of facts after a linear start would change nothing: it adds a constant.)
    """

    count = 2

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d, d) for _ in range(hops - 1))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """q^1 (B, d) -> q^1 .. q^K."""
        found = [query]
        for step in self.maps:
            found.append(step(found[-1]))
        return found

    def forward(self, queries: list[Tensor], keys: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Unary (B, K, n) and pairwise (B, K-1, n, n) potentials."""
        pairs = [one @ other.transpose(1, 2) for one, other in pairwise(keys)]
        return self.count * _matches(queries, keys), torch.stack(pairs, 1)


class BinaryOnce(Binary):
    """The same, each potential counted once."""

    count = 1


class Unary(nn.Module):
    """Potentials x_i^k · q^k and learned transitions between places; q^{k+1} = Σ_i (q^k · x_i^k) x_i^{k+1}.

    Start and end have the means of the transitions from and to all places, whether or not there are facts.
    """

    def __init__(self, hops: int, d: int, slots: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.empty(slots, slots))

    def queries(self, query: Tensor, keys: list[Tensor]) -> list[Tensor]:
        """q^1 (B, d) -> q^1 .. q^K."""
        found = [query]
        for one, other in pairwise(keys):
            match = (one @ found[-1].unsqueeze(-1)).transpose(1, 2)
            found.append((match @ other).squeeze(1))
        return found

    def forward(self, queries: list[Tensor], keys: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Unary (B, K, n) and pairwise (B, K-1, n, n) potentials."""
        B, n, _ = keys[0].shape
        start, end = self.transitions.mean(0)[-n:], self.transitions.mean(1)[-n:]
        first, *between, last = _matches(queries, keys).unbind(1)
        unary = torch.stack([first + start, *between, last + end], 1)
        return unary, self.transitions[-n:, -n:].expand(B, len(keys) - 1, n, n)


def _matches(queries: list[Tensor], keys: list[Tensor]) -> Tensor:
    return torch.stack([(x @ q.unsqueeze(-1)).squeeze(-1) for x, q in zip(keys, queries, strict=True)], 1)


@dataclass(frozen=True)
class HopsConfig:
    """End-to-end memory network (Sukhbaatar et al. 2015) with adjacent tying.

    linear_updates: for how many training batches the hops have no softmax (linear start); 0: none.
    """

    hops: int = 2
    d: int = 20
    slots: int = 25
    vocabulary: int = 0
    encode: Encode = by_position
    linear_updates: int = 0
    deviation: float = 0.1

    def build(self) -> "Hops":
        return Hops(self)


@dataclass(frozen=True)
class ChainConfig:
    """One chain of K facts. potentials: Binary (the slides' model) or Unary (of the full paper)."""

    hops: int = 2
    d: int = 20
    slots: int = 25
    vocabulary: int = 0
    encode: Encode = by_position
    potentials: Callable[[int, int, int], nn.Module] = Binary
    deviation: float = 10**-0.5

    def build(self) -> "Chain":
        return Chain(self)


class Table(nn.Module):
    """A way of embedding facts: their words by `encode`, and a learned vector for how long ago each was told."""

    def __init__(self, config: HopsConfig | ChainConfig) -> None:
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.d, padding_idx=0)
        self.ago = nn.Parameter(torch.empty(config.slots, config.d))
        self.encode = config.encode

    def sentence(self, ids: Tensor) -> Tensor:
        """ids (..., w) -> (..., d)."""
        return self.encode(self.words(ids), ids > 0)

    def forward(self, facts: Tensor) -> Tensor:
        """facts (B, n, w) -> (B, n, d), zero where there is no fact."""
        embedded = self.sentence(facts) + self.ago[-facts.shape[1] :]
        return embedded * told(facts).unsqueeze(-1)


def told(facts: Tensor) -> Tensor:
    """facts (B, n, w) -> (B, n) booleans: there is a fact."""
    return (facts > 0).any(-1)


def initialise(model: nn.Module, deviation: float) -> None:
    """All parameters N(0, deviation²), the embeddings of padding zero."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=deviation)
    for module in model.modules():
        if isinstance(module, Table):
            nn.init.zeros_(module.words.weight[0])


class Hops(nn.Module):
    """p_k = softmax(x_i^k · q^k), q^{k+1} = q^k + Σ_i p_ki o_i^k; the next hop's x is this hop's o."""

    def __init__(self, config: HopsConfig) -> None:
        super().__init__()
        self.tables = nn.ModuleList(Table(config) for _ in range(config.hops + 1))
        self.linear_updates = config.linear_updates
        # kept with the weights, so that they are read as they were trained
        self.updates = nn.Parameter(torch.zeros(()), requires_grad=False)
        initialise(self, config.deviation)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """facts (B, n, w) and question (B, v) -> scores (B, V) of the answer."""
        if self.training:
            self.updates.add_(1)
        query = self._hops(facts, question)[1]
        return query @ cast(Table, self.tables[-1]).words.weight.T

    def evidence(self, facts: Tensor, question: Tensor) -> Tensor:
        """The fact that each hop looks at most, (B, K)."""
        return self._hops(facts, question)[0].argmax(-1)

    def weights(self, facts: Tensor, question: Tensor) -> Tensor:
        """Weights of the facts at each hop, (B, K, n)."""
        return self._hops(facts, question)[0]

    def _hops(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        there = told(facts)
        memories = [table(facts) for table in self.tables]
        query, found = cast(Table, self.tables[0]).sentence(question), []
        for keys, values in pairwise(memories):
            p = self._select((keys @ query.unsqueeze(-1)).squeeze(-1), there)
            query = query + (p.unsqueeze(1) @ values).squeeze(1)
            found.append(p)
        return torch.stack(found, 1), query

    def _select(self, scores: Tensor, there: Tensor) -> Tensor:
        if self.updates <= self.linear_updates and self.linear_updates:
            return scores * there
        return scores.masked_fill(~there, -torch.inf).softmax(-1)


class Chain(nn.Module):
    """p(z_1..z_K) of a chain whose states are the facts, c = Σ_k Σ_i p(z_k = i) o_i^k, answer W(c + q^K).

    A fact does not follow itself. (Paper 003, sequential attention; K = 3 as K = 2, with one more step.)
    """

    def __init__(self, config: ChainConfig) -> None:
        super().__init__()
        if config.hops < 2:
            raise ValueError(f"hops={config.hops}: a chain has at least two facts; take HopsConfig for one")
        self.keys = nn.ModuleList(Table(config) for _ in range(config.hops))
        self.values = nn.ModuleList(Table(config) for _ in range(config.hops))
        self.potentials = config.potentials(config.hops, config.d, config.slots)
        self.answer = nn.Linear(config.d, config.vocabulary, bias=False)
        initialise(self, config.deviation)

    def forward(self, facts: Tensor, question: Tensor) -> Tensor:
        """facts (B, n, w) and question (B, v) -> scores (B, V) of the answer."""
        unary, pairs, query = self._scores(facts, question)
        p = chain.marginals(unary, pairs)
        found = torch.stack([table(facts) for table in self.values], 1)
        return self.answer((p.unsqueeze(2) @ found).sum((1, 2)) + query)

    def evidence(self, facts: Tensor, question: Tensor) -> Tensor:
        """The best chain of facts, (B, K)."""
        return chain.argmax(*self._scores(facts, question)[:2])[1]

    def weights(self, facts: Tensor, question: Tensor) -> Tensor:
        """Marginals p(z_k = i), (B, K, n)."""
        return chain.marginals(*self._scores(facts, question)[:2])

    def _scores(self, facts: Tensor, question: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = [table(facts) for table in self.keys]
        queries = cast(Binary | Unary, self.potentials).queries(cast(Table, self.keys[0]).sentence(question), keys)
        unary, pairs = self.potentials(queries, keys)
        there = told(facts).unsqueeze(1)
        same = torch.eye(facts.shape[1], dtype=torch.bool, device=facts.device)
        return unary.masked_fill(~there, -torch.inf), pairs.masked_fill(same, -torch.inf), queries[-1]
