"""BLEU on dev by epoch, beside the printed numbers: `python benchmarks/bleu_by_epoch.py OUT.svg ROW[:SEED] ... [NAME=HISTORY.json ...]`.

For trainings of translators in the store (PHRASEMODELS_STORE), also unfinished ones, and for files history.json, as `train --local --data`
writes them elsewhere. It prints the figures, and draws them with the
numbers that paper 000 prints for these rows as lines. BLEU by epoch is of greedy search; the printed numbers are of a test set.
"""

import json
import sys
from pathlib import Path

from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.report.plots import lines
from phrasemodels.flows.results.records import open_store
from phrasemodels.flows.run.tune import history_so_far
from phrasemodels.infra.settings import Settings

PRINTED = {"printed, Transformer": 20.90, "printed, with phrases": 34.61}


def main(out: str, *rows: str) -> None:
    """Print and draw the curves."""
    store, points = open_store(Settings()), {}
    for row in rows:
        name, _, file = row.partition("=")
        if file:
            found, updates = json.loads(Path(file).read_text(encoding="utf-8")), float("inf")
        else:
            name, _, seed = row.partition(":")
            found, updates = history_so_far(store, experiment(name).steps(int(seed or 0)).trained)
        points[name.rpartition("/")[2]] = [(1.0 + line["epoch"], line["dev_bleu"]) for line in found]
        print(name, f"{updates:.0f} updates" if updates != float("inf") else "ended")
        for line in found:
            at = f"epoch {line['epoch'] + 1:2.0f}: BLEU {line['dev_bleu']:5.2f}"
            print(f"  {at}, loss {line['dev_loss']:.3f}, rate {line['learning_rate']:.1e}")
    last = max(epoch for line in points.values() for epoch, _ in line)
    printed = {name: [(1.0, value), (last, value)] for name, value in PRINTED.items()}
    Path(out).write_text(lines(points | printed, "epoch", "BLEU"), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
