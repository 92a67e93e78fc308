"""Conditional random fields as modules, with the methods that users of pytorch-crf and supar know.

`CRF` has the parameters of pytorch-crf, by the same names, so that its state dicts load. Shapes: B sequences, T positions, C tags,
n words. What is unknown in a gold structure, a tag or head of -1 or of -100, PyTorch's ignore index, is summed over, as in
training on partially annotated data (Tsuboi et al. 2008).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from phrasemodels.structs import eisner
from phrasemodels.structs.distributions import DependencyTree, LinearChain
from phrasemodels.structs.eisner import Projective
from phrasemodels.structs.inference import check_lengths
from phrasemodels.structs.nonprojective import NonProjective

Reduction = Literal["none", "sum", "mean", "token_mean"]
UNKNOWN = -1, -100


class CRF(nn.Module):
    """A linear chain with scores of transitions, of the first and of the last tag.

    Shapes of arguments: emissions (T, B, C), tags (T, B) and mask (T, B), true inside of sequences; with `batch_first` (B, T, C), (B, T).
    """

    def __init__(self, num_tags: int, batch_first: bool = False):
        super().__init__()
        if num_tags < 1:
            raise ValueError(f"num_tags={num_tags}: must be at least 1")
        self.num_tags, self.batch_first = num_tags, batch_first
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from U(-0.1, 0.1)."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, reduction: Reduction = "sum"
    ) -> Tensor:
        """Return the log likelihood of tags, (B,) or reduced: sum, mean over sequences, or mean over positions (token_mean)."""
        chain = self.distribution(emissions, mask)
        tags = tags if self.batch_first else tags.T
        if tags.shape != chain.scores[0].shape[:2]:
            raise ValueError(f"tags must be {tuple(chain.scores[0].shape[:2])}, not {tuple(tags.shape)}")
        inside = _inside(chain.lengths, tags.shape[1], tags.device)
        known = _known(tags, inside, self.num_tags, "tags")
        value = chain.log_prob(torch.where(inside, tags, -1))
        if (inside & ~known).any():
            unary, pairwise = chain.scores
            given = torch.arange(self.num_tags, device=tags.device) == tags[..., None]
            allowed = unary.masked_fill((inside & known)[..., None] & ~given, -torch.inf)
            value = LinearChain(allowed, pairwise, chain.lengths).log_partition - chain.log_partition
        return _reduced(value, inside, reduction)

    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Return the best tags of each sequence."""
        chain = self.distribution(emissions, mask)
        lengths = [chain.scores[0].shape[1]] * len(chain.scores[0]) if chain.lengths is None else chain.lengths
        return [tags[:n] for tags, n in zip(chain.mode.tolist(), lengths, strict=True)]

    def distribution(self, emissions: Tensor, mask: Tensor | None = None) -> LinearChain:
        """Return the distribution over tags (B, T), with its marginals, samples, k best and entropy."""
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            raise ValueError(
                f"emissions must have 3 dimensions, the last of {self.num_tags} tags, not {tuple(emissions.shape)}"
            )
        if not self.batch_first:
            emissions, mask = emissions.transpose(0, 1), None if mask is None else mask.T
        B, T, _ = emissions.shape
        lengths = check_lengths(None if mask is None else mask.bool(), B, T, emissions.device)
        at = torch.arange(T, device=emissions.device)
        first, last = (at == 0)[:, None], (at == lengths - 1)[..., None]
        unary = emissions + torch.where(first, self.start_transitions, 0) + torch.where(last, self.end_transitions, 0)
        return LinearChain(unary, self.transitions, lengths[:, 0])

    def extra_repr(self) -> str:
        """Return the sizes that `repr` shows."""
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}"


class TreeCRF(nn.Module):
    """Dependency trees, by default projective with one root arc; `trees` is `multi_root` or `single_root` of `eisner` or
    `nonprojective`.

    Shapes of arguments: arcs (B, n+1, n+1) as in `eisner`, heads (B, n+1), of which the root's at 0 is not read, mask (B, n).
    """

    def __init__(self, trees: Projective | NonProjective = eisner.single_root):
        super().__init__()
        self.trees = trees

    def forward(self, arcs: Tensor, heads: Tensor, mask: Tensor | None = None, reduction: Reduction = "sum") -> Tensor:
        """Return the log likelihood of heads, (B,) or reduced as in `CRF`."""
        tree = self.distribution(arcs, mask)
        if heads.shape != arcs.shape[:2]:
            raise ValueError(f"heads must be {tuple(arcs.shape[:2])}, with the root at 0, not {tuple(heads.shape)}")
        words = _inside(tree.lengths, arcs.shape[1] - 1, arcs.device)
        inside = nn.functional.pad(words, (1, 0))
        known = _known(heads, inside, arcs.shape[1], "heads")
        value = tree.log_prob(torch.where(inside, heads, -1))
        if (inside & ~known).any():
            given = torch.arange(arcs.shape[1], device=arcs.device)[:, None] == heads[:, None]
            allowed = arcs.masked_fill((inside & known)[:, None] & ~given, -torch.inf)
            value = DependencyTree(allowed, tree.lengths, self.trees).log_partition - tree.log_partition
        return _reduced(value, words, reduction)

    def decode(self, arcs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the heads (B, n+1) of the best trees, -1 at the root and in the padding."""
        return self.distribution(arcs, mask).mode

    def distribution(self, arcs: Tensor, mask: Tensor | None = None) -> DependencyTree:
        """Return the distribution over trees, with its marginals, samples, k best and entropy."""
        lengths = check_lengths(None if mask is None else mask.bool(), len(arcs), arcs.shape[1] - 1, arcs.device)
        return DependencyTree(arcs, lengths[:, 0], self.trees)


def _inside(lengths: object, longest: int, device: torch.device) -> Tensor:
    """Return which positions (B, longest) are inside of sentences."""
    return torch.arange(longest, device=device) < torch.as_tensor(lengths, device=device)[:, None]


def _known(gold: Tensor, inside: Tensor, count: int, name: str) -> Tensor:
    """Return which numbers of a gold structure are known. ValueError: one inside of a sentence is out of range."""
    unknown = (gold == UNKNOWN[0]) | (gold == UNKNOWN[1])
    if gold.is_floating_point() or (inside & ~unknown & ((gold < 0) | (gold >= count))).any():
        raise ValueError(f"{name} must be integers in 0..{count - 1}, or -1 or -100 for unknown ones")
    return ~unknown


def _reduced(value: Tensor, inside: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return value
    if reduction == "token_mean":
        return value.sum() / inside.sum()
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction={reduction!r}: must be none, sum, mean or token_mean")
    return value.sum() if reduction == "sum" else value.mean()
