"""The baselines of paper 001, after their own papers.

BiLSTM-Max and the hierarchical ConvNet (Conneau et al. 2017, section 3.2; paper 001 prints the ConvNet's scores as
AdaSent's). AdaSent (Zhao et al. 2015): a pyramid of phrases of 1 to n adjacent words with a gate over its levels. Tree-based
convolution over dependency trees (Mou et al. 2015, 2016). DiSAN, directional self-attention (Shen et al. 2018): like its
authors it stores the weights of all pairs of tokens, (B, n, n, d). Multi-head self-attention over words, pooled (Table 5).

Shapes: B sentences, n tokens, N tokens of all sentences packed, d features or width of a word, D units.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels import config
from phrasemodels.encoders.recurrent import BiLSTM
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import (
    AddNorm,
    Dense,
    SourceToToken,
    as_lengths,
    masked_softmax,
    max_over_tokens,
    sinusoids,
    token_mask,
    without_padding,
)


@dataclass(frozen=True)
class BiLSTMMaxConfig:
    """The BiLSTM with max pooling of Conneau et al. (2017).

    Args:
        d: Features of a word.
        hidden: Units per direction.
        pool: max_over_tokens, or max_with_padding as in the first InferSent.
    """

    d: int = 300
    hidden: int = 2048
    pool: Callable[[Tensor, Tensor], Tensor] = max_over_tokens

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "hidden")

    def build(self) -> "BiLSTMMax":
        return BiLSTMMax(self)


class BiLSTMMax(BiLSTM):
    """A bidirectional LSTM, and the maximum of each unit over the sentence."""

    def __init__(self, config: BiLSTMMaxConfig) -> None:
        super().__init__(config.d, config.hidden)
        self.width, self.pool = 2 * config.hidden, config.pool

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, 2 hidden). Phrases (`levels`) are not used."""
        lengths = as_lengths(lengths, words)
        return self.pool(super().forward(without_padding(words, lengths), lengths), token_mask(lengths, words.shape[1]))


@dataclass(frozen=True)
class AdaSentConfig:
    """The pyramid of phrases of Zhao et al. (2015).

    Args:
        d: Features of a word.
        hidden: Units of a node, and the width of the sentence vector.
        dropout: Dropout of the inputs of each linear map.
    """

    d: int = 300
    hidden: int = 4096
    dropout: float = 0.0

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "hidden")
        config.share(self, "dropout")

    def build(self) -> "AdaSent":
        return AdaSent(self)


class AdaSent(nn.Module):
    """Node j of level t is a gated sum of nodes j and j+1 below it and of a candidate tanh(W_L h_l + W_R h_r + b).

    Each level is pooled to its maximum. The sentence vector is a softmax-weighted sum of the levels.
    """

    def __init__(self, config: AdaSentConfig) -> None:
        super().__init__()
        D, dropout = config.hidden, config.dropout
        self.width = D
        self.project = Dense(config.d, D, dropout)
        self.left, self.right = Dense(D, D, dropout), Dense(D, D, dropout, bias=False)
        self.gate_left, self.gate_right = Dense(D, 3, dropout), Dense(D, 3, dropout, bias=False)
        self.belief = Dense(D, 1, dropout)

    def climb(self, nodes: Tensor) -> Tensor:
        """Nodes (B, k, D) of one level -> nodes (B, k - 1, D) of the next level."""
        left, right = nodes[:, :-1], nodes[:, 1:]
        candidate = (self.left(left) + self.right(right)).tanh()
        gate = (self.gate_left(left) + self.gate_right(right)).softmax(-1).unsqueeze(-1)
        return (gate * torch.stack([left, right, candidate], -2)).sum(-2)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, D). Phrases (`levels`) are not used."""
        lengths = as_lengths(lengths, words)
        valid = token_mask(lengths, words.shape[1])
        nodes, pooled = self.project(without_padding(words, lengths)), []
        for level in range(words.shape[1]):
            nodes = self.climb(nodes) if level else nodes
            # node j of a level ends with word j + level: it is of the sentence if that word is
            pooled.append(max_over_tokens(nodes, valid[:, level:]))
        heights = torch.stack(pooled, 1)
        return (masked_softmax(self.belief(heights), valid.unsqueeze(-1), 1) * heights).sum(1)


@dataclass(frozen=True)
class HConvNetConfig:
    """The hierarchical ConvNet of Conneau et al. (2017).

    Args:
        d: Features of a word.
        channels: Filters of each convolution.
        layers: Number of convolutions, each over 3 tokens.
    """

    d: int = 300
    channels: int = 1024
    layers: int = 4

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "channels", "layers")

    def build(self) -> "HConvNet":
        return HConvNet(self)


class HConvNet(nn.Module):
    """Stacked convolutions. The sentence vector joins the maximum of each channel after every convolution."""

    def __init__(self, config: HConvNetConfig) -> None:
        super().__init__()
        inputs = [config.d, *[config.channels] * (config.layers - 1)]
        self.convolutions = nn.ModuleList(nn.Conv1d(d, config.channels, 3, padding=1) for d in inputs)
        self.width = config.channels * config.layers

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, layers · channels). Phrases (`levels`) are not used."""
        lengths = as_lengths(lengths, words)
        valid = token_mask(lengths, words.shape[1])
        states, pooled = words, []
        for convolution in self.convolutions:
            # padding is set to 0 before every layer, so that a sentence does not depend on its batch
            states = convolution(without_padding(states, lengths).transpose(1, 2)).transpose(1, 2).relu()
            pooled.append(max_over_tokens(states, valid))
        return torch.cat(pooled, -1)


