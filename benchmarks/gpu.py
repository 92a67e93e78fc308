"""What to run first on a machine with a GPU: `python benchmarks/gpu.py [SECTION ...] [--data FOLDER --train ROW[:SEED] ...]`.

    kernels     results and gradients of every Triton program beside the reference on the CPU in float64
    devices     those of all other structures
    encoders    outputs and gradients of every encoder beside the CPU in float64
    times       log Z and gradient of structures beside torch's own, or beside a chain of equal work
    updates     an update of each paper's model at its size (the parser without its pretrained encoder), on sentences of the sample
                grammar; of 000 also as CUDA graphs, and beside nn.Transformer of the same size in one CUDA graph
    trainings   the rows after --train until the time is up. Start the same command again to go on

It prints one Markdown table, for benchmarks/README.md. All is over after --minutes. Exit code 1: a result is not that of the CPU,
nothing was compared, or a training failed; 2: it cannot start. `--device cpu --tiny` is a dry run without a GPU, where Triton's
interpreter runs its programs (pip install triton). It says nothing of a GPU.
"""

import argparse
import dataclasses
import datetime
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

if any(argument.split("=")[-1] == "cpu" for argument in sys.argv):
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

import torch
from every_encoder import ENCODERS, LENGTHS, D, built
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from phrasemodels.data.store.store import Executor, Step, Store, digest_of
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.run.local import RECIPE
from phrasemodels.structs import alignment, chain, eisner, joint, kernels, nonprojective, pcfg, second_order, spans
from phrasemodels.structs.kernels import gpu
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.structs.structure import Structure
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import batches_from
from phrasemodels.tasks.train.recorded import few_sizes
from phrasemodels.tasks.train.trainer import CHECKPOINT_SECONDS, PROGRESS, Trainer, Training, peak_memory_mib

ROOT = Path(__file__).parents[1]
ROWS = ("000/table1/{}/phrase-k2", "001/table2/{}/psan", "002/table2/{}/atis-model-4", "003/tablenmt/{}/char-structured",
        "004/table2/{}/3-ff-drop")  # fmt: skip
Structures = dict[str, tuple[Any, list[tuple[int, ...]]]]
Run = Callable[[], Any]
ROUNDS = 5  # of a measurement
B, N = 3, 6
BY_TRITON: Structures = {
    "chain": (chain.linear_chain, [(B, N, 5), (5, 5)]),
    "chain, by position": (chain.linear_chain, [(B, N, 5), (B, N - 1, 5, 5)]),
    "eisner, many roots": (eisner.multi_root, [(B, N + 1, N + 1)]),
    "eisner, one root": (eisner.single_root, [(B, N + 1, N + 1)]),
    "spans": (spans.labelled_spans, [(B, N, N, 2)]),
    "chain of order 2": (chain.HigherOrder(2), [(B, N, 3), (3, 3, 3)]),
    "semimarkov": (segmentations, [(B, N, 2, 3), (3, 3)]),
    "warping": (alignment.warping, [(B, N, N)]),
    "frames": (alignment.frames, [(B, N, N)]),
    "ctc": (alignment.ctc, [(B, N, N), (B, N, 3)]),
    "joint": (joint.joint_trees, [(B, N, N, 2), (B, N + 1, N + 1)]),
    "pcfg": (pcfg.trees, [(B, N, 2), (2, 4, 4), (2,)]),
}
OTHERS: Structures = {
    "nonprojective, many roots": (nonprojective.multi_root, [(B, N + 1, N + 1)]),
    "nonprojective, one root": (nonprojective.single_root, [(B, N + 1, N + 1)]),
}
APPROXIMATE = {"mean field": second_order.mean_field, "belief propagation": second_order.belief_propagation}


def masked(value: float) -> Callable[[Tensor], Tensor]:
    """Return what gives all parts of a word one score."""

    def change(x: Tensor) -> Tensor:
        x[0, 1] = x[0, :, 1] = value
        return x

    return change


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "as drawn": lambda x: x,
    "30 times": lambda x: 30 * x,
    "-1e6 added": lambda x: x - 1e6,
    "a word at -1e9": masked(-1e9),
    "a word at -1e15": masked(-1e15),
    "a word at -inf": masked(-math.inf),
}
EXACT = {torch.float64: (1e-11, 2e-14), torch.float32: (1e-6, 2e-7)}  # allowed: so much, and so much of the largest number
wrong: list[str] = []
by: Counter[str] = Counter()  # calls of an operation of a structure by each kind of kernel


