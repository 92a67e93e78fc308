"""CPU seconds of an update: `python benchmarks/updates.py [--rounds N] [ROW[,override...] ...]`.

A row is the name of an experiment with overrides; by default those of paper 000 that train for ten epochs at its size, as
`000/table1/paper/phrase-k2-10-epochs,train.precision=float32`. Rows take turns; the first round is not counted. Printed are the
median and the least seconds of an update, the loss, and how many positions of a batch are padding. CPU time hardly depends
on other processes. All rows are in memory together; the peak is theirs together. Corpora come from PHRASEMODELS_MIRROR.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from phrasemodels.data.store.store import Executor, Step
from phrasemodels.flows.experiments.catalogue import experiment, resolved
from phrasemodels.flows.results.records import open_store, sources_of
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import Rows, batches_from
from phrasemodels.tasks.train.trainer import Trainer, Training, peak_memory_mib

ROWS = [f"000/table1/paper/{name}-10-epochs" for name in ("transformer", "phrase-k2", "phrase-k3")]


def trainer(row: str) -> Trainer:
    """Return the trainer of a row, before its first update; its data is made in the store of PHRASEMODELS_STORE."""
    name, *overrides = row.split(",")
    settings = Settings()
    sources = sources_of(settings)
    step = resolved(experiment(name, overrides), sources).steps(0).trained
    store, executor = open_store(settings), Executor(sources=sources)
    inputs = {part: store.run(value, executor) for part, value in step.inputs.items() if isinstance(value, Step)}
    model = step.settings.objective.configure(step.settings.model, inputs["vocabulary"])
    train, dev = (tuple(shard.path for shard in shards(inputs[split])) for split in ("train", "dev"))
    folder = Path(tempfile.mkdtemp())
    return Trainer(Training(step.settings.objective, model, step.settings.config, 0, train, dev, folder, "benchmark"))


def batches_of(each: Trainer) -> Iterator[tuple[int, int, Rows]]:
    """Return the batches of the row from its first update on."""
    config = each.config
    return batches_from(each.data, 0, 0, config.batch_tokens, 0, config.batch_rows, config.arrange, config.equal_sides)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    trainers = {row: trainer(row) for row in chosen.rows}
    seconds, padding = ({row: list[float]() for row in trainers} for _ in range(2))
    batches = {row: batches_of(each) for row, each in trainers.items()}
    for _ in range(chosen.rounds + 1):
        for row, each in trainers.items():
            *_, rows = next(batches[row])
            lengths = each.data.lengths[rows]
            padding[row].append(1 - lengths.sum() / (len(rows) * lengths.max(0).sum()))
            start = time.process_time()
            each.update(rows)
            seconds[row].append(time.process_time() - start)
    for row, each in trainers.items():
        loss = float(torch.stack(each.clock.losses).sum()) / each.clock.count
        taken = f"{statistics.median(seconds[row][1:]):6.2f} s (least {min(seconds[row][1:]):.2f})"
        print(f"{row:<60} {taken}  loss {loss:.5f}  padding {statistics.mean(padding[row]):.0%}")
    print(f"peak memory {peak_memory_mib():,.0f} MiB")


if __name__ == "__main__":
    main()
