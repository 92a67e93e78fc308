"""Probabilistic context-free grammars in Chomsky normal form, and weighted ones (Jelinek, Lafferty and Mercer 1992).

Shapes: B sentences, n words, N nonterminals, P preterminals; S = N + P symbols, nonterminals first. Arguments of every
function of `trees`:
    terms    (B, n, P) scores of preterminals over words
    rules    (N, S, S) or (B, N, S, S) scores of A → B C at [A, B, C]
    roots    (N,) or (B, N) scores of the symbol of the sentence
    lengths  (B,) integers in 0..n, a tensor or a list, or a mask (B, n); None: all are n

With log probabilities log Z is the log likelihood of the sentences. Every word has a preterminal and every longer span a
nonterminal, so a sentence of one word has no tree, and log Z = -inf. A structure is cells (i, j, symbol) of words i..j, in
pre-order: (B, 2n-1, 3), -1 after the last. A sentence without words has one tree, the empty one. A score of -inf forbids;
NaN and +inf make results NaN or undefined. Terms in the padding are not read.

log Z, gradients and marginals take O(B·(n³N² + n²N³ + n²N²P)) time and O(B·n·N·(n + N + P)) memory beside the rules, if scores spread by
less than 200 and no rule is forbidden, by products of matrices (`GrammarProducts`). The rest is the engine's, in O(n²·N·S) memory a thread
beside O(B·n²·S).
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from phrasemodels.structs import dispatch
from phrasemodels.structs.dispatch import Lengths, transformed
from phrasemodels.structs.kernels import Kernel, allowed
from phrasemodels.structs.kernels.engine import FIRST, NONE, add_node, add_run
from phrasemodels.structs.kernels.simd import COMPILE
from phrasemodels.structs.semiring import in_float64
from phrasemodels.structs.spans import are_trees, cells_of, in_pre_order
from phrasemodels.structs.structure import ENGINE, LEVELS, Integers, ScoreLayout, Scores, Structure, TableSizes


@njit(**COMPILE)
def _rule(n: Any, N: Any, P: Any, cells: Any, terms: Any, rules: Any, nodes: Any, runs: Any, ends: Any) -> Any:
    """Nodes of the words i..j > i begin at 1 + (i · n + j) · (N² + N): pairs of nonterminals of both halves, then nonterminals;
    preterminals of words follow. cells: the first score of a symbol over a span, (n, n, S), or NONE."""
    S, v, r = N + P, 0, 0
    width = N * N + N
    row, column, words = n * width, width, 1 + n * n * width
    for j in range(n):
        for p in range(P):
            v = add_node(nodes, v, words + j * P + p, cells + (j * n + j) * S + N + p if cells >= 0 else NONE, r)
            r = add_run(runs, r, 0, 0, 0, 0, terms + j * P + p, 0, 1)
        for i in range(j - 1, -1, -1):
            here, right, left = 1 + i * row + j * column, 1 + (i + 1) * row + j * column, 1 + i * row + (j - 1) * column
            for b in range(N if j - i > 2 else 0):
                for c in range(N):  # over the last word of the left half
                    v = add_node(nodes, v, here + b * N + c, NONE, r)
                    first, last = 1 + i * row + (i + 1) * column + N * N + b, right + row + N * N + c
                    r = add_run(runs, r, first, column, last, row, NONE, 0, j - i - 2)
            for a in range(N):
                v = add_node(nodes, v, here + N * N + a, cells + (i * n + j) * S + a if cells >= 0 else NONE, r)
                own = rules + a * S * S
                for p in range(P):
                    word, other, part = words + i * P + p, words + j * P + p, own + (N + p) * S
                    if j == i + 1:
                        r = add_run(runs, r, word, 0, words + j * P, 1, part + N, 1, P)
                        continue
                    r = add_run(runs, r, word, 0, right + N * N, 1, part, 1, N)
                    r = add_run(runs, r, left + N * N, 1, other, 0, own + N + p, S, N)
                for b in range(N if j - i > 2 else 0):
                    r = add_run(runs, r, here + b * N, 1, 0, 0, own + b * S, 1, N)
        ends[j + 1] = v
    nodes[v, FIRST] = r
    return v


class _Parses(Structure):
    """The base of both classes below: scores are terms, rules and roots after `skip` others."""

    rule, skip = _rule, 0
    names: ClassVar[tuple[str, ...]] = ("terms", "rules", "roots")

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        if len(scores) != 3 + self.skip or scores[self.skip].dim() != 3:
            raise ValueError(f"terms must be (B, n, P), then rules and roots, not {[tuple(s.shape) for s in scores]}")
        terms, rules, roots = scores[self.skip :]
        (B, n, P), N = terms.shape, roots.shape[-1]
        S = N + P
        if rules.shape not in ((N, S, S), (B, N, S, S)) or roots.shape not in ((N,), (B, N)):
            raise ValueError(
                f"rules and roots must be {(N, S, S)} and {(N,)}, or for each sentence, not {tuple(rules.shape)} and {tuple(roots.shape)}"
            )
        return dispatch.check_lengths(lengths, B, n, terms.device)

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        terms, _, roots = numbered.shapes[self.skip :]
        (_, n, P), N = terms, roots[-1]
        spans = n * (n - 1) // 2
        offsets = numbered.offsets if self.skip else [NONE, *numbered.offsets]
        arguments = (n, N, P, *offsets[:3])
        nodes, runs = n * P + spans * (N * N + N), n * P + spans * 2 * N * (N + P)
        return TableSizes(arguments, 1 + n * n * (N * N + N) + n * P, nodes, runs, n, max(2 * n - 1, 0), 3 * n)

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        N = sizes.arguments[1]
        m, goals = lengths[:, 0], np.zeros((len(lengths), 7), np.int64)
        tree = m > 1  # a sentence of one word has none
        goals[:, 0] = np.where(tree, 1 + (m - 1) * (N * N + N) + N * N, 0)
        goals[:, 1] = goals[:, 5] = tree
        goals[:, 4] = np.where(tree, numbered.offsets[-1], NONE)
        goals[:, 6] = np.where(tree, N, m == 0)
        return goals

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        word = torch.arange(scores[self.skip].shape[1], device=lengths.device) < lengths
        several = lengths > 1
        rules, roots = scores[self.skip + 1 :]
        each = several[..., None, None] if rules.dim() == 4 else several.new_ones(())
        return word[..., None], each, several if roots.dim() == 2 else several.new_ones(())

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        return cells_of(scores[0], parts)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        terms, N = scores[self.skip], scores[-1].shape[-1]
        i, j, symbol = rows.unbind(-1)
        right = torch.where(i == j, (symbol >= N) & (symbol < N + terms.shape[2]), (symbol >= 0) & (symbol < N))
        return are_trees(rows, lengths, right) & (lengths[:, 0] != 1)

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        terms, rules, roots = scores[self.skip :]
        B, n, N = *terms.shape[:2], roots.shape[-1]
        rows = in_pre_order(rows, n)  # the row after a cell is its left half, and halves are found by their sizes
        sentence = torch.arange(B, device=terms.device)[:, None]
        i, j, symbol = rows.clamp(min=0).unbind(-1)
        there = rows[..., 0] >= 0
        word, inner = there & (i == j), there & (i < j)
        at = torch.arange(rows.shape[-2], device=rows.device)
        left = (at + 1).clamp(max=max(rows.shape[-2] - 1, 0)).expand(symbol.shape)
        middle = j.gather(-1, left)
        right = torch.where(inner, left + 2 * (middle - i) + 1, 0).clamp(0, max(rows.shape[-2] - 1, 0))
        head = torch.where(inner, symbol, 0)
        chosen = head, symbol.gather(-1, left), symbol.gather(-1, right)
        by_rule = rules[chosen] if rules.dim() == 3 else rules[(sentence, *chosen)]
        single = terms[sentence, i, (symbol - N).clamp(0, max(terms.shape[2] - 1, 0))]
        total = torch.where(word, single, torch.where(inner, by_rule, 0)).sum(-1)
        if rows.shape[-2]:
            top = torch.where(inner[..., 0], symbol[..., 0], 0)
            total = total + torch.where(
                inner[..., 0], roots[top] if roots.dim() == 1 else roots[sentence[:, 0], top], 0
            )
        return total.masked_fill((there.sum(-1) < 2 * lengths[:, 0] - 1) | (lengths[:, 0] == 1), -torch.inf)


class _Cells(_Parses):
    """The functions over parses with scores of symbols over spans (B, n, n, S), in front of the others: the parts of a structure."""

    names, dims, shared_dims, skip = ("cells", *_Parses.names), (4, 3, 4, 2), (0, 0, 3, 1), 1

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        n = scores[0].shape[1]
        word = torch.arange(n, device=lengths.device) < lengths
        spans = word[:, None] & torch.ones(n, n, dtype=torch.bool, device=lengths.device).triu()
        return spans[..., None], *super().valid(scores, lengths)

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        i, j, symbol = rows.clamp(min=0).unbind(-1)
        sentence = torch.arange(len(scores[0]), device=rows.device)[:, None]
        cells = torch.where(rows[..., 0] >= 0, scores[0][sentence, i, j, symbol], 0).sum(-1)
        return super().total_score(scores, rows, lengths) + cells


WIDEST = 200.0
SMALLEST = 5000  # products for a span, N² (N + 2P), below which the engine is faster


class GrammarProducts(Kernel):
    """Serves log Z and marginals of grammars whose scores spread little, by products of matrices on any device; see `Kernel`.

    The chart of a sentence has a row of weights β of nonterminals for each span, divided by its largest; the logarithms of the divisors are
    summed apart. With words i..j, whose halves end at k, and symbols A → B C,

        β(i, j) = Σ_BC R(A, B, C) Σ_i<k<j-1 β(i, k, B) β(k+1, j, C)    nonterminals B and C: a product over k, then one with R
                + Σ_C W_i(A, C) β(i+1, j, C) + Σ_B V_j(A, B) β(i, j-1, B),   W_i(A, C) = Σ_B R(A, B, C) t_i(B) for preterminals B of word i

    so that rules with preterminals take O(N²) a span. All spans of one width and all sentences are one product. The outside pass computes
    the sums over k again, instead of keeping them: memory is O(B n² N + B n N (N + P)), time O(B (n³ N² + n² N³ + n N² P + n N P²)).

    Weights of a span are within exp(range of rules) of each other if no rule is forbidden, so that nothing vanishes up to WIDEST; the
    engine is for the rest. Shapes: B sentences, n words, N nonterminals, P preterminals; all is float64.
    """

    def supports(self, structure: Structure, scores: Scores) -> bool:
        device = scores[0].device.type
        if not allowed("numba" if device == "cpu" else "triton") or device == "mps" or transformed():
            return False
        (_, n, P), N = scores[0].shape, scores[2].shape[-1]
        if n < 2 or (device == "cpu" and N * N * (N + 2 * P) < SMALLEST):
            return False
        ranges = [s.detach().aminmax() for s in scores if s.numel()]
        if len(ranges) < len(scores):
            return False
        return float(torch.stack([x.max - x.min for x in ranges]).sum()) <= WIDEST  # NaN or infinite if a score is

    def marginals(self, structure: Structure, scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        with torch.no_grad():
            chart = _Chart(scores, lengths[:, 0])
            log_z = chart.inside().to(scores[0].dtype)
            if scale is None:
                return log_z, ()
            by = (
                scale.double()
                if isinstance(scale, torch.Tensor)
                else scores[0].new_full((), scale, dtype=torch.float64)
            )
            found = chart.outside(by.expand(len(log_z)), each)
            return log_z, tuple(found[i].to(scores[i].dtype) for i in which)


class _Chart:
    """Weights of spans by their left end and by their right end, and width: `left`, `right` (B, n, n, N), and the logarithms of what they
    were divided by: `log_left`, `log_right` (B, n, n)."""

    def __init__(self, scores: Scores, lengths: Tensor) -> None:
        terms, rules, roots = scores
        self.lengths, (self.B, self.n, self.P), self.N = lengths, terms.shape, roots.shape[-1]
        N, word = self.N, torch.arange(self.n, device=terms.device) < lengths[:, None]
        terms = torch.where(word[..., None], terms.double(), 0)
        top, self.top_rule = terms.amax(2), rules.double().amax()
        self.words, self.log_words = (terms - top[..., None]).exp(), top
        rules = (rules.double() - self.top_rule).exp().reshape(-1, N, N + self.P, N + self.P)  # (B or 1, N, S, S)
        roots, self.roots_apart = roots.double().expand(self.B, N), roots.dim() == 2
        self.top_root = roots.amax(1)
        self.rules, self.roots = rules, (roots - self.top_root[:, None]).exp()
        self.inner = rules[:, :, :N, :N].reshape(len(rules), N, N * N)
        # rules whose left symbol is a preterminal, and those whose right one alone is
        self.by_left = self._by_word(rules[:, :, N:, :])
        self.by_right = self._by_word(rules[:, :, :N, N:].transpose(2, 3))
        shape = self.B, self.n, self.n
        self.left, self.right = (terms.new_zeros(*shape, N) for _ in range(2))
        self.log_left, self.log_right = (terms.new_zeros(shape) for _ in range(2))
        self.divisors: dict[int, Tensor] = {}

    def _by_word(self, rules: Tensor) -> Tensor:
        """Return Σ_B rules(A, B, C) words(B), (B, n, N, ·), for rules (B or 1, N, P, ·)."""
        flat = rules.transpose(1, 2).reshape(len(rules), self.P, -1)
        return self._rows(self.words, flat).view(self.B, self.n, self.N, -1)

    def _halves(self, w: int) -> tuple[Tensor, ...]:
        """Return the cells of nonterminals whose spans make one of w words, left and right, (B, m, K, N), the factors of their products
        beside the largest (B, m, K) and the weights of the two splits at a word (B, m) each, and the logarithm of the largest (B, m)."""
        m, N = self.n - w + 1, slice(1, w - 2)
        left, right = self.left[:, :m, N], self.right[:, w - 1 :, N].flip(2)
        inner = self.log_left[:, :m, N] + self.log_right[:, w - 1 :, N].flip(2)
        first = self.log_words[:, :m] + self.log_right[:, w - 1 :, w - 2]
        last = self.log_left[:, :m, w - 2] + self.log_words[:, w - 1 :]
        top = torch.maximum(first, last)
        if w > 3:
            top = torch.maximum(top, inner.amax(2))
        return left, right, (inner - top[..., None]).exp(), (first - top).exp(), (last - top).exp(), top

    def inside(self) -> Tensor:
        """Fill the chart; return log Z (B,)."""
        n, N = self.n, self.N
        for w in range(2, n + 1):
            m = n - w + 1
            if w == 2:
                total = _apply(self.by_left[:, :m, :, N:], self.words[:, 1:])
                top = self.log_words[:, :m] + self.log_words[:, 1:]
            else:
                left, right, inner, first, last, top = self._halves(w)
                total = _apply(self.by_left[:, :m, :, :N], self.right[:, w - 1 :, w - 2]) * first[..., None]
                total += _apply(self.by_right[:, w - 1 :], self.left[:, :m, w - 2]) * last[..., None]
                if w > 3:
                    pairs = (left * inner[..., None]).transpose(2, 3) @ right
                    total += self._rows(pairs.flatten(2), self.inner.transpose(1, 2))
            largest = total.amax(2)
            self.divisors[w] = largest
            total /= largest[..., None]
            self.left[:, :m, w - 1] = self.right[:, w - 1 :, w - 1] = total
            self.log_left[:, :m, w - 1] = self.log_right[:, w - 1 :, w - 1] = top + largest.log() + self.top_rule
        sentence, last = torch.arange(self.B, device=self.lengths.device), (self.lengths - 1).clamp(min=0)
        self.whole = self.left[sentence, 0, last]
        self.total = (self.whole * self.roots).sum(1)
        log_z = self.log_left[sentence, 0, last] + self.total.log() + self.top_root
        return log_z.masked_fill(self.lengths == 1, -torch.inf).masked_fill(self.lengths == 0, 0)

    def _rows(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Return x @ matrix for x (B, m, ·) and a matrix of all sentences (1, ·, ·), in one product, or of each (B, ·, ·)."""
        return (x.flatten(0, 1) @ matrix[0]).view(*x.shape[:2], -1) if len(matrix) == 1 else x @ matrix

    def _outer(self, x: Tensor, y: Tensor, each: bool) -> Tensor:
        """Return Σ x yᵀ over the spans of x (B, m, ·) and y (B, m, ·): (·, ·), or with `each` of each sentence (B, ·, ·)."""
        return x.transpose(1, 2) @ y if each else x.flatten(0, 1).T @ y.flatten(0, 1)

    def outside(self, scale: Tensor, each: bool) -> Scores:
        """Return the expected uses of terms, rules and roots times scale (B,), of those that sentences share their sum unless `each`."""
        n, N, P, S = self.n, self.N, self.P, self.N + self.P
        apart = each or len(self.rules) > 1
        share = torch.where(self.lengths > 1, scale / self.total, 0)[:, None]
        sentence, last = torch.arange(self.B, device=self.lengths.device), (self.lengths - 1).clamp(min=0)
        out_left, out_right = torch.zeros_like(self.left), torch.zeros_like(self.right)  # derivatives of Σ scale log Z
        out_left[sentence, 0, last] = self.roots * share
        words, by_left, by_right = (torch.zeros_like(x) for x in (self.words, self.by_left, self.by_right))
        inner_rules: Any = 0  # a tensor from four words on: one kernel less than beginning with zeros
        for w in range(n, 1, -1):
            m = n - w + 1
            each_out = (out_left[:, :m, w - 1] + out_right[:, w - 1 :, w - 1]) / self.divisors[w][..., None]
            if w == 2:
                by_left[:, :m, :, N:] += each_out[..., None] * self.words[:, 1:, None]
                words[:, 1:] += _apply(self.by_left[:, :m, :, N:].transpose(2, 3), each_out)
                continue
            left, right, inner, first, last_, _ = self._halves(w)
            at_left, at_right = each_out * first[..., None], each_out * last_[..., None]
            out_right[:, w - 1 :, w - 2] += _apply(self.by_left[:, :m, :, :N].transpose(2, 3), at_left)
            by_left[:, :m, :, :N] += at_left[..., None] * self.right[:, w - 1 :, w - 2, None]
            out_left[:, :m, w - 2] += _apply(self.by_right[:, w - 1 :].transpose(2, 3), at_right)
            by_right[:, w - 1 :] += at_right[..., None] * self.left[:, :m, w - 2, None]
            if w > 3:
                scaled = left * inner[..., None]
                pairs = scaled.transpose(2, 3) @ right
                inner_rules = inner_rules + self._outer(each_out, pairs.flatten(2), apart)
                of_pairs = self._rows(each_out, self.inner).view(pairs.shape)
                out_left[:, :m, 1 : w - 2] += (right @ of_pairs.transpose(2, 3)) * inner[..., None]
                out_right[:, w - 1 :, 1 : w - 2] += (scaled @ of_pairs).flip(2)
        rules = self.rules.new_zeros(*([self.B] if apart else []), N, S, S)
        rules[..., :N, :N] = inner_rules.view(*rules.shape[:-2], N, N) if n > 3 else 0
        right = rules[..., :N, N:].transpose(-1, -2)
        for out, of, to in (
            (by_left, self.rules[:, :, N:], rules[..., N:, :]),
            (by_right, self.rules[:, :, :N, N:].transpose(2, 3), right),
        ):
            to += self._outer(self.words, out.flatten(2), apart).unflatten(-1, (N, -1)).transpose(-3, -2)
            words += self._rows(out.flatten(2), of.transpose(2, 3).reshape(len(of), -1, P))
        rules *= self.rules if apart else self.rules[0]
        roots = self.roots * self.whole * share
        return words * self.words, rules, roots if each or self.roots_apart else roots.sum(0)


