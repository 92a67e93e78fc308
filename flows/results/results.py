"""What was found: rows of compared tables, from the store, and from longer runs whose results the project keeps."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, reduce
from pathlib import Path
from typing import Any

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import PROFILES, changed, experiments
from phrasemodels.flows.experiments.experiment import Answer, Experiment
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.metrics.compare import TestedRow, differences, finite
from phrasemodels.tasks.metrics.significance import seed_group

KEPT = Path(__file__).resolve().parents[2] / "results"


@dataclass(frozen=True)
class Result:
    """A row of a compared table: where it stands (a store key, or the folder of a kept result), its experiment and
    answer, the row as `compare` makes it, and {seed, score, train, run} of each seed: store keys and MLflow run."""

    source: str
    title: str
    experiment: Experiment
    answer: Answer
    row: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)
    made: str = ""

    @property
    def kept(self) -> bool:
        """Of a longer run, kept with the project."""
        return self.source.startswith("results/")

    @property
    def worth(self) -> tuple[bool, bool, int, int, str]:
        """By which the best of several results for a number is taken: as the table has it, comparable, larger, more seeds,
        newer."""
        e = self.experiment
        return (not e.changed, e.comparable, PROFILES.index(e.profile), len(self.row["seeds"]), self.made)


@cache
def _by_name() -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments()}


def _answer(row: Mapping[str, Any]) -> tuple[Experiment, Answer] | None:
    """The experiment, as it was changed, and the answer that a row is of, if there still are such ones."""
    if (known := _by_name().get(row["experiment"])) is None:
        return None
    try:
        experiment = reduce(changed, row.get("changed", ()), known)
    except ValueError:  # a field that was overridden is gone
        return None
    found = [a for a in experiment.answers if row.get("metric", a.metric) == a.metric]
    return (experiment, found[0]) if found else None


def all_results(store: Store, tracker: Tracker) -> list[Result]:
    """What the store holds, and what is kept."""
    return [*stored_results(store, tracker.keys()), *kept_results()]


def stored_results(store: Store, run_ids: Mapping[str, str]) -> Iterator[Result]:
    """The rows of every comparison in the store; run_ids are MLflow's, by the store key of the training."""
    artifacts = {artifact.key: artifact for artifact in store.artifacts()}
    for key, artifact in artifacts.items():
        if artifact.manifest["step"] != "compare":
            continue
        for row in artifact.meta["rows"]:
            if (found := _answer(row)) is not None:
                runs = [{"seed": seed, **_run(artifacts, artifact, row, seed, run_ids)} for seed in row["seeds"]]
                yield Result(key, artifact.meta["title"], *found, row, runs, artifact.manifest["finished"])


def _run(
    artifacts: Mapping[str, Artifact], compared: Artifact, row: dict[str, Any], seed: int, run_ids: Mapping[str, str]
) -> dict[str, str]:
    """Score and training of a seed: the training is the one that the score rests on."""
    score = compared.manifest["parts"]["inputs"][f"{row['experiment']} seed {seed}"]
    queue = [score]
    while queue:
        found = artifacts.get(key := queue.pop(0))
        if found is not None and found.manifest["step"].startswith("train"):
            return {"score": score, "train": key, "run": run_ids.get(key, "")}
        queue += found.manifest["parts"]["inputs"].values() if found else []
    return {"score": score, "train": "", "run": ""}


def kept_results(folder: Path = KEPT) -> Iterator[Result]:
    """The rows of longer runs: folder/NAME/result.json, with the per-sentence statistics beside it."""
    for path in sorted(folder.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        rows, known = [], []
        for row in result["rows"]:
            if (answer := _answer(row)) is not None:
                rows.append({**row, "metric": answer[1].metric, "intervals": _intervals(row["values"])})
                known.append(answer)
        tested = [
            _tested(path.parent, row, answer, experiment.baseline)
            for row, (experiment, answer) in zip(rows, known, strict=True)
        ]
        for row, answer, against in zip(rows, known, differences(tested), strict=True):
            runs = [{"seed": seed, "score": "", "train": "", "run": ""} for seed in row["seeds"]]
            made = {**row, "against": against, "commit": result["commit"]}
            yield Result(f"results/{path.parent.name}", result["title"], *answer, made, runs)


def _intervals(values: Mapping[str, list[float]]) -> dict[str, Any]:
    return {name: finite(asdict(seed_group(found))) for name, found in values.items()}


def _tested(folder: Path, row: Mapping[str, Any], answer: Answer, baseline: str) -> TestedRow:
    names = [row["sentences"]] if isinstance(row["sentences"], str) else row["sentences"]
    tables = [read_shard(folder / name) for name in names] if answer.statistic else []
    return TestedRow(row["experiment"], answer.metric, str(row["test_set"]), answer.statistic, tables, baseline)
