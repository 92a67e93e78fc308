# mypy: disallow-untyped-defs=False
"""Grammars by products of matrices, on any device: log Z and the expected uses of terms, rules and roots.

The chart of a sentence has a row of weights β of nonterminals for each span, divided by its largest; the logarithms of the divisors are
summed apart. With words i..j, whose halves end at k, and symbols A → B C,

    β(i, j) = Σ_BC R(A, B, C) Σ_i<k<j-1 β(i, k, B) β(k+1, j, C)    nonterminals B and C: a product over k, then one with R
            + Σ_C W_i(A, C) β(i+1, j, C) + Σ_B V_j(A, B) β(i, j-1, B),   W_i(A, C) = Σ_B R(A, B, C) t_i(B) for preterminals B of word i

so that rules with preterminals take O(N²) a span. All spans of one width and all sentences are one product. The outside pass computes
the sums over k again, instead of keeping them: memory is O(B n² N + B n N (N + P)), time O(B (n³ N² + n² N³ + n N² P + n N P²)).

Weights of a span are within exp(range of rules) of each other if no rule is forbidden, so that nothing vanishes up to WIDEST; the engine
is for the rest. Shapes: B sentences, n words, N nonterminals, P preterminals; all is float64.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from phrasemodels.structs.dispatch import transformed
from phrasemodels.structs.kernels import Kernel, Scores, allowed

if TYPE_CHECKING:
    from phrasemodels.structs.structure import Structure

WIDEST = 200.0
SMALLEST = 5000  # products for a span, N² (N + 2P), below which the engine is faster


class GrammarProducts(Kernel):
    """Serves log Z and marginals of grammars whose scores spread little; see `Kernel`."""

    def supports(self, structure: "Structure", scores: Scores) -> bool:
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

    def marginals(self, structure: "Structure", scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        with torch.no_grad():
            chart = _Chart(structure, scores, lengths[:, 0])
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

    def __init__(self, structure, scores, lengths):
        terms, rules, roots = scores
        self.lengths, (self.B, self.n, self.P), self.N = lengths, terms.shape, roots.shape[-1]
        N, word = self.N, torch.arange(self.n, device=terms.device) < lengths[:, None]
        terms = torch.where(word[..., None], terms.double(), 0)
        top, self.top_rule = terms.amax(2), rules.double().amax()
        self.words, self.log_words = (terms - top[..., None]).exp(), top
        rules = (rules.double() - self.top_rule).exp().reshape(-1, N, N + self.P, N + self.P)  # (B or 1, N, S, S)
        self.rules, self.roots, self.roots_apart = rules, roots.double().exp().expand(self.B, N), roots.dim() == 2
        self.inner = rules[:, :, :N, :N].reshape(len(rules), N, N * N)
        # rules whose left symbol is a preterminal, and those whose right one alone is
        self.by_left = self._by_word(rules[:, :, N:, :])
        self.by_right = self._by_word(rules[:, :, :N, N:].transpose(2, 3))
        shape = self.B, self.n, self.n
        self.left, self.right = (terms.new_zeros(*shape, N) for _ in range(2))
        self.log_left, self.log_right = (terms.new_zeros(shape) for _ in range(2))
        self.divisors = {}

    def _by_word(self, rules):
        """Return Σ_B rules(A, B, C) words(B), (B, n, N, ·), for rules (B or 1, N, P, ·)."""
        flat = rules.transpose(1, 2).reshape(len(rules), self.P, -1)
        return self._rows(self.words, flat).view(self.B, self.n, self.N, -1)

    def _halves(self, w):
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

    def inside(self):
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
        log_z = self.log_left[sentence, 0, last] + self.total.log()
        return log_z.masked_fill(self.lengths == 1, -torch.inf).masked_fill(self.lengths == 0, 0)

    def _rows(self, x, matrix):
        """Return x @ matrix for x (B, m, ·) and a matrix of all sentences (1, ·, ·), in one product, or of each (B, ·, ·)."""
        return (x.flatten(0, 1) @ matrix[0]).view(*x.shape[:2], -1) if len(matrix) == 1 else x @ matrix

    def _outer(self, x, y, each):
        """Return Σ x yᵀ over the spans of x (B, m, ·) and y (B, m, ·): (·, ·), or with `each` of each sentence (B, ·, ·)."""
        return x.transpose(1, 2) @ y if each else x.flatten(0, 1).T @ y.flatten(0, 1)

    def outside(self, scale, each):
        """Return the expected uses of terms, rules and roots times scale (B,), of those that sentences share their sum unless `each`."""
        n, N, P, S = self.n, self.N, self.P, self.N + self.P
        apart = each or len(self.rules) > 1
        share = torch.where(self.lengths > 1, scale / self.total, 0)[:, None]
        sentence, last = torch.arange(self.B, device=self.lengths.device), (self.lengths - 1).clamp(min=0)
        out_left, out_right = torch.zeros_like(self.left), torch.zeros_like(self.right)  # derivatives of Σ scale log Z
        out_left[sentence, 0, last] = self.roots * share
        words, by_left, by_right = (torch.zeros_like(x) for x in (self.words, self.by_left, self.by_right))
        inner_rules = 0
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


def _apply(matrices, x):
    """Return each matrix (B, m, ·, ·) times its vector x (B, m, ·)."""
    return (matrices @ x[..., None])[..., 0]
