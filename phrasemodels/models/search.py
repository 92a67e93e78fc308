"""Batched beam search with a key/value cache. A beam of 1 is greedy search."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from phrasemodels.layers.ids import BEGIN, END, PAD, UNKNOWN


class Writer(Protocol):
    """A model that writes a target token by token. What `start` gives has `select(rows)`, to keep some hypotheses."""

    @property
    def project(self) -> Any: ...
    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor: ...
    def start(self, memory: Tensor, lengths: Tensor) -> Any: ...
    def advance(self, target: Tensor, state: Any, /) -> Tensor: ...


@dataclass(frozen=True)
class BeamSearch:
    """Settings of the search.

    A finished hypothesis y scores log p(y) / |y|^length_penalty. It has at most growth·n + extra tokens for a source
    of n tokens, so where it ends does not depend on what else is in the batch.
    """

    beam: int = 5
    length_penalty: float = 1.0
    growth: float = 1.5
    extra: int = 10

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam={self.beam}: a search needs at least one hypothesis")


@dataclass
class Finished:
    """The finished hypotheses of one sentence."""

    best: list[int] = field(default_factory=list)
    score: float = float("-inf")
    count: int = 0

    def add(self, tokens: list[int], score: float) -> None:
        self.count += 1
        if score > self.score:
            self.best, self.score = tokens, score


@torch.inference_mode()
def translate(
    model: Writer, source: Tensor, lengths: Tensor, members: Tensor, search: BeamSearch
) -> list[tuple[list[int], float]]:
    """The best translation of each sentence, without BEGIN and END, with its normalised log probability.

    source (B, n), lengths (B), members (B, m, k). The model should be in eval mode.
    """
    size, beam = source.shape[0], search.beam
    limits = [int(search.growth * n + search.extra) for n in lengths.tolist()]
    cache = model.start(model.encode(source, lengths, members), lengths)
    cache.select(torch.arange(size, device=source.device).repeat_interleave(beam))
    finished = [Finished() for _ in range(size)]
    alive = list(range(size))  # the sentences that are still searched; row group i of the cache is alive[i]
    tokens = torch.full((size, beam, 1), BEGIN, device=source.device)
    scores = torch.full((size, beam), float("-inf"), device=source.device)
    scores[:, 0] = 0.0  # all beams are equal before the first token: only one of them counts
    while alive:
        logits = model.project(model.advance(tokens[:, :, -1:].flatten(0, 1), cache))[:, -1].float()
        logits[:, [PAD, BEGIN, UNKNOWN]] = float("-inf")
        candidates = scores.unsqueeze(2) + logits.log_softmax(-1).unflatten(0, (len(alive), beam))
        top, flat = candidates.flatten(1).topk(2 * beam, 1)  # twice the beam: enough even if half of it ends
        parents, words = flat // logits.shape[-1], flat % logits.shape[-1]
        kept = _close(search, finished, alive, limits, tokens, top, parents, words)
        if not kept:
            break
        rows = torch.tensor([i for i, _ in kept], device=source.device)
        picks = torch.tensor([p for _, p in kept], device=source.device)
        scores = top[rows].gather(1, picks)
        parent = parents[rows].gather(1, picks)
        chosen = words[rows].gather(1, picks)
        history = tokens[rows].gather(1, parent.unsqueeze(2).expand(-1, -1, tokens.shape[2]))
        tokens = torch.cat([history, chosen.unsqueeze(2)], 2)
        cache.select((rows.unsqueeze(1) * beam + parent).flatten())
        alive = [alive[i] for i, _ in kept]
    return [(f.best, f.score) for f in finished]


def _close(
    search: BeamSearch,
    finished: list[Finished],
    alive: list[int],
    limits: list[int],
    tokens: Tensor,
    top: Tensor,
    parents: Tensor,
    words: Tensor,
) -> list[tuple[int, list[int]]]:
    """Take out what ends; return, for each sentence that goes on, its row and the candidates that stay in the beam."""
    length = tokens.shape[2]  # tokens of a candidate that ends now, END counted, BEGIN not
    history, scores, origin, token = tokens.tolist(), top.tolist(), parents.tolist(), words.tolist()
    kept = []
    for row, sentence in enumerate(alive):
        done = finished[sentence]
        stay: list[int] = []
        for rank, (score, parent, word) in enumerate(zip(scores[row], origin[row], token[row], strict=True)):
            if word == END and rank < search.beam:
                done.add(history[row][parent][1:], score / length**search.length_penalty)
            elif word != END and len(stay) < search.beam:
                stay.append(rank)
        best_alive = scores[row][stay[0]]
        if length >= limits[sentence]:
            for rank in stay:
                done.add(
                    [*history[row][origin[row][rank]][1:], token[row][rank]],
                    scores[row][rank] / length**search.length_penalty,
                )
        elif done.count < search.beam or best_alive / length**search.length_penalty > done.score:
            kept.append((row, stay))
    return kept
