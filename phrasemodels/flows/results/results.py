"""Results: rows of compared tables, from the store and from kept results of long runs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import PROFILES, experiments
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.flows.experiments.names import divided
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.results.as_defined import averaged_since, changed_since
from phrasemodels.flows.results.folder import kept_files
from phrasemodels.flows.results.kept_tests import tests_of, write_tests
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.metrics.compare import TestedRow, finite
from phrasemodels.verdicts.significance import seed_group

TRAININGS = ("train", "train_restarts")  # steps that make weights


@dataclass(frozen=True)
class Result:
    """A row of a compared table, with its experiment and answer.

    source: a store key, or the folder of a kept result. row: as `compare` makes it. runs: {seed, score, train, run} of each
    seed, the store keys of its score and training and its MLflow run.
    """

    source: str
    title: str
    experiment: Experiment
    answer: Answer
    row: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)
    made: str = ""

    @property
    def kept(self) -> bool:
        """Whether it is a kept result."""
        return self.source.startswith("results/")

    @cached_property
    def outdated(self) -> str:
        """In what its settings, or the tasks of its average, are not those of its experiment today; empty if in nothing."""
        settings = changed_since(self.row.get("settings", {}), self.experiment.train)
        earlier = f"run with earlier settings: {settings}" if settings else ""
        return "; ".join(
            filter(None, (averaged_since(self.row["values"], self.row["metric"], self.experiment), earlier))
        )

    @property
    def worth(self) -> tuple[bool, bool, int, bool, int, str]:
        """The order in which results of one number are preferred: unchanged, comparable, larger, with the settings of today,
        more seeds, newer in the store."""
        e, today = self.experiment, not self.outdated
        size = PROFILES.index(e.profile)
        return (not e.changed, e.comparable and today, size, today, len(self.row["seeds"]), self.made)


@cache
def _by_name() -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments()}


def _answer(row: Mapping[str, Any]) -> tuple[Experiment, Answer] | None:
    """Return the experiment, with its overrides, and the answer of a row, if they still exist."""
    if (known := _by_name().get(divided(row["experiment"])[0])) is None:
        return None
    try:
        experiment = overridden(known, *row.get("changed", ()))
    except ValueError:  # an overridden field no longer exists
        return None
    answers = [a for a in experiment.answers if row.get("metric", a.metric) == a.metric]
    return (experiment, answers[0]) if answers else None


def all_results(store: Store, tracker: Tracker) -> list[Result]:
    """Return the results in the store and the kept ones."""
    return [*stored_results(store, tracker.keys()), *kept_results()]


def stored_results(store: Store, run_ids: Mapping[str, str]) -> Iterator[Result]:
    """Yield the rows of every comparison in the store. run_ids: MLflow's, by the store key of the training."""
    artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
    for key, artifact in artifacts.items():
        if artifact.manifest["step"] != "compare":
            continue
        for row in artifact.meta["rows"]:
            if (answer := _answer(row)) is not None:
                runs = [{"seed": seed, **_run(artifacts, artifact, row, seed, run_ids)} for seed in row["seeds"]]
                trained = artifacts.get(runs[0]["train"]) if runs else None
                settings = trained.manifest["parts"]["settings"] if trained else {}
                made = {**row, "experiment": answer[0].name, "settings": settings}
                yield Result(key, artifact.meta["title"], *answer, made, runs, artifact.manifest["finished"])


def _run(
    artifacts: Mapping[str, Artifact], compared: Artifact, row: dict[str, Any], seed: int, run_ids: Mapping[str, str]
) -> dict[str, str]:
    """Return the score of a seed, and the training that it depends on."""
    score = compared.manifest["parts"]["inputs"][f"{row['experiment']} seed {seed}"]
    queue = [score]
    while queue:
        artifact = artifacts.get(key := queue.pop(0))
        if artifact is not None and artifact.manifest["step"] in TRAININGS:
            return {"score": score, "train": key, "run": run_ids.get(key, "")}
        queue += artifact.manifest["parts"]["inputs"].values() if artifact else []
    return {"score": score, "train": "", "run": ""}


def kept_results() -> Iterator[Result]:
    """Yield the rows of kept results: NAME/result.json, with the per-sentence statistics beside it."""
    for path in kept_files():
        yield from _kept(path, path.stat().st_mtime_ns)


def kept_values() -> Iterator[tuple[str, Mapping[str, list[float]]]]:
    """Yield the experiment and the values by seed, by metric, of each row of kept results, without its tests; the preferred one
    of an experiment last."""
    found = []
    for path in kept_files():
        result = json.loads(path.read_text(encoding="utf-8"))
        rows, known = _answered(result)
        found += [Result(str(path), result["title"], *of, row) for row, of in zip(rows, known, strict=True)]
    for one in sorted(found, key=lambda result: result.worth):
        yield one.experiment.name, one.row["values"]


@cache
def _kept(path: Path, changed: int) -> list[Result]:
    """Return the rows of a kept result; changed: the time of its last change."""
    result = json.loads(path.read_text(encoding="utf-8"))
    rows, known = _answered(result)
    against = tests_of(path.parent, *_tested(path.parent, rows, known))
    results = []
    for row, answer, tests in zip(rows, known, against, strict=True):
        runs = [{"seed": seed, "score": "", "train": "", "run": ""} for seed in row["seeds"]]
        made = {**row, "against": tests, "commit": result["commit"]}
        results.append(Result(f"results/{path.parent.name}", result["title"], *answer, made, runs))
    return results


def keep_tests(path: Path) -> None:
    """Write the tests of a kept result beside its result.json."""
    bare, read = tested(path)
    write_tests(path.parent, bare, tests_of(path.parent, bare, read))


def tested(path: Path) -> tuple[list[TestedRow], Callable[[], list[TestedRow]]]:
    """Return the rows of a kept result as they are tested, without statistics, and a function that reads the statistics."""
    return _tested(path.parent, *_answered(json.loads(path.read_text(encoding="utf-8"))))


def _answered(result: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[tuple[Experiment, Answer]]]:
    """Return the rows of a kept result whose experiments still exist, with intervals, and the experiments and answers."""
    rows, known = [], []
    for row in result["rows"]:
        if (answer := _answer(row)) is not None:
            own = {"experiment": answer[0].name, "metric": answer[1].metric, "intervals": _intervals(row["values"])}
            rows.append({**row, **own})
            known.append(answer)
    return rows, known


def _intervals(values: Mapping[str, list[float]]) -> dict[str, Any]:
    return {name: finite(asdict(seed_group(one))) for name, one in values.items()}


def _tested(
    folder: Path, rows: Sequence[Mapping[str, Any]], known: Sequence[tuple[Experiment, Answer]]
) -> tuple[list[TestedRow], Callable[[], list[TestedRow]]]:
    """Return the rows as they are tested, without statistics, and a function that reads the statistics of all."""
    names = {e.row: e.name for e, _ in reversed(known)}
    bare = [
        TestedRow(e.name, a.metric, str(row["test_set"]), a.statistic, [], names.get(e.baseline, ""))
        for row, (e, a) in zip(rows, known, strict=True)
    ]

    def read(one: TestedRow, row: Mapping[str, Any]) -> TestedRow:
        names = [row["sentences"]] if isinstance(row["sentences"], str) else row["sentences"]
        return replace(one, seeds=[read_shard(folder / name) for name in names] if one.statistic else [])

    return bare, lambda: [read(*pair) for pair in zip(bare, rows, strict=True)]
