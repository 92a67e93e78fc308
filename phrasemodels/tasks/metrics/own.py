"""Metrics that users add: functions of references and answers, whose values stand beside the scores of a problem."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.score import Score

Metric = Callable[
    [Sequence[str], Sequence[str]], float
]  # references, answers, as text -> a value, named as the function


def check_metrics(metrics: Any) -> None:
    """ValueError: metrics are no tuple of functions of (references, answers), or two have one name, which is that of their
    scores."""
    if not isinstance(metrics, tuple):
        raise ValueError(f"metrics: {metrics!r} is no tuple of functions; write (my_metric,)")
    for metric in metrics:
        if not inspect.isfunction(metric):
            raise ValueError(f"metrics: {metric!r} is no function of references and answers")
        try:
            inspect.signature(metric).bind([], [])
        except TypeError as error:
            raise ValueError(f"metric {metric.__name__!r} takes no (references, answers): {error}") from error
    names = [metric.__name__ for metric in metrics]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"metrics: two functions are called {twice[0]!r}, the name of their scores; rename one")


@dataclass(frozen=True)
class OwnScoring:
    """The step that scores a problem with its settings, the columns of its predictions (reference, answer), and metrics."""

    make: Callable[[Job, Any], dict[str, Any]]
    settings: Any
    columns: tuple[str, str]
    metrics: tuple[Metric, ...]


def score_with_own(job: Job, settings: OwnScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] as the problem does, then by each metric. ValueError: a name is taken."""
    meta = settings.make(job, settings.settings)
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    if "restart" in table.column_names:  # of several starts the best stands first; the others are for evidence
        table = table.filter(pc.equal(table["restart"], 0))
    references, answers = ([_text(value) for value in table[name].to_pylist()] for name in settings.columns)
    own = {metric.__name__: _score(metric, references, answers) for metric in settings.metrics}
    if taken := sorted(own.keys() & meta["scores"].keys()):
        raise ValueError(f"metric {taken[0]!r}: the problem has one of this name; rename the function")
    scores: Mapping[str, Any] = {**meta["scores"], **{name: asdict(score) for name, score in own.items()}}
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {**meta, "scores": scores}


def _score(metric: Metric, references: Sequence[str], answers: Sequence[str]) -> Score:
    return Score(float(metric(references, answers)), f"{metric.__module__}:{metric.__name__}", len(answers))


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
