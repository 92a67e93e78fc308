"""Training steps of phrase attention (paper 000) beside plain attention: `python benchmarks/hypernode.py [section ...]`.

Every number is the time of a step divided by that of as many layers of torch.nn.MultiheadAttention over the words alone:
the median of ratios over interleaved rounds, on one thread, in CPU time, which other processes hardly change. d=512, 8
heads, float32. `plain` computes the equations of paper 000 with all N² scores, and gets its masks for free; `ours` is the
encoder, which makes its lists in every step. Attention alone is compared (Algorithm 1 as printed), whole layers in the
section `encoder`.
"""

import copy
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from structs import peak_memory
from torch import Tensor, nn

from phrasemodels.encoders.hypernode import (
    LISTS,
    HypernodeEncoder,
    HypernodeEncoderConfig,
    softmax_hadamard,
    softmax_within,
)
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import Replace
from phrasemodels.layers.packing import Packing
from phrasemodels.layers.phrases import PhraseGraph, neighbours, phrase_graph
from phrasemodels.tasks.prepare.phrases import LengthsAndHeads, adjacent

Run = Callable[[], object]
Mask = Callable[[Tensor, PhraseGraph], Tensor]
D, HEADS = 512, 8
BATCH = {13: 32, 30: 16, 128: 4, 256: 2}
LITERAL = HypernodeEncoderConfig(D, HEADS, d_ff=0, dropout=0.0, longest=3, residual=Replace)
MINIMUM = 7  # rounds


