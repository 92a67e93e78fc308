"""Speed of structured inference beside other libraries: `python benchmarks/structs.py [section ...]`.

Every ratio is a peer's time over ours: medians over interleaved rounds. 1T: one thread, CPU time; 2T: two threads, wall
time, which needs a machine without other work. Peers that are not installed are skipped. Install them beside torch by
`pip install --no-deps torch-struct supar pytorch-crf benepar`.
"""

import ctypes
import gc
import importlib.util
import statistics
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numba import njit

from phrasemodels.structs import chain, eisner, joint, spans
from phrasemodels.structs.kernels import decode
from phrasemodels.structs.spans import margin

Run = Callable[[], object]
Peers = dict[str, types.ModuleType]


def load_peers() -> Peers:
    """Import the installed peers; stubs replace the __init__ of their packages, which import more than is needed."""
    for package in ("supar", "supar.utils", "benepar", "nltk"):
        spec = importlib.util.find_spec(package)
        stub = types.ModuleType(package)
        stub.__path__ = spec.submodule_search_locations if spec else []
        stub.Tree = object  # benepar imports it from nltk
        sys.modules[package] = stub
    peers = {}
    for name, module in (
        ("torch-struct", "torch_struct"),
        ("supar", "supar.structs"),
        ("pytorch-crf", "torchcrf"),
        ("benepar", "benepar.decode_chart"),
    ):
        try:
            peers[name] = importlib.import_module(module)
        except ImportError as missing:
            print(f"skipped {name}: {missing}")
    print("skipped LAL-Parser: no package, no licence")
    return peers


