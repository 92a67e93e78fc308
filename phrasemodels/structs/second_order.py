"""Dependency trees with scores of pairs of arcs, by mean field and by loopy belief propagation (Smith and Eisner 2008; Wang and Tu 2020).

Sums over trees with such scores take O(n⁴) and more, or are NP-hard. Both functions take each word's head for one variable, and let the
variables exchange expectations for some steps: the results are approximate marginals, differentiable, and each word's sum to 1. They run
on any device, in plain torch. Without scores of pairs they are exact for heads that are independent of each other.

Shapes: B sentences, n words. Arguments:
    arcs          (B, n+1, n+1): score of word h as the head of word m at [h, m]; position 0 is the root
    siblings      (B, n+1, n+1, n+1): score of both arcs h → m and h → s at [h, m, s], which is read as symmetric in m and s
    grandparents  (B, n+1, n+1, n+1): score of both arcs g → h and h → m at [g, h, m]
    lengths       (B,) numbers of words, a tensor or a list, or a mask (B, n); None: all are n

A score of -inf in `arcs`, or below -1e12, forbids an arc; the others must be finite. Scores in the padding are not read. Time is
O(B·n³) a step.
"""

import torch
from torch import Tensor

from phrasemodels.structs import dispatch
from phrasemodels.structs.dispatch import Lengths
from phrasemodels.structs.eisner import arcs_read


def mean_field(arcs: Tensor, siblings: Tensor | None = None, grandparents: Tensor | None = None, lengths: Lengths = None,
               steps: int = 3) -> Tensor:  # fmt: skip
    """Return p(arc), (B, n+1, n+1), 0 where no arc is read: each word's heads given the expected arcs of the step before."""
    arcs, siblings, grandparents, read = _prepared(arcs, siblings, grandparents, lengths)
    q = _heads(arcs, read)
    with torch.autocast(arcs.device.type, enabled=False):
        for _ in range(steps):
            scores = arcs
            if siblings is not None:
                scores = scores + torch.einsum("bhs,bhms->bhm", q, siblings)
            if grandparents is not None:
                scores = (
                    scores + torch.einsum("bgh,bghm->bhm", q, grandparents) + torch.einsum("bmc,bhmc->bhm", q, grandparents)
                )
            q = _heads(scores, read)
    return q


def belief_propagation(arcs: Tensor, siblings: Tensor | None = None, grandparents: Tensor | None = None, lengths: Lengths = None,
                       steps: int = 3) -> Tensor:  # fmt: skip
    """Return p(arc), (B, n+1, n+1), as `mean_field`, by messages between the pairs of arcs that have a score.

    An arc is a variable of 0 or 1, and each word's factor lets one of its arcs be 1. The message of a pair to one arc is log E[exp score]
    under the other arc's probability without that message.
    """
    arcs, siblings, grandparents, read = _prepared(arcs, siblings, grandparents, lengths)
    once = None if siblings is None else siblings.triu(1)  # each pair of siblings has one factor
    pairs = {name: x for name, x in (("siblings", once), ("grandparents", grandparents)) if x is not None}
    # to the first arc, to the second
    messages = {name: (torch.zeros_like(x), torch.zeros_like(x)) for name, x in pairs.items()}
    q = _heads(arcs, read)
    with torch.autocast(arcs.device.type, enabled=False):
        for _ in range(steps):
            sums = arcs
            for name, x in pairs.items():
                first, second = ("bhms->bhm", "bhms->bhs") if name == "siblings" else ("bghm->bgh", "bghm->bhm")
                one, other = _arcs_of(name, q)
                to_first, to_second = messages[name]
                messages[name] = _message(other, to_second, x), _message(one, to_first, x)
                sums = sums + torch.einsum(first, messages[name][0]) + torch.einsum(second, messages[name][1])
            q = _heads(sums, read)
    return q


def _arcs_of(name: str, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probabilities of both arcs of each pair, which broadcast to the scores of pairs."""
    return (q[..., None], q[:, :, None]) if name == "siblings" else (q[..., None], q[:, None])


def _message(p: Tensor, before: Tensor, score: Tensor) -> Tensor:
    """Return log(1 + p' (exp score − 1)), with p' the probability p of the other arc without its message `before`."""
    odds = torch.logit(p.clamp(1e-7, 1 - 1e-7)) - before
    return torch.logaddexp(-torch.nn.functional.softplus(odds), score - torch.nn.functional.softplus(-odds))


def _heads(scores: Tensor, read: Tensor) -> Tensor:
    """Return each word's probabilities of heads from its scores; 0 for words that have none."""
    masked = scores.masked_fill(~read, -torch.inf)
    none = (masked == -torch.inf).all(1, keepdim=True)
    return masked.masked_fill(none, 0).softmax(1).masked_fill(none | ~read, 0)


def _prepared(arcs: Tensor, siblings: Tensor | None, grandparents: Tensor | None,
              lengths: Lengths) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:  # fmt: skip
    """Return scores with 0 for what is not read, and which arcs are. ValueError: a shape is wrong."""
    if arcs.dim() != 3 or arcs.shape[1] != arcs.shape[2]:
        raise ValueError(f"arcs must be (B, n+1, n+1) with the root at 0, not {tuple(arcs.shape)}")
    B, N, _ = arcs.shape
    for name, x in (("siblings", siblings), ("grandparents", grandparents)):
        if x is not None and x.shape != (B, N, N, N):
            raise ValueError(f"{name} must be {(B, N, N, N)}, not {tuple(x.shape)}")
    read = arcs_read(arcs, dispatch.check_lengths(lengths, B, N - 1, arcs.device))
    if siblings is not None:
        different = ~torch.eye(N, dtype=torch.bool, device=arcs.device)
        both = read[..., None] & read[:, :, None] & different
        siblings = torch.where(both, (siblings + siblings.transpose(2, 3)) / 2, 0)
    if grandparents is not None:
        grandparents = torch.where(read[..., None] & read[:, None], grandparents, 0)
    return torch.where(read, dispatch.forbidding(arcs), 0), siblings, grandparents, read
