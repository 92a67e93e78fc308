"""Speed of structured inference against peers, side by side in one run: `python benchmarks/structs.py [section ...]`.

Every number is a ratio, peer's time over ours, of medians over interleaved rounds. 1T is one thread, CPU time of the
process; 2T is two threads, wall clock. Peers that are not installed are named as skipped. Install them beside torch:
`pip install --no-deps torch-struct supar pytorch-crf benepar`.
"""

import importlib.util
import statistics
import sys
import time
import types
from collections.abc import Callable

import numpy as np
import torch
from numba import njit

from phrasemodels.structs import chain, eisner, joint, spans
from phrasemodels.structs.kernels import reference_only

Run = Callable[[], object]


def load_peers() -> dict[str, types.ModuleType]:
    """Peers that import, without their heavy package files."""
    for package in ("supar", "supar.utils", "benepar", "nltk"):
        spec = importlib.util.find_spec(package)
        stub = types.ModuleType(package)
        stub.__path__ = spec.submodule_search_locations if spec else []
        stub.Tree = object  # what benepar names of nltk
        sys.modules[package] = stub
    peers = {}
    for name, module in (("torch-struct", "torch_struct"), ("supar", "supar.structs"), ("pytorch-crf", "torchcrf"),
                         ("benepar", "benepar.decode_chart")):
        try:
            peers[name] = importlib.import_module(module)
        except ImportError as missing:
            print(f"skipped {name}: {missing}")
    print("skipped LAL-Parser: no package, no licence")
    return peers


def compare(title: str, ours: str, runs: dict[str, Run], threads: int, rounds: int = 7) -> None:
    """Interleave, take medians, print how many times longer each takes than `ours`."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            for _ in range(3 if name == ours else 1):
                start = clock()
                run()
                taken[name].append(clock() - start)
    median = {name: statistics.median(t) for name, t in taken.items()}
    others = {name: t / median[ours] for name, t in median.items() if name != ours}
    ratios = "  ".join(f"{name} {r:.1f}x" for name, r in others.items())
    best = f"  best peer {min(others.values()):.1f}x" if len(others) > 1 else ""
    print(f"{title:<44}[{threads}T] {median[ours] * 1e3:8.3f} ms  {ratios}{best}", flush=True)


def train_step(marginals: Callable[..., torch.Tensor], *scores: torch.Tensor) -> Run:
    """Marginals, and the gradient of a loss on them."""
    weight = torch.randn(marginals(*scores).shape)

    def run():
        return torch.autograd.grad((marginals(*scores) * weight).sum(), scores)

    return run


def chain_section(peers: dict[str, types.ModuleType]) -> None:
    for std in (1.0, 1000.0):
        for B, T, C in ((64, 50, 2), (16, 512, 2), (64, 50, 20), (16, 512, 20)):
            unary, pairwise = torch.randn(B, T, C) * std, torch.randn(C, C) * std
            scores = unary.requires_grad_(), pairwise.requires_grad_()
            runs = {"ours": train_step(chain.marginals, *scores)}
            if "torch-struct" in peers and B * C < 1000:
                runs["torch-struct"] = train_step(torch_struct_chain(peers["torch-struct"]), *scores)
            if "supar" in peers:
                runs["supar"] = train_step(supar_chain(peers["supar"]), *scores)
            if "pytorch-crf" in peers:
                runs["pytorch-crf"] = train_step(pytorch_crf(peers["pytorch-crf"], C), *scores)
            compare(f"chain marginals+backward {B}x{T} C={C} std {std:g}", "ours", runs, 1)


def torch_struct_chain(torch_struct):
    def marginals(unary, pairwise):
        edges = unary[:, 1:, :, None] + pairwise.T
        first = torch.zeros_like(edges)
        first[:, 0] = unary[:, 0, None, :]
        return torch_struct.LinearChainCRF(edges + first).marginals

    return marginals


def supar_chain(supar):
    def marginals(unary, pairwise):
        trans = torch.nn.functional.pad(pairwise, (0, 1, 0, 1))  # and zeros from the start and to the end
        log_z = supar.LinearChainCRF(unary, trans=trans).log_partition
        return torch.autograd.grad(log_z.sum(), unary, create_graph=True)[0]

    return marginals


def pytorch_crf(torchcrf, C):
    crf = torchcrf.CRF(C, batch_first=True)
    crf.start_transitions.data.zero_()
    crf.end_transitions.data.zero_()

    def marginals(unary, pairwise):
        crf._parameters["transitions"] = pairwise
        mask = torch.ones(unary.shape[1], unary.shape[0], dtype=torch.bool)
        log_z = crf._compute_normalizer(unary.transpose(0, 1), mask)
        return torch.autograd.grad(log_z.sum(), unary, create_graph=True)[0]

    return marginals


def eisner_section(peers: dict[str, types.ModuleType]) -> None:
    for std in (1.0, 100.0):
        for B, n in ((32, 20), (16, 40), (8, 80)):
            arcs = (torch.randn(B, n + 1, n + 1) * std).requires_grad_()
            for name, ours in (("multi-root", eisner.multi_root), ("single-root", eisner.single_root)):
                runs = {"ours": train_step(ours.marginals, arcs)}
                if "supar" in peers:
                    runs["supar"] = train_step(supar_eisner(peers["supar"], name == "multi-root"), arcs)
                compare(f"Eisner {name} marginals+backward {B}x{n} std {std:g}", "ours", runs, 2)


def supar_eisner(supar, multiroot):
    def marginals(arcs):
        return supar.DependencyCRF(arcs.mT, multiroot=multiroot).marginals

    return marginals


SECTIONS = {"chain": chain_section, "eisner": eisner_section}

if __name__ == "__main__":
    torch.manual_seed(0)
    found = load_peers()
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section](found)
