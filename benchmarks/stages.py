"""Stages of data by size: `python benchmarks/stages.py [stages|fan-out|phrases] [PAIRS ...]`, by default 10⁴, 10⁵ and 10⁶ pairs.

stages: reading a file of pairs, counting leaks, tokenising, the vocabulary, phrases, opening for training, the order of an epoch
and the order in epoch 30 after a resume: CPU seconds, wall seconds, and the peak memory (MiB) of a process that does this stage
alone. All in one process; Moses reads no more than 100,000 pairs.

fan-out: the same shards through Ray Data as the pipeline sends them, and as a task of Ray each: wall seconds, CPU seconds of the
driver, and the bytes that workers wrote, none of which the driver reads. Two processors; `cluster.py` has several nodes.

phrases: enumeration of phrases beside a loop in Python and beside writing the phrases, for shards of 10,000 sentences of 19.6 words on
average with random trees. The loop is timed on part of the sentences.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.corpora.bitext import column_blocks
from phrasemodels.data.corpora.readers import leakage
from phrasemodels.data.formats.shards import SHARD_ROWS, write_shard
from phrasemodels.data.store.store import Job, Step, Store
from phrasemodels.inference.inputs import adjacent, moses, spaces
from phrasemodels.infra.cluster import ray_map
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.prepare.phrases import Phrases, enumerated, lists, phrases
from phrasemodels.tasks.prepare.sharded import run_step, shard_tables, shards, write_shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, tokenise, tokenise_shard
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.sentence_data import PhraseExamples
from phrasemodels.tasks.train.batches import batches_from

PAIRS = (10_000, 100_000, 1_000_000)
WORDS = 50_000
MOSES, MOST_MOSES = "Moses, one side", 100_000
LAYOUTS = ((1000, 1), (40, 10_000))  # shards, rows of each


def write_pairs(path: Path, count: int) -> None:
    """Write pairs of sentences of 5 to 25 words, as frequent as Zipf has it, with commas and full stops."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(WORDS)])
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            sides = [
                words[np.minimum(rng.zipf(1.3, rng.integers(5, 26)), WORDS) - 1].tolist() for _ in ("source", "target")
            ]
            file.write("\t".join(f"{side[0].title()} {side[1]}, {' '.join(side[2:])}." for side in sides) + "\n")


def rows_of(job: Job, path: Path) -> dict[str, Any]:
    """Write the shards of a file of pairs."""
    terms = {"licences": ["MIT"], "redistributable": True, "stand_in": False}
    return terms | write_shards(job.out, column_blocks({"pairs": path}, 1000))


def steps(folder: Path) -> dict[str, Step]:
    """Return the steps of the pipeline by name; they are the same in each process."""
    rows = Step(rows_of, "rows", folder / "pairs.txt")
    tokens = Step(tokenise, "tokens", Tokenise(spaces, "en", "de"), {"rows": rows})
    words = Step(vocabulary, "words", VocabularySettings(), {"rows": tokens})
    settings = Phrases(adjacent, 2)
    return {
        "read and write shards": rows,
        "tokens at spaces": tokens,
        "vocabulary": words,
        "phrases": Step(phrases, "phrases", settings, {"rows": tokens, "vocabulary": words}),
    }


def stages(folder: Path) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Return what is measured, by name, in an order in which all inputs are there: a function that makes its inputs, and returns
    the function that is measured."""
    store, known = Store(folder / "store").open(), steps(folder)

    def step(name: str) -> Callable[[], Any]:
        known[name].key  # noqa: B018  reads the source code, once for all steps
        return partial(store.run, known[name])

    def leaks() -> Callable[[], Any]:
        rows = store.run(known["read and write shards"])
        test = next(shard_tables(rows)).slice(0, 1000)
        return lambda: leakage(shard_tables(rows), [test])

    def with_moses() -> Callable[[], Any]:
        tables = list(shard_tables(store.run(known["read and write shards"])))
        return lambda: [moses(text, "en") for table in tables for text in table["source"].to_pylist()]

    def opened() -> Callable[[], PhraseExamples]:
        paths = [shard.path for shard in shards(store.run(known["phrases"]))]
        return lambda: PhraseExamples(paths)

    def order(epoch: int) -> Callable[[], Any]:
        data = opened()()
        next(batches_from(data, 0, 0, 4096, 0))  # loads the compiled code
        return lambda: next(batches_from(data, epoch, 10, 4096, 0))

    return {name: partial(step, name) for name in known} | {
        "leaks": leaks,
        MOSES: with_moses,
        "open for training": opened,
        "order of an epoch": partial(order, 0),
        "order in epoch 30, after a resume": partial(order, 30),
    }


def measured(folder: Path, name: str, pipe: Any) -> None:
    """Send CPU seconds, wall seconds and the peak memory of one stage."""
    stage = stages(folder)[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu, wall = time.process_time(), time.perf_counter()
    stage()
    found = [time.process_time() - cpu, time.perf_counter() - wall]
    pipe.send([*found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before])


def table(count: int) -> Iterator[dict[str, Any]]:
    """Yield the measurements of the stages, each in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "pairs.txt", count)
        spawn = multiprocessing.get_context("spawn")
        for stage in stages(folder):
            if stage == MOSES and count > MOST_MOSES:
                continue
            receive, send = spawn.Pipe()
            process = spawn.Process(target=measured, args=(folder, stage, send))
            process.start()
            cpu, wall, memory = receive.recv()
            process.join()
            yield {"pairs": count, "stage": stage, "cpu": cpu, "wall": wall, "memory": memory}


