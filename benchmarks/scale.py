"""Time per sentence and per shard as their number grows: `python benchmarks/scale.py [FOLDER [SENTENCES]]`.

Sentences of 5 to 20 words, in shards of 10,000, go through the step that numbers words and enumerates phrases; each shard is
a step of its own in a store. Times are CPU times, with wall times beside them; memory is the peak of the process. The step
called without a store shows what the store adds. Then the same shards run as tasks of a Ray cluster of two processors, in
wall time. Writes scale.json and scale.png.
"""

import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import SHARD_ROWS, TOKENS, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.infra.cluster import ray_map
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.tasks.prepare.phrases import Phrases, phrase_shard, phrases
from phrasemodels.tasks.prepare.sharded import shards as shards_of

SENTENCES = (10_000, 100_000, 1_000_000, 10_000_000)
SHARDS = (1000, 5000)
WORDS = 1000


def sentences(first: int, count: int) -> pa.Table:
    """Return `count` random sentences with ids from `first` on, as a TOKENS table."""
    chance = np.random.default_rng(first)
    lengths = chance.integers(5, 21, count)
    words = pa.array([f"w{i}" for i in range(WORDS)]).take(pa.array(chance.integers(0, WORDS, lengths.sum())))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, words, type=TOKENS.field("source").type)
    columns = [pa.array(range(first, first + count), pa.int64()), lists, lists, pa.array([""] * count)]
    return pa.Table.from_arrays(columns, schema=TOKENS)


def stage(folder: Path, shards: int, rows: int) -> Artifact:
    """Write a stage of `shards` shards of `rows` rows each."""
    folder.mkdir(parents=True)
    written = []
    for index in range(shards):
        name = f"{index:05d}.arrow"
        written.append({"file": name, **write_shard(folder / name, sentences(index * rows, rows))})
    terms = {"licences": ["MIT"], "redistributable": True, "stand_in": False}
    return Artifact(
        folder, {"key": f"rows {shards} {rows}", "meta": {"shards": written, "rows": shards * rows, **terms}}
    )


def words(job: Job, settings: None) -> dict[str, Any]:
    """Write the vocabulary of both sides."""
    for side in ("source", "target"):
        write_durably(job.out / f"{side}.txt", "".join(f"{w}\n" for w in [*SPECIAL, *(f"w{i}" for i in range(WORDS))]))
    return {"licences": ["MIT"], "redistributable": True, "stand_in": False}


def measured(folder: Path, shards: int, rows: int, executor: Executor | None = None) -> dict[str, float]:
    """Return the seconds of the step in a store, and the peak memory of this process after it."""
    rows_stage = stage(folder / "rows", shards, rows)
    store = Store(folder / "store").open()
    vocabulary = store.run(Step(words, "words"))
    step = Step(phrases, f"phrases {shards}", Phrases(longest=2), {"rows": rows_stage, "vocabulary": vocabulary})
    began, clock = time.process_time(), time.perf_counter()
    store.run(step, executor)
    seconds, elapsed = time.process_time() - began, time.perf_counter() - clock
    shutil.rmtree(folder)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"shards": shards, "rows": shards * rows, "seconds": seconds, "elapsed": elapsed, "memory_mib": memory}


def alone(folder: Path, shards: int) -> float:
    """Return the seconds of the step on `shards` shards of one sentence, without a store."""
    rows_stage = stage(folder / "rows", shards, 1)
    store = Store(folder / "store").open()
    inputs = [{"shard": shard, "vocabulary": store.run(Step(words, "words"))} for shard in shards_of(rows_stage)]
    out = folder / "out"
    out.mkdir()
    began = time.process_time()
    for each in inputs:
        phrase_shard(Job(out, out, each, store, Executor(), ""), Phrases(longest=2))  # type: ignore[arg-type]
    seconds = time.process_time() - began
    shutil.rmtree(folder)
    return seconds


def through_ray(work: Path) -> list[dict[str, float]]:
    """Return the times and memory for shards of one sentence as tasks of Ray."""
    work.mkdir()
    start_ray(Settings(store=work, cpus=2))
    try:
        executor = Executor(map=ray_map)
        measured(work / "warm", 100, 1, executor)
        return [measured(work / f"shards {count}", count, 1, executor) for count in SHARDS]
    finally:
        stop_ray()


def plot(rows: list[dict[str, float]], path: Path) -> None:
    """Plot the time per sentence and the memory against the number of sentences."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    counts = [row["rows"] for row in rows]
    axes.plot(counts, [1e6 * row["seconds"] / row["rows"] for row in rows], "o-", color="black", label="µs a sentence")
    axes.set(xscale="log", xlabel="sentences", ylabel="µs a sentence")
    beside = axes.twinx()
    beside.plot(counts, [row["memory_mib"] for row in rows], "s--", color="#777777", label="memory")
    beside.set(ylabel="memory of the process, MiB (dashed)")
    for each in (axes, beside):
        each.set_ylim(0, 1.1 * each.get_ylim()[1])
    figure.savefig(path, dpi=120)


def main(folder: str = ".", most: str = "10000000") -> None:
    """Measure many small shards, then many full shards, in growing numbers, as the peak memory never falls."""
    work = Path(tempfile.mkdtemp(prefix="pm-scale-"))
    measured(work / "warm", 2, 10)  # compiles kernels
    result: dict[str, Any] = {"shards": [], "sentences": []}
    for count in SHARDS:
        result["shards"].append(row := measured(work / f"shards {count}", count, 1))
        row["alone"] = alone(work / f"alone {count}", count)
        print(f"{count} shards: {1000 * row['seconds'] / count:.2f} ms each ({1000 * row['elapsed'] / count:.2f} by the "
              f"clock), {1000 * row['alone'] / count:.2f} of them the step alone, {row['memory_mib']:.0f} MiB",
              flush=True)  # fmt: skip
    for count in [n for n in SENTENCES if n <= int(most)]:
        result["sentences"].append(row := measured(work / f"sentences {count}", count // SHARD_ROWS, SHARD_ROWS))
        print(f"{count} sentences: {1e6 * row['seconds'] / count:.2f} µs each ({1e6 * row['elapsed'] / count:.2f} by the "
              f"clock), {row['memory_mib']:.0f} MiB", flush=True)  # fmt: skip
        (Path(folder) / "scale.json").write_text(json.dumps(result, indent=1))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:  # a process with its own peak memory
        result["ray"] = process.submit(through_ray, work / "ray").result()
    for row in result["ray"]:
        print(f"{row['shards']} shards through Ray on two cores: {1000 * row['elapsed'] / row['shards']:.2f} ms each by the "
              f"clock, {row['memory_mib']:.0f} MiB", flush=True)  # fmt: skip
    (Path(folder) / "scale.json").write_text(json.dumps(result, indent=1))
    plot(result["sentences"], Path(folder) / "scale.png")
    shutil.rmtree(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
