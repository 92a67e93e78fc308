"""PSAN, the phrase-level self-attention network of paper 001: attention inside phrases, level by level, gated.

Shapes: B sentences, n tokens, N packed tokens of all sentences, d features, L levels, P phrases of a level.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from phrasemodels import config
from phrasemodels.encoders import check_input
from phrasemodels.layers.blocks import Dense, SourceToToken, dropout, pack_rows, shapes_are_fixed, token_mask
from phrasemodels.layers.multidim import Alone, attend_within, boundaries, fill_alone, same_phrase, weights_within

Composition = Callable[[Tensor], Tensor]
Observe = Callable[[Any, Tensor, Tensor], None]
Bounds = Callable[[Tensor, Tensor], Tensor]
EncodeBatch = Callable[[Tensor, Tensor, Tensor], Tensor]
RECOMPUTED = 96  # tokens, with padding, of the sentences that `recompute_activations` processes at a time


def keep_activations(encode: EncodeBatch, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
    """Encode a batch and save all activations for the backward pass."""
    return encode(words, lengths, levels)


def recompute_activations(encode: EncodeBatch, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
    """Encode a few sentences at a time, and recompute their activations in the backward pass.

    Memory holds the activations of a few sentences only; a training step takes twice the time.
    """
    few = max(1, RECOMPUTED // max(1, words.shape[1]))
    parts = zip(words.split(few), lengths.split(few), levels.split(few), strict=True)
    return torch.cat([cast(Tensor, checkpoint(encode, *part, use_reentrant=False)) for part in parts])


def fine_to_coarse(levels: Tensor) -> Tensor:
    """Put the levels (B, L, n) into the order of the text and Figure 3: small phrases first."""
    return levels.flip(1)


def as_numbered(levels: Tensor) -> Tensor:
    """Keep the levels (B, L, n) in the order of their numbers, level 1 first: the other reading."""
    return levels


class PhraseSelfAttention(nn.Module):
    """Attention inside the phrases of one level, composed with each word (paper 001, Eq 1-3)."""

    def __init__(self, d: int, dropout: float, alone: Alone) -> None:
        super().__init__()
        self.own, self.other = Dense(d, d), Dense(d, d, bias=False)
        self.compare = Dense(2 * d, d, dropout)
        self.dropout, self.alone = dropout, alone

    def forward(self, p: Tensor, bounds: Tensor) -> Tensor:
        """p (N, d), bounds (P + 1) from `multidim.boundaries` -> c (N, d)."""
        x = dropout(p, self.dropout, self.training)
        attended = attend_within(self.own(x), self.other(x), p, bounds)  # Eq 1-2
        attended = fill_alone(attended, p, bounds, self.alone)
        # Eq 3
        return F.elu(self.compare(torch.cat([(p - attended).abs(), p * attended], -1)))

    def alignment(self, p: Tensor, bounds: Tensor) -> Tensor:
        """Return the l2 norm over features of the weights of each pair of words (Figure 3), for one sentence: (N, N)."""
        norms = p.new_zeros(len(p), len(p))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if last - first > 1:
                words = p[None, first:last]
                norms[first:last, first:last] = weights_within(self.own(words), self.other(words))[0].norm(dim=-1)
        return norms


class GatedMemory(nn.Module):
    """M ← G ∘ ELU(W^m[M; C] + b^m), G = sigmoid(W^g[M; C] + b^g), level by level with the same weights (Eq 4)."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()
        self.gate, self.write = Dense(2 * d, d), Dense(2 * d, d)
        self.dropout = dropout

    def carried(self, gate: Tensor, memory: Tensor) -> Tensor | float:
        """Return the part of the old memory that stays: none, as printed, so that a closed gate erases a word."""
        return 0.0

    def update(self, memory: Tensor, composed: Tensor) -> Tensor:
        """memory M, composed C (N, d) -> the new memory (N, d)."""
        both = dropout(torch.cat([memory, composed], -1), self.dropout, self.training)
        gate = self.gate(both).sigmoid()
        # Eq 4
        return gate * F.elu(self.write(both)) + self.carried(gate, memory)

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        """words (N, d), one composition (N, d) -> (N, d) per level -> the memory (N, d)."""
        memory = words
        for compose in compositions:
            memory = self.update(memory, compose(memory))
        return memory


class HighwayMemory(GatedMemory):
    """M ← G ∘ ELU(...) + (1 − G) ∘ M: a closed gate keeps the old memory."""

    def carried(self, gate: Tensor, memory: Tensor) -> Tensor | float:
        return (1 - gate) * memory


class SteadyMemory(GatedMemory):
    """GatedMemory that starts with larger weights, so that the words keep their variance through the levels.

    With Glorot's start and a half-open gate each level leaves about half of the standard deviation.
    """

    GAIN = 2.3

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__(d, levels, dropout)
        with torch.no_grad():
            self.write.weight.mul_(self.GAIN)