def row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def count_kernels() -> None:
    choose = Structure.kernel

    def chosen(self: Structure, operation: Callable[..., Any], scores: Any) -> Any:
        kernel = choose(self, operation, scores)
        if kernels.allowed("numba", "triton"):  # not the reference
            by["torch" if kernel is None else "triton" if isinstance(kernel, gpu.Programs) else "numba"] += 1
        return kernel

    Structure.kernel = chosen  # type: ignore[method-assign]


class Check:
    """Results of one thing beside the CPU's in float64: how many were compared, and the largest error as a share of its limit."""

    def __init__(self, name: str) -> None:
        self.name, self.compared, self.share, self.worst = name, 0, 0.0, ""
        by.clear()

    def add(self, at: str, found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype, size: float) -> None:
        """Compare results. size: the largest score."""
        least, part = EXACT[dtype]
        for name, y in expected.items():
            x, y = found[name].detach().cpu().double(), y.detach()
            error = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, (x - y).abs())
            limit = least + part * max(size, torch.where(y.isfinite(), y.abs(), 0.0).max().item())
            share = (error / limit).nan_to_num(math.inf).max().item()
            self.compared += y.numel()
            if share >= self.share:
                self.share, self.worst = share, f"{name}, {at}, {str(dtype)[6:]}"

    def end(self, needed: str = "") -> None:
        """Print the row. needed: the kind of kernel that must have served."""
        unserved = needed and not by[needed]
        good = self.compared and self.share <= 1 and not unserved
        if not good:
            wrong.append(self.name)
        used = ", ".join(f"{n} calls by {name}" for name, n in sorted(by.items()) if n)
        said = f"{self.compared} numbers; {used or 'torch'}" + (f"; none by {needed}" if unserved else "")
        row(f"check: {self.name}", said, f"{self.share:.2g} of its limit ({self.worst})", "CPU, float64", "" if good else "WRONG")


def outcome(functions: Any, scores: list[Tensor], lengths: Tensor) -> dict[str, Tensor]:
    """Return results and gradients of the operations of a structure."""
    scores = [s.detach().requires_grad_() for s in scores]
    log_z, entropy = functions.log_partition(*scores, lengths=lengths), functions.entropy(*scores, lengths=lengths)
    parts, best = functions.expected_parts(*scores, lengths=lengths), functions.argmax(*scores, lengths=lengths)
    found = {"log Z": log_z, "entropy": entropy, "marginals": parts[0], "best score": best[0], "best": best[1].double()}
    of_log_z = torch.autograd.grad(log_z.sum(), scores, retain_graph=True)
    of_parts = torch.autograd.grad(parts[0].square().sum(), scores, retain_graph=True, materialize_grads=True)
    found |= {f"gradient {i} of log Z": x for i, x in enumerate(of_log_z)}
    of_entropy = torch.autograd.grad(entropy.sum(), scores, retain_graph=True)
    found |= {f"gradient {i} of marginals": x for i, x in enumerate(of_parts)}
    found |= {f"gradient {i} of entropy": x for i, x in enumerate(of_entropy)}
    return {name: x.detach() for name, x in found.items()}


def compare(structures: Structures, device: torch.device, few: bool, *kinds: str) -> None:
    """Compare structures on a device by kinds of kernels with the reference on the CPU. few: of one kind of scores."""
    for name, (functions, shapes) in structures.items():
        check = Check(name)
        lengths = torch.tensor([[n] * functions.length_axes for n in (N, 1, 3)]).squeeze(1)
        for (at, change), dtype in itertools.product(list(SCORES.items())[: 1 if few else None], EXACT):
            draw = torch.Generator().manual_seed(0)
            scores = [torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes]
            scores = [change(scores[0]), *scores[1:]]
            scores = [s.to(dtype).double() for s in scores]
            with kernels.reference_only():
                expected = outcome(functions, scores, lengths)
            with kernels.only(*kinds):
                found = outcome(functions, [s.to(device, dtype) for s in scores], lengths.to(device))
            finite = torch.where(scores[0].abs() < 1e12, scores[0].abs(), 0.0)
            check.add(at, found, expected, dtype, finite.max().item())
        check.end(needed="triton" if kinds == ("triton",) else "")