@dataclass(frozen=True)
class TbcnnConfig:
    """The convolution over dependency trees of Mou et al. (2015, 2016).

    Args:
        d: Features of a word, and of a sentence vector.
        relations: Number of relations with a matrix of their own; all rarer ones share the last. 34 give the printed size.
        dropout: Dropout of features.
    """

    d: int = 300
    relations: int = 34
    dropout: float = 0.0

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "relations")
        config.share(self, "dropout")

    def build(self) -> "Tbcnn":
        return Tbcnn(self)


class Tbcnn(nn.Module):
    """y = ReLU(W_p p + Σ_c W_r(c) c + b) for each word p with dependents c of relation r(c), then the maximum over words."""

    def __init__(self, config: TbcnnConfig) -> None:
        super().__init__()
        self.width = config.d
        self.parent = Dense(config.d, config.d, config.dropout)
        self.dependents = nn.ModuleList(
            Dense(config.d, config.d, config.dropout, bias=False) for _ in range(config.relations)
        )

    def forward(self, words: Tensor, lengths: Tensor, edges: Tensor) -> Tensor:
        """words (B, n, d), lengths (B), edges (B, 2, n) = heads (counted from 1, 0 is the root), relations -> (B, d)."""
        lengths = as_lengths(lengths, words)
        B, n, _ = words.shape
        valid = token_mask(lengths, n)
        heads, relations = edges[:, 0], edges[:, 1]
        known = (relations >= 0) & (relations < len(self.dependents))
        inner = (valid & known & (heads > 0)).flatten().nonzero().squeeze(1)
        places = (torch.arange(B, device=words.device).unsqueeze(1) * n + heads - 1).flatten()
        words = without_padding(words, lengths)
        states, words = self.parent(words).flatten(0, 1), words.flatten(0, 1)
        of_relation = relations.flatten()[inner]
        # sorted by relation: one product a relation, and the GPU is waited for once, for the counts
        order = of_relation.argsort(stable=True)
        each = torch.arange(len(self.dependents), device=words.device)
        counts = (of_relation[:, None] == each).sum(0).tolist()
        for dependent, chosen in zip(self.dependents, inner[order].split(counts), strict=True):
            states = states.index_add(0, places[chosen], dependent(words[chosen]))
        return max_over_tokens(states.relu().view(B, n, self.width), valid)


SCALE = 5.0  # c of the scaled tanh


@dataclass(frozen=True)
class DisanConfig:
    """The directional self-attention of Shen et al. (2018).

    Args:
        d: Features of a word.
        dropout: Dropout of the inputs of each linear map.
        units: Features of each direction (0: d); a sentence vector has twice as many.
    """

    d: int = 300
    dropout: float = 0.25
    units: int = 0

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d")
        config.at_least(self, 0, "units")
        config.share(self, "dropout")

    def build(self) -> "Disan":
        return Disan(self)


