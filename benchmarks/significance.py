"""Speed and error rates of the significance tests: `python benchmarks/significance.py`.

Prints the seconds of a BLEU comparison (1,000 sentences, 1,000 resamples, bootstrap and randomisation) beside sacreBLEU's,
and how often each test calls systems that differ by chance alone different at α = 0.05: the two-level bootstrap, plain
resampling of seeds and sentences, and randomisation, which resamples sentences alone.
"""

import time

import numpy as np
from sacrebleu.significance import PairedTest
from scipy import stats

from phrasemodels.tasks.metrics.bleu import bleu_counts, bleu_of, tokenised_bleu
from phrasemodels.verdicts.significance import approximate_randomisation, difference, two_level_bootstrap


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


def errors(simulations=2000, n=150, resamples=300):
    rng = np.random.default_rng(0)
    print("\nshare of identical systems called different, α = 0.05")
    print(f"{'seeds':>6} {'sd of seeds':>12} {'two-level':>10} {'plain':>8} {'randomisation':>14}")
    for seeds in (1, 2, 3, 5, 10):
        for between in (0.0, 0.05, 0.5) if seeds > 1 else (0.0,):
            counts = np.zeros(3)
            for _ in range(simulations):
                hard = rng.normal(size=n)
                ours, base = (
                    hard
                    + between * rng.normal(size=(seeds, 1))
                    + rng.normal(size=n)
                    + 0.7 * rng.normal(size=(seeds, n))
                    for _ in range(2)
                )
                a, b = (np.stack([x, np.ones_like(x)], -1) for x in (ours, base))
                value, error, freedom = two_level_bootstrap(a, b, mean_of, resamples, rng)
                counts += (
                    2 * stats.t.sf(abs(value) / error, freedom) < 0.05,
                    plain(ours, base, resamples, rng),
                    approximate_randomisation(a, b, mean_of, resamples, rng) < 0.05,
                )
            rates = counts / simulations
            print(f"{seeds:>6} {between:>12} {rates[0]:>10.3f} {rates[1]:>8.3f} {rates[2]:>14.3f}", flush=True)


def mean_of(sums):
    return sums[..., 0] / sums[..., 1]


if __name__ == "__main__":
    speed()
    errors()