def encoders(device: torch.device) -> None:
    """Compare encoders, and marginals of second order, on a device with the CPU in float64."""

    def of_encoder(name: str, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        encoder, structure = built(name)
        encoder = encoder.to(device, dtype)
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(3, 5, D, generator=draw).to(device, dtype).requires_grad_()
        output = encoder(x, LENGTHS.to(device), *(s.to(device) for s in structure))
        output = output * (torch.arange(5) < LENGTHS[:, None]).to(device)[..., None] if output.dim() == 3 else output
        output.square().sum().backward()
        of_weights = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        return {"output": output, "gradient": x.grad, **of_weights}

    def of_pairs(name: str, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        draw = torch.Generator().manual_seed(1)
        shapes = [(B, *(N + 1,) * dims) for dims in (2, 3, 3)]
        scores = [torch.randn(s, generator=draw).to(device, dtype).requires_grad_() for s in shapes]
        found = APPROXIMATE[name](*scores, lengths=torch.tensor([N, 1, 3], device=device))
        return {"marginals": found, "gradient": torch.autograd.grad(found.square().sum(), scores[0])[0]}

    torch.backends.cudnn.allow_tf32 = False
    for names, made in ((ENCODERS, of_encoder), (APPROXIMATE, of_pairs)):
        for name in names:
            check = Check(name)
            with kernels.reference_only():
                expected = made(name, torch.device("cpu"), torch.float64)
            for dtype in EXACT:
                size = 1.0 if dtype == torch.float64 else 500.0  # layers are computed in the type that is given
                check.add("as drawn", made(name, device, dtype), expected, dtype, size)
            check.end()


def gradient(function: Callable[..., Tensor], *shapes: tuple[int, ...], device: torch.device) -> Run:
    """Return a run of a function of random scores, summed, and its gradient."""
    scores = [torch.randn(shape, device=device).requires_grad_() for shape in shapes]
    return lambda: torch.autograd.grad(function(*scores).sum(), scores)


def milliseconds(run: Run, device: torch.device) -> float:
    """Return the median time of a run, of ROUNDS and more; for three seconds at most, if it is not one run."""
    wait: Run = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = 1.0 if device.type == "cuda" else 0.05
    taken: list[float] = []
    for _ in range(2):  # compiles, and fills caches
        run()
    wait()
    while sum(taken) < 3 * seconds and (len(taken) < ROUNDS or sum(taken) < seconds):
        begun = time.perf_counter()
        run()
        wait()
        taken.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(taken)


def launches(run: Run, device: torch.device) -> str:
    """Return how many kernels a run starts on a GPU, in words."""
    if device.type != "cuda":
        return ""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    events = profiled.key_averages()
    return f"{sum(e.count for e in events if e.device_type == torch.autograd.DeviceType.CUDA)} kernels"


def ctc_of_torch(b: int, T: int, device: torch.device) -> Run:
    """Return torch's loss and its gradient, of T // 5 labels."""
    log_probs = torch.randn(T, b, 20, device=device).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, 20, (b, max(T // 5, 1)), device=device)
    sizes = [torch.full((b,), n, device=device) for n in (T, targets.shape[1])]
    return lambda: torch.autograd.grad(F.ctc_loss(log_probs, targets, *sizes, reduction="sum"), log_probs)


def times(device: torch.device, tiny: bool) -> None:
    """Print times of log Z with its gradient of a batch of 64 (of second order: of marginals), and the peer's over ours."""
    b, shrink = (2, 10) if tiny else (64, 1)
    sizes: list[tuple[str, Any, Callable[[int], list[tuple[int, ...]]], tuple[int, ...], Any]] = [
        ("non-projective trees", nonprojective.multi_root.log_partition, lambda n: [(b, n + 1, n + 1)], (20, 40, 80), "slogdet"),
        ("CTC", alignment.ctc.log_partition, lambda n: [(b, n, 2 * max(n // 5, 1) + 1)], (100, 500), "ctc_loss"),
        ("warping", alignment.warping.log_partition, lambda n: [(b, n, n)], (100,), lambda n: 3 * n**2),
        ("semi-Markov, 8 long, 10 labels", segmentations.log_partition, lambda n: [(b, n, 8, 10), (10, 10)], (50,), lambda n: 800 * n),
        ("chain of order 2, 8 tags", chain.HigherOrder(2).log_partition, lambda n: [(b, n, 8), (8, 8, 8)], (50,), lambda n: 512 * n),
        ("PCFG, 10 + 20 symbols", pcfg.trees.log_partition, lambda n: [(b, n, 20), (10, 30, 30), (10,)], (20,), lambda n: 1500 * n**3),
        ("joint trees, 10 labels", joint.joint_trees.log_partition, lambda n: [(b, n, n, 10), (b, n + 1, n + 1)], (20,),
         lambda n: n**4 // 6),
        *((f"second order, {name}", function, lambda n: [(b, n + 1, n + 1), *[(b, n + 1, n + 1, n + 1)] * 2], (20,), lambda n: 9 * n**3)
          for name, function in APPROXIMATE.items()),
    ]  # fmt: skip
    for name, function, shapes, ns, peer in sizes:
        for n in (max(n // shrink, 3) for n in ns):
            ours = gradient(function, *shapes(n), device=device)
            if peer == "slogdet":
                beside, other = "slogdet", gradient(lambda x: torch.linalg.slogdet(x)[1], (b, n, n), device=device)
            elif peer == "ctc_loss":
                beside, other = "ctc_loss", ctc_of_torch(b, n, device)
            else:
                C = min(128, max(2, round(math.sqrt(peer(n) / n))))
                beside = f"a chain of equal work, {(T := max(2, round(peer(n) / C**2)))} × {C} tags"
                other = gradient(chain.linear_chain.log_partition, (b, T, C), (C, C), device=device)
            own, its = milliseconds(ours, device), milliseconds(other, device)
            ratio = f"{its / own:.2f} × {launches(ours, device)}"
            row(f"{name}, n={n}", f"{b} sentences", f"{own:.2f} ms", f"{beside}: {its:.2f} ms", ratio)


def trainer(row: str, store: Store, device: torch.device, tiny: bool, graphs: bool = False) -> Trainer:
    """Return the trainer of a row of the paper's profile in bfloat16, on data of the sample profile. tiny: its model, too."""
    small = experiment(row.format("sample"))
    large = small if tiny else experiment(row.format("paper"))
    large = dataclasses.replace(large, train=dataclasses.replace(large.train, precision="bfloat16", graphs=graphs))
    return prepared(large, small, store, 200 if tiny else None, str(device))


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


def measured(each: Trainer, device: torch.device) -> tuple[float, str, Any]:
    """Return the milliseconds of an update; its kernels, waits and memory, in words; and a batch."""
    config = each.config
    limits = config.batch_tokens, 0, config.batch_rows, config.arrange, config.equal_sides
    batches: Iterator[Any] = itertools.cycle(list(itertools.islice(batches_from(each.data, 0, 0, *limits), ROUNDS)))
    if config.graphs:
        batches = itertools.repeat(next(batches))  # each shape is recorded once, which takes a second
    update: Run = lambda: each.update(next(batches)[2])  # noqa: E731
    taken, memory = milliseconds(update, device), f"{peak_memory_mib(device):.0f} MiB"
    batch = each.data.batch(next(batches)[2])
    if device.type != "cuda":
        return taken, memory, batch
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        update()
    torch.cuda.set_sync_debug_mode("default")
    return taken, f"{launches(update, device)}, {len(waits)} waits, {memory}", batch


def of_torch(source: tuple[int, ...], target: tuple[int, ...], words: int, device: torch.device, layers: int, d: int) -> float:
    """Return the milliseconds of an update of nn.Transformer in bfloat16 on random words; on a GPU as one CUDA graph."""
    model = nn.ModuleList(
        [nn.Transformer(d, 8, layers, layers, 4 * d, 0.1, batch_first=True), *(nn.Embedding(words, d) for _ in "ab"), nn.Linear(d, words)]
    ).to(device)  # fmt: skip
    given, gold = (torch.randint(0, words, size, device=device) for size in (source, target))
    mask = nn.Transformer.generate_square_subsequent_mask(target[1], device=device)
    on_gpu = device.type == "cuda"
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=on_gpu, capturable=on_gpu)

    def update() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            states = model[0](model[1](given), model[2](gold), tgt_mask=mask, tgt_is_causal=True)
            loss = F.cross_entropy(model[3](states).flatten(0, 1), gold.flatten(), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=False)

    if not on_gpu:
        return milliseconds(update, device)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            update()
    torch.cuda.current_stream().wait_stream(aside)
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        update()
    return milliseconds(graph.replay, device)


def updates(device: torch.device, tiny: bool) -> None:
    """Print the times of updates in bfloat16."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder)).open()
        for name in ROWS[: 1 if tiny else None]:
            title = f"update of {name.format('sample' if tiny else 'paper')}"
            each = trainer(name, store, device, tiny)
            eager, words, batch = measured(each, device)
            row(title, "eager", f"{eager:.2f} ms", "", words)
            if name != ROWS[0]:
                continue
            source, target = ((len(x), few_sizes(x.shape[1])) for x in (batch.source, batch.target))
            model, size = each.training.model, f"{len(batch.source)} sentences of {source[1]} + {target[1]} tokens"
            vocabulary = max(model.source_vocabulary, model.target_vocabulary)
            other = of_torch(source, target, vocabulary, device, model.decoder_layers, model.encoder.d)
            if device.type == "cuda":
                own, words, _ = measured(trainer(name, store, device, tiny, graphs=True), device)
                row(title, f"CUDA graphs, {size}", f"{own:.2f} ms", f"nn.Transformer, one graph: {other:.2f} ms",
                    f"{other / own:.2f} × {words}")  # fmt: skip
            else:
                row(title, size, f"{eager:.2f} ms", f"nn.Transformer: {other:.2f} ms", f"{other / eager:.2f} ×")


def asked(names: Sequence[str], data: Path, overrides: Sequence[str]) -> list[Any]:
    """Return trainings with the folders that were prepared for them. ValueError: there is none."""
    found = []
    for name, _, seed in (text.partition(":") for text in names):
        digest = digest_of(experiment(name, overrides).recipe).encode()
        prepared_for = (path for path in (data / RECIPE, *sorted(data.glob(f"*/{RECIPE}"))) if path.is_file())
        fitting = [path.parent for path in prepared_for if path.read_bytes() == digest]
        if not fitting:
            raise ValueError(f"no folder in {data} was made for {name}: phrasemodels prepare {name} --to {data}/NAME")
        title = f"training of {name}, seed {seed or 0}"
        found.append(SimpleNamespace(name=name, seed=seed or "0", data=fitting[0], title=title))
    return found


def trainings(wanted: list[Any], out: Path, overrides: Sequence[str], together: int, until: float) -> None:
    """Train rows by `phrasemodels train --local --data`, so many at once, until the time is up."""
    waiting, running = list(wanted), list[Any]()
    sets = [part for text in overrides for part in ("--set", text)]
    here = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < together:
                running.append(one := waiting.pop(0))
                command = [sys.executable, "-m", "phrasemodels", "train", one.name, "--seed", one.seed, "--local"]
                one.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
                one.process = subprocess.Popen([*command, "--data", one.data, "--out", out, *sets], env=here,
                                               stdout=subprocess.PIPE, stderr=one.log, text=True)  # fmt: skip
            time.sleep(0.2)
            for one in [each for each in running if each.process.poll() is not None]:
                running.remove(one)
                finished(one)
    finally:
        for one in running:
            one.process.terminate()
            one.process.wait()
    for one in running:
        states = (json.loads(path.read_text()) for path in out.glob(f"work/*/checkpoints/{PROGRESS}"))
        state = next((x for x in states if x["pid"] == one.process.pid), {"step": 0, "steps": "its"})
        row(one.title, f"{state['step']} of {state['steps']} updates", "its time was up", "", GOES_ON)
    for one in waiting:
        row(one.title, "not begun", "", "", "the same command goes on")


GOES_ON = f"the same command goes on from the last checkpoint, at most {CHECKPOINT_SECONDS:.0f} s before"


def finished(one: Any) -> None:
    if one.process.returncode:
        one.log.seek(0)
        wrong.append(one.title)
        row(one.title, f"failed ({one.process.returncode})", "", (one.log.read().strip().splitlines() or ["without a word"])[-1], "WRONG")
        return
    result = json.load(one.process.stdout)
    scores = ", ".join(f"{name} {x['value']:.4g}" for name, x in result["scores"].items() if "/" not in name)
    row(one.title, f"{result['steps']} updates, begun at {result['starts']}", f"{result['train_seconds']:.0f} s", "", scores)


SECTIONS = "kernels", "devices", "encoders", "times", "updates", "trainings"


class TimeIsUp(BaseException):
    """The minutes are over. No Exception: Triton would wrap it while it compiles."""


@contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """Raise a `TimeIsUp` in the block once it is."""

    def end(*_: object) -> NoReturn:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refuse(reason: str) -> NoReturn:
    print(f"gpu.py: {reason}", file=sys.stderr)
    raise SystemExit(2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; none: all")
    parser.add_argument("--device", default="cuda", help="cpu: a dry run")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, and few kinds of scores")
    parser.add_argument("--minutes", type=float, default=8.0, help="after which it ends, and stops trainings; 8")
    parser.add_argument("--train", nargs="+", default=[], metavar="ROW[:SEED]", help="trainings, like 000/table1/paper/phrase-k2:1")
    parser.add_argument("--data", type=Path, default=Path("prepared"), help="the folder of `phrasemodels prepare`, or one of such folders")
    parser.add_argument("--out", type=Path, default=Path("trained"), help="for what is trained; `phrasemodels keep --trained` takes it")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all trainings")
    parser.add_argument("--together", type=int, default=1, help="trainings at once")
    chosen = parser.parse_args()
    until, device = time.monotonic() + 60 * chosen.minutes, torch.device(chosen.device)
    if unknown := {*chosen.sections} - {*SECTIONS}:
        refuse(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if device.type == "cuda" and not torch.cuda.is_available():
        refuse(f"torch {torch.__version__} sees no GPU; `--device cpu --tiny` is a dry run")
    sections = {*(chosen.sections or SECTIONS)}
    if (chosen.train and "trainings" not in sections) or ("trainings" in chosen.sections and not chosen.train):
        refuse("trainings are the section of that name, and rows after --train")
    try:
        wanted = asked(chosen.train, chosen.data, chosen.set)
    except ValueError as error:
        refuse(str(error))
    name = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU, a dry run"
    row(f"{name}, torch {torch.__version__}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "size", "ours", "beside", "")
    row(*["---"] * 5)
    count_kernels()
    parts: dict[str, Run] = {
        "kernels": lambda: compare(BY_TRITON, device, chosen.tiny, "triton"),
        "devices": lambda: compare(OTHERS, device, chosen.tiny, "numba", "triton"),
        "encoders": lambda: encoders(device),
        "times": lambda: times(device, chosen.tiny),
        "updates": lambda: updates(device, chosen.tiny),
        "trainings": lambda: trainings(wanted, chosen.out, chosen.set, chosen.together, until),
    }
    for section in (each for each in SECTIONS if each in sections):
        if section == "trainings":  # which look at the clock
            parts[section]()
            continue
        try:
            with ending_after(max(until - time.monotonic(), 1e-3)):
                parts[section]()
        except TimeIsUp:
            row(f"section {section}", "", "the time was up", "", "name it alone")
    print("wrong: " + ", ".join(wrong) if wrong else "nothing is wrong in this table", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that trainings end, too
    sys.exit(main())