class Directional(nn.Module):
    """One direction: h = ELU(W_h x + b); f_ij = c tanh((W1 h_j + W2 h_i + b) / c); s_i = Σ_j softmax_j(f_ij) ∘ h_j;
    F = sigmoid(W3 h + W4 s + b); output F ∘ h + (1 − F) ∘ s. s is 0 for a token without any other to attend to."""

    def __init__(self, inputs: int, d: int, dropout: float) -> None:
        super().__init__()
        self.hidden = Dense(inputs, d, dropout)
        self.other, self.own = Dense(d, d, dropout, bias=False), Dense(d, d, dropout)
        self.keep, self.take = Dense(d, d, dropout), Dense(d, d, dropout, bias=False)

    def forward(self, words: Tensor, allowed: Tensor) -> Tensor:
        """words (B, n, inputs), allowed (B, n, n) [from, to] booleans -> (B, n, d)."""
        h = F.elu(self.hidden(words))
        logits = SCALE * ((self.other(h).unsqueeze(1) + self.own(h).unsqueeze(2)) / SCALE).tanh()
        s = (masked_softmax(logits, allowed.unsqueeze(-1), 2) * h.unsqueeze(1)).sum(2)
        fusion = (self.keep(h) + self.take(s)).sigmoid()
        return fusion * h + (1 - fusion) * s


class Disan(nn.Module):
    """Attention to the tokens before and after each token, and multi-dimensional pooling of both."""

    def __init__(self, config: DisanConfig) -> None:
        super().__init__()
        units = config.units or config.d
        self.width = 2 * units
        self.past, self.future = (Directional(config.d, units, config.dropout) for _ in range(2))
        self.summary = SourceToToken(2 * units, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, 2 units). Phrases (`levels`) are not used."""
        lengths = as_lengths(lengths, words)
        words, n = without_padding(words, lengths), words.shape[1]
        valid = token_mask(lengths, n)
        before = torch.ones(n, n, dtype=torch.bool, device=words.device).tril(-1) & valid.unsqueeze(1)
        after = torch.ones(n, n, dtype=torch.bool, device=words.device).triu(1) & valid.unsqueeze(1)
        states = torch.cat([self.past(words, before), self.future(words, after)], -1)
        return self.summary(states, valid)


@dataclass(frozen=True)
class MultiHeadConfig:
    """Paper 001 prints neither heads nor pooling: here one layer of 6 heads, and multi-dimensional pooling.

    Args:
        d: Features of a word, and of the sentence vector.
        heads: Attention heads, with d / heads features each.
        dropout: Dropout of features.
    """

    d: int = 300
    heads: int = 6
    dropout: float = 0.5

    def __post_init__(self) -> None:
        config.at_least(self, 1, "d", "heads")
        config.share(self, "dropout")
        config.divides(self, "heads", "d")

    def build(self) -> "MultiHead":
        return MultiHead(self)


class MultiHead(nn.Module):
    """LN(x + Drop(MultiHead(x))) of words with sinusoidal positions, then multi-dimensional pooling."""

    def __init__(self, config: MultiHeadConfig) -> None:
        super().__init__()
        self.width = config.d
        self.attention = MultiHeadAttention(config.d, config.heads)
        self.residual = AddNorm(config.d, config.dropout)
        self.summary = SourceToToken(config.d, config.dropout)

    def forward(self, words: Tensor, lengths: Tensor, levels: Tensor | None = None) -> Tensor:
        """words (B, n, d), lengths (B) -> (B, d). Phrases (`levels`) are not used."""
        lengths = as_lengths(lengths, words)
        n, d = words.shape[1:]
        # a sentence without words attends to its padding, which the pooling leaves out
        valid = token_mask(lengths.clamp(min=1), n)[:, None, None, :]
        x = without_padding(words, lengths) + sinusoids(torch.arange(n, device=words.device), d).to(words.dtype)
        return self.summary(self.residual(x, lambda y: self.attention(y, y, valid)), token_mask(lengths, n))
