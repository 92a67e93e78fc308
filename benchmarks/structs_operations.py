"""Speed of every operation of structured inference: `python benchmarks/structs_operations.py [section ...]`.

Ratios and peers are those of `structs.py`; all rows are of one thread. Argmaxes of peers are called as their users call them.
"""

import sys
from functools import partial

import torch

from phrasemodels.structs import chain, eisner
from structs import Peers, Run, compare, load_peers

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


SECTIONS = {"decoding": decoding_section}

if __name__ == "__main__":
    torch.manual_seed(0)
    peers = load_peers()
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section](peers)
