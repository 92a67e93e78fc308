"""What to run first on a machine with a GPU: `python benchmarks/gpu.py [--device cpu] [--tokens N] [SECTION ...]`.

    kernels   results and gradients of every Triton program beside the reference on the CPU, in float64 and float32; with --device cpu
              by Triton's interpreter (pip install triton)
    devices   every operation of structures on the device beside the CPU
    updates   an update of each paper's model at its published size (the parser without its pretrained encoder), on sentences of the
              sample grammar: the median seconds of five, kernels, waits for the device, and memory, in float32, tf32 and bfloat16; of
              a model whose passes can be recorded also as CUDA graphs, five times the same batch
    parts     `tests/cuda_parts.py` on the fake device, whose kernels and waits these are to be compared with

Exit code 1: a result is not that of the CPU. --tokens: padded tokens of a batch in place of the published ones. A dry run on a CPU is
`python benchmarks/gpu.py --device cpu --tokens 200`; it checks the script, and says nothing of a GPU.
"""

import argparse
import dataclasses
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if "cpu" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.structs import alignment, chain, eisner, joint, kernels, nonprojective, pcfg, spans
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import batches_from
from phrasemodels.tasks.train.trainer import Trainer, Training, peak_memory_mib

ROWS = ("000/table1/{}/phrase-k2", "001/table2/{}/psan", "002/table2/{}/atis-model-4", "003/tablenmt/{}/char-structured",
        "004/table2/{}/3-ff-drop")  # fmt: skip
ROUNDS = 5
B, N = 3, 6
BY_TRITON: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "chain": (chain.linear_chain, [(B, N, 5), (5, 5)]),
    "chain, by position": (chain.linear_chain, [(B, N, 5), (B, N - 1, 5, 5)]),
    "eisner, many roots": (eisner.multi_root, [(B, N + 1, N + 1)]),
    "eisner, one root": (eisner.single_root, [(B, N + 1, N + 1)]),
    "spans": (spans.labelled_spans, [(B, N, N, 2)]),
}
OTHERS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "semimarkov": (segmentations, [(B, N, 2, 3), (3, 3)]),
    "warping": (alignment.warping, [(B, N, N)]),
    "nonprojective": (nonprojective.single_root, [(B, N + 1, N + 1)]),
    "joint": (joint.joint_trees, [(B, N, N, 2), (B, N + 1, N + 1)]),
    "pcfg": (pcfg.trees, [(B, N, 2), (2, 4, 4), (2,)]),
}
wrong: list[str] = []


def outcome(functions: Any, scores: list[Tensor], lengths: Tensor) -> dict[str, Tensor]:
    """Return results and gradients of the operations of a structure, on the CPU."""
    scores = [s.detach().requires_grad_() for s in scores]
    log_z, entropy = functions.log_partition(*scores, lengths=lengths), functions.entropy(*scores, lengths=lengths)
    parts, best = functions.expected_parts(*scores, lengths=lengths), functions.argmax(*scores, lengths=lengths)
    found = {"log Z": log_z, "entropy": entropy, "marginals": parts[0], "best score": best[0], "best": best[1]}
    of_log_z = torch.autograd.grad(log_z.sum(), scores, retain_graph=True)
    of_parts = torch.autograd.grad(parts[0].square().sum(), scores, retain_graph=True, materialize_grads=True)
    found |= {f"gradient {i} of log Z": x for i, x in enumerate(of_log_z)}
    found |= {f"gradient {i} of marginals": x for i, x in enumerate(of_parts)}
    return {name: x.detach().cpu() for name, x in found.items()}


def compare(structures: dict[str, tuple[Any, list[tuple[int, ...]]]], device: torch.device, kind: str) -> None:
    """Print the largest difference of each structure on a device from the reference on the CPU."""
    for name, (functions, shapes) in structures.items():
        for dtype in (torch.float64, torch.float32):
            for spread in (1.0, 30.0):
                draw = torch.Generator().manual_seed(0)
                scores = [torch.randn(s, generator=draw, dtype=torch.float64) * spread for s in shapes]
                lengths = torch.tensor(
                    [[N] * functions.length_axes, [1] * functions.length_axes, [3] * functions.length_axes]
                ).squeeze(1)
                with kernels.reference_only():
                    expected = outcome(functions, scores, lengths)
                on = [s.to(device, dtype) for s in scores]
                with kernels.only(kind):
                    found = outcome(functions, on, lengths.to(device))
                limit = spread * (1e-9 if dtype == torch.float64 else 1e-4)
                errors = {
                    x: torch.where(found[x] == y, 0.0, (found[x].double() - y.double()).abs()).max().item()
                    for x, y in expected.items()
                }
                largest = max(errors, key=lambda x: errors[x])
                good = all(e <= limit for e in errors.values())
                at = f"{name:22} {str(dtype)[6:]:8} spread {spread:4.0f}"
                print(f"{at}: {errors[largest]:.1e} at most ({largest})", "" if good else "WRONG")
                if not good:
                    wrong.append(name)


