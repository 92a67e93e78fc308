"""Keep the results of long runs: results/NAME/result.json, and the statistics of each sentence without its text."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Step
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.results.commit import commit
from phrasemodels.flows.results.results import keep_tests

MEANS = ("train_seconds", "peak_memory_mib")  # of a training, kept as means over seeds
SAME = ("parameters", "steps")  # of a training, equal for all seeds
DERIVED = {"against", "intervals"}  # of a row, computed again from the rest


def keep(store: Store, table: Table, pipelines: Sequence[Pipeline], comparison: Step, folder: Path, note: str) -> Path:
    """Write the results of a table's trainings in the store into a folder: scores, seeds, configurations, commit, library
    versions, and the per-sentence statistics that tests need. ValueError: a training is not in the store."""
    if not all(pipeline.trains for pipeline in pipelines):
        raise ValueError(
            f"{table.title}: only trainings are kept; what is counted is counted again with `phrasemodels count`"
        )
    scored: dict[str, list[tuple[int, Artifact, Artifact]]] = {}
    for pipeline in pipelines:
        name, score = pipeline.experiment.name, store.find(pipeline.scored)
        if score is None:
            raise ValueError(
                f"{name} seed {pipeline.seed} is not in the store: `phrasemodels train {name} --seed {pipeline.seed} "
                "--local`, or leave it out by --row or --seeds"
            )
        scored.setdefault(name, []).append((pipeline.seed, store.run(pipeline.trained), score))
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {experiment.name: experiment for experiment in table.experiments}
    parts = {name: _training(folder, by_name[name], seeds) for name, seeds in scored.items()}
    rows = [
        {name: value for name, value in row.items() if name not in DERIVED} | parts[row["experiment"]]
        for row in store.run(comparison).meta["rows"]
    ]
    result = {"title": table.title, "commit": commit(), "note": note, "rows": rows}
    write_durably(folder / "result.json", json.dumps(result, indent=1) + "\n")
    keep_tests(folder / "result.json")
    return folder / "result.json"


def _training(folder: Path, experiment: Experiment, seeds: list[tuple[int, Artifact, Artifact]]) -> dict[str, Any]:
    """Return what all seeds of a row share, and write a file of statistics for each seed."""
    _, trained, score = seeds[0]
    columns = {answer.statistic.column for answer in experiment.answers if answer.statistic}
    files = []
    for seed, _, scores in seeds if columns else []:
        files.append(f"{experiment.row}-s{seed}.sentences.arrow")
        table = read_shard(scores.file("sentences.arrow")).select(["id", "group", *sorted(columns)])
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(folder / files[-1]), "wb") as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as to,
        ):
            to.write_table(table)
    settings = {name: value for name, value in trained.manifest["parts"]["settings"].items() if name != "seed"}
    return {
        "training": {name: trained.meta[name] for name in SAME}
        | {name: fmean(model.meta[name] for _, model, _ in seeds) for name in MEANS},
        "settings": settings,
        "libraries": trained.manifest["parts"]["libraries"],
        "test_set": score.meta["test_set"],
        "licences": score.manifest["meta"]["licences"],
        "sentences": files,
    }
