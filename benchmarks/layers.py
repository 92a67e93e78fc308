"""Speed and memory of layers and encoders: `python benchmarks/layers.py [section ...]`. One thread, CPU time, interleaved rounds.

Numbers are the times of all but the first, as multiples of the first. Memory is the growth of the resident set in a step (Linux).

    attention, 13, 30, 128, 256, readings, hypernode, hypernode_memory, lists
                    paper 000, beside as many layers of torch's attention over the words alone: `plain` computes the equations with all
                    N² scores and gets its masks for free, `ours` is the encoder, which makes its lists in every step
    psan            paper 001: attention inside phrases beside a mask over pairs of words, and whole models
    ngrams          paper 002: parameters, a layer and a model beside the Transformer, memory
    structured      paper 003: an update beside simple attention; the authors' structured attention took 5 times as long
    encoders        every encoder beside nn.TransformerEncoder of equal size, with the multiplications of each
"""

import copy
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from structs import Run, compare, peak_memory
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from phrasemodels.encoders.baselines import DisanConfig, MultiHeadConfig
from phrasemodels.encoders.hypernode import (
    LISTS,
    HypernodeEncoder,
    HypernodeEncoderConfig,
    softmax_hadamard,
    softmax_within,
)
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.encoders.psan import PsanConfig, recompute_activations
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.encoders.transformer import NgramEncoderConfig, TransformerEncoderConfig, TransformerEncoderLayer
from phrasemodels.flows.experiments.paper_002 import LAYERS, MODELS, PAPERS, TRANSFORMER, Size, changed
from phrasemodels.flows.experiments.paper_003 import ENTAILMENT, PARENTS, SYSTEMS, TRANSLATION, WEIGHTS
from phrasemodels.inference.inputs import phrases
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.blocks import Packing, Replace
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.layers.multidim import attend_blocks, attend_within, boundaries
from phrasemodels.layers.ngrams import NgramBiLSTM, NgramSum, Readout, final_states, residual_gate
from phrasemodels.layers.phrases import PhraseGraph, neighbours, phrase_graph
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import DecomposableConfig, LearnedEmbedding, SentencePairConfig
from phrasemodels.models.translation import TranslationConfig, token_loss
from phrasemodels.tasks.train.trainer import keep_freed_memory

Mask = Callable[[Tensor, PhraseGraph], Tensor]
D, HEADS = 512, 8
BATCH = {13: 32, 30: 16, 128: 4, 256: 2}
LITERAL = HypernodeEncoderConfig(D, HEADS, d_ff=0, dropout=0.0, longest=3, residual=Replace)


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


def by_algorithm(encoder: HypernodeEncoder, graph: PhraseGraph, mask: Mask, words: Tensor) -> Tensor:
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


def spans_of_sentences(n: int, k: int, B: int) -> tuple[Tensor, Tensor, Tensor]:
    """Words (B, n, d), lengths and adjacent spans of sentences of the same length."""
    members = phrases("adjacent", n, k)
    words = torch.randn(B, n, D, requires_grad=True)
    return words, torch.full((B,), n), torch.from_numpy(members).long().expand(B, -1, -1)


def steps(n: int, k: int, layers: int, B: int, attend=softmax_within, mask: Mask = neg_inf) -> dict[str, Run]:
    """Return a step of torch, plain and ours; plain and ours have the same weights."""
    words, lengths, members = spans_of_sentences(n, k, B)
    encoder = HypernodeEncoderConfig(**{**vars(LITERAL), "layers": layers, "attend": attend}).build()
    stack, graph = Stack(layers), phrase_graph(members, lengths, n)
    by_equations = partial(by_algorithm, encoder, graph, mask)

    def ours(words: Tensor) -> Tensor:
        return encoder(words, lengths, members)

    with torch.no_grad():
        exact = by_algorithm(copy.deepcopy(encoder).double(), graph, mask, words.double())
        gaps = [float((model(words) - exact).abs().max()) for model in (by_equations, ours)]
    print(f"largest difference from float64: plain {gaps[0]:.0e}, ours {gaps[1]:.0e}")
    return {
        "torch": step(stack, stack.parameters(), words),
        "plain": step(by_equations, encoder.parameters(), words),
        "ours": step(ours, encoder.parameters(), words),
    }