def trainer(
    row: str, store: Store, device: torch.device, precision: str, tokens: int | None, graphs: bool = False
) -> Trainer:
    """Return the trainer of a row of the paper's profile, on data of the sample profile."""
    small, large = experiment(row.format("sample")), experiment(row.format("paper"))
    large = dataclasses.replace(large, train=dataclasses.replace(large.train, precision=precision, graphs=graphs))
    return prepared(large, small, store, tokens, str(device))


def prepared(
    large: Experiment, small: Experiment, store: Store, tokens: int | None = None, device: str = "cpu"
) -> Trainer:
    """Return the trainer of a row on the data of another, in batches of so many tokens, or as many as published."""
    config = dataclasses.replace(large.train, batch_tokens=tokens) if tokens else large.train
    model = large.model
    if hasattr(model, "inputs"):  # the parser's pretrained encoder is not at hand: words in its place
        model = dataclasses.replace(model, inputs=small.model.inputs)
    made = dataclasses.replace(small, model=model, train=config)
    step = made.steps(0).trained
    inputs = {part: store.run(value, Executor()) for part, value in step.inputs.items() if isinstance(value, Step)}
    model = step.settings.objective.configure(step.settings.model, inputs["vocabulary"])
    train, dev = (tuple(shard.path for shard in shards(inputs[split])) for split in ("train", "dev"))
    folder = store.root / large.name
    return Trainer(Training(step.settings.objective, model, config, 0, train, dev, folder, "key", device=device))


def measured(each: Trainer, device: torch.device) -> str:
    """Return the seconds of an update, and of making its batch, which a GPU waits for; its memory, kernels and waits."""
    config = each.config
    limits = config.batch_tokens, 0, config.batch_rows, config.arrange, config.equal_sides
    batches: Iterator[Any] = (rows for _, _, rows in batches_from(each.data, 0, 0, *limits))
    if config.graphs:
        batches = itertools.repeat(next(batches))  # each shape is recorded once, which takes a second
    wait: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = []
    for _ in range(ROUNDS + 1):  # the first is not counted
        rows, begun = next(batches), time.perf_counter()
        each.update(rows)
        wait()
        seconds.append(time.perf_counter() - begun)
    memory = peak_memory_mib(device)
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        each.data.batch(rows)
    made = (time.perf_counter() - begun) / ROUNDS
    shown = f"{statistics.median(seconds[1:]):8.3f} s, batch {1e3 * made:6.2f} ms {memory:8.0f} MiB"
    if device.type != "cuda":
        return shown
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        each.update(next(batches))
        wait()
    count = sum(event.count for event in profiled.key_averages() if event.device_type == torch.autograd.DeviceType.CUDA)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        each.update(next(batches))
    torch.cuda.set_sync_debug_mode("default")
    return f"{shown} {count:6d} kernels {len(waits):4d} waits"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=["kernels", "devices", "updates", "parts"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    print(
        torch.cuda.get_device_name() if device.type == "cuda" else "a CPU: a dry run",
        f"torch {torch.__version__}",
        sep=", ",
    )
    if "kernels" in chosen.sections:
        compare(BY_TRITON, device, "triton")
    if "devices" in chosen.sections:
        compare(OTHERS, device, "numba")
    if "updates" in chosen.sections:
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder)).open()
            for row in ROWS:
                for precision in ("float32", "tf32", "bfloat16"):
                    each = trainer(row, store, device, precision, chosen.tokens)
                    print(f"{row.format('paper'):34} {precision:9}", measured(each, device), flush=True)
                    if device.type == "cuda" and getattr(each.model, "has_fixed_shapes", False):
                        each = trainer(row, store, device, precision, chosen.tokens, graphs=True)
                        print(f"{'  as CUDA graphs':34} {precision:9}", measured(each, device), flush=True)
    if "parts" in chosen.sections:
        program = Path(__file__).parents[1] / "tests/cuda_parts.py"
        if subprocess.run([sys.executable, "-W", "ignore", program], stdout=subprocess.DEVNULL).returncode:
            wrong.append("parts")
    print("wrong: " + ", ".join(wrong) if wrong else "all results are those of the CPU")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
