"""What a report shows besides the numbers of its table: a heading, what it says, and a table, a plot or kinds of errors.

Of paper 003: averages over tasks as the paper prints them and as its values give them, and what an epoch takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step
from phrasemodels.flows.experiments import paper_003
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.experiments.paper_003_answering import average, listed_average
from phrasemodels.flows.run.session import Session
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.loop import history


@dataclass(frozen=True)
class Section:
    """A heading, what it says, rows of a table, and a plot, or kinds of errors: {kind, count, share, examples}."""

    title: str
    said: str
    plot: Markup | None = None
    kinds: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)


def structured(session: Session, rows: list[dict[str, Any]]) -> Iterator[Section]:
    """Of the tables of paper 003; rows are those of the comparison."""
    if session.table.paper == paper_003.PAPER:
        yield from averages(session, rows)
        yield epochs(session)


def averages(session: Session, rows: list[dict[str, Any]]) -> Iterator[Section]:
    """Of bAbI's tasks, for each system and metric that the paper prints an average of."""
    cells = {(e.name, a.metric): a.cell for e in session.experiments for a in e.answers if a.cell}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cell = cells.get((row["experiment"], row["metric"]))
        if cell is not None and cell.dataset.startswith("bAbI"):
            found.setdefault((cell.system, cell.metric), []).append(row)
    if not found:
        return
    lines = []
    for (system, metric), tasks in found.items():
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
    said = (
        "The printed averages of answers have tasks 7 and 8 in them, which the paper does not list; the printed average of "
        "MemN2N's facts fits no choice of tasks. Ours is to be held against the published values of the same tasks."
    )
    yield Section("Averages over tasks", said, rows=lines)


def epochs(session: Session) -> Section:
    """Seconds of an epoch, mean over seeds, and how many times those of simple attention on the same data."""
    seconds: dict[str, list[float]] = {}
    for pipeline in session.pipelines:
        trained = session.store.find(pipeline.trained, verify=False)
        assert trained is not None, "a report is of what has been run"
        seconds.setdefault(pipeline.experiment.name, []).append(epoch_seconds(session, pipeline, trained))
    means = {name: average(found) for name, found in seconds.items()}
    lines = []
    for e in session.experiments:
        simple = [
            o.name for o in session.experiments if o.recipe == e.recipe and o.variant.lower().startswith("simple")
        ]
        ratio = f"{means[e.name] / means[simple[0]]:.2f}" if simple else "–"
        lines.append({"System": e.row, "Seconds an epoch": f"{means[e.name]:.1f}", "Simple attention = 1": ratio})
    said = (
        "Training and evaluation by the clock, whatever ran beside them; the authors' structured attention took 5 times "
        "as long as simple attention. benchmarks/structured_attention.py measures updates side by side."
    )
    return Section("Time of an epoch", said, rows=lines)


def epoch_seconds(session: Session, pipeline: Pipeline, trained: Artifact) -> float:
    """By the history of a training, which counts what its loss is a mean of."""
    told = history(trained)
    step = pipeline.trained.inputs["train"]
    data = session.store.find(step, verify=False) if isinstance(step, Step) else None
    assert data is not None, "a training rests on its data"
    problem = pipeline.trained.settings.objective
    examples = problem.examples([shard.path for shard in shards(data)])
    times = np.diff([0.0, *(row["seconds"] for row in told)])
    done = float(sum(row["tokens_per_second"] * time for row, time in zip(told, times, strict=True)))
    return float(problem.count(examples, np.arange(len(examples)))) * float(times.sum()) / done
