"""Batched beam search with a key/value cache. A beam of 1 is greedy search.

Shapes: B sentences, n source tokens, t target tokens, k candidates that extend a beam.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from phrasemodels.layers import checks
from phrasemodels.layers.ids import BEGIN, END, PAD, UNKNOWN


class IncrementalDecoder(Protocol):
    """A model that decodes token by token. The state that `start` returns has `select(rows)`, to keep some hypotheses."""

    @property
    def project(self) -> Any: ...
    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor: ...
    def start(self, memory: Tensor, lengths: Tensor) -> Any: ...
    def advance(self, target: Tensor, state: Any, /) -> Tensor: ...


@dataclass(frozen=True)
class BeamSearch:
    """Settings of the search.

    beam: hypotheses per sentence. A finished hypothesis y has the score log p(y) / |y|^length_penalty, and at most
    growth · n + extra tokens for a source of n tokens, so that the result does not depend on the batch. unknown: whether
    an answer may hold unknown words. reach: an answer has at most so many times the tokens of the longest target of train
    (0: as many as it likes), so that a model that has learned nothing ends too.
    """

    beam: int = 5
    length_penalty: float = 1.0
    growth: float = 1.5
    extra: int = 10
    unknown: bool = False
    reach: float = 0.0

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "beam")
        checks.at_least(self, 0, "extra")
        checks.not_negative(self, "length_penalty", "growth", "reach")

    def within(self, longest: int) -> "BeamSearch":
        """Return the search with the limit of `reach`, where the longest target of train has so many tokens."""
        limit = int(self.reach * longest)
        return replace(self, growth=0.0, extra=min(limit, self.extra)) if limit and not self.growth else self


@dataclass
class FinishedHypotheses:
    """The finished hypotheses of one sentence: how many there are, and the best with its score."""

    limit: int  # largest number of tokens of a hypothesis
    best: list[int] = field(default_factory=list)
    score: float = float("-inf")
    count: int = 0

    def add(self, history: Tensor, last: Sequence[int], score: float) -> None:
        """Add a hypothesis: tokens (t), which begin with BEGIN, and the last one, unless it is END."""
        self.count += 1
        if score > self.score:
            self.best, self.score = [*history[1:].tolist(), *last], score


@torch.inference_mode()
def beam_search(
    model: IncrementalDecoder, source: Tensor, lengths: Tensor, members: Tensor, search: BeamSearch
) -> list[tuple[list[int], float]]:
    """Return the best translation of each sentence, without BEGIN and END, with its normalised log probability.

    source (B, n), lengths (B), members (B, m, words of a phrase). The model should be in eval mode.
    """
    size, beam = source.shape[0], search.beam
    never = [PAD, BEGIN] if search.unknown else [PAD, BEGIN, UNKNOWN]
    cache = model.start(model.encode(source, lengths, members), lengths)
    cache.select(torch.arange(size, device=source.device).repeat_interleave(beam))
    finished = [FinishedHypotheses(int(search.growth * n + search.extra)) for n in lengths.tolist()]
    alive = list(range(size))  # the sentences that are still searched; rows i · beam .. of the cache are alive[i]
    tokens = torch.full((size, beam, 1), BEGIN, device=source.device)
    scores = torch.full((size, beam), float("-inf"), device=source.device)
    scores[:, 0] = 0.0  # all hypotheses are equal before the first token, so only one counts
    while alive:
        logits = model.project(model.advance(tokens[:, :, -1:].flatten(0, 1), cache))[:, -1].float()
        logits[:, never] = float("-inf")
        candidates = scores.unsqueeze(2) + logits.log_softmax(-1).unflatten(0, (len(alive), beam))
        top, flat = candidates.flatten(1).topk(2 * beam, 1)  # twice the beam: enough even if half of it ends
        parents, words = flat // logits.shape[-1], flat % logits.shape[-1]
        unfinished = _finish(search, finished, alive, tokens, top, parents, words)
        if not unfinished:
            break
        rows = torch.tensor([i for i, _ in unfinished], device=source.device)
        picks = torch.tensor([p for _, p in unfinished], device=source.device)
        scores = top[rows].gather(1, picks)
        parent = parents[rows].gather(1, picks)
        chosen = words[rows].gather(1, picks)
        history = tokens[rows].gather(1, parent.unsqueeze(2).expand(-1, -1, tokens.shape[2]))
        tokens = torch.cat([history, chosen.unsqueeze(2)], 2)
        cache.select((rows.unsqueeze(1) * beam + parent).flatten())
        alive = [alive[i] for i, _ in unfinished]
    return [(f.best, f.score) for f in finished]


def _finish(
    search: BeamSearch,
    finished: list[FinishedHypotheses],
    alive: list[int],
    tokens: Tensor,
    top: Tensor,
    parents: Tensor,
    words: Tensor,
) -> list[tuple[int, list[int]]]:
    """Add the candidates that end to `finished`; return the row of each unfinished sentence and its next beam.

    tokens (B, beam, t); top, parents, words (B, k): score, hypothesis and last word of each candidate, best first.
    """
    length = tokens.shape[2]  # of a candidate that ends now, with END but without BEGIN
    scores, origin, token = top.tolist(), parents.tolist(), words.tolist()
    unfinished = []
    for row, sentence in enumerate(alive):
        done = finished[sentence]
        stay: list[int] = []
        for rank, (score, parent, word) in enumerate(zip(scores[row], origin[row], token[row], strict=True)):
            if word == END and rank < search.beam:
                done.add(tokens[row, parent], (), score / length**search.length_penalty)
            elif word != END and len(stay) < search.beam:
                stay.append(rank)
        best_alive = scores[row][stay[0]]
        if length >= done.limit:
            for rank in stay:
                score = scores[row][rank] / length**search.length_penalty
                done.add(tokens[row, origin[row][rank]], (token[row][rank],), score)
        elif done.count < search.beam or best_alive / length**search.length_penalty > done.score:
            unfinished.append((row, stay))
    return unfinished
