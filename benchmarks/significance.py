"""Speed, agreement and error rates of the significance tests: `python benchmarks/significance.py [SIMULATIONS]`.

Prints the seconds of a BLEU comparison (1,000 sentences, 1,000 resamples, bootstrap and randomisation) beside sacreBLEU's; p and
intervals beside those of scipy and sacreBLEU on the same data; and how often each test calls systems that differ by chance
alone different at α = 0.05: the two-level test, Welch's t over the means of seeds, and, of SLOW pairs, plain resampling of
seeds and sentences, and randomisation, which resamples sentences alone.
"""

import sys
import time

import numpy as np
from sacrebleu.significance import PairedTest
from scipy import stats

from phrasemodels.tasks.metrics.scores import bleu_counts, bleu_of, tokenised_bleu
from phrasemodels.verdicts.significance import (
    approximate_randomisation,
    difference,
    two_level_bootstrap,
    two_level_error,
)

ALPHA, SLOW, AT_ONCE = 0.05, 1000, 500
SPREADS = (0.0, 0.05, 0.1, 0.2, 0.5, 2.0)  # of seeds; that of an item's scores is 1.2
UNLIKE = ((0.0, 0.2), (0.0, 0.5), (0.0, 2.0), (0.2, 0.5), (0.5, 1.5))  # of the seeds of two systems


