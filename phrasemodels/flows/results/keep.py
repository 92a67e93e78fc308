"""Keep the results of long runs and of counts of corpora: results/NAME/result.json, and the statistics of each sentence
without its text."""

import json
import tempfile
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
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.results.commit import commit
from phrasemodels.flows.results.results import keep_tests

MEANS = ("train_seconds", "peak_memory_mib")  # of a training, kept as means over seeds
RESULT, TRIALS = "result.json", "trials.json"
DERIVED = {"against", "intervals"}  # of a row, computed again from the rest


def keep(store: Store, table: Table, pipelines: Sequence[Pipeline], comparison: Step, folder: Path, note: str) -> Path:
    """Write the results of a table in the store into a folder: scores, seeds, configurations, commit, library versions, and
    the per-sentence statistics that tests need; of a tuned table also all trials. ValueError: a result is not in the store."""
    seeds: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        name = pipeline.experiment.name
        if store.find(pipeline.scored) is None or (pipeline.trains and store.find(pipeline.trained) is None):
            command = f"train {name} --seed {pipeline.seed} --local" if pipeline.trains else "count --corpora"
            raise ValueError(
                f"{name} seed {pipeline.seed} is not in the store: `phrasemodels {command}`, or leave it out by --row or --seeds"
            )
        seeds.setdefault(name, []).append(pipeline)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        new = Path(temporary)
        parts = {name: _parts(store, new, of) for name, of in seeds.items()}
        rows = [
            {name: value for name, value in row.items() if name not in DERIVED} | parts[row["experiment"]]
            for row in store.run(comparison).meta["rows"]
        ]
        result = {"title": table.title, "commit": commit(), "note": note, "rows": rows}
        write_durably(new / RESULT, json.dumps(result, indent=1) + "\n")
        if table.trials:
            write_durably(new / TRIALS, json.dumps(table.trials, indent=1) + "\n")
        keep_tests(new / RESULT)
        folder.mkdir(exist_ok=True)
        for old in (*folder.glob("*.sentences.arrow"), folder / TRIALS):
            old.unlink(missing_ok=True)
        for file in sorted(new.iterdir(), key=lambda file: file.name == RESULT):  # which names the others, last
            file.replace(folder / file.name)
    return folder / RESULT


def _parts(store: Store, folder: Path, seeds: Sequence[Pipeline]) -> dict[str, Any]:
    """Return what all seeds of a row share, and write a file of statistics for each seed."""
    experiment, scores = seeds[0].experiment, [store.run(pipeline.scored) for pipeline in seeds]
    columns = {answer.statistic.column for answer in experiment.answers if answer.statistic}
    files = []
    for pipeline, score in zip(seeds, scores, strict=True) if columns else []:
        files.append(f"{experiment.row}-s{pipeline.seed}.sentences.arrow")
        table = read_shard(score.file("sentences.arrow")).select(["id", "group", *sorted(columns)])
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with (
            pa.OSFile(str(folder / files[-1]), "wb") as sink,
            pa.ipc.new_file(sink, table.schema, options=options) as to,
        ):
            to.write_table(table)
    models = [store.run(pipeline.trained) for pipeline in seeds if pipeline.trains]
    parts = (models or scores)[0].manifest["parts"]
    return {
        "training": _training(models) if models else {},
        "settings": {name: value for name, value in parts["settings"].items() if name != "seed"},
        "libraries": parts["libraries"],
        "test_set": scores[0].meta["test_set"],
        "licences": scores[0].manifest["meta"]["licences"],
        "sentences": files,
    }


def _training(models: Sequence[Artifact]) -> dict[str, Any]:
    """Return the parameters of the model, and the means over its seeds of what differs between trainings."""
    means = {name: fmean(model.meta[name] for model in models) for name in MEANS}
    steps = round(fmean(model.meta["steps"] for model in models))  # those with patience end at different ones
    return {"parameters": models[0].meta["parameters"], "steps": steps, **means}
