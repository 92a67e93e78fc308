"""The register of structures: each once, with random valid inputs. Tests of what holds for all of them go over it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from phrasemodels.structs import alignment, chain, distributions, eisner, joint, nonprojective, pcfg, semimarkov, spans
from phrasemodels.structs.structure import Structure


class Registered(NamedTuple):
    """Functions, their distribution, shapes of scores of two sentences, and lengths of both."""

    functions: Structure
    distribution: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    lengths: Any

    def scores(self, dtype: torch.dtype = torch.float64, std: float = 1.0, seed: int = 0) -> list[Tensor]:
        """Return normal scores."""
        gen = torch.Generator().manual_seed(seed)
        return [(torch.randn(*s, generator=gen, dtype=torch.float64) * std).to(dtype) for s in self.shapes]


class _HigherOrderChain(distributions.Structured):
    def __init__(self, unary: Tensor, pairwise: Tensor, lengths: Any = None):
        super().__init__(SECOND_ORDER, (unary, pairwise), lengths)


def _trees(functions: Any, n: int) -> Registered:
    make = lambda arcs, lengths: distributions.DependencyTree(arcs, lengths, functions)  # noqa: E731
    return Registered(functions, make, ((2, n + 1, n + 1),), [n, n - 1])


def _aligned(functions: alignment.Alignment, *shapes: tuple[int, ...], lengths: Any) -> Registered:
    def make(*given: Any) -> distributions.MonotoneAlignment:
        return distributions.MonotoneAlignment(*given[:-1], lengths=given[-1], moves=functions)

    return Registered(functions, make, shapes, lengths)


SECOND_ORDER = chain.HigherOrder(2)
STRUCTURES = {
    "chain": Registered(chain.linear_chain, distributions.LinearChain, ((2, 4, 3), (3, 3)), [4, 2]),
    "chain, by position": Registered(chain.linear_chain, distributions.LinearChain, ((2, 4, 2), (2, 3, 2, 2)), [4, 3]),
    "second order": Registered(SECOND_ORDER, _HigherOrderChain, ((2, 4, 2), (2, 2, 2)), [4, 3]),
    "semi-Markov": Registered(semimarkov.segmentations, distributions.SemiMarkovChain, ((2, 4, 3, 2), (2, 2)), [4, 2]),
    "multi-root": _trees(eisner.multi_root, 3),
    "single-root": _trees(eisner.single_root, 4),
    "crossing, multi-root": _trees(nonprojective.multi_root, 3),
    "crossing, single-root": _trees(nonprojective.single_root, 3),
    "spans": Registered(spans.labelled_spans, distributions.LabelledSpans, ((2, 3, 3, 2),), [3, 2]),
    "joint": Registered(joint.joint_trees, distributions.JointTree, ((2, 3, 3, 2), (2, 4, 4)), [3, 2]),
    "warping": _aligned(alignment.warping, (2, 3, 4), lengths=[[3, 4], [2, 3]]),
    "frames": _aligned(alignment.frames, (2, 4, 3), (2, 3, 2), lengths=[[4, 3], [3, 2]]),
    "ctc": _aligned(alignment.ctc, (2, 4, 3), (2, 4, 3, 3), lengths=[[4, 3], [3, 3]]),
    "grammar": Registered(pcfg.trees, distributions.Parse, ((2, 4, 2), (2, 4, 4), (2,)), [4, 3]),
}
