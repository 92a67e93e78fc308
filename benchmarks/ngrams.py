"""Parameters, speed and memory of the n-gram encoder (paper 002) beside the Transformer: `python benchmarks/ngrams.py`.

Every ratio is the Transformer's time over ours: medians over interleaved rounds of one training step (forward and backward,
without optimiser and dropout), on one thread, in CPU time; with `--threads 2` in wall time. `released` does what the
published code does: it copies every window (unfold), and runs a torch LSTM over the copies. Memory is the growth of the
peak in a step of one encoder layer, each in its own process.
"""

import argparse
import dataclasses
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from phrasemodels.encoders.transformer import NgramEncoderConfig, TransformerEncoderConfig, TransformerEncoderLayer
from phrasemodels.flows.experiments.paper_002 import LAYERS, MODELS, PAPERS, TRANSFORMER, Size, changed
from phrasemodels.layers.ngrams import NgramBiLSTM, NgramSum, Readout, final_states, residual_gate
from phrasemodels.layers.packing import Packing
from phrasemodels.models.translation import TranslationConfig, token_loss
from phrasemodels.tasks.train.trainer import keep_freed_memory

B, SOURCE, TARGET, V, D = 64, 13, 24, 5854, 512


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
    x, packing = torch.randn(B * 16, D, requires_grad=True), Packing(torch.ones(B, 16, dtype=torch.bool))

    def step() -> None:
        layer(x, packing).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return step


def model_step(name: str) -> Callable[[], None]:
    """Return a training step of the whole model, six layers on both sides."""
    torch.manual_seed(0)
    model = TranslationConfig(ENCODERS[name], V, V, shared=True, output_bias=True).build()
    source, target = torch.randint(4, V, (B, SOURCE)), torch.randint(4, V, (B, TARGET + 1))
    lengths, no_phrases = torch.full((B,), SOURCE), torch.empty(B, 0, 2, dtype=torch.long)

    def step() -> None:
        (token_loss(model, source, lengths, no_phrases, target, 0.0) / (B * TARGET)).backward()
        model.zero_grad(set_to_none=True)

    return step


def compare(title: str, make: Callable[[str], Callable[[], None]], names: list[str], threads: int, rounds: int) -> None:
    """Run the steps in turn, and print the median time of the plain one over that of each."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    steps = {name: make(name) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            step()
            taken[name].append(clock() - start)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    print(f"{title} ({threads} thread(s), {rounds} rounds; plain: {1000 * medians['plain']:.0f} ms)")
    for name in names[1:]:
        print(f"  {name:22} {medians['plain'] / medians[name]:.2f}")


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--section", choices=["parameters", "layer", "model", "memory"], action="append")
    parser.add_argument("--peak", choices=list(ENCODERS))
    options = parser.parse_args()
    if options.peak:
        peak(options.peak)
        sys.exit()
    keep_freed_memory()
    chosen = options.section or ["parameters", "layer", "model", "memory"]
    if "parameters" in chosen:
        parameters()
    if "layer" in chosen:
        compare("encoder layer", layer_step, list(ENCODERS)[:-1], options.threads, 3 * options.rounds)
    if "model" in chosen:
        compare("model, 6 + 6 layers", model_step, list(ENCODERS), options.threads, options.rounds)
    if "memory" in chosen:
        print("peak of a layer's step, MiB")
        for name in ("plain", "released", "ours"):
            command = [sys.executable, __file__, "--peak", name]
            # freed blocks return to the kernel, so the peak counts live blocks alone
            malloc = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=malloc)
            print(f"  {name:22} {done.stdout.strip()}")