def attention_section(chosen: Iterable[int] = BATCH) -> None:
    for n in chosen:
        for k in (2, 3):
            for layers in (1, 2, 6):
                compare(f"attention n={n} k={k} layers={layers} B={BATCH[n]}", steps(n, k, layers, BATCH[n]), 1)


def readings_section() -> None:
    for n, B in ((30, 16), (256, 2)):
        runs = steps(n, 3, 2, B, softmax_hadamard, hadamard)
        compare(f"hadamard n={n} k=3 layers=2 B={B}", runs, 1)


def hypernode_section() -> None:
    """Compare whole layers with d_ff 2048, residuals, and dropout 0.1 (which makes hypernodes unequal) or 0."""
    for n, B in ((13, 32), (30, 16)):
        for k in (2, 3):
            for dropout in (0.1, 0.0):
                words, lengths, members = spans_of_sentences(n, k, B)
                transformer = TransformerEncoderConfig(D, HEADS, 2, 2048, dropout).build()
                ours = HypernodeEncoderConfig(D, HEADS, 2, 2048, dropout, k).build()
                runs = {
                    name: step(partial(encoder, lengths=lengths, members=members), encoder.parameters(), words)
                    for name, encoder in (("transformer", transformer), ("ours", ours))
                }
                compare(f"encoder n={n} k={k} layers=2 dropout={dropout}", runs, 1)


def hypernode_memory_section() -> None:
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


WIDE = 300
SHARES = (0.17, 0.32, 0.5)  # phrases per word on each level, about as in Table 1 of the paper


def every_pair(u: Tensor, w: Tensor, p: Tensor, valid: Tensor) -> Tensor:
    """Attend over whole sentences with padding, (B, n, n, d); phrases as a mask would take the same time."""
    hidden = torch.eye(u.shape[1], dtype=torch.bool) | ~valid.unsqueeze(1)
    logits = F.elu(u.unsqueeze(2) + w.unsqueeze(1)).masked_fill(hidden.unsqueeze(-1), -1e9)
    return (logits.softmax(2) * p.unsqueeze(1)).sum(2)


