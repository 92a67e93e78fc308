"""BLEU (Papineni et al. 2002), from the counts of n-grams of each sentence."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phrasemodels.tasks.metrics.score import Score
from phrasemodels.verdicts.significance import Array, Statistic

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


def tokenised_bleu() -> "BLEU":
    """BLEU as Moses' multi-bleu computes it: tokens as they are, lower case, no smoothing, 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)


def bleu(metric: "BLEU", hypotheses: list[str], references: list[str]) -> Score:
    """Return corpus BLEU against one reference a sentence."""
    result = metric.corpus_score(hypotheses, [references])
    return Score(float(result.score), str(metric.get_signature()), len(hypotheses))


def bleu_counts(hypotheses: list[str], references: list[str]) -> NDArray[np.int64]:
    """Return the counts of each sentence (n, 10): lengths of hypothesis and reference, then matches and totals of 1- to
    4-grams. Corpus BLEU is a function of their sums."""
    metric = tokenised_bleu()
    scores = (metric.corpus_score([h], [[r]]) for h, r in zip(hypotheses, references, strict=True))
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], np.int64).reshape(-1, 10)


def bleu_of(sums: Array) -> Array:
    """Return corpus BLEU without smoothing of summed `bleu_counts` (..., 10)."""
    hypothesis, reference, matches, totals = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.log(matches / totals).mean(-1)
        penalty = np.minimum(0.0, 1 - reference / hypothesis)
        return np.nan_to_num(100 * np.exp(precision + penalty), nan=0.0)


CORPUS_BLEU = Statistic("bleu_counts", bleu_of)
