"""Speed, agreement and error rates of the significance tests: `python benchmarks/significance.py [SIMULATIONS]`.

Prints the seconds of a BLEU comparison (1,000 sentences, 1,000 resamples, bootstrap and randomisation) beside sacreBLEU's; p and
intervals beside those of scipy and sacreBLEU on the same data; and how often each test calls systems that differ by chance
alone different at α = 0.05: the two-level bootstrap, plain resampling of seeds and sentences, Welch's t over the means of
seeds, and randomisation, which resamples sentences alone.
"""

import sys
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


def errors(simulations=2000, n=150, resamples=300):
    rng = np.random.default_rng(0)
    print(f"\nShare of {simulations} pairs of identical systems that are called different, α = 0.05\n")
    print("| seeds | sd of seeds | two-level | plain | Welch | randomisation |\n|---|---|---|---|---|---|")
    for seeds in (1, 2, 3, 5, 10):
        for between in (0.0, 0.05, 0.5) if seeds > 1 else (0.0,):
            counts = np.zeros(4)
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
                    seeds > 1 and stats.ttest_ind(ours.mean(1), base.mean(1), equal_var=False).pvalue < 0.05,
                    approximate_randomisation(a, b, mean_of, resamples, rng) < 0.05,
                )
            rates = counts / simulations
            shown = [f"{rate:.3f}" for rate in rates]
            shown[2] = shown[2] if seeds > 1 else "–"
            print(f"| {seeds} | {between} | {' | '.join(shown)} |", flush=True)


def mean_of(sums):
    return sums[..., 0] / sums[..., 1]


if __name__ == "__main__":
    speed()
    agreement()
    errors(*map(int, sys.argv[1:2]))
