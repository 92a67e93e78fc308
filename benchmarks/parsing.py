"""Sentences per second of the parse step, by one worker and by two: `python benchmarks/parsing.py gum`.

Test sentences of GUM, 100 at a time, go through the whole pipeline of Stanza in Ray actors of one torch thread each, as in
the parse step. The first batch of an actor, which loads the models, is not timed.
"""

import sys
import tempfile
import time
from collections import defaultdict
from os import getpid
from pathlib import Path

import pyarrow as pa

import phrasemodels.infra.environment  # noqa: F401  before Ray
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Store
from phrasemodels.flows.cli.parsers import step_of
from phrasemodels.infra.cluster import ray_map
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.parsers.stanza import Stanza
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.prepare.sharded import read_shards

BATCH, BATCHES = 100, 12


def timed(table: pa.Table, models: Path) -> tuple[int, float]:
    """Parse one batch; return the process and the seconds."""
    start = time.perf_counter()
    Stanza().analyse(table, "tokens", {"models": models})
    return getpid(), time.perf_counter() - start


def rate(workers: int, batches: list[pa.Table], models: Path) -> float:
    """Return the sentences per second of all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        start_ray(Settings(store=folder, cpus=workers))
        try:
            times = list(ray_map(timed, [(batch, models) for batch in batches], actors=True))
        finally:
            stop_ray()
    seconds: dict[int, list[float]] = defaultdict(list)
    for process, one in times:
        seconds[process].append(one)
    return sum(BATCH * len(each[1:]) / sum(each[1:]) for each in seconds.values() if each[1:])


def main(parser: str = "gum") -> None:
    """Print the rates of one and of two workers, and their ratio."""
    settings = Settings()
    store, executor = Store(settings.root).open(), Executor(sources=Sources(settings.mirrors, settings.offline))
    models = store.run(step_of(parser), executor).path
    rows = read_shards(store.run(Corpus("gum").split("test"), executor)).combine_chunks()
    batches = [rows.slice(BATCH * i, BATCH) for i in range(BATCHES)]
    one, two = (rate(workers, batches, models) for workers in (1, 2))
    print(f"1 worker {one:.0f} sentences/s, 2 workers {two:.0f} sentences/s, {two / one:.2f} times")


if __name__ == "__main__":
    main(*sys.argv[1:])
