"""What our runs answer to the papers: rows of compared tables, from the store and from the results that are kept."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from data.shards import read_shard
from data.store import Artifact, Store
from flows.catalogue import experiments
from flows.experiment import Experiment
from flows.session import METRICS
from tasks.compare import Tested, differences, finite
from tasks.significance import seed_group

KEPT = Path(__file__).parent.parent / "results"
PROFILES = ("sample", "laptop", "paper")


@dataclass(frozen=True)
class Answer:
    """A row of a compared table: where it stands (a store key, or a folder of kept results), its experiment, the row as
    `compare` makes it, and {seed, train, run} for each training: its store key, and its MLflow run if there is one."""

    source: str
    title: str
    experiment: Experiment
    row: dict[str, Any]
    runs: list[dict[str, Any]] = field(default_factory=list)
    made: str = ""

    @property
    def worth(self) -> tuple[bool, int, int, str]:
        """By which the best of several answers to a number is taken: comparable, larger, more seeds, newer."""
        e = self.experiment
        return (e.comparable, PROFILES.index(e.profile), len(self.row["seeds"]), self.made)


@cache
def _by_name() -> dict[str, Experiment]:
    return {experiment.name: experiment for experiment in experiments()}


def stored_answers(store: Store, run_ids: dict[str, str]) -> Iterator[Answer]:
    """The rows of every comparison in the store; run_ids are MLflow's, by the store key of the training."""
    artifacts = {artifact.key: artifact for artifact in store.artifacts()}
    for key, artifact in artifacts.items():
        if artifact.manifest["step"] != "compare":
            continue
        for row in artifact.meta["rows"]:
            if (experiment := _by_name().get(row["experiment"])) is not None:
                runs = [{"seed": seed, **_run(artifacts, artifact, row, seed, run_ids)} for seed in row["seeds"]]
                yield Answer(key, artifact.meta["title"], experiment, row, runs, artifact.manifest["finished"])


def _run(
    artifacts: dict[str, Artifact], compared: Artifact, row: dict[str, Any], seed: int, run_ids: dict[str, str]
) -> dict[str, str]:
    """The training that a score of a comparison rests on: back through the keys of inputs."""
    key = compared.manifest["parts"]["inputs"][f"{row['experiment']} seed {seed}"]
    for name in ("predictions", "model"):
        if key in artifacts:
            key = artifacts[key].manifest["parts"]["inputs"].get(name, key)
    return {"train": key, "run": run_ids.get(key, "")}


def kept_answers(folder: Path = KEPT) -> Iterator[Answer]:
    """The rows of longer runs whose results are kept with the project: folder/NAME/result.json."""
    for path in sorted(folder.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for row in result["rows"] if row["experiment"] in _by_name()]
        for row in rows:
            row["metric"] = METRICS[_by_name()[row["experiment"]].answers.metric][0]
            row["intervals"] = {name: finite(asdict(seed_group(values))) for name, values in row["values"].items()}
        for row, against in zip(rows, differences([_tested(path.parent, row) for row in rows]), strict=True):
            row["against"] = against
            runs = [{"seed": seed, "train": "", "run": ""} for seed in row["seeds"]]
            yield Answer(f"results/{path.parent.name}", result["title"], _by_name()[row["experiment"]], row, runs)


def _tested(folder: Path, row: dict[str, Any]) -> Tested:
    statistic = METRICS[_by_name()[row["experiment"]].answers.metric][1]
    files = [row["sentences"]] if isinstance(row["sentences"], str) else row["sentences"]
    tables = [read_shard(folder / file) for file in files]
    return Tested(row["experiment"], row["metric"], str(row["test_set"]), statistic, tables)