def compare(title: str, runs: dict[str, Run], seconds: float = 8.0) -> None:
    """Print the time of the first run, and the ratio of each other run to it."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end, first = time.process_time() + seconds, next(iter(runs))
    while time.process_time() < end or len(taken[first]) < MINIMUM:
        for name, run in runs.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
    ratios = {name: [a / b for a, b in zip(t, taken[first], strict=True)] for name, t in taken.items() if name != first}
    rest = "  ".join(f"{name} {statistics.median(r):5.2f}" for name, r in ratios.items())
    print(
        f"{title:<40}{statistics.median(taken[first]) * 1e3:9.1f} ms  {rest}  ({len(taken[first])} rounds)", flush=True
    )


def step(model: Callable[[Tensor], Tensor], parameters: Iterable[nn.Parameter], words: Tensor) -> Run:
    """Return a run of the forward pass and of the gradients of a loss to words and parameters."""
    wanted = [words, *parameters]
    weight = torch.randn(words.shape)
    return lambda: torch.autograd.grad((model(words) * weight).sum(), wanted, allow_unused=True)


def plain_attention(attention: MultiHeadAttention, x: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute Eq 2, 3, 5 and 7 with all scores; `weights` masks the scores and applies softmax."""
    q, k, v = (attention.split(project(x)) for project in (attention.query, attention.key, attention.value))
    heads = weights(q @ k.transpose(2, 3) / (D // HEADS) ** 0.5) @ v
    return attention.output(attention.sigma(heads).transpose(1, 2).flatten(2))


def neg_inf(scores: Tensor, graph: PhraseGraph) -> Tensor:
    return scores.masked_fill(~graph.related.unsqueeze(1), float("-inf")).softmax(-1)


def hadamard(scores: Tensor, graph: PhraseGraph) -> Tensor:
    return (scores * graph.related.unsqueeze(1)).masked_fill(~graph.valid[:, None, None], float("-inf")).softmax(-1)


def plain(encoder: HypernodeEncoder, graph: PhraseGraph, mask: Mask, words: Tensor) -> Tensor:
    """Compute Algorithm 1."""
    valid = graph.valid[:, None, None]
    nodes = torch.cat([words, words.new_zeros(len(words), graph.incidence.shape[1], D)], 1)
    for layer in encoder.layers:
        nodes = plain_attention(layer.across, nodes, lambda s: s.masked_fill(~valid, float("-inf")).softmax(-1))
        nodes = plain_attention(layer.inside, nodes, lambda s: mask(s, graph))
    return nodes[:, : words.shape[1]]


class Stack(nn.Module):
    """Layers of torch's multi-head attention."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(D, HEADS, batch_first=True) for _ in range(layers))

    def forward(self, words: Tensor) -> Tensor:
        for layer in self.layers:
            words = layer(words, words, words, need_weights=False)[0]
        return words


def sentences(n: int, k: int, B: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words (B, n, d), lengths and adjacent spans of sentences of the same length."""
    _, members = adjacent(LengthsAndHeads(np.array([n])), k)
    words = torch.randn(B, n, D, requires_grad=True)
    return words, torch.full((B,), n), torch.from_numpy(members).long().expand(B, -1, -1)


def steps(n: int, k: int, layers: int, B: int, attend=softmax_within, mask: Mask = neg_inf) -> dict[str, Run]:
    """Return a step of torch, plain and ours; plain and ours have the same weights."""
    words, lengths, members = sentences(n, k, B)
    encoder = HypernodeEncoderConfig(**{**vars(LITERAL), "layers": layers, "attend": attend}).build()
    stack, graph = Stack(layers), phrase_graph(members, lengths, n)
    by_equations = partial(plain, encoder, graph, mask)

    def ours(words: Tensor) -> Tensor:
        return encoder(words, lengths, members)

    with torch.no_grad():
        exact = plain(copy.deepcopy(encoder).double(), graph, mask, words.double())
        gaps = [float((model(words) - exact).abs().max()) for model in (by_equations, ours)]
    print(f"largest difference from float64: plain {gaps[0]:.0e}, ours {gaps[1]:.0e}")
    return {
        "torch": step(stack, stack.parameters(), words),
        "plain": step(by_equations, encoder.parameters(), words),
        "ours": step(ours, encoder.parameters(), words),
    }


def step_section(chosen: Iterable[int] = BATCH) -> None:
    for n in chosen:
        for k in (2, 3):
            for layers in (1, 2, 6):
                compare(f"attention n={n} k={k} layers={layers} B={BATCH[n]}", steps(n, k, layers, BATCH[n]))


def readings_section() -> None:
    for n, B in ((30, 16), (256, 2)):
        runs = steps(n, 3, 2, B, softmax_hadamard, hadamard)
        compare(f"hadamard n={n} k=3 layers=2 B={B}", runs)


def encoder_section() -> None:
    """Compare whole layers with d_ff 2048, residuals, and dropout 0.1 (which makes hypernodes unequal) or 0."""
    for n, B in ((13, 32), (30, 16)):
        for k in (2, 3):
            for dropout in (0.1, 0.0):
                words, lengths, members = sentences(n, k, B)
                transformer = TransformerEncoderConfig(D, HEADS, 2, 2048, dropout).build()
                ours = HypernodeEncoderConfig(D, HEADS, 2, 2048, dropout, k).build()
                runs = {
                    name: step(partial(encoder, lengths=lengths, members=members), encoder.parameters(), words)
                    for name, encoder in (("transformer", transformer), ("ours", ours))
                }
                compare(f"encoder n={n} k={k} layers=2 dropout={dropout}", runs)


def memory_section() -> None:
    torch.set_num_threads(1)
    for n, k, B in ((30, 3, 16), (256, 3, 4)):
        for layers in (1, 2, 6):
            peak_memory(f"attention n={n} k={k} layers={layers} B={B}", steps(n, k, layers, B))


def lists_section() -> None:
    """Compare phase 2 with and without lists, by the number of nodes per neighbour, to set NODES_PER_NEIGHBOUR."""
    for attend in (softmax_within, softmax_hadamard):
        for N in (24, 96, 384):
            for c in (N // 2, N // 3, N // 4, N // 6, N // 12):
                distance = torch.arange(N).view(-1, 1) - torch.arange(N)
                related = (distance.abs() <= (c - 1) // 2).expand(4, -1, -1)
                c = int(related.sum(2).max())
                graph = PhraseGraph(torch.ones(4, N, dtype=torch.bool), related, torch.empty(4, 0, 0))
                packing = Packing(graph.valid)
                lists = neighbours(related, packing, c)
                inputs = [torch.randn(4 * N, HEADS, 64).requires_grad_() for _ in range(3)]

                def dense(inputs=inputs, graph=graph, packing=packing, attend=attend) -> object:
                    padded = (packing.pad(x).transpose(1, 2) for x in inputs)
                    return torch.autograd.grad(packing.pack(attend(*padded, graph).transpose(1, 2)).sum(), inputs)

                def by_lists(inputs=inputs, lists=lists, packing=packing, attend=attend) -> object:
                    return torch.autograd.grad(LISTS[attend](*inputs, lists, packing).sum(), inputs)

                runs = {"dense": dense, "lists": by_lists}
                compare(f"{attend.__name__} N={N} c={c} N/c={N / c:.1f}", runs, 1.0)


SECTIONS = {
    "steps": step_section,
    **{str(n): partial(step_section, [n]) for n in BATCH},
    "readings": readings_section,
    "encoder": encoder_section,
    "memory": memory_section,
    "lists": lists_section,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for section in sys.argv[1:] or ("steps", "readings", "encoder", "memory", "lists"):
        SECTIONS[section]()