def sentences(B: int, mean: int) -> tuple[Tensor, Tensor]:
    """Return lengths (B) from half the mean to 1.5 times the mean, and levels (B, 3, n) cut at random places."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(mean // 2, mean * 3 // 2 + 1, (B,), generator=generator)
    n = int(lengths.max())
    levels = torch.zeros(B, 3, n, dtype=torch.long)
    for row, length in enumerate(lengths.tolist()):
        order = (
            torch.randperm(length - 1, generator=generator) + 1
        )  # a cut of a coarse level is one of all finer levels
        for level, share in enumerate(SHARES):
            levels[row, level, order[: max(1, round(share * length) - 1)]] = 1
    return lengths, levels.cumsum(-1)


def attention_runs(B: int, mean: int) -> dict[str, Callable[[], object]]:
    lengths, levels = sentences(B, mean)
    valid = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    padded = [torch.randn(*valid.shape, WIDE, requires_grad=True) for _ in range(3)]
    packed = [x.detach()[valid].requires_grad_() for x in padded]
    bounds = [boundaries(level, valid) for level in levels.unbind(1)]
    whole = [boundaries(torch.zeros_like(levels[:, 0]), valid)] * 3
    weight = torch.randn(*valid.shape, WIDE)

    def levels_of(attend: Callable[..., Tensor], inputs: list[Tensor], masks: list[Tensor], grad: Tensor) -> None:
        for mask in masks:
            torch.autograd.grad(attend(*inputs, mask), inputs, grad)

    return {
        "kernel": partial(levels_of, attend_within, packed, bounds, weight[valid]),
        "blocks": partial(levels_of, attend_blocks, packed, bounds, weight[valid]),
        "every pair": partial(levels_of, every_pair, padded, [valid] * 3, weight),
        "kernel, whole sentences": partial(levels_of, attend_within, packed, whole, weight[valid]),
    }


PAIR_MODELS = {
    "PSAN": PsanConfig(WIDE),
    "PSAN recomputed": PsanConfig(WIDE, run=recompute_activations),
    "DiSAN": DisanConfig(WIDE),
    "Multi-head": MultiHeadConfig(WIDE),
}


def score_bytes(B: int, n: int) -> str:
    """Return the memory of the scores of B pairs in float32, if all were saved: Σ l² d over phrases, 2 n² d, h n²."""
    lengths, levels = sentences(2 * B, n)
    pairs = lengths.square().sum().item()
    valid = torch.arange(levels.shape[2]) < lengths.unsqueeze(1)
    inside = sum(boundaries(level, valid).diff().square().sum().item() for level in levels.unbind(1))
    counts = {"PSAN": inside * WIDE, "DiSAN": 2 * pairs * WIDE, "Multi-head": pairs * MultiHeadConfig(WIDE).heads}
    return "  ".join(f"{name} {4 * count / 2**20:.1f} MB" for name, count in counts.items())


def parts_runs(B: int, n: int) -> dict[str, Callable[[], object]]:
    """Return forward and backward passes of PSAN on B pairs, and of its parts: the linear maps, three levels of attention
    inside phrases, and the pooling, whose maps are among the linear maps."""
    lengths, levels = sentences(2 * B, n)
    valid = torch.arange(levels.shape[2]) < lengths.unsqueeze(1)
    encoder = PsanConfig(WIDE).build()
    words = torch.randn(*valid.shape, WIDE, requires_grad=True)
    inputs = {width: torch.randn(int(lengths.sum()), width, requires_grad=True) for width in (WIDE, 2 * WIDE)}
    linear = [layer for layer in encoder.modules() if isinstance(layer, torch.nn.Linear)]
    repeated = [encoder.memory.gate, encoder.memory.write] * 2  # by the second and third level

    def maps() -> None:
        for layer in linear + repeated:
            F.linear(inputs[layer.in_features], layer.weight, layer.bias).sum().backward()

    return {
        "encoder": lambda: encoder(words, lengths, levels).sum().backward(),
        "maps": maps,
        "weights": attention_runs(2 * B, n)["kernel"],
        "summary": lambda: encoder.summary(words, valid).sum().backward(),
    }


def training_runs(B: int, n: int) -> dict[str, Callable[[], object]]:
    """Return a training step of each model on B pairs whose sentences have n words on average."""
    lengths, levels = sentences(2 * B, n)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 1000, levels[:, 0].shape, generator=generator)
    gold = torch.randint(0, 3, (B,), generator=generator)

    def step(model: torch.nn.Module) -> None:
        F.cross_entropy(model(tokens, lengths, levels), gold).backward()
        for parameter in model.parameters():
            parameter.grad = None

    return {name: partial(step, SentencePairConfig(config, words=1000).build()) for name, config in PAIR_MODELS.items()}


def psan_section() -> None:
    for B, mean in ((16, 10), (64, 20), (16, 40)):
        runs = attention_runs(B, mean)
        compare(f"attention, 3 levels, {B} sentences of {mean}", runs, 1)
        peak_memory(f"attention, 3 levels, {B} sentences of {mean}", runs)
    compare("parts of PSAN, 16 pairs of 20", parts_runs(16, 20), 1)
    for B in (16, 64):
        for n in (10, 20, 40, 80):
            print(f"{f'scores, {B} pairs of {n}':<46}      {score_bytes(B, n)}")
            runs = training_runs(B, n)
            if (B, n) != (64, 80):  # DiSAN takes minutes for 128 sentences of 80 words
                compare(f"training step, {B} pairs of {n}", runs, 1)
            if 128 * n * n * (B // 16) < 1_000_000:
                peak_memory(f"training step, {B} pairs of {n}", runs)


ROWS, SOURCE, TARGET, V = 64, 13, 24, 5854


class Unfolded(nn.Module):
    """A gram encoder that does what the released code does: copy every window, and run a torch LSTM over all of them."""

    def __init__(self, width: int, readout: Readout) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, bidirectional=True)

    def forward(self, states: Tensor, size: int) -> Tensor:
        windows = states.unfold(0, size, 1).permute(3, 0, 1, 2)
        _, (hidden, _) = self.lstm(windows.reshape(size, -1, states.shape[-1]))
        return hidden.sum(0).view(windows.shape[1:])


PLAIN = TransformerEncoderConfig(dropout=0.0)
OURS = NgramEncoderConfig(dropout=0.0)
ENCODERS = {
    "plain": PLAIN,
    "released": dataclasses.replace(OURS, gram_encoder=Unfolded),
    "ours": OURS,
    "ours, gate": dataclasses.replace(OURS, gate=residual_gate),
    "ours, sum": dataclasses.replace(OURS, gram_encoder=NgramSum),
    "ours, layer 1 only": dataclasses.replace(OURS, phrase_layers=(1,)),
}


def layer_step(name: str) -> Callable[[], None]:
    """Return a training step of the first encoder layer over 64 sentences of 16 words."""
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(ENCODERS[name], 1)
    x, packing = torch.randn(ROWS * 16, D, requires_grad=True), Packing(torch.ones(ROWS, 16, dtype=torch.bool))

    def step() -> None:
        layer(x, packing).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return step


def model_step(name: str) -> Callable[[], None]:
    """Return a training step of the whole model, six layers on both sides."""
    torch.manual_seed(0)
    model = TranslationConfig(ENCODERS[name], V, V, shared=True, output_bias=True).build()
    source, target = torch.randint(4, V, (ROWS, SOURCE)), torch.randint(4, V, (ROWS, TARGET + 1))
    lengths, no_phrases = torch.full((ROWS,), SOURCE), torch.empty(ROWS, 0, 2, dtype=torch.long)

    def step() -> None:
        (token_loss(model, source, lengths, no_phrases, target, 0.0) / (ROWS * TARGET)).backward()
        model.zero_grad(set_to_none=True)

    return step


def peak(name: str) -> None:
    """Print the growth of the peak memory of this process in three steps of a layer, MiB."""
    torch.set_num_threads(1)
    step = layer_step(name)
    NgramBiLSTM(8, final_states)(torch.ones(4, 2, 8, requires_grad=True), 2).sum().backward()  # compiles the kernels
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    for _ in range(3):
        step()
    print(f"{resident('VmHWM') - before:.0f}")


def parameters() -> None:
    """Print the numbers of parameters of the paper's rows at its size (Tables 4 and 5)."""
    print(f"parameters, six layers on both sides, {V} words in one vocabulary")
    parts = (dataclasses.replace(changed(MODELS[3], layers=at), slug=n) for n, at in LAYERS.items())
    for row in (TRANSFORMER, *MODELS, *parts):
        with torch.device("meta"):
            encoder = row.model.encoder(Size(512, 8, 6, 2048, 0.1), PAPERS, 0.0)
            whole = TranslationConfig(encoder, V, V, shared=True, output_bias=True).build()
            added = count(encoder.build()) - count(PLAIN.build())
        sizes = ";".join(map(str, row.model.sizes))
        print(f"  {row.slug:12} {sizes:16} n-grams {added:9,}  model {count(whole):10,}")


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def resident(line: str) -> float:
    """Return a line of /proc/self/status in MiB (Linux)."""
    return int(re.search(rf"{line}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]


def ngrams_section() -> None:
    """Parameters, speed and memory of the n-gram encoder (paper 002); plain: the Transformer, released: windows are copied, and an LSTM
    of torch runs over the copies."""
    parameters()
    keep_freed_memory()
    compare("encoder layer", {name: layer_step(name) for name in list(ENCODERS)[:-1]}, 1, 8.0)
    compare("model, 6 + 6 layers", {name: model_step(name) for name in ENCODERS}, 1, 20.0)
    print("peak of a layer's step, MiB")
    for name in ("plain", "released", "ours"):
        # freed blocks return to the kernel, so the peak counts live blocks alone
        malloc = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
        command = [sys.executable, __file__, f"peak {name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=malloc)
        print(f"  {name:22} {done.stdout.strip()}")


KINDS = 5000


def update(model: Any, loss: Callable[[Any], torch.Tensor]) -> Run:
    """Return a run of one update by plain gradient descent, which costs the same for all models."""
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)

    def run() -> None:
        loss(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return run


def nmt(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on sentences of up to 30 characters and 12 words: simple, sigmoid and structured attention."""
    chosen = TRANSLATION[profile]
    source, target = torch.randint(4, KINDS, (rows, 30)), torch.randint(4, KINDS, (rows, 13))
    lengths, members = torch.randint(15, 31, (rows,)), torch.zeros(rows, 0, 2).long()

    def loss(model: Any) -> torch.Tensor:
        scores = model(source, lengths, members, target[:, :-1])
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())

    encoder = LSTMEncoderConfig(chosen.size.d, chosen.size.layers)
    return {
        name: update(RecurrentConfig(encoder, KINDS, KINDS, chosen.size.layers, weights=weights).build(), loss)
        for name, (_, weights) in WEIGHTS.items()
    }


def babi(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on stories of 25 facts of 7 words: hops, and chains of two facts."""
    facts, question, answer = (torch.randint(1, 40, shape) for shape in ((rows, 25, 7), (rows, 4), (rows,)))
    runs = {}
    for system in SYSTEMS[profile]:
        config = system.model(2, system.starts)
        config = type(config)(**{**vars(config), "vocabulary": 40})
        runs[system.slug] = update(
            config.build(), lambda model: torch.nn.functional.cross_entropy(model(facts, question), answer)
        )
    return runs


def snli(profile: str, rows: int) -> dict[str, Run]:
    """Return updates on premises of up to 15 and hypotheses of up to 9 words: simple, no and structured attention."""
    chosen = ENTAILMENT[profile]
    label = torch.randint(0, 3, (rows,))
    sides = []
    for longest in (16, 10):
        ids, lengths = torch.randint(4, KINDS, (rows, longest)), torch.randint(longest // 2, longest + 1, (rows,))
        sides.append((ids, lengths, torch.full_like(ids, -1)))

    def loss(model: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(*sides), label)

    return {
        name: update(
            DecomposableConfig(PARENTS[name][1](chosen.size.d, chosen.h), KINDS, embed=LearnedEmbedding).build(), loss
        )
        for name in ("simple", "none", "structured")
    }


TABLES = {"nmt": nmt, "babi": babi, "snli": snli}
TABLE_ROWS = {("nmt", "paper"): 128, ("babi", "paper"): 1}


def structured_section() -> None:
    """An update of the models of paper 003; simple attention comes first."""
    keep_freed_memory()
    for table, make in TABLES.items():
        for profile in ("laptop", "paper"):
            rows = TABLE_ROWS.get((table, profile), 32)
            compare(f"{table}, {profile}, {rows} rows", make(profile, rows), 1, seconds=4.0)


def encoders_section() -> None:
    """Both passes of each encoder beside nn.TransformerEncoder of equal size: times, and the multiplications that torch counts."""
    B, n, d = 32, 24, 256
    words, lengths, members = spans_of_sentences(n, 3, B)
    words = torch.randn(B, n, d, requires_grad=True)
    layer = nn.TransformerEncoderLayer(d, 4, 1024, 0.0, batch_first=True)
    models: dict[str, Callable[[], Tensor]] = {"torch": partial(nn.TransformerEncoder(layer, 2), words)}
    sizes = {"d": d, "heads": 4, "layers": 2, "d_ff": 1024, "dropout": 0.0}
    kinds = {
        "transformer": TransformerEncoderConfig,
        "hypernodes": HypernodeEncoderConfig,
        "n-grams": NgramEncoderConfig,
    }
    for name, config in kinds.items():
        models[name] = partial(config(**sizes).build(), words, lengths, members[..., :2])
    top = LabelAttentionConfig(labels=32, d_kv=64, d_out=16, d_ff=0, dropout=0.0)
    partitioned = PartitionedEncoderConfig(d=d, heads=4, layers=2, d_kv=64, d_ff=512, dropout=0.0)
    models["partitioned"] = partial(partitioned_of(replace(partitioned, top=None)), words, lengths)
    models["with label attention"] = partial(partitioned_of(replace(partitioned, top=top)), words, lengths)
    compare(f"encoders {B}x{n} d={d}", {name: partial(both_ways, run) for name, run in models.items()}, 1, 6.0)
    for name, run in models.items():
        with FlopCounterMode(display=False) as counter:
            both_ways(run)
        print(f"  {name:22} {counter.get_total_flops() / 2e9:7.2f} G multiplications")


def partitioned_of(config: PartitionedEncoderConfig) -> nn.Module:
    return config.build()


def both_ways(run: Callable[[], Tensor]) -> None:
    run().sum().backward()


SECTIONS = {
    "attention": attention_section,
    **{str(n): partial(attention_section, [n]) for n in BATCH},
    "readings": readings_section,
    "hypernode": hypernode_section,
    "hypernode_memory": hypernode_memory_section,
    "lists": lists_section,
    "psan": psan_section,
    "ngrams": ngrams_section,
    "structured": structured_section,
    "encoders": encoders_section,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if sys.argv[1:2] and sys.argv[1].startswith("peak "):
        peak(sys.argv[1].removeprefix("peak "))
    else:
        for section in sys.argv[1:] or [name for name in SECTIONS if not name.isdigit()]:
            SECTIONS[section]()