class Concatenated(nn.Module):
    """No gate (Table 4, row 6): every level reads the words themselves, and one layer joins the levels."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()
        self.merge = Dense(levels * d, d, dropout)

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        return F.elu(self.merge(torch.cat([compose(words) for compose in compositions], -1)))


class Stacked(nn.Module):
    """No gate and no memory: each level reads the output of the level before (Table 4, row 7, has one level)."""

    def __init__(self, d: int, levels: int, dropout: float) -> None:
        super().__init__()

    def forward(self, words: Tensor, compositions: list[Composition]) -> Tensor:
        for compose in compositions:
            words = compose(words)
        return words


@dataclass(frozen=True)
class PsanConfig:
    """The switches of paper 001. Each is a function or class for one reading of the text.

    Args:
        d: Features of a word, and of the sentence vector.
        dropout: Dropout of the inputs of each linear map.
        levels: Levels of phrases in the data.
        alone: Output of a phrase of one word, torch.zeros_like (`zero`) or multidim.itself (`self`).
        order: fine_to_coarse or as_numbered.
        memory: GatedMemory (`literal`), HighwayMemory, SteadyMemory, Concatenated or Stacked.
        run: keep_activations or recompute_activations.
    """

    d: int = 300
    levels: int = 3
    dropout: float = 0.5
    alone: Alone = torch.zeros_like
    order: Callable[[Tensor], Tensor] = fine_to_coarse
    memory: Callable[[int, int, float], nn.Module] = GatedMemory
    run: Callable[[EncodeBatch, Tensor, Tensor, Tensor], Tensor] = keep_activations

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "levels")
        config.share(self, "dropout")

    def build(self) -> "Psan":
        return Psan(self)


class PsanAttention(NamedTuple):
    """The attention of one sentence, as l2 norms over features."""

    levels: list[Tensor]  # (n, n) for each level, in the order of attention
    summary: Tensor  # (n), the weight of each word in the sentence vector


class Psan(nn.Module):
    """Words and levels of phrases to one vector per sentence (paper 001, Eq 1-5)."""

    def __init__(self, config: PsanConfig) -> None:
        super().__init__()
        self.width, self.order, self.run = config.d, config.order, config.run
        self.attentions = nn.ModuleList(
            PhraseSelfAttention(config.d, config.dropout, config.alone) for _ in range(config.levels)
        )
        self.memory = config.memory(config.d, config.levels, config.dropout)
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), levels (B, L, n) = the number of each token's phrase -> (B, d)."""
        lengths = check_input(words, lengths, self.width)
        return self.run(self._encode, words, lengths, levels)

    def _encode(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        # Eq 5
        return self.summary(self._states(words, lengths, levels), token_mask(lengths, words.shape[1]))

    def states(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        """Return the memory of each word after all levels, (B, n, d); 0 for padding."""
        return self._states(words, check_input(words, lengths, self.width), levels)

    def _states(self, words: Tensor, lengths: Tensor, levels: Tensor) -> Tensor:
        valid = token_mask(lengths, words.shape[1])
        if shapes_are_fixed():
            rows = words.masked_fill(~valid.unsqueeze(-1), 0).flatten(0, 1)
            states = self._remember(rows, self._bounds(levels, valid, same_phrase)).view(words.shape)
            return states.masked_fill(~valid.unsqueeze(-1), 0)
        cells = valid.flatten().nonzero().squeeze(1)
        packed = self._remember(pack_rows(words.flatten(0, 1), cells), self._bounds(levels, valid))
        return packed.new_zeros(words.shape).masked_scatter(valid.unsqueeze(-1), packed)

    def _bounds(self, levels: Tensor, valid: Tensor, bounds: Bounds = boundaries) -> list[Tensor]:
        if levels.dim() != 3 or levels.shape[::2] != valid.shape:
            raise ValueError(f"levels must be (B, L, n), the number of each word's phrase, not {tuple(levels.shape)}")
        if levels.shape[1] != len(self.attentions):
            raise ValueError(f"levels={len(self.attentions)}: the data has {levels.shape[1]} levels of phrases")
        return [bounds(level, valid) for level in self.order(levels).unbind(1)]

    def _remember(self, words: Tensor, bounds: list[Tensor], observe: Observe = lambda *_: None) -> Tensor:
        """Return the memory (N, d) after all levels; call observe(attention, memory, bounds) before each level."""

        def composition(attention: nn.Module, where: Tensor) -> Composition:
            def compose(memory: Tensor) -> Tensor:
                observe(attention, memory, where)
                return attention(memory, where)

            return compose

        pairs = zip(self.attentions, bounds, strict=True)
        return self.memory(words, [composition(attention, where) for attention, where in pairs])

    @torch.no_grad()
    def explain(self, words: Tensor, levels: Tensor) -> PsanAttention:
        """Return the attention of one sentence: words (n, d), levels (L, n)."""
        valid, norms = torch.ones(1, len(words), dtype=torch.bool, device=words.device), []
        memory = self._remember(
            words,
            self._bounds(levels[None], valid),
            lambda attention, memory, where: norms.append(attention.alignment(memory, where)),
        )
        return PsanAttention(norms, self.summary.weights(memory[None], valid)[0].norm(dim=-1))
