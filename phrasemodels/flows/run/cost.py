"""The cost of a training, measured before it begins: memory, and hours on this machine.

The heaviest update of the first epoch gives the memory, and updates of all sizes the time. Each training runs in a process of its
own, so a lack of memory ends nothing else. Nothing is kept but the prepared data.
"""

import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from phrasemodels.data.store.store import Executor, Job, Step, Store
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.run.plan import Plan
from phrasemodels.tasks.train.batches import token_batches
from phrasemodels.tasks.train.trainer import Trainer, Training, TrainSettings, peak_memory_mib, train, training_of

UPDATES = 9  # of different sizes, beside the heaviest
OUT_OF_MEMORY = ("not enough memory", "t allocate memory", "out of memory")  # in errors of torch


@dataclass(frozen=True)
class Cost:
    """The cost of one training: memory (MiB) at its heaviest update, and seconds of a mean update; or why it is unknown."""

    experiment: Experiment
    memory: float = math.nan
    seconds: float = math.nan
    problem: str = ""

    def described(self, limit: float) -> dict[str, object]:
        """Describe the cost for a machine with `limit` MiB."""
        row: dict[str, object] = {"row": self.experiment.name, "updates": self.experiment.train.steps}
        if math.isnan(self.seconds):
            memory = "more than it could get" if self.memory > limit else ""
            return row | {
                "memory": memory,
                "seconds an update": "",
                "hours of a seed": "",
                "fits": self.problem or "no",
            }
        return row | {
            "memory": f"{self.memory / 1024:.1f} GiB",
            "seconds an update": f"{self.seconds:.2g}",
            "hours of a seed": f"{self.seconds * self.experiment.train.steps / 3600:.2g}",
            "fits": "yes" if self.memory <= limit else "no",
        }


def costs(plan: Plan, store: Store, executor: Executor) -> Iterator[Cost]:
    """Measure a training of each row of a plan, and make its data."""
    # reversed: of the seeds of a row, the first one is written last and stays
    first = {pipeline.experiment.name: pipeline for pipeline in reversed(plan.pipelines) if pipeline.trains}
    for pipeline in reversed(first.values()):
        yield _cost(pipeline, store, executor)


def _cost(pipeline: Pipeline, store: Store, executor: Executor) -> Cost:
    step, experiment = pipeline.trained, pipeline.experiment
    if step.make is not train or not isinstance(step.settings, TrainSettings):
        return Cost(experiment, problem="not measured: its training is not a sequence of updates alone")
    inputs = {name: store.run(needed, executor) for name, needed in step.inputs.items() if isinstance(needed, Step)}
    with (
        tempfile.TemporaryDirectory() as folder,
        # spawn: a forked process would begin with the memory of this one
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        job = Job(Path(folder), Path(folder), inputs, store, executor, step.key)
        try:
            memory, seconds = pool.submit(measure, replace(training_of(job, step.settings), report=None)).result()
        except (BrokenProcessPool, MemoryError):  # the kernel ends a process for which there is no memory
            memory, seconds = math.inf, math.nan
        except RuntimeError as error:
            if not any(words in str(error) for words in OUT_OF_MEMORY):
                raise
            memory, seconds = math.inf, math.nan
    return Cost(experiment, memory, seconds)


def measure(training: Training) -> tuple[float, float]:
    """Return the peak memory (MiB) of an update of the first epoch, and the mean seconds of its updates.

    The mean is over UPDATES batches, at equal distances in the order of their padded tokens.
    """
    trainer, config = Trainer(training), training.config
    limits = (config.batch_tokens, training.seed, 0, config.batch_rows, config.arrange, config.equal_sides)
    batches = token_batches(trainer.data, *limits)
    # rows times the sum of the longest on each side: padded tokens, by which memory goes
    batches.sort(key=lambda rows: len(rows) * int(trainer.data.lengths[rows].max(0).sum()))
    trainer.update(batches[-1])  # compiles kernels, too
    took = []
    for place in range(UPDATES):
        begun = time.perf_counter()
        trainer.update(batches[int((place + 0.5) / UPDATES * len(batches))])
        took.append(time.perf_counter() - begun)
    return peak_memory_mib(trainer.worker.device), statistics.fmean(took)


def memory_limit() -> float:
    """Return the free memory of this machine or container in MiB; infinity if unknown."""
    free = [int(line.split()[1]) / 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable:")]
    most, used = (_lines(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if most and used and most[0] != "max":
        free.append((int(most[0]) - int(used[0])) / (1 << 20))
    return min(free, default=math.inf)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []
