"""`judge` on results whose truth is known: equal systems, shifted, noisy, diverged, and of one seed.

    python benchmarks/judge_synthetic.py 2000

The paper prints a run around 70 with one digit, margin 2 points; ours are normal around the true mean.
"""

import sys
from collections import Counter

import numpy as np

from phrasemodels.verdicts.judgement import judge

CASES = {  # mean of ours − mean of the paper's, deviation of both, seeds, runs that diverged
    "equal, deviation 0.3": (0.0, 0.3, 3, 0),
    "higher by one margin, deviation 0.3": (2.0, 0.3, 3, 0),
    "higher by two margins, deviation 0.3": (4.0, 0.3, 3, 0),
    "lower by five margins, deviation 0.3": (-10.0, 0.3, 3, 0),
    "equal, noisy: deviation 5": (0.0, 5.0, 3, 0),
    "equal, one of three diverged": (0.0, 0.3, 3, 1),
    "equal, one seed": (0.0, 0.3, 1, 0),
}
VERDICTS = ("reproduced", "higher", "lower", "inconclusive")


def main(draws: int) -> None:
    """Print how often each case has each verdict, as a Markdown table."""
    rng = np.random.default_rng(0)
    print(f"| truth | {' | '.join(VERDICTS)} |\n|{'---|' * (1 + len(VERDICTS))}")
    for name, (gap, deviation, seeds, diverged) in CASES.items():
        found: Counter[str] = Counter()
        for _ in range(draws):
            ours = list(70 + gap + deviation * rng.standard_normal(seeds))
            ours[:diverged] = [float("nan")] * diverged
            found[judge(f"{70 + deviation * rng.standard_normal():.1f}", ours).verdict] += 1
        print(f"| {name} | {' | '.join(f'{found[verdict] / draws:.3f}' for verdict in VERDICTS)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