def compare(title: str, runs: dict[str, Run], threads: int, seconds: float = 2.0) -> None:
    """Run all in turn for about `seconds`, and print the median time of the first, and the ratio of each other to it."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end, ours = time.perf_counter() + seconds, next(iter(runs))
    while time.perf_counter() < end or len(taken[ours]) < 9:
        for name, run in runs.items():
            for _ in range(3 if name == ours else 1):
                start = clock()
                run()
                taken[name].append(clock() - start)
    median = {name: statistics.median(t) for name, t in taken.items()}
    ratios = "  ".join(f"{name} {t / median[ours]:.1f}x" for name, t in median.items() if name != ours)
    print(f"{title:<46}[{threads}T] {median[ours] * 1e3:9.3f} ms  {ratios}", flush=True)


def peak_memory(title: str, runs: dict[str, Run]) -> None:
    """Print the growth of the resident set in one run, MB (Linux with glibc only)."""
    parts = []
    for name, run in runs.items():
        run()
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # else the run reuses freed pages, which are not counted
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        run()
        parts.append(f"{name} {(_status('VmHWM') - before) / 1024:.1f} MB")
    print(f"{title:<46}peak  {'  '.join(parts)}", flush=True)


def _status(field: str) -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if field in line)


def train_step(marginals: Callable[..., torch.Tensor], *scores: torch.Tensor) -> Run:
    """Return a run that computes marginals, and the gradient of a loss on them."""
    weight = torch.randn(marginals(*scores).shape)

    def run():
        return torch.autograd.grad((marginals(*scores) * weight).sum(), scores)

    return run


def chain_runs(peers: Peers, B: int, T: int, C: int, std: float) -> dict[str, Run]:
    scores = (torch.randn(B, T, C) * std).requires_grad_(), (torch.randn(C, C) * std).requires_grad_()
    runs = {"ours": train_step(chain.marginals, *scores)}
    makers = {"torch-struct": torch_struct_chain, "supar": supar_chain, "pytorch-crf": pytorch_crf}
    for name in makers.keys() & peers.keys():
        runs[name] = train_step(makers[name](peers[name]), *scores)
    return runs


def chain_section(peers: Peers) -> None:
    for std in (1.0, 1000.0):
        for B, T, C in ((64, 50, 2), (16, 512, 2), (64, 50, 20), (16, 512, 20)):
            # the scan of torch-struct takes C³ time, at least 150 times ours
            some = {k: v for k, v in peers.items() if C < 20 or k != "torch-struct"}
            compare(f"chain marginals+backward {B}x{T} C={C} std {std:g}", chain_runs(some, B, T, C, std), 1)


def torch_struct_chain(torch_struct):
    def marginals(unary, pairwise):
        edges = unary[:, 1:, :, None] + pairwise.T
        first = torch.zeros_like(edges)
        first[:, 0] = unary[:, 0, None, :]
        return torch_struct.LinearChainCRF(edges + first).marginals

    return marginals


def supar_chain(supar):
    def marginals(unary, pairwise):
        trans = torch.nn.functional.pad(pairwise, (0, 1, 0, 1))  # transitions from the start and to the end are 0
        log_z = supar.LinearChainCRF(unary, trans=trans).log_partition
        return torch.autograd.grad(log_z.sum(), unary, create_graph=True)[0]

    return marginals


def pytorch_crf(torchcrf):
    def marginals(unary, pairwise):
        crf = torchcrf.CRF(unary.shape[2])
        crf.start_transitions.data.zero_()
        crf.end_transitions.data.zero_()
        crf._parameters["transitions"] = pairwise
        mask = torch.ones(unary.shape[1], unary.shape[0], dtype=torch.bool)
        log_z = crf._compute_normalizer(unary.transpose(0, 1), mask)
        return torch.autograd.grad(log_z.sum(), unary, create_graph=True)[0]

    return marginals


def eisner_runs(peers: Peers, B: int, n: int, std: float, roots: str = "multi_root") -> dict[str, Run]:
    arcs = (torch.randn(B, n + 1, n + 1) * std).requires_grad_()
    runs = {"ours": train_step(getattr(eisner, roots).marginals, arcs)}
    if "supar" in peers:
        runs["supar"] = train_step(supar_eisner(peers["supar"], roots == "multi_root"), arcs)
    return runs


def eisner_section(peers: Peers) -> None:
    for std in (1.0, 100.0):
        for B, n in ((32, 20), (16, 40), (8, 80)):
            runs = eisner_runs(peers, B, n, std)
            for threads in (1, 2):
                compare(f"Eisner marginals+backward {B}x{n} std {std:g}", runs, threads)
    compare("Eisner single-root 16x40 std 1", eisner_runs(peers, 16, 40, 1.0, "single_root"), 2)


def supar_eisner(supar, multiroot):
    def marginals(arcs):
        return supar.DependencyCRF(arcs.mT, multiroot=multiroot).marginals

    return marginals


def spans_section(peers: Peers) -> None:
    B, L = 32, 112
    for n in (20, 40, 80):
        labels, lengths = torch.randn(B, n, n, L), torch.full((B,), n)
        labels[..., 0] = 0
        runs = {"ours": partial(spans.argmax, labels, lengths)}
        if "benepar" in peers:
            decoder = peers["benepar"].ChartDecoder({str(i): i for i in range(L)}, force_root_constituent=False)
            runs["benepar"] = partial(decoder.charts_from_pytorch_scores_batched, labels, lengths)
        compare(f"CKY decode {B}x{n} {L} labels", runs, 1)
        compare(f"CKY decode {B}x{n} {L} labels", runs, 2)
        gold = spans.argmax(torch.randn(B, n, n, L))[1]
        runs = {"cells": margin_step(labels, gold), "all cells": dense_step(labels, gold)}
        if "benepar" in peers:
            runs["benepar"] = benepar_margin(peers["benepar"], labels, gold)
        compare(f"max-margin step {B}x{n} {L} labels", runs, 1)


def dense_step(labels: torch.Tensor, gold: torch.Tensor) -> Run:
    """Return a max-margin step with the gradient to all label scores."""
    leaf = labels.clone().requires_grad_()
    return lambda: torch.autograd.grad(margin(leaf, gold).sum(), leaf)


def margin_step(labels: torch.Tensor, gold: torch.Tensor) -> Run:
    """Return a max-margin step: cost-augmented decoding, and the gradient to the scores of the 2 (2n-1) cells of two trees.

    A cost of 1 for every wrong cell is the constant 2n-1 minus 1 for each gold cell.
    """
    i, j, label = gold.unbind(-1)
    sentence = torch.arange(len(labels))[:, None]
    leaf = labels.clone()

    def run():
        leaf[sentence, i, j, label] -= 1
        _, best = spans.argmax(leaf)
        leaf[sentence, i, j, label] += 1
        at = (sentence, *best.unbind(-1)), (sentence, i, j, label)
        chosen = [leaf[x].requires_grad_() for x in at]
        return torch.autograd.grad((chosen[0] - chosen[1]).sum(), chosen)

    return run


def benepar_margin(benepar, labels, gold):
    B, n, _, _ = labels.shape
    chart = torch.zeros(B, n, n, dtype=torch.int64).tril(-1) - 100 * torch.ones(n, n, dtype=torch.int64).tril(-1)
    chart[torch.arange(B)[:, None], gold[..., 0], gold[..., 1]] = gold[..., 2]
    loss, leaf = benepar.SpanClassificationMarginLoss(force_root_constituent=False), labels.clone().requires_grad_()
    return lambda: torch.autograd.grad(loss(leaf, chart), leaf)


def joint_section(peers: Peers) -> None:
    for n in (20, 40, 80, 160):
        labels, arcs = torch.randn(1, n, n, 112), torch.randn(1, n + 1, n + 1)
        runs: dict[str, Run] = {"ours": partial(joint.argmax, labels, arcs)}
        runs["kernel alone"] = partial(decode.joint, labels, arcs, torch.tensor([n]))
        if n < 160:
            runs["our loop without hooks, O(n⁵)"] = partial(without_hooks, labels[0].numpy(), arcs[0].numpy())
        compare(f"joint span-head decode n={n}", runs, 1, seconds=1.0)


@njit(error_model="numpy")
def without_hooks(labels, arcs):
    """Return the best joint score by a loop over spans, splits and both heads, as a decoder without hooks computes it."""
    n = len(labels)
    body = np.full((n, n, n), -np.inf, np.float32)
    real, free = np.zeros((n, n), np.float32), np.zeros((n, n), np.float32)
    for i in range(n):
        for j in range(i, n):
            real[i, j] = labels[i, j, 1:].max() if i < j else labels[i, j].max()
            free[i, j] = labels[i, j].max()
        body[i, i, i] = 0
    for d in range(1, n):
        for i in range(n - d):
            j = i + d
            for k in range(i, j):
                for h in range(i, k + 1):
                    for m in range(k + 1, j + 1):
                        left, right = body[i, k, h], body[k + 1, j, m]
                        a = left + free[i, k] + right + real[k + 1, j] + arcs[h + 1, m + 1]
                        b = left + real[i, k] + right + free[k + 1, j] + arcs[m + 1, h + 1]
                        body[i, j, h] = max(body[i, j, h], a)
                        body[i, j, m] = max(body[i, j, m], b)
    return (body[0, n - 1] + arcs[0, 1:]).max() + real[0, n - 1]


def growth_section(peers: Peers) -> None:
    for T in (128, 512, 2048):
        compare(f"growth: chain 16x{T} C=2", chain_runs({}, 16, T, 2, 1.0), 1, 1.0)
    for n in (20, 40, 80, 160):
        compare(f"growth: Eisner 8x{n}", eisner_runs(peers if n < 160 else {}, 8, n, 1.0), 1, 1.0)
    for title, module, scores, longest in (
        ("chain 64x50 C=20", chain, (torch.randn(64, 50, 20), torch.randn(20, 20)), 50),
        ("Eisner 16x40", eisner.multi_root, (torch.randn(16, 41, 41),), 40),
    ):
        lengths = torch.randint(1, longest + 1, (len(scores[0]),))
        runs = {
            "lengths 1..n": partial(module.marginals, *scores, lengths=lengths),
            "all of length n": partial(module.marginals, *scores),
        }
        compare(f"{title}, mean length {lengths.float().mean():.0f}", runs, 1, 1.0)


def memory_section(peers: Peers) -> None:
    torch.set_num_threads(1)
    for B, T in ((64, 50), (16, 512)):
        peak_memory(f"chain {B}x{T} C=20", chain_runs(peers, B, T, 20, 1.0))
    for std in (1.0, 100.0):
        for B, n in ((64, 40), (32, 80)):
            peak_memory(f"Eisner {B}x{n} std {std:g}", eisner_runs(peers, B, n, std))


SECTIONS = {
    "chain": chain_section,
    "eisner": eisner_section,
    "spans": spans_section,
    "joint": joint_section,
    "growth": growth_section,
    "memory": memory_section,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    peers = load_peers()
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section](peers)
