"""Speed and memory of structured inference: `python benchmarks/structs.py [section ...]`.

Ratios are a peer's time over ours: medians over interleaved rounds. 1T: one thread, CPU time; 2T: two threads, wall time, which
needs a machine without other work. Peers that are not installed are skipped. Install them beside torch by
`pip install --no-deps torch-struct supar pytorch-crf benepar`.
"""

import ctypes
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numba import njit

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, pcfg, spans
from phrasemodels.structs.kernels import decode, reference_only
from phrasemodels.structs.semimarkov import segmentations

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
    """Return a max-margin step of `spans.margin`, with the gradient to all label scores."""
    leaf = labels.clone().requires_grad_()
    return lambda: torch.autograd.grad(spans.margin(leaf, gold).sum(), leaf)


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
        runs["kernel alone"] = partial(decode.best_joint, labels, arcs, torch.tensor([n]))
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


CHAINS = ((64, 50, 5), (64, 50, 20), (1, 30, 10))
TREES = ((32, 20), (16, 40), (1, 25))


def crf_of(torchcrf, pairwise: torch.Tensor):
    """Return a CRF of pytorch-crf with our transitions, and none from the start or to the end."""
    crf = torchcrf.CRF(len(pairwise))
    crf.start_transitions.data.zero_()
    crf.end_transitions.data.zero_()
    crf.transitions.data.copy_(pairwise)
    return crf


def supar_crf(supar, unary: torch.Tensor, pairwise: torch.Tensor):
    return supar.LinearChainCRF(unary, trans=torch.nn.functional.pad(pairwise, (0, 1, 0, 1)))


def supar_tree(supar, arcs: torch.Tensor, multiroot: bool = True):
    return supar.DependencyCRF(arcs.mT, multiroot=multiroot)


def decoding_section(peers: Peers) -> None:
    for B, T, C in CHAINS:
        unary, pairwise = torch.randn(B, T, C), torch.randn(C, C)
        runs: dict[str, Run] = {"ours": partial(chain.argmax, unary, pairwise)}
        if "pytorch-crf" in peers:
            crf, emissions = crf_of(peers["pytorch-crf"], pairwise), unary.transpose(0, 1)
            runs["pytorch-crf"] = partial(crf.decode, emissions)
        if "supar" in peers:
            runs["supar"] = lambda u=unary, p=pairwise: supar_crf(peers["supar"], u, p).argmax
        compare(f"chain argmax {B}x{T} C={C}", runs, 1)
    for roots in ("multi_root", "single_root"):
        for B, n in TREES:
            arcs = torch.randn(B, n + 1, n + 1)
            runs = {"ours": partial(getattr(eisner, roots).argmax, arcs)}
            if "supar" in peers:
                runs["supar"] = lambda a=arcs, many=roots == "multi_root": supar_tree(peers["supar"], a, many).argmax
            compare(f"Eisner argmax {roots} {B}x{n}", runs, 1)


def gradient_step(function, *scores: torch.Tensor) -> Run:
    """Return a run that computes a value for each sentence, and the gradient of their sum."""
    return lambda: torch.autograd.grad(function(*scores).sum(), scores)


def entropy_section(peers: Peers) -> None:
    for B, T, C in ((64, 50, 5), (64, 50, 20), (1, 30, 10)):
        scores = torch.randn(B, T, C, requires_grad=True), torch.randn(C, C, requires_grad=True)
        runs = {"ours": gradient_step(chain.entropy, *scores)}
        if "supar" in peers:
            runs["supar"] = gradient_step(lambda u, p: supar_crf(peers["supar"], u, p).entropy, *scores)
        compare(f"chain entropy+backward {B}x{T} C={C}", runs, 1)
    for B, n in TREES:
        arcs = torch.randn(B, n + 1, n + 1, requires_grad=True)
        runs = {"ours": gradient_step(eisner.multi_root.entropy, arcs)}
        if "supar" in peers:
            runs["supar"] = gradient_step(lambda a: supar_tree(peers["supar"], a).entropy, arcs)
        compare(f"Eisner entropy+backward {B}x{n}", runs, 1)
    for B, n in ((1, 20), (32, 20), (1, 80), (32, 80)):
        arcs = torch.randn(B, n + 1, n + 1, requires_grad=True)
        runs = {"ours": gradient_step(nonprojective.multi_root.entropy, arcs)}
        if "supar" in peers:
            runs["supar"] = gradient_step(lambda a: peers["supar"].MatrixTree(a.mT, multiroot=True).entropy, arcs)
        compare(f"crossing trees entropy+backward {B}x{n}", runs, 1)


