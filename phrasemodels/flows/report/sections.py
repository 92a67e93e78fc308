"""Sections of the pages of paper 003's tables: averages over tasks as printed and as they follow from the listed values, and the
time of an epoch."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step
from phrasemodels.flows.experiments import paper_003
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.experiments.paper_003_answering import average, listed_average
from phrasemodels.flows.results.finished import FinishedTable
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems.report import Section
from phrasemodels.tasks.train.loop import history


def paper_sections(finished: FinishedTable) -> Iterator[Section]:
    """Yield the sections that a table has because of its paper."""
    if finished.table.paper == paper_003.PAPER:
        yield from averages(finished.experiments, finished.comparison.meta["rows"])
        yield epochs(finished)


def averages(experiments: Sequence[Experiment], rows: list[dict[str, Any]]) -> Iterator[Section]:
    """Yield averages over bAbI's tasks, for each system and metric of which the paper prints one. rows: of the comparison."""
    cells = {(e.name, a.metric): a.cell for e in experiments for a in e.answers if a.cell}
    by_system: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cell = cells.get((row["experiment"], row["metric"]))
        if cell is not None and cell.dataset.startswith("bAbI"):
            by_system.setdefault((cell.system, cell.metric), []).append(row)
    if not by_system:
        return
    lines = []
    for (system, metric), tasks in by_system.items():
        printed, listed = listed_average(system, metric)
        lines.append(
            {
                "System": system,
                "Metric": metric,
                "Printed": f"{printed:.1f}",
                "Of the listed tasks": f"{listed:.2f}",
                "Tasks here": f"{len(tasks)}",
                "Of these, published": f"{average(t['published'] for t in tasks):.2f}",
                "Of these, ours": f"{average(t['intervals'][t['metric']]['mean'] for t in tasks):.2f}",
            }
        )
    text = (
        "The printed averages of answers have tasks 7 and 8 in them, which the paper does not list; the printed average of "
        "MemN2N's facts fits no choice of tasks. Ours is to be held against the published values of the same tasks."
    )
    yield Section("Averages over tasks", text, lines)


def epochs(finished: FinishedTable) -> Section:
    """Return the seconds of an epoch, mean over seeds, and their ratio to those of simple attention on the same data."""
    seconds: dict[str, list[float]] = {}
    for pipeline in finished.pipelines:
        trained = finished.artifact(pipeline.trained)
        seconds.setdefault(pipeline.experiment.name, []).append(epoch_seconds(finished, pipeline, trained))
    means = {name: average(times) for name, times in seconds.items()}
    lines = []
    for e in finished.experiments:
        same = [o for o in finished.experiments if o.recipe == e.recipe]
        simple = [o.name for o in same if o.variant.lower().startswith("simple")]
        ratio = f"{means[e.name] / means[simple[0]]:.2f}" if simple else "–"
        lines.append({"System": e.row, "Seconds an epoch": f"{means[e.name]:.1f}", "Simple attention = 1": ratio})
    text = (
        "Training and evaluation by the clock, whatever ran beside them; the authors' structured attention took 5 times "
        "as long as simple attention. benchmarks/structured_attention.py measures updates side by side."
    )
    return Section("Time of an epoch", text, lines)


def epoch_seconds(finished: FinishedTable, pipeline: Pipeline, trained: Artifact) -> float:
    """Return the seconds of an epoch: items of the data divided by the items a second of the training's history."""
    rows = history(trained)
    data = pipeline.trained.inputs["train"]
    assert isinstance(data, Step)
    objective = pipeline.trained.settings.objective
    examples = objective.examples([shard.path for shard in shards(finished.artifact(data))])
    times = np.diff([0.0, *(row["seconds"] for row in rows)])
    done = float(sum(row["items_per_second"] * time for row, time in zip(rows, times, strict=True)))
    return float(objective.count(examples, np.arange(len(examples)))) * float(times.sum()) / done