def seconds(function, times=5):
    """Return the median seconds of a few calls."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        taken.append(time.perf_counter() - started)
    return float(np.median(taken))


def speed():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(200)])
    references = [" ".join(words[rng.integers(0, 200, 12)]) for _ in range(1000)]
    systems = [
        [" ".join(np.where(rng.random(12) < share, rng.choice(words), r.split())) for r in references]
        for share in (0.30, 0.32)
    ]
    counts = [bleu_counts(hypotheses, references).astype(float) for hypotheses in systems]
    for seeds in (1, 3, 5):
        arrays = [np.repeat(c[None], seeds, 0) for c in counts]
        print(
            f"1,000 sentences, 1,000 resamples, {seeds} seeds: {seconds(lambda a=arrays: difference(*a, bleu_of)):.3f} s"
        )
    named = list(zip(("base", "ours"), systems, strict=True))
    for kind in ("bs", "ar"):
        test = PairedTest(named, {"BLEU": tokenised_bleu()}, [references], kind, 1000)
        print(f"the same by sacreBLEU's paired {kind}, one seed: {seconds(test, 1):.2f} s")


def plain(ours, base, resamples, rng):
    """Return whether the percentile interval of resampled seeds and sentences leaves out 0."""
    S, n = ours.shape
    weights = np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in range(resamples)]) / n
    drawn = [np.take_along_axis(weights @ x.T, rng.integers(0, S, (resamples, S)), 1).mean(1) for x in (ours, base)]
    low, high = np.quantile(drawn[0] - drawn[1], [0.025, 0.975])
    return not low <= 0 <= high


def agreement():
    """Print p values of ours beside those of scipy and sacreBLEU on the same data, as a table of Markdown."""
    rng = np.random.default_rng(1)
    print("\n| data | ours | theirs | which |\n|---|---|---|---|")
    for gap in (0.05, 0.1, 0.2):
        base = rng.normal(size=(1, 400))
        ours = base + rng.normal(gap, 1, size=(1, 400))
        found = difference(*(np.stack([x, np.ones_like(x)], -1) for x in (ours, base)), mean_of, 10_000)
        theirs = stats.ttest_rel(ours[0], base[0]).pvalue
        print(f"| 400 items, one seed, gap {gap} | {found.p:.4f} | {theirs:.4f} | scipy's paired t |")
    for gap in (0.2, 1.0, 2.0):
        ours, base = rng.normal(gap, 1, size=(4, 1)), rng.normal(0, 1, size=(3, 1))
        pair = (np.stack([np.repeat(x, 50, 1), np.ones((len(x), 50))], -1) for x in (ours, base))
        theirs = stats.ttest_ind(ours[:, 0], base[:, 0], equal_var=False).pvalue
        print(f"| 4 and 3 seeds, no noise of items, gap {gap} | {difference(*pair, mean_of, 20_000).p:.4f} | {theirs:.4f} | "
              "Welch's t of scipy |")  # fmt: skip
    words = np.array([f"w{i}" for i in range(200)])
    references = [" ".join(words[rng.integers(0, 200, 12)]) for _ in range(300)]
    systems = {
        share: [" ".join(np.where(rng.random(12) < share, rng.choice(words), r.split())) for r in references]
        for share in (0.32, 0.30, 0.25)
    }
    base = systems.pop(0.32)
    for share, ours in systems.items():
        found = difference(*(bleu_counts(h, references)[None].astype(float) for h in (ours, base)), bleu_of, 4000)
        test = PairedTest([("base", base), ("ours", ours)], {"BLEU": tokenised_bleu()}, [references], "ar", 4000)
        theirs = test()[1]["BLEU"][1].p_value
        print(f"| BLEU, 300 sentences, {share} words wrong against 0.32 | {found.p:.4f}, randomised {found.p_randomisation:.4f} | "
              f"{theirs:.4f} | sacreBLEU's randomisation |", flush=True)  # fmt: skip


def alike(seeds, spreads, pairs, rng, n=150, own=0.7, score=lambda x: x):
    """Return the scores (pairs, seeds, n) of two systems that differ by chance alone. spreads: standard deviation of the
    seeds of each; own: that of what each seed and item have alone; beside them items differ in what is hard and in what a
    system can do."""
    hard = rng.normal(size=(pairs, 1, n))
    return [
        score(
            hard
            + spread * rng.normal(size=(pairs, seeds, 1))
            + rng.normal(size=(pairs, 1, n))
            + own * rng.normal(size=(pairs, seeds, n))
        )
        for spread in spreads
    ]


def two_level(ours, base):
    """Return p (pairs) of the two-level test of mean scores (pairs, seeds, n): the bootstrap of a mean has no chance left, as
    its variance is known."""
    n = ours.shape[2]
    gap = ours.mean(1) - base.mean(1)
    sentences = gap.var(1) / n
    means = [x.mean(2) for x in (ours, base)]
    parts = []
    for x, mean in zip((ours, base), means, strict=True):
        S = x.shape[1]
        own = x - x.mean(1, keepdims=True)
        noise = own.var(2).mean(1) / n * S / max(1, S - 1)
        parts.append([(v, e, S) for v, e in zip(mean.var(1, ddof=min(1, S - 1)), noise, strict=True)])
    errors = [
        two_level_error(variance, n, [one for one in pair if one[2] > 1])
        for variance, *pair in zip(sentences, *parts, strict=True)
    ]
    error, freedom = np.array(errors).T
    return 2 * stats.t.sf(np.abs(means[0].mean(1) - means[1].mean(1)) / error, freedom)


def called_different(seeds, spreads, pairs, rng, **given):
    """Return the share of pairs that the two-level test, and Welch's over the means of seeds, call different."""
    found = np.zeros(2)
    for _ in range(pairs // AT_ONCE):
        ours, base = alike(seeds, spreads, AT_ONCE, rng, **given)
        welch = stats.ttest_ind(ours.mean(2), base.mean(2), axis=1, equal_var=False).pvalue if seeds > 1 else np.ones(1)
        found += (two_level(ours, base) < ALPHA).sum(), (welch < ALPHA).sum()
    return found / pairs


def slow_tests(seeds, spreads, pairs, rng):
    """Return the share of pairs that plain resampling and randomisation call different."""
    found = np.zeros(2)
    for _ in range(pairs):
        ours, base = (x[0] for x in alike(seeds, spreads, 1, rng))
        a, b = (np.stack([x, np.ones_like(x)], -1) for x in (ours, base))
        found += plain(ours, base, 300, rng), approximate_randomisation(a, b, mean_of, 300, rng) < ALPHA
    return found / pairs


def errors(simulations=20_000):
    """Print the rates of each test, as tables of Markdown."""
    print(
        f"\nShare of {simulations} pairs of systems that differ by chance alone that are called different, α = {ALPHA}"
    )
    print("\n| seeds | sd of seeds | two-level | plain | Welch | randomisation |\n|---|---|---|---|---|---|")
    for seeds in (1, 2, 3, 5, 10):
        for spread in SPREADS if seeds > 1 else SPREADS[:1]:
            rng, both = np.random.default_rng(0), (spread, spread)
            two, welch = called_different(seeds, both, simulations, rng)
            simple, randomised = slow_tests(seeds, both, min(SLOW, simulations), rng)
            known = f"{welch:.3f}" if seeds > 1 else "–"
            print(f"| {seeds} | {spread} | {two:.3f} | {simple:.3f} | {known} | {randomised:.3f} |", flush=True)
    others = {
        "150 items, sd of seeds {} and {}": {},
        "30 items, sd {} and {}": {"n": 30},
        "600 items, sd {} and {}": {"n": 600},
        "right or wrong, sd {} and {}": {"score": lambda x: (x > 1).astype(float)},
        "seeds differ more by item, sd {} and {}": {"own": 2.0},
    }
    print("\n| data | 2 seeds | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|---|")
    for name, given in others.items():
        for spreads in UNLIKE if not given else ((0.0, 0.0), (0.1, 0.1), (0.5, 0.5), (2.0, 2.0)):
            found = [
                called_different(seeds, spreads, simulations, np.random.default_rng(1), **given)[0]
                for seeds in (2, 3, 5, 10)
            ]
            print(f"| {name.format(*spreads)} | {' | '.join(f'{rate:.3f}' for rate in found)} |", flush=True)


def ratios(pairs=6000, n=150):
    """Print how often the bootstrap itself calls systems different that differ by chance alone, of a metric that is no mean:
    shares of items of unlike sizes, as in F1."""
    rng = np.random.default_rng(3)
    for seeds, spread in ((2, 0.3), (3, 0.0), (3, 0.3), (5, 0.3)):
        found = 0
        for _ in range(pairs):
            sizes, systems = rng.integers(4, 30, n), alike(seeds, (spread, spread), 1, rng, own=0.5)
            right = (rng.binomial(sizes, 1 / (1 + np.exp(-x[0]))) for x in systems)
            both = (np.stack([x, np.broadcast_to(sizes, x.shape)], -1).astype(float) for x in right)
            value, error, freedom = two_level_bootstrap(*both, mean_of, 300, rng)
            found += 2 * stats.t.sf(abs(value) / error, freedom) < ALPHA
        print(f"shares, {seeds} seeds, sd {spread}: {found / pairs:.3f} of {pairs}", flush=True)


def mean_of(sums):
    return sums[..., 0] / sums[..., 1]


if __name__ == "__main__":
    speed()
    agreement()
    errors(*map(int, sys.argv[1:2]))
    ratios()
