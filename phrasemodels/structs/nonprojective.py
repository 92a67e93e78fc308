"""Dependency trees whose arcs may cross, with any number of root arcs (`multi_root`) or one (`single_root`).

Arguments and structures are as in `eisner`: arcs (B, n+1, n+1) with the score of word h as the head of word m at [h, m] and the
root at 0, and lengths (B,). Time is O(B·n³).

log Z is the logarithm of the determinant of Tutte's matrix-tree theorem (Koo et al. 2007; Smith and Smith 2007). The
determinant itself loses all digits if scores spread widely. So words are eliminated one by one without any subtraction, as
Grassmann, Taksar and Heyman (1985) do for Markov chains: a word v with the heads' sum s_v = Σ_h w(h, v) leaves

    Z(w) = s_v Z(w'),    w'(h, m) = w(h, m) + w(h, v) w(v, m) / s_v

which is Gaussian elimination with every sum of a column kept instead of recomputed. With one root arc, root arcs are left out
of s_v, so that they count to first order only, and the last word's is taken. Logarithms make it right at any spread. The next
word is the one with the largest s_v.

MAP is by Chu and Liu (1965) and Edmonds (1967), the k best trees by dividing what is left (Murty 1968). Samples reverse the
elimination: see `kernels.arborescences`.
"""

import torch
from torch import Tensor

from phrasemodels.structs import dispatch, kernels
from phrasemodels.structs.dispatch import transformed
from phrasemodels.structs.eisner import DependencyTrees
from phrasemodels.structs.kernels import Entropy, Kernel
from phrasemodels.structs.kernels.arborescences import Arborescences, Determinants
from phrasemodels.structs.semiring import Log, in_float64, logsumexp
from phrasemodels.structs.structure import Scores, differentiated


class NonProjective(DependencyTrees):
    """The functions over all dependency trees, for any number of root arcs or one. They have no `total`.

    `argmax`, `topk` and `sample` compute on the CPU, wherever the scores are; `topk` takes O(B·k·n⁴) time.
    """

    kernels = (Arborescences(), Determinants())

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """Return log Z, (1, B); only the semiring of logarithms has the division that elimination needs."""
        if type(semiring) is not Log:
            raise NotImplementedError("trees whose arcs may cross: only log Z has an inside pass")
        (read,) = self.valid(scores, lengths)
        if scores[0].shape[1] == 1:
            return torch.where(read, scores[0], 0).sum((1, 2))[None]  # one tree, the empty one
        arcs = torch.where(read, scores[0], -torch.inf)
        total = _eliminate(arcs[:, 0, 1:], arcs[:, 1:, 1:], lengths[:, 0], self.one_root)
        return torch.where(lengths[:, 0] == 0, 0, total)[None]

    def _entropy(self, scores: Scores, lengths: Tensor) -> Tensor:
        if transformed() or differentiated(scores):
            return Entropy.apply(self, lengths, *scores)
        # log Z and E[score] of scores whose largest of each word is 0: their sums keep the digits
        (arcs,) = in_float64(scores)
        allowed = self.valid((arcs,), lengths)[0] & (arcs != -torch.inf)
        top = arcs.masked_fill(~allowed, -torch.inf).amax(1, keepdim=True)
        centred = torch.where(allowed, arcs - top.masked_fill(top == -torch.inf, 0), -torch.inf)
        if kernel := self.kernel(Kernel.marginals, (centred,)):
            log_z, (p,) = kernel.marginals(self, (centred,), lengths, 1.0, (0,), True)
        else:
            log_z, (p,) = self._log_partition((centred,), lengths), self._expected_parts((centred,), lengths)
        expected = torch.where(allowed, p * centred, 0).sum((1, 2))
        return torch.where(log_z == -torch.inf, 0, (log_z - expected).clamp(min=0)).to(scores[0].dtype)

    def _k_best(self, scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        best, heads = kernels.on_cpu(lambda arcs, n: self.kernels[0].topk(self, (arcs,), n, k), *scores, lengths)
        return best.to(scores[0]), heads.to(scores[0].device)

    def _best(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        best, heads = kernels.on_cpu(lambda arcs, n: self.kernels[0].best(self, (arcs,), n), *scores, lengths)
        return best.to(scores[0]), heads.to(scores[0].device)

    def _draw(self, scores: Scores, lengths: Tensor, k: int, generator: torch.Generator | None) -> Tensor:
        (arcs,) = scores
        draws = torch.rand((k, *arcs.shape), generator=generator, dtype=torch.float64, device=arcs.device)
        heads = kernels.on_cpu(lambda *x: self.kernels[0].draw(self, (x[0],), x[1], x[2]), arcs, lengths, draws)
        return heads.to(arcs.device)


multi_root = NonProjective(one_root=False)
single_root = NonProjective(one_root=True)


def _eliminate(root: Tensor, words: Tensor, lengths: Tensor, one_root: bool) -> Tensor:
    """Return log Z (B,) from the log weights of `_weights`."""
    B, n = root.shape
    sentence, at = torch.arange(B, device=root.device), torch.arange(n, device=root.device)
    left, total = at < lengths[:, None], torch.zeros_like(root[:, 0])
    for _ in range(n - 1):
        more = left.sum(1) > 1
        sums = logsumexp(words, 1)
        if not one_root:
            sums = logsumexp(torch.stack([sums, root], 1), 1)
        v = torch.where(left, sums.detach(), -torch.inf).argmax(1)
        # argmax takes any word if all sums are -inf
        v = torch.where(left[sentence, v], v, left.to(torch.int8).argmax(1))
        s = sums[sentence, v]
        out = words[sentence, v] - s.masked_fill(s == -torch.inf, 0)[:, None]
        gone = more[:, None] & (at == v[:, None])
        keep = ~gone & left
        path = words[sentence, :, v][:, :, None] + out[:, None]
        allowed = (keep[:, :, None] & keep[:, None]) & (at[:, None] != at)
        both = logsumexp(torch.stack([words, torch.where(more[:, None, None], path, -torch.inf)]), 0)
        by_root = torch.where(more[:, None], root[sentence, v][:, None] + out, -torch.inf)
        root = torch.where(keep, logsumexp(torch.stack([root, by_root]), 0), -torch.inf)
        words = torch.where(allowed, both, -torch.inf)
        left = keep
        total = total + torch.where(more, s, 0)
    return total + logsumexp(root, 1)


dispatch.register("nonprojective", multi_root.first_calls(), (1, 3, 3))