def samples_section(peers: Peers) -> None:
    """supar cannot sample with this torch; torch-struct is run at C = 5 only, because its scan takes C³ time."""
    k, torch_struct = 16, peers.get("torch-struct")
    for B, T, C in CHAINS:
        unary, pairwise = torch.randn(B, T, C), torch.randn(C, C)
        runs: dict[str, Run] = {
            "ours": partial(chain.sample, unary, pairwise, k),
            "the reference": in_torch(partial(chain.sample, unary, pairwise, k)),
        }
        if torch_struct and C == 5:
            edges = unary[:, 1:, :, None] + pairwise.T
            edges[:, 0] += unary[:, 0, None]
            runs["torch-struct"] = lambda e=edges: torch_struct.LinearChainCRF(e).sample((k,))
        compare(f"chain {k} samples {B}x{T} C={C}", runs, 1)
    for B, n in TREES:
        arcs = torch.randn(B, n + 1, n + 1)
        runs = {
            "ours": partial(eisner.multi_root.sample, arcs, k),
            "the reference": in_torch(partial(eisner.multi_root.sample, arcs, k)),
        }
        compare(f"Eisner {k} samples {B}x{n}", runs, 1)


def sums_section(peers: Peers) -> None:
    L = 20
    for B, n in ((8, 20), (4, 40), (1, 30)):
        labels = torch.randn(B, n, n, L, requires_grad=True)
        for name, function in (("log Z", spans.log_partition), ("marginals", spans.marginals)):
            step = gradient_step(function, labels)
            runs: dict[str, Run] = {"ours": step if name == "log Z" else partial(function, labels)}
            if "supar" in peers:
                peer = partial(supar_spans, peers["supar"])
                runs["supar"] = gradient_step(lambda x, f=peer: f(x).log_partition, labels)
            compare(f"spans {name} {B}x{n} {L} labels", runs, 1)


def nonprojective_section(peers: Peers) -> None:
    for B, n in TREES:
        arcs = torch.randn(B, n + 1, n + 1, requires_grad=True)
        trees, fixed = nonprojective.single_root, arcs.detach()
        runs: dict[str, Run] = {"ours": gradient_step(trees.log_partition, arcs)}
        best: dict[str, Run] = {"ours": partial(trees.argmax, fixed)}
        if "supar" in peers:
            matrix_tree = peers["supar"].MatrixTree
            runs["supar"] = gradient_step(lambda a, f=matrix_tree: f(a.mT).log_partition, arcs)
        compare(f"non-projective log Z+backward {B}x{n}", runs, 1)
        compare(f"non-projective argmax {B}x{n}", best, 1)
        compare(f"non-projective 16 samples {B}x{n}", {"ours": partial(trees.sample, fixed, 16)}, 1)


def supar_spans(supar, labels: torch.Tensor):
    """Return supar's distribution over unlabelled spans, whose ends are fenceposts, with the sums over labels as scores."""
    scores = torch.nn.functional.pad(labels.logsumexp(-1), (1, 0, 0, 1))
    crf = supar.ConstituencyCRF.__new__(supar.ConstituencyCRF)
    crf.kwargs, crf.scores = {}, scores
    crf.lens = torch.full((len(labels),), labels.shape[1])
    return crf