def _apply(matrices: Tensor, x: Tensor) -> Tensor:
    """Return each matrix (B, m, ·, ·) times its vector x (B, m, ·)."""
    return (matrices @ x[..., None])[..., 0]


class Grammar(_Parses):
    """The functions over the trees of a grammar."""

    kernels = GrammarProducts(), ENGINE, LEVELS
    dims, shared_dims = (3, 4, 2), (0, 3, 1)

    def _k_best(self, scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return _CELLS._k_best(_with_cells(scores), lengths, k)

    def _best(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return _CELLS._best(_with_cells(scores), lengths)

    def _draw(self, scores: Scores, lengths: Tensor, k: int, generator: Any) -> Tensor:
        return _CELLS._draw(_with_cells(scores), lengths, k, generator)

    def _minimum_risk(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return _CELLS._minimum_risk(_with_cells(scores), lengths)


def _with_cells(scores: Scores) -> Scores:
    (B, n, P), N = scores[0].shape, scores[2].shape[-1]
    return scores[0].new_zeros(B, n, n, N + P), *scores


trees, _CELLS = Grammar(), _Cells()


def low_rank_log_partition(
    terms: Tensor, heads: Tensor, left: Tensor, right: Tensor, roots: Tensor, lengths: Lengths = None
) -> Tensor:
    """Return log Z (B,), differentiable, of a grammar whose rules have rank R: rules(A, B, C) = log Σ_r exp(heads(A, r) + left(B, r) +
    right(C, r)), without forming them (TD-PCFG: Yang, Zhao and Tu 2021).

    terms (B, n, P) and roots (N,) or (B, N) as in `trees`, heads (N, R), left and right (S, R), or of each sentence, (B, ·, R). Time is
    O(B·(n³R + n²NR)), memory O(B·n²·(N + R)), on any device, in float64. Weights of symbols below e^-700 of the largest of a span are 0.
    """
    dispatch.refuse_tracing()
    (B, n, _), N, rank = terms.shape, roots.shape[-1], heads.shape[-1]
    if (
        terms.dim() != 3
        or heads.shape[-2] != N
        or left.shape[-2:] != (N + terms.shape[2], rank)
        or left.shape != right.shape
    ):
        shapes = [tuple(x.shape) for x in (terms, heads, left, right, roots)]
        raise ValueError(
            f"terms, heads, left, right and roots must be (B, n, P), (N, R), (S, R), (S, R) and (N,), not {shapes}"
        )
    lengths = dispatch.check_lengths(lengths, B, n, terms.device)
    return dispatch.run(_low_rank, (terms, heads, left, right, roots), lengths, rounded=False)


def _low_rank(scores: Scores, lengths: Tensor) -> Tensor:
    terms, *exact = in_float64(scores)
    (B, n, _), N = terms.shape, exact[3].shape[-1]
    tops = [_tops(x, x.dim() - dims) for x, dims in zip(exact, (2, 2, 2, 1), strict=True)]  # of each sentence, or of all
    heads, left, right, roots = ((x - top).exp() for x, top in zip(exact, tops, strict=True))
    word = (torch.arange(n, device=terms.device) < lengths)[..., None]
    words = torch.where(word, terms, 0)
    top_term = _tops(words, 2)
    weights, logs = _divided((words - top_term).exp())
    logs = logs + top_term[..., 0]
    # by width, of all left ends
    begin, end, scales = [weights @ left[..., N:, :]], [weights @ right[..., N:, :]], [logs]
    totals = [logs.new_zeros(B), logs.new_full((B,), -torch.inf)]
    for w in range(2, n + 1):
        m = n - w + 1
        each = torch.stack([scales[k - 1][:, :m] + scales[w - k - 1][:, k : k + m] for k in range(1, w)])
        top = each.amax(0)
        factors = (each - top.masked_fill(top == -torch.inf, 0)).exp()[..., None]
        halves = begin[0][:, :m] * end[w - 2][:, 1 : 1 + m] * factors[0]
        for k in range(2, w):
            halves = halves + begin[k - 1][:, :m] * end[w - k - 1][:, k : k + m] * factors[k - 1]
        weights, logs = _divided(halves @ heads.transpose(-1, -2))
        scales.append(top + logs + (tops[0] + tops[1] + tops[2])[..., 0])
        begin.append(weights @ left[..., :N, :])
        end.append(weights @ right[..., :N, :])
        whole = (weights[:, 0] * roots).sum(1)
        totals.append(torch.where(whole > 0, whole.clamp(min=1e-300).log() + scales[-1][:, 0] + tops[3][..., 0], -torch.inf))
    return torch.stack(totals)[lengths[:, 0], torch.arange(B, device=terms.device)].to(scores[0].dtype)


def _tops(scores: Tensor, beyond: int) -> Tensor:
    """Return the largest score over all axes from `beyond` on, which keep length 1; 0 where all are forbidden. Without a graph."""
    largest = scores.detach().amax(tuple(range(beyond, scores.dim())), keepdim=True)
    return largest.masked_fill(largest == -torch.inf, 0)


def _divided(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (B, m, ·) divided by their largest, and the logarithms (B, m) of what they were divided by, without a graph."""
    largest = weights.detach().amax(2)
    return weights / largest.masked_fill(largest == 0, 1)[..., None], largest.log()


dispatch.register("pcfg", trees.first_calls(), (1, 2, 2), (1, 3, 3), (1,))
