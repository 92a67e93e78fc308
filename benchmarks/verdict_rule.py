"""How often the rule for verdicts errs: simulated papers and seeds, beside the rule that it replaced.

    python benchmarks/verdict_rule.py [--claims] [PAPERS]     by default 4000 for each cell: a rate of 0.05 is known to ± 0.007

Each simulated paper prints a number around 70 with one digit; its runs and ours are normal with the same deviation. *Reproduced by
luck*: the true means are two margins apart. *Different by luck*: they are equal. Before: the printed value lies in the 95 % interval
of our mean, give or take half a unit (three seeds at least).
"""

import sys

import numpy as np
from scipy.special import stdtrit

from phrasemodels.verdicts.claims import gain_of_values, judge_gain
from phrasemodels.verdicts.rule import PrintedValue, _evidence, _margin, read_number

SEEDS, SPREADS = (2, 3, 5, 10), (0.1, 0.5, 1.0, 2.0, 5.0)
KINDS = {
    "one run": (PrintedValue(), lambda draw, spread: spread * draw.standard_normal()),
    "mean of 5": (PrintedValue(runs=5), lambda draw, spread: spread * draw.standard_normal(5).mean()),
    "best of 20": (PrintedValue(runs=1, of=20), lambda draw, spread: spread * draw.standard_normal(20).max()),
}
TRUTH = 70.0


def verdicts(how: PrintedValue, printed: str, values: np.ndarray) -> tuple[str, str]:
    """Return the verdicts of the rule and of the one before it."""
    number = read_number(printed)
    evidence = _evidence(values, number, how, *_margin(printed, number, how), how.runs or 1, max(how.of, 1))
    n, mean = len(values), values.mean()
    if n < 3:
        return evidence.verdict(), "not comparable"
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / n**0.5
    before = "reproduced" if abs(mean - number) - half <= 0.05 else "higher" if mean > number else "lower"
    return evidence.verdict(), before


def rates(how: PrintedValue, make, n: int, spread: float, apart: float, papers: int) -> np.ndarray:
    """Return how often each rule says reproduced, and higher or lower: (2, 2)."""
    draw, counts = np.random.default_rng(0), np.zeros((2, 2))
    for _ in range(papers):
        printed = f"{TRUTH + make(draw, spread):.1f}"
        for rule, verdict in enumerate(verdicts(how, printed, TRUTH + apart + spread * draw.standard_normal(n))):
            counts[rule] += verdict == "reproduced", verdict in ("higher", "lower")
    return counts / papers


def claim_rates(n: int, spread: float, gain: float, papers: int) -> np.ndarray:
    """Return how often a printed gain of 4 is confirmed or smaller, and not confirmed or contradicted, if ours is truly `gain`."""
    draw, counts = np.random.default_rng(0), np.zeros(2)
    for better, than in spread * draw.standard_normal((papers, 2, n)):
        found = judge_gain(
            "74.0", "70.0", gain_of_values(70 + gain + better, 70 + than, PrintedValue()), PrintedValue()
        ).verdict
        counts += found in ("confirmed", "smaller"), found in ("not confirmed", "contradicted")
    return counts / papers


def claims(papers: int) -> None:
    print("| seeds | deviation | held without a gain | lost with the printed gain | held with it |")
    print("|---|---|---|---|---|")
    for n in SEEDS[1:]:
        for spread in SPREADS[1:]:
            none, whole = claim_rates(n, spread, 0.0, papers), claim_rates(n, spread, 4.0, papers)
            print(f"| {n} | {spread} | {none[0]:.3f} | {whole[1]:.3f} | {whole[0]:.3f} |", flush=True)


def main(papers: int) -> None:
    print(
        "| printed | seeds | deviation | reproduced by luck | before | different by luck | before | reproduced if equal |"
    )
    print("|---|---|---|---|---|---|---|---|")
    worst = np.zeros(4)
    for kind, (how, make) in KINDS.items():
        for n in SEEDS:
            for spread in SPREADS:
                far, near = rates(how, make, n, spread, 4.0, papers), rates(how, make, n, spread, 0.0, papers)
                row = np.array([far[0, 0], far[1, 0], near[0, 1], near[1, 1]])
                worst = np.maximum(worst, row)
                print(
                    f"| {kind} | {n} | {spread} | " + " | ".join(f"{x:.3f}" for x in (*row, near[0, 0])) + " |",
                    flush=True,
                )
    print(f"| worst | | | {' | '.join(f'{x:.3f}' for x in worst)} | |")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:] if text.isdigit()]
    (claims if "--claims" in sys.argv else main)(numbers[0] if numbers else 4000)
