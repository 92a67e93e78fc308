"""Speed of every operation of structured inference: `python benchmarks/structs_operations.py [section ...]`.

Ratios and peers are those of `structs.py`; all rows are of one thread. Argmaxes of peers are called as their users call them.
"""

import sys
from functools import partial

import torch
from structs import Peers, Run, compare, load_peers

from phrasemodels.structs import chain, eisner, nonprojective, spans
from phrasemodels.structs.kernels import reference_only

CHAINS = ((64, 50, 5), (64, 50, 20), (1, 30, 10))
TREES = ((32, 20), (16, 40), (1, 25))


def crf_of(torchcrf, pairwise: torch.Tensor):
    """Return a CRF of pytorch-crf with our transitions, and none from the start or to the end."""
    crf = torchcrf.CRF(len(pairwise))
    crf.start_transitions.data.zero_()
    crf.end_transitions.data.zero_()
    crf.transitions.data.copy_(pairwise)
    return crf


def supar_chain(supar, unary: torch.Tensor, pairwise: torch.Tensor):
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
            runs["supar"] = lambda u=unary, p=pairwise: supar_chain(peers["supar"], u, p).argmax
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
            runs["supar"] = gradient_step(lambda u, p: supar_chain(peers["supar"], u, p).entropy, *scores)
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
            "the reference": in_torch(chain.sample, unary, pairwise, k),
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
            "the reference": in_torch(eisner.multi_root.sample, arcs, k),
        }
        compare(f"Eisner {k} samples {B}x{n}", runs, 1)


def in_torch(function, *arguments) -> Run:
    """Return a run of the function without compiled kernels."""

    def run():
        with reference_only():
            return function(*arguments)

    return run


def spans_section(peers: Peers) -> None:
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
            runs["supar"] = lambda u=unary, p=pairwise: supar_chain(peers["supar"], u, p).topk(k)
        compare(f"chain {k} best {B}x{T} C={C}", runs, 1)
    for B, n in TREES:
        arcs = torch.randn(B, n + 1, n + 1)
        runs = {"ours": partial(eisner.multi_root.topk, arcs, k)}
        if "supar" in peers:
            runs["supar"] = lambda a=arcs: supar_tree(peers["supar"], a).topk(k)
        compare(f"Eisner {k} best {B}x{n}", runs, 1)
        compare(f"non-projective {k} best {B}x{n}", {"ours": partial(nonprojective.single_root.topk, arcs, k)}, 1)


SECTIONS = {
    "decoding": decoding_section,
    "entropy": entropy_section,
    "samples": samples_section,
    "topk": topk_section,
    "spans": spans_section,
    "nonprojective": nonprojective_section,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    peers = load_peers()
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section](peers)
