"""The k best trees of a sentence with their probabilities, by the inference of `structs`."""

import torch
from torch import Tensor

from phrasemodels.models.parser import Decode, Jointly, LazyScores, arcs_alone
from phrasemodels.structs import eisner, joint

LONGEST_RANKED = 100  # words
MOST_RANKED, SAME = 128, 8  # trees that are found, and for each parse, as several may be the same parse


class Ranked:
    """A decoder that finds the best trees of one sentence, and returns the one at a place.

    decode: the decoder of the parser, which says what a tree is. k: trees that are found; of joint trees several are equal but for spans
    without labels. temperature: scores of arcs are divided by it, so that probabilities are as often right as they say.
    ValueError: the parser finds phrases alone, or phrases and arcs apart.
    """

    def __init__(self, decode: Decode, k: int, temperature: float) -> None:
        if not isinstance(decode, Jointly) and decode is not arcs_alone:
            raise ValueError("the trees of this decoder are not ranked: decode jointly or arcs alone")
        self.decode, self.k, self.temperature = decode, k, temperature
        self.found: tuple[Tensor, Tensor] | None = None
        self.scores = self.arcs = self.marginals = self.total = torch.empty(0)

    def __call__(self, place: int, labels: LazyScores, arcs: LazyScores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return cells and heads, (1, 2n-1, 3) and (1, n+1)."""
        if self.found is None:
            own = arcs()
            if isinstance(self.decode, Jointly):
                weight = self.decode.weight
                self.scores, *both = joint.topk(weight * labels(), (1 - weight) * own, self.k, lengths)
                self.found = both[0], both[1]
            else:
                self.scores, heads = eisner.single_root.topk(own, k=self.k, lengths=lengths)
                self.found = heads.new_full((*heads.shape[:2], 2 * heads.shape[2] - 3, 3), -1), heads
            self.arcs = own / self.temperature
            self.total = eisner.single_root.log_partition(self.arcs, lengths=lengths)
            self.marginals = eisner.single_root.marginals(self.arcs, lengths=lengths)
        cells, heads = self.found
        return cells[place], heads[place]

    def possible(self, place: int) -> bool:
        """Whether there are so many trees."""
        return bool(self.scores[place, 0] > -torch.inf)

    def probabilities(self, place: int) -> tuple[float, list[float]]:
        """Return the probability of the dependencies of the tree at a place, and of each of their arcs."""
        assert self.found is not None
        heads = self.found[1][place]
        tree = eisner.score_heads(self.arcs, heads) - self.total
        word = torch.arange(1, heads.shape[1])
        return float(tree.exp().clamp(max=1)), self.marginals[0, heads[0, 1:], word].clamp(0, 1).tolist()
