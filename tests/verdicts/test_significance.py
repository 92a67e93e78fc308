"""Tests of systems against scipy, enumeration and sacreBLEU, and their error rate when there is no difference."""

import dataclasses
import itertools
import math
import runpy

import numpy as np
import pytest
from conftest import PROJECT
from sacrebleu.significance import PairedTest
from scipy import stats

from phrasemodels.tasks.metrics.parseval import f1_of
from phrasemodels.tasks.metrics.scores import (
    accuracy_of,
    bleu,
    bleu_counts,
    bleu_of,
    tokenised_bleu,
)
from phrasemodels.verdicts.significance import (
    approximate_randomisation,
    difference,
    holm,
    seed_group,
    two_level_error,
)

BENCHMARK = runpy.run_path(str(PROJECT / "benchmarks" / "significance.py"))


def mean_of(sums):
    """A metric that is a plain mean, of (value, 1)."""
    return sums[..., 0] / sums[..., 1]


def as_statistics(values):
    """(S, n) to (S, n, 2)."""
    return np.stack([values, np.ones_like(values)], -1)


def sentences(rng, n, share):
    """References, and hypotheses in which a share of the words is another."""
    words = np.array(list("abcdefgh"))
    references = [words[rng.integers(0, 8, rng.integers(6, 14))] for _ in range(n)]
    changed = [np.where(rng.random(len(r)) < share, words[rng.integers(0, 8, len(r))], r) for r in references]
    return [" ".join(r) for r in references], [" ".join(h) for h in changed]


def test_a_seed_group_warns_below_three():
    assert seed_group([1.0, 2.0]).warning == "2 seeds, which say little of how much seeds differ; take 3"
    assert seed_group([1.0]).warning == "1 seed; a verdict needs 2"
    assert seed_group([1.0, 2.0, 3.0]).warning == ""


