"""Probabilistic context-free grammars in Chomsky normal form, and weighted ones (Jelinek, Lafferty and Mercer 1992).

Shapes: B sentences, n words, N nonterminals, P preterminals; S = N + P symbols, nonterminals first. Arguments of every
function of `trees`:
    terms    (B, n, P) scores of preterminals over words
    rules    (N, S, S) or (B, N, S, S) scores of A → B C at [A, B, C]
    roots    (N,) or (B, N) scores of the symbol of the sentence
    lengths  (B,) integers in 0..n, a tensor or a list; None: all are n

With log probabilities log Z is the log likelihood of the sentences. Every word has a preterminal and every longer span a
nonterminal, so a sentence of one word has no tree, and log Z = -inf. A structure is cells (i, j, symbol) of words i..j, in
pre-order: (B, 2n-1, 3), -1 after the last. A sentence without words has one tree, the empty one. A score of -inf forbids;
NaN and +inf make results NaN or undefined. Terms in the padding are not read. Time is O(B·(n³S² + n²NS²)).
"""

from functools import lru_cache

import numpy as np
from torch import Tensor

from phrasemodels.structs import inference
from phrasemodels.structs.derivations import Derivations, Problem
from phrasemodels.structs.graphs import Edges, Graph, grid
from phrasemodels.structs.inference import Lengths


@lru_cache(maxsize=16)
def _graph(n: int, N: int, P: int) -> Graph:
    """Nodes by right end j and width: pairs of symbols of the halves of a span, its symbols, and the whole sentence."""
    S = N + P
    width = S * S + S + 1

    def node(i: np.ndarray, j: np.ndarray, number: np.ndarray | int) -> np.ndarray:
        return (j * n + j - i) * width + number

    j, p = np.meshgrid(range(n), range(P), indexing="ij")
    words = Edges(node(j, j, S * S + N + p), part=j * P + p, size=j + 1, row=(j, j, N + p))

    def parts_of_a_span(i, k, j, b, c):  # type: ignore[no-untyped-def]
        return (i <= k) & (k < j) & ((b >= N) == (i == k)) & ((c >= N) == (k + 1 == j))

    i, k, j, b, c = grid(n, n, n, S, S, where=parts_of_a_span)
    halves = Edges(node(i, j, b * S + c), node(i, k, S * S + b), node(k + 1, j, S * S + c))
    i, j, b, c = np.unique(np.stack([i, j, b, c]), axis=1)
    a = np.arange(N)[:, None]
    rule = n * P + (a * S + b) * S + c
    row = np.broadcast_arrays(i, j, a)
    spans = Edges(
        node(i, j, S * S + a), node(i, j, b * S + c), part=rule, size=j + 1, row=tuple(np.asarray(x) for x in row)
    )
    last, a = np.meshgrid(range(1, n), range(N), indexing="ij")
    first = n * P + N * S * S
    root = Edges(node(0 * last, last, S * S + S), node(0 * last, last, S * S + a), part=first + a, size=last + 1)
    goals = np.append([-1], node(np.zeros(n, int), np.arange(n), S * S + S))
    return Graph.of([words, halves, spans, root], goals, first + N, 2 * n - 1, 4 * n, (1, -1, 1))


class Grammar(Derivations):
    """The functions over the trees of a grammar."""

    def problem(self, terms: Tensor, rules: Tensor, roots: Tensor, *, lengths: Lengths = None) -> Problem:  # type: ignore[override]
        if terms.dim() != 3:
            raise ValueError(f"terms must be (B, n, P), not {tuple(terms.shape)}")
        (B, n, P), N = terms.shape, roots.shape[-1]
        S = N + P
        if rules.shape not in ((N, S, S), (B, N, S, S)) or roots.shape not in ((N,), (B, N)):
            raise ValueError(
                f"rules and roots must be {(N, S, S)} and {(N,)}, or for each sentence, not {tuple(rules.shape)} and {tuple(roots.shape)}"
            )
        lengths = inference.check_lengths(lengths, B, n, terms.device)
        scores = terms, rules.expand(B, N, S, S), roots.expand(B, N)
        return Problem(_graph(n, N, P), scores, lengths[:, None])


trees = Grammar()