def topk_section(peers: Peers) -> None:
    k = 8
    for B, T, C in CHAINS:
        unary, pairwise = torch.randn(B, T, C), torch.randn(C, C)
        runs: dict[str, Run] = {"ours": partial(chain.topk, unary, pairwise, k)}
        if "supar" in peers:
            runs["supar"] = lambda u=unary, p=pairwise: supar_crf(peers["supar"], u, p).topk(k)
        compare(f"chain {k} best {B}x{T} C={C}", runs, 1)
    for B, n in TREES:
        arcs = torch.randn(B, n + 1, n + 1)
        runs = {"ours": partial(eisner.multi_root.topk, arcs, k)}
        if "supar" in peers:
            runs["supar"] = lambda a=arcs: supar_tree(peers["supar"], a).topk(k)
        compare(f"Eisner {k} best {B}x{n}", runs, 1)
        compare(f"non-projective {k} best {B}x{n}", {"ours": partial(nonprojective.single_root.topk, arcs, k)}, 1)


@njit(error_model="numpy", fastmath={"contract"})
def chain_loop(unary, pairwise):
    """Return p(z_t = c), (T, C), by forward-backward whose rows are rescaled to sum to 1."""
    T, C = unary.shape
    weights, forward, p = np.exp(pairwise), np.empty((T, C)), np.empty((T, C))
    each = np.exp(unary - unary.max())
    backward, row = np.ones(C), np.empty(C)
    for t in range(T):
        for k in range(C):
            total = 1.0
            if t > 0:
                total = 0.0
                for j in range(C):
                    total += forward[t - 1, j] * weights[j, k]
            forward[t, k] = total * each[t, k]
        forward[t] /= forward[t].sum()
    for t in range(T - 1, -1, -1):
        p[t] = forward[t] * backward
        p[t] /= p[t].sum()
        for j in range(C):
            row[j] = 0.0
            for k in range(C):
                row[j] += weights[j, k] * each[t, k] * backward[k]
        backward[:] = row / row.sum()
    return p


@njit(error_model="numpy", fastmath={"contract"})
def _add(x, y):
    """Return log (eˣ + eʸ)."""
    if x < y:
        x, y = y, x
    return x if y == -np.inf else x + np.log1p(np.exp(y - x))


@njit(error_model="numpy", fastmath={"contract"})
def eisner_loop(arcs):
    """Return p(h is the head of m), (n+1, n+1), by the inside pass of Eisner (1996) and its reverse."""
    N = len(arcs)
    I, C = np.full((N, N), -np.inf), np.full((N, N), -np.inf)  # noqa: E741  [head, other end]: incomplete, complete
    for i in range(N):
        C[i, i] = 0.0
    for width in range(1, N):
        for i in range(N - width):
            j, total = i + width, -np.inf
            for k in range(i, j):
                total = _add(total, C[i, k] + C[j, k + 1])
            I[i, j], I[j, i] = total + arcs[i, j], (total + arcs[j, i] if i > 0 else -np.inf)
            for k in range(i + 1, j + 1):
                C[i, j] = _add(C[i, j], I[i, k] + C[k, j])
            for k in range(i, j):
                C[j, i] = _add(C[j, i], C[k, i] + I[j, k])
    dI, dC, p = np.zeros((N, N)), np.zeros((N, N)), np.zeros((N, N))
    dC[0, N - 1] = 1.0
    for width in range(N - 1, 0, -1):
        for i in range(N - width):
            j = i + width
            for k in range(i + 1, j + 1):
                x = dC[i, j] * np.exp(I[i, k] + C[k, j] - C[i, j]) if dC[i, j] > 0 else 0.0
                dI[i, k] += x
                dC[k, j] += x
            for k in range(i, j):
                x = dC[j, i] * np.exp(C[k, i] + I[j, k] - C[j, i]) if dC[j, i] > 0 else 0.0
                dC[k, i] += x
                dI[j, k] += x
            p[i, j], p[j, i] = dI[i, j], dI[j, i]
            both = dI[i, j] + dI[j, i]
            top = I[i, j] - arcs[i, j]
            for k in range(i, j):
                x = both * np.exp(C[i, k] + C[j, k + 1] - top) if both > 0 else 0.0
                dC[i, k] += x
                dC[j, k + 1] += x
    return p