def by_tasks(function: Callable[..., Any], items: list[tuple[Any, ...]]) -> list[Any]:
    """Call function(*item) for each item as a task of Ray; return the results in order."""
    import ray

    task = ray.remote(num_cpus=1)(function)
    return list(ray.get([task.remote(*item) for item in items]))


WAYS: dict[str, Callable[..., Any]] = {
    "pipeline of Ray Data": ray_map,
    "a task of Ray for each shard": by_tasks,
    "pipeline of Ray Data again": ray_map,
}


def fan_out() -> Iterator[dict[str, Any]]:
    """Yield wall seconds and CPU seconds of the driver for each way and layout of shards."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        start_ray(Settings(store=folder / "ray", cpus=2))
        try:
            for count, rows in ((4, 1), *LAYOUTS):  # the first warms up
                for way, spread in WAYS.items():
                    place = folder / f"{way} {count}"
                    place.mkdir()
                    write_pairs(place / "pairs.txt", rows)
                    store = Store(place / "store").open()
                    shard = shards(store.run(Step(rows_of, "rows", place / "pairs.txt")))[0]
                    steps_ = [
                        Step(tokenise_shard, f"shard {k}", Tokenise(spaces, "en", f"l{k}"), {"shard": shard})
                        for k in range(count)
                    ]
                    cpu, wall = time.process_time(), time.perf_counter()
                    made = list(spread(run_step, [(store, step) for step in steps_]))
                    driver, took = time.process_time() - cpu, time.perf_counter() - wall
                    assert [one.meta["rows"] for one in made] == [rows] * count
                    size = sum(f["bytes"] for one in made for f in one.manifest["files"].values())
                    if (count, rows) in LAYOUTS:
                        yield {"way": way, "shards": count, "rows": rows, "wall": took, "driver": driver, "bytes": size}
                    shutil.rmtree(place)
        finally:
            stop_ray()


ROUNDS = 15
LOOPED = 1000  # sentences
SHARDS = 5  # per round


def plain_adjacent(lengths: list[int], longest: int) -> list[list[tuple[int, ...]]]:
    """Return all spans of 2 to `longest` tokens, sentence by sentence."""
    return [
        [tuple(range(first, first + size)) for size in range(2, longest + 1) for first in range(n - size + 1)]
        for n in lengths
    ]


def timed(run: Callable[[], int], seconds: list[float]) -> int:
    """Time one run; return the number of its phrases."""
    start = time.process_time()
    count = run()
    seconds.append(time.process_time() - start)
    return count


def compare(title: str, runs: dict[str, Callable[[], int]]) -> None:
    """Print the millions of phrases per second of each run, and their ratio to the loop."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    counts = {name: run() for name, run in runs.items()}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            for _ in range(SHARDS):
                timed(run, seconds[name])
    rates = {name: counts[name] / statistics.median(seconds[name]) / 1e6 for name in runs}
    loop = rates["plain loop"]
    print(title + "".join(f"\n  {name:22} {value:7.1f} M/s  {value / loop:6.1f}x" for name, value in rates.items()))


def enumeration() -> None:
    """Print millions of phrases a CPU second beside a loop in Python: adjacent spans."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(19.6, SHARD_ROWS), 1, None).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        for longest in (2, 3):
            counts, members = enumerated(Phrases(adjacent, longest), lengths, None)
            table = pa.table({"phrases": lists(counts, members)})

            def writing(table: pa.Table = table, count: int = len(members)) -> int:
                write_shard(Path(folder) / "shard.arrow", table)
                return count

            compare(f"adjacent spans of up to {longest} words", {
                "plain loop": lambda k=longest: sum(map(len, plain_adjacent(lengths[:LOOPED].tolist(), k))),
                "ours": lambda k=longest: len(enumerated(Phrases(adjacent, k), lengths, None)[1]),
                "writing and hashing": writing,
            })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="?", choices=("stages", "fan-out", "phrases"), default="stages")
    parser.add_argument("pairs", nargs="*", type=int, default=PAIRS)
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if chosen.section == "phrases":
        enumeration()
        return
    found = fan_out() if chosen.section == "fan-out" else (row for count in chosen.pairs for row in table(count))
    for row in found:
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
