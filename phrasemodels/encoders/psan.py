"""PSAN, the phrase-level self-attention network of paper 001: attention inside phrases, level by level, gated.

Shapes: B sentences, n tokens, N tokens of all sentences packed, d features, L levels of phrases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from phrasemodels.layers.blocks import within
from phrasemodels.layers.dense import Dense, dropout
from phrasemodels.layers.multidim import Alone, attend_within, boundaries, fill_alone, weights_within
from phrasemodels.layers.pooling import SourceToToken

Composition = Callable[[Tensor], Tensor]
Encode = Callable[[Tensor, Tensor, Tensor], Tensor]
FEW = 96  # tokens, padding included, of sentences that are computed again together


def kept(encode: Encode, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
    """Activations are kept for the backward pass."""
    return encode(words, lengths, levels)


def recomputed(encode: Encode, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
    """A few sentences after others, computed again backward: no activations but those of a few are ever there, for twice
    the time."""
    few = max(1, FEW // max(1, words.shape[1]))
    parts = zip(words.split(few), lengths.split(few), levels.split(few), strict=True)
    return torch.cat([cast(Tensor, checkpoint(encode, *part, use_reentrant=False)) for part in parts])


def fine_to_coarse(levels: Tensor) -> Tensor:
    """Levels in the order in which they are attended to: small phrases first, as the text and Figure 3 have it."""
    return levels.flip(1)


def as_numbered(levels: Tensor) -> Tensor:
    """Level 1 first: the other reading."""
    return levels


class PhraseSelfAttention(nn.Module):
    """Attention inside the phrases of one level, and what it adds to each word (paper 001, Eq 1-3)."""

    def __init__(self, d: int, dropout: float, alone: Alone) -> None:
        super().__init__()
        self.own, self.other = Dense(d, d), Dense(d, d, bias=False)
        self.compare = Dense(2 * d, d, dropout)
        self.dropout, self.alone = dropout, alone

    def forward(self, p: Tensor, bounds: Tensor) -> Tensor:
        """p (N, d) and where phrases begin (P + 1) -> c (N, d)."""
        x = dropout(p, self.dropout, self.training)
        attended = attend_within(self.own(x), self.other(x), p, bounds)
        attended = fill_alone(attended, p, bounds, self.alone)
        return F.elu(self.compare(torch.cat([(p - attended).abs(), p * attended], -1)))

    def alignment(self, p: Tensor, bounds: Tensor) -> Tensor:
        """The l2 norm over features of every pair's weights (Figure 3), for one sentence: (N, N)."""
        found = p.new_zeros(len(p), len(p))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if last - first > 1:
                words = p[None, first:last]
                found[first:last, first:last] = weights_within(self.own(words), self.other(words))[0].norm(dim=-1)
        return found


class GatedMemory(nn.Module):
    """M ← G ∘ ELU(W^m[M; C] + b^m), G = sigmoid(W^g[M; C] + b^g), level upon level; the gate is shared (Eq 4)."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()
        self.gate, self.write = Dense(2 * d, d), Dense(2 * d, d)
        self.dropout = dropout

    def carried(self, gate: Tensor, memory: Tensor) -> Tensor | float:
        """What is left of the old memory: nothing, as printed, so a closed gate erases a word."""
        return 0.0

    def update(self, memory: Tensor, composed: Tensor) -> Tensor:
        both = dropout(torch.cat([memory, composed], -1), self.dropout, self.training)
        gate = self.gate(both).sigmoid()
        return gate * F.elu(self.write(both)) + self.carried(gate, memory)

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        memory = words
        for compose in compositions:
            memory = self.update(memory, compose(memory))
        return memory


class HighwayMemory(GatedMemory):
    """The same, but what the gate keeps out stays as it was: M ← G ∘ ELU(...) + (1 − G) ∘ M."""

    def carried(self, gate: Tensor, memory: Tensor) -> Tensor | float:
        return (1 - gate) * memory


class Concatenated(nn.Module):
    """Without a gate (Table 4, row 6): all levels see the words themselves, and one layer brings them together."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()
        self.merge = Dense(levels * d, d, dropout)

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        return F.elu(self.merge(torch.cat([compose(words) for compose in compositions], -1)))