def single_section(peers: Peers) -> None:
    """A batch of one, called as users call it with its checks, beside the loops that one writes with numba for one sentence."""
    unary, pairwise = torch.randn(1, 50, 20), torch.randn(20, 20)
    loop = partial(chain_loop, unary[0].numpy(), pairwise.numpy())
    torch.testing.assert_close(
        torch.from_numpy(loop()).float(), chain.marginals(unary, pairwise)[0], rtol=1e-3, atol=1e-5
    )
    compare("chain marginals 1x50 C=20", {"ours": partial(chain.marginals, unary, pairwise), "loop": loop}, 1)
    for n in (25, 80):
        arcs = torch.randn(1, n + 1, n + 1)
        plain = partial(eisner_loop, arcs[0].numpy())
        torch.testing.assert_close(
            torch.from_numpy(plain()).float(), eisner.multi_root.marginals(arcs)[0], rtol=1e-3, atol=1e-5
        )
        compare(f"Eisner marginals 1x{n}", {"ours": partial(eisner.multi_root.marginals, arcs), "loop": plain}, 1)


SHAPES = [(1, 10), (1, 40), (32, 10), (32, 40), (256, 10)]
Shapes = Callable[[int, int], list[tuple[int, ...]]]
STRUCTURES: dict[str, tuple[object, Shapes, int]] = {  # functions, shapes for B and n, the longest n
    "chain": (chain, lambda B, n: [(B, n, 10), (10, 10)], 40),
    "segmentations": (segmentations, lambda B, n: [(B, n, 8, 5), (5, 5)], 40),
    "warping": (alignment.warping, lambda B, n: [(B, n, n)], 40),
    "ctc": (alignment.ctc, lambda B, n: [(B, n, n // 2 + 1), (B, n // 2 + 1, 3)], 40),
    "eisner": (eisner.multi_root, lambda B, n: [(B, n + 1, n + 1)], 40),
    "nonprojective": (nonprojective.multi_root, lambda B, n: [(B, n + 1, n + 1)], 40),
    "spans": (spans, lambda B, n: [(B, n, n, 20)], 40),
    "grammar": (pcfg.trees, lambda B, n: [(B, n, 6), (6, 12, 12), (6,)], 10),
    "joint": (joint, lambda B, n: [(B, n, n, 20), (B, n + 1, n + 1)], 10),
}
OPERATIONS = ("log_partition", "marginals", "entropy", "argmax", "minimum_risk", "topk", "sample")


def operation(functions: object, name: str, scores: list[torch.Tensor]) -> Run:
    """Return a run of an operation; that of log Z also computes the gradient."""
    function = getattr(functions, name)
    if name in ("topk", "sample"):
        return partial(function, *scores, k=8)
    if name != "log_partition":
        return partial(function, *scores)
    leaves = [s.clone().requires_grad_() for s in scores]
    return lambda: torch.autograd.grad(function(*leaves).sum(), leaves)


def in_torch(run: Run) -> Run:
    def referenced() -> object:
        with reference_only():
            return run()

    return referenced


def matrix_section(peers: Peers) -> None:
    """Every operation x structure x shape, beside the torch path, and torch's own loss for `ctc`."""
    for structure in STRUCTURES:
        matrix_rows(structure)


def matrix_rows(structure: str) -> None:
    functions, sizes, longest = STRUCTURES[structure]
    for B, n in SHAPES:
        if n > longest or (structure == "joint" and B > 32):
            continue
        scores = [torch.randn(size) for size in sizes(B, n)]
        for name in OPERATIONS:
            if not hasattr(functions, name):
                continue
            runs = {"ours": operation(functions, name, scores)}
            if name in ("log_partition", "marginals", "entropy"):
                runs["torch path"] = in_torch(runs["ours"])
            if structure == "ctc" and name == "log_partition":
                runs["torch's loss"] = torch_ctc(B, n)
            compare(f"{structure} {name} {B}x{n}", runs, 1, 0.5)


def torch_ctc(B: int, n: int) -> Run:
    """Return a run of torch's loss and its gradient for as many states: n // 4 labels."""
    log_probs = torch.randn(n, B, 20).log_softmax(-1).requires_grad_()
    targets, frames = torch.randint(1, 20, (B, n // 4)), torch.full((B,), n)
    labels = torch.full((B,), n // 4)
    loss = partial(torch.nn.functional.ctc_loss, log_probs, targets, frames, labels, reduction="sum")
    return lambda: torch.autograd.grad(loss(), log_probs)


FIRST = """
import time, torch
from phrasemodels.structs import chain, eisner, spans
scores = {"chain": (chain, torch.randn(8, 20, 5), torch.randn(5, 5)), "eisner": (eisner.multi_root, torch.randn(8, 11, 11)),
          "spans": (spans, torch.randn(8, 10, 10, 5))}
for name, (functions, *given) in scores.items():
    start = time.perf_counter()
    functions.marginals(*given)
    print(f"first call, {name}: {time.perf_counter() - start:.2f} s", flush=True)
"""


def first_section(peers: Peers) -> None:
    """Print the wall times of first calls in a process whose kernels are not compiled."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        subprocess.run([sys.executable, "-c", FIRST], env=environment, check=True)


JAX_SHAPES = [(B, 40, C) for C in (5, 20, 50, 100) for B in (1, 32)]


def ours(B: int, T: int, C: int) -> Callable[[], object]:
    torch.set_num_threads(1)
    scores = [torch.randn(B, T, C).requires_grad_(), torch.randn(C, C).requires_grad_()]
    return lambda: torch.autograd.grad(chain.log_partition(*scores).sum(), scores)


def scaled_torch(B: int, T: int, C: int) -> Callable[[], object]:
    """Forward probabilities that are divided by their sums (Rabiner 1989), by products of matrices."""
    torch.set_num_threads(1)
    unary, pairwise = torch.randn(B, T, C).requires_grad_(), torch.randn(C, C).requires_grad_()

    def log_z() -> torch.Tensor:
        top, weights = pairwise.detach().max(), (pairwise - pairwise.detach().max()).exp()
        tops = unary.detach().amax(2, keepdim=True)
        x, total = (unary - tops).exp(), tops.sum((1, 2)) + top * (T - 1)
        forward = x[:, 0]
        for t in range(T):
            forward = (forward @ weights) * x[:, t] if t else forward
            sums = forward.sum(1, keepdim=True)
            forward, total = forward / sums, total + sums[:, 0].log()
        return total

    return lambda: torch.autograd.grad(log_z().sum(), (unary, pairwise))


def jitted_jax(B: int, T: int, C: int) -> Callable[[], object]:
    import jax
    import numpy as np
    from jax import numpy as jnp

    def log_z(unary, pairwise):  # type: ignore[no-untyped-def]
        def step(alpha, x):  # type: ignore[no-untyped-def]
            return jax.nn.logsumexp(alpha[:, :, None] + pairwise, axis=1) + x, None

        alpha, _ = jax.lax.scan(step, unary[:, 0], jnp.swapaxes(unary[:, 1:], 0, 1))
        return jax.nn.logsumexp(alpha, axis=1).sum()

    run = jax.jit(jax.grad(log_z, (0, 1)))
    random = np.random.default_rng(0)
    scores = [jnp.asarray(random.standard_normal(s), jnp.float32) for s in ((B, T, C), (C, C))]
    return lambda: jax.block_until_ready(run(*scores))


def worker(name: str) -> None:
    """Answer lines of shapes by milliseconds of CPU time of one run."""
    runs = {}
    for line in sys.stdin:
        shape = tuple(json.loads(line))
        if shape not in runs:
            runs[shape] = {"ours": ours, "scaled torch": scaled_torch, "JAX": jitted_jax}[name](*shape)
            runs[shape]()
        start = time.process_time()
        count = 0
        while count < 3 or time.process_time() - start < 0.05:
            runs[shape]()
            count += 1
        print((time.process_time() - start) / count * 1e3, flush=True)


def jax_section(peers: Peers) -> None:
    """Chains beside ten jitted lines of JAX and scaled torch, each in a process of its own, as JAX's threads would disturb the others."""
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "OMP_NUM_THREADS": "1"}
    names = ["ours", "scaled torch", "JAX"]
    workers = {
        name: subprocess.Popen([sys.executable, __file__, f"worker {name}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=os.environ | flags)
        for name in names
    }  # fmt: skip
    for shape in JAX_SHAPES:
        taken: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(7):
            for name, process in workers.items():
                assert process.stdin and process.stdout
                try:
                    print(json.dumps(shape), file=process.stdin, flush=True)
                    taken[name].append(float(process.stdout.readline() or "nan"))
                except BrokenPipeError:  # its library is not installed
                    taken[name].append(float("nan"))
        median = {name: statistics.median(t) for name, t in taken.items()}
        ratios = "  ".join(f"{name} {t / median['ours']:.2f}x" for name, t in median.items() if name != "ours")
        print("{}x{} C={}:".format(*shape), f"{median['ours']:.3f} ms ", ratios, flush=True)
    for process in workers.values():
        assert process.stdin
        process.stdin.close()
        process.wait()


JUMP = 1.5
GRID = {
    "C": (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 127, 128, 129, 192, 256),
    "N": (5, 10, 20, 40, 80, 160, 320),
    "B": (1, 2, 4, 8, 16, 32, 64),
}
WORK = {"C": 2, "N": 1, "B": 1}  # time grows as this power of a size


def sweep_section(peers: Peers) -> None:
    """Chains over neighbouring sizes: their time beyond that of equal work, of which more than JUMP is a jump; and constraints beside
    free transitions, shared and by position."""
    torch.set_num_threads(1)
    for size, values in GRID.items():
        for name in ("log_partition", "marginals", "entropy", "argmax", "sample"):
            before, shape = None, {"B": 32, "N": 40, "C": 20}
            for value in values:
                B, N, C = (shape | {size: value}).values()
                taken = best_of(operation(chain, name, [torch.randn(B, N, C), torch.randn(C, C)]))
                if before:
                    grown, work = taken / before[1], (value / before[0]) ** WORK[size]
                    jump = f"  a jump: {grown / work:.1f}" if grown / work > JUMP else ""
                    grown_by = f"{grown:.2f}x for {work:.2f}x the work"
                    print(f"{name} {size}={before[0]} to {value}: {taken * 1e3:.3f} ms, {grown_by}{jump}", flush=True)
                before = value, taken
    for B, N, C in ((32, 40, 10), (32, 40, 50)):
        unary, free = torch.randn(B, N, C), torch.randn(C, C)
        forbidden = free.masked_fill(torch.rand(C, C) < 0.3, -torch.inf)
        scores = {"free": free, "with -inf": forbidden, "by position": free.expand(B, N - 1, C, C).contiguous()}
        for name in ("log_partition", "marginals", "entropy", "argmax"):
            compare(f"{name} {B}x{N} C={C}", {x: operation(chain, name, [unary, p]) for x, p in scores.items()}, 1, 0.5)


def best_of(run: Run, rounds: int = 7) -> float:
    """Return the least CPU seconds of a call."""
    run()
    found = []
    for _ in range(rounds):
        start, count = time.process_time(), 0
        while count < 1 or time.process_time() - start < 0.02:
            run()
            count += 1
        found.append((time.process_time() - start) / count)
    return min(found)


SECTIONS = {
    "chain": chain_section,
    "eisner": eisner_section,
    "spans": spans_section,
    "joint": joint_section,
    "decoding": decoding_section,
    "entropy": entropy_section,
    "samples": samples_section,
    "topk": topk_section,
    "sums": sums_section,
    "nonprojective": nonprojective_section,
    "single": single_section,
    "jax": jax_section,
    "growth": growth_section,
    "sweep": sweep_section,
    "memory": memory_section,
    "matrix": matrix_section,
    "first": first_section,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    if sys.argv[1:2] and sys.argv[1].startswith("worker "):
        worker(sys.argv[1].removeprefix("worker "))
    else:
        peers = load_peers()
        for section in sys.argv[1:] or SECTIONS:
            SECTIONS[section](peers)