def test_metrics_of_summed_statistics_are_the_corpus_metrics():
    rng = np.random.default_rng(0)
    assert f1_of(np.array([6.0, 8.0, 10.0])) == pytest.approx(100 * 2 * 0.75 * 0.6 / 1.35)
    assert accuracy_of(np.array([3.0, 4.0])) == 75
    references, hypotheses = sentences(rng, 60, 0.3)
    counts = bleu_counts(hypotheses, references).sum(0)
    assert bleu_of(counts) == pytest.approx(bleu(tokenised_bleu(), hypotheses, references).value)
    shorter = [" ".join(h.split()[: 3 * len(h.split()) // 4]) for h in hypotheses]
    short = bleu_counts(shorter, references).sum(0)
    assert bleu_of(short) == pytest.approx(bleu(tokenised_bleu(), shorter, references).value)
    assert 0 < bleu_of(short) < bleu_of(counts), "a text that is too short"
    assert bleu_of(np.array([3, 3, 3, 2, 1, 0, 3, 2, 1, 0.0])) == 0, "no 4-gram: not smoothed"


def test_holm_correction_by_hand():
    # 0.01·4, 0.02·3, then 0.03·2 and 0.04·1, never below the one before
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def test_with_one_seed_p_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(1)
    base = rng.normal(size=(1, 400))
    ours = base + rng.normal(0.1, 1, size=(1, 400))
    found = difference(as_statistics(ours), as_statistics(base), mean_of, 10_000)
    expected = stats.ttest_rel(ours[0], base[0])
    low, high = expected.confidence_interval()
    assert found.p == pytest.approx(expected.pvalue, abs=0.005)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.005)


def test_without_noise_of_sentences_the_test_is_welchs_with_degrees_between_scipys_and_his():
    ours, base = np.array([3.0, 4.1, 5.3, 4.4]), np.array([2.0, 2.6, 2.9])
    found = difference(*(as_statistics(np.repeat(x[:, None], 50, 1)) for x in (ours, base)), mean_of, 100)
    expected = stats.ttest_ind(ours, base, equal_var=False)
    a, b = ours.var(ddof=1) / 4, base.var(ddof=1) / 3
    welch = (a + b) ** 2 / (a**2 / 5 + b**2 / 4) - 2  # Welch 1947
    assert 2 * stats.t.sf(expected.statistic, welch) < found.p < expected.pvalue
    between = (a + b) ** 2 / (a**2 / 4 + b**2 / 3) - 1
    assert found.p == pytest.approx(2 * stats.t.sf(expected.statistic, between))
    assert found.high - found.difference == pytest.approx(stats.t.ppf(0.975, between) * math.sqrt(a + b))


def test_if_seeds_of_one_system_alone_vary_p_is_that_of_their_t_test():
    ours = np.array([3.0, 4.1, 5.3, 4.4])
    found = difference(*(as_statistics(np.repeat(x[:, None], 50, 1)) for x in (ours, np.ones(3))), mean_of, 100)
    expected = stats.ttest_1samp(ours - 1, 0)
    low, high = expected.confidence_interval()
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_errors_and_degrees_of_freedom_by_hand():
    assert two_level_error(4.0, 10, []) == pytest.approx((2, 9)), "of sentences alone"
    assert two_level_error(0.0, 10, [(9.0, 0.0, 2)]) == pytest.approx((math.sqrt(4.5), 1)), "of two seeds alone"
    assert two_level_error(0.0, 10, []) == (0, 1), "nothing varies"
    # shared 2, seeds 1 / 2: 0.7 · 2 may be hidden, so that the part counts for 0.5 + 1.4 · 0.5 / 1.9
    freedom = 1 / ((2 / 2.5) ** 2 / 10 + ((0.5 + 0.7 / 1.9) / 2.5) ** 2 / 2) - 1
    assert two_level_error(2.0, 10, [(1.0, 0.0, 2)]) == pytest.approx((math.sqrt(2.5), freedom))
    # of the variance over sentences, 0.6 / 3 is that of seeds
    assert two_level_error(0.5, 10, [(0.0, 0.6, 3)]) == pytest.approx((math.sqrt(0.3), 9))


def test_randomisation_agrees_with_all_exchanges():
    rng = np.random.default_rng(2)
    ours, base = (np.stack([rng.integers(0, 9, (2, 10)), np.full((2, 10), 9)], -1).astype(float) for _ in range(2))
    seen = abs(accuracy_of(ours.sum(1)).mean() - accuracy_of(base.sum(1)).mean())
    larger = 0
    for bits in itertools.product([False, True], repeat=10):
        keep = np.array(bits)[None, :, None]
        mine, theirs = np.where(keep, ours, base), np.where(keep, base, ours)
        larger += abs(accuracy_of(mine.sum(1)).mean() - accuracy_of(theirs.sum(1)).mean()) >= seen - 1e-9
    found = approximate_randomisation(ours, base, accuracy_of, 20_000, np.random.default_rng(0))
    assert found == pytest.approx(larger / 2**10, abs=0.01)


@pytest.mark.parametrize("share", [0.26, 0.28, 0.30, 0.35])
def test_sacrebleus_paired_tests_agree_on_single_seeds(share):
    rng = np.random.default_rng(3)
    references, base = sentences(rng, 300, 0.32)
    words = np.array(list("abcdefgh"))
    changed = (np.where(rng.random(len(r.split())) < share, rng.choice(words), r.split()) for r in references)
    ours = [" ".join(h) for h in changed]
    theirs = {
        kind: PairedTest([("base", base), ("ours", ours)], {"BLEU": tokenised_bleu()}, [references], kind, 4000)
        for kind in ("ar", "bs")
    }
    p = {kind: test()[1]["BLEU"][1].p_value for kind, test in theirs.items()}
    found = difference(*(bleu_counts(h, references)[None].astype(float) for h in (ours, base)), bleu_of, 4000)
    scores = [bleu(tokenised_bleu(), h, references).value for h in (ours, base)]
    assert found.difference == pytest.approx(scores[0] - scores[1])
    assert found.p_randomisation == pytest.approx(p["ar"], abs=0.03)
    assert found.p == pytest.approx(p["ar"], abs=0.03)
    if abs(found.difference) > 3:  # its bootstrap centres |δ|: one-sided when zero is far away, and too small near it
        assert found.p / 2 == pytest.approx(p["bs"], abs=0.01)
    assert (found.p < 0.05) >= (p["bs"] < 0.025)


def test_systems_on_other_sentences_are_refused():
    with pytest.raises(ValueError, match="other sentences: 5 and 6"):
        difference(np.ones((1, 5, 2)), np.ones((1, 6, 2)), mean_of)


def test_the_bootstrap_of_a_mean_is_its_known_variance():
    (ours,), (base,) = BENCHMARK["alike"](3, (0.1, 0.1), 1, np.random.default_rng(3))
    found = difference(as_statistics(ours), as_statistics(base), mean_of, 20_000)
    assert found.p == pytest.approx(BENCHMARK["two_level"](ours[None], base[None])[0], abs=0.01)


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), *itertools.product((2, 3, 5), (0.0, 0.1, 0.5, 2.0))])
def test_of_systems_that_differ_by_chance_alone_four_to_six_in_100_are_called_different(seeds, spread):
    """4,000 pairs, α = 0.05, of which the share is known to ± 0.7 in 100."""
    rate, _ = BENCHMARK["called_different"](seeds, (spread, spread), 4000, np.random.default_rng(7))
    assert 0.04 - 0.005 <= rate <= 0.06 + 0.005


def test_draws_in_blocks_are_those_made_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    ours, base = rng.random((2, 3, 37, 2))
    whole = difference(ours, base, mean_of)
    monkeypatch.setattr("phrasemodels.verdicts.significance.BLOCK", 37 * 7)
    assert dataclasses.astuple(difference(ours, base, mean_of)) == pytest.approx(dataclasses.astuple(whole), rel=1e-12)