class Stacked(nn.Module):
    """Without a gate and without words: one attention upon another (Table 4, row 7, where there is one)."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        for compose in compositions:
            words = compose(words)
        return words


@dataclass(frozen=True)
class PsanConfig:
    """The switches of paper 001, each a part that is passed in.

    alone: torch.zeros_like (`zero`) or multidim.itself (`self`). order: fine_to_coarse or as_numbered. memory:
    GatedMemory (`literal`), HighwayMemory, Concatenated, Stacked. run: kept or recomputed activations. What the phrases
    are is decided by the data.
    """

    d: int = 300
    levels: int = 3
    dropout: float = 0.5
    alone: Alone = torch.zeros_like
    order: Callable[[Tensor], Tensor] = fine_to_coarse
    memory: Callable[[int, int, float], nn.Module] = GatedMemory
    run: Callable[[Encode, Tensor, Tensor, Tensor], Tensor] = kept

    def build(self) -> "Psan":
        return Psan(self)


class Attention(NamedTuple):
    """What one sentence attends to: the alignment of each level (n, n), in the order of attention, and the weight of
    each word in the summary (n); l2 norms over features."""

    levels: list[Tensor]
    summary: Tensor


class Psan(nn.Module):
    """Words and levels of phrases to a vector a sentence (paper 001, Eq 1-5)."""

    def __init__(self, config: PsanConfig) -> None:
        super().__init__()
        self.width, self.order, self.run = config.d, config.order, config.run
        self.attentions = nn.ModuleList(
            PhraseSelfAttention(config.d, config.dropout, config.alone) for _ in range(config.levels)
        )
        self.memory = config.memory(config.d, config.levels, config.dropout)
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), levels (B, L, n): the number of each token's phrase -> (B, d)."""
        return self.run(self._encode, words, lengths, levels)

    def _encode(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        return self.summary(self.states(words, lengths, levels), within(lengths, words.shape[1]))

    def states(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        """What is remembered of each word (B, n, d), before the summary; 0 for padding."""
        valid = within(lengths, words.shape[1])
        packed = self._remember(words[valid], self._bounds(levels, valid))
        return packed.new_zeros(words.shape).masked_scatter(valid.unsqueeze(-1), packed)

    def _bounds(self, levels: Tensor, valid: Tensor) -> list[Tensor]:
        if levels.shape[1] != len(self.attentions):
            raise ValueError(
                f"{levels.shape[1]} levels of phrases for an encoder of {len(self.attentions)}: set `levels`"
            )
        return [boundaries(level, valid) for level in self.order(levels).unbind(1)]

    def _remember(self, words: Tensor, bounds: list[Tensor]) -> Tensor:
        def composition(attention: nn.Module, where: Tensor) -> Composition:
            return lambda memory: attention(memory, where)

        pairs = zip(self.attentions, bounds, strict=True)
        return self.memory(words, [composition(attention, where) for attention, where in pairs])

    @torch.no_grad()
    def explain(self, words: Tensor, levels: Tensor) -> Attention:
        """The attention of one sentence: words (n, d), levels (L, n)."""
        valid = torch.ones(1, len(words), dtype=torch.bool, device=words.device)
        bounds, found = self._bounds(levels[None], valid), []

        def composition(attention: PhraseSelfAttention, where: Tensor) -> Composition:
            def compose(memory: Tensor) -> Tensor:
                found.append(attention.alignment(memory, where))
                return attention(memory, where)

            return compose

        pairs = zip(self.attentions, bounds, strict=True)
        memory = self.memory(words, [composition(attention, where) for attention, where in pairs])  # type: ignore[arg-type]
        return Attention(found, self.summary.weights(memory[None], valid)[0].norm(dim=-1))
