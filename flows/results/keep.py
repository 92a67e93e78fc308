"""Results of long runs, kept with the project: results/NAME/result.json, and statistics of each sentence, not its text."""

import json
import subprocess
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.flows.results.results import KEPT
from phrasemodels.flows.run.session import Session

MEANS = ("train_seconds", "peak_memory_mib")
SAME = ("parameters", "steps")
AGAIN = {"against", "intervals"}  # made again from what is kept


def keep(session: Session, folder: Path, note: str) -> Path:
    """What a table's trainings in the store found, into a folder: scores, seeds, configuration, commit, libraries, and
    the per-sentence statistics that tests need. A ValueError names a training that is not there."""
    scored: dict[str, list[tuple[int, Artifact, Artifact]]] = {}
    for one in session.pipelines:
        name, score = one.experiment.name, session.store.find(one.scored)
        if score is None:
            raise ValueError(
                f"{name} seed {one.seed} is not in the store: `phrasemodels train {name} --seed {one.seed} --local`, "
                "or leave it out by --row or --seeds"
            )
        scored.setdefault(name, []).append((one.seed, session.store.run(one.trained), score))
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {experiment.name: experiment for experiment in session.table.experiments}
    parts = {name: _training(folder, by_name[name], found) for name, found in scored.items()}
    rows = [
        {name: value for name, value in row.items() if name not in AGAIN} | parts[row["experiment"]]
        for row in session.store.run(session.verdicts).meta["rows"]
    ]
    result = {"title": session.table.title, "commit": _commit(), "note": note, "rows": rows}
    write_durably(folder / "result.json", json.dumps(result, indent=1) + "\n")
    return folder / "result.json"


def _training(folder: Path, experiment: Experiment, found: list[tuple[int, Artifact, Artifact]]) -> dict[str, Any]:
    """What all seeds of a row share, and the files of their sentences."""
    _, trained, score = found[0]
    columns = {answer.statistic.column for answer in experiment.answers if answer.statistic}
    files = []
    for seed, _, scores in found if columns else []:
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
        | {name: fmean(model.meta[name] for _, model, _ in found) for name in MEANS},
        "settings": settings,
        "libraries": trained.manifest["parts"]["libraries"],
        "test_set": score.meta["test_set"],
        "licences": score.manifest["meta"]["licences"],
        "sentences": files,
    }


def _commit() -> str:
    """That of the code at hand; marked where it was changed since."""
    command = ["git", "-C", str(KEPT.parent), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
