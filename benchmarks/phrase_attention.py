"""Speed and memory of attention inside phrases (paper 001, Table 5): `python benchmarks/phrase_attention.py`.

First attention alone, forward and backward over three levels of phrases, beside attention over every pair of words of a
sentence. Then a training step of whole models: PSAN, DiSAN and multi-head attention; the memory that the scores of each
would take if they were saved; and the time of the parts of PSAN. One thread, interleaved rounds. Memory is the growth of
the resident set in one step (Linux with glibc only).
"""

from collections.abc import Callable
from functools import partial

import torch
from structs import compare, peak_memory
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.encoders.baselines import DisanConfig, MultiHeadConfig
from phrasemodels.encoders.psan import PsanConfig, recompute_activations
from phrasemodels.layers.multidim import attend_blocks, attend_within, boundaries
from phrasemodels.models.sentence_pair import SentencePairConfig

D = 300
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
    padded = [torch.randn(*valid.shape, D, requires_grad=True) for _ in range(3)]
    packed = [x.detach()[valid].requires_grad_() for x in padded]
    bounds = [boundaries(level, valid) for level in levels.unbind(1)]
    whole = [boundaries(torch.zeros_like(levels[:, 0]), valid)] * 3
    weight = torch.randn(*valid.shape, D)

    def levels_of(attend: Callable[..., Tensor], inputs: list[Tensor], masks: list[Tensor], grad: Tensor) -> None:
        for mask in masks:
            torch.autograd.grad(attend(*inputs, mask), inputs, grad)

    return {
        "kernel": partial(levels_of, attend_within, packed, bounds, weight[valid]),
        "blocks": partial(levels_of, attend_blocks, packed, bounds, weight[valid]),
        "every pair": partial(levels_of, every_pair, padded, [valid] * 3, weight),
        "kernel, whole sentences": partial(levels_of, attend_within, packed, whole, weight[valid]),
    }


MODELS = {
    "PSAN": PsanConfig(D),
    "PSAN recomputed": PsanConfig(D, run=recompute_activations),
    "DiSAN": DisanConfig(D),
    "Multi-head": MultiHeadConfig(D),
}


def score_bytes(B: int, n: int) -> str:
    """Return the memory of the scores of B pairs in float32, if all were saved: Σ l² d over phrases, 2 n² d, h n²."""
    lengths, levels = sentences(2 * B, n)
    pairs = lengths.square().sum().item()
    valid = torch.arange(levels.shape[2]) < lengths.unsqueeze(1)
    inside = sum(boundaries(level, valid).diff().square().sum().item() for level in levels.unbind(1))
    counts = {"PSAN": inside * D, "DiSAN": 2 * pairs * D, "Multi-head": pairs * MultiHeadConfig(D).heads}
    return "  ".join(f"{name} {4 * count / 2**20:.1f} MB" for name, count in counts.items())


def parts_runs(B: int, n: int) -> dict[str, Callable[[], object]]:
    """Return forward and backward passes of PSAN on B pairs, and of its parts: the linear maps, three levels of attention
    inside phrases, and the pooling, whose maps are among the linear maps."""
    lengths, levels = sentences(2 * B, n)
    valid = torch.arange(levels.shape[2]) < lengths.unsqueeze(1)
    encoder = PsanConfig(D).build()
    words = torch.randn(*valid.shape, D, requires_grad=True)
    inputs = {width: torch.randn(int(lengths.sum()), width, requires_grad=True) for width in (D, 2 * D)}
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

    return {name: partial(step, SentencePairConfig(config, words=1000).build()) for name, config in MODELS.items()}


def main() -> None:
    torch.set_num_threads(1)
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


if __name__ == "__main__":
    main()
