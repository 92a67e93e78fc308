"""Keeping: the results of a table's trainings as a folder results/NAME, and joining further seeds."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import check_unpacked, read_shard
from phrasemodels.data.store.artifacts import WRITTEN, Artifact, locked, write_durably
from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.experiments.catalogue import Table
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.results.records import (
    COMPANIONS,
    DIRTY,
    RESULT,
    SENTENCES,
    TRIALS,
    commit,
    kept_files,
    read_kept,
)
from phrasemodels.flows.results.results import (
    code_today,
    contradiction,
    keep_tests,
    runs_of,
    same_settings,
    statistics_of,
)
from phrasemodels.folders import put_in_place, read_regular

MEANS = ("train_seconds", "peak_memory_mib")  # of a training, kept as means over seeds
DERIVED = {"against", "intervals", "verdict", "reason"}  # of a row, computed again from the rest

Statistics = dict[tuple[str, int], pa.Table]  # of the test sentences, by row and seed


def check_committed() -> None:
    """Check that a kept result can be repeated.

    Raises:
        ValueError: The code has uncommitted changes.
    """
    if DIRTY in commit():
        raise ValueError(f"the code was changed since commit {commit()[:12]}: commit the changes, then train and keep")


def keep(
    store: Store,
    table: Table,
    pipelines: Sequence[Pipeline],
    comparison: Step,
    folder: Path,
    note: str,
    run_ids: Mapping[str, str] | None = None,
) -> Path:
    """Write the results of a table in the store into a folder, with the statistics of test sentences for tests.

    A diverged seed is kept with the worst value, as in its comparison. Its row has no statistics, so no tests.

    Args:
        run_ids: MLflow's runs, by the store keys of trainings.

    Raises:
        ValueError: A result is not in the store, or the folder holds something else.
    """
    before = content_of(folder)
    if folder.exists() and any(folder.iterdir()) and _title(folder / RESULT) != table.title:
        raise ValueError(f"{folder} holds something other than the result of {table.title}: choose another name")
    seeds: dict[str, list[Pipeline]] = {}
    for pipeline in pipelines:
        name = pipeline.experiment.name
        diverged = comparison.inputs[f"{name} seed {pipeline.seed}"] is not pipeline.scored
        wanted = [pipeline.scored, *([pipeline.trained] if pipeline.trains else [])]
        if not diverged and None in map(store.find, wanted):
            train = f"train {name} --seed {pipeline.seed} --local"
            command = train if pipeline.trains else "verdicts --count --corpora"
            raise ValueError(
                f"{name} seed {pipeline.seed} is not in the store: `phrasemodels {command}`, or leave it out by --row or --seeds"
            )
        seeds.setdefault(name, []).append(pipeline)
    statistics: Statistics = {}
    compared = store.run(comparison).meta["rows"]
    lost = {row["experiment"]: row["diverged"] for row in compared}
    parts = {name: _parts(store, of, lost[name], statistics, run_ids or {}) for name, of in seeds.items()}
    rows = [
        {name: value for name, value in row.items() if name not in DERIVED} | parts[row["experiment"]]
        for row in compared
    ]
    result = {"title": table.title, "commit": commit(), "note": note, "rows": rows}
    return write(folder, result, statistics, table.trials, over=before)


def _title(file: Path) -> str | None:
    """Return the title of a kept result, or None if it cannot be read."""
    try:
        return str(read_kept(file)["title"])
    except (OSError, ValueError, LookupError):
        return None


def damaged_results() -> list[tuple[str, str]]:
    """Return the name of each damaged or contradictory kept result, and why."""
    found = []
    for file in kept_files():
        try:
            problem = contradiction(file)
        except ValueError as error:
            problem = str(error)
        if problem:
            found.append((file.parent.name, problem))
    return found


def write(
    folder: Path,
    result: Mapping[str, Any],
    statistics: Statistics,
    trials: Sequence[Any] = (),
    *,
    over: bytes | None,
) -> Path:
    """Write a kept result into a folder, in place of an earlier one. Other files of the folder stay.

    Args:
        over: The earlier content of result.json by `content_of`. None if there was none.

    Raises:
        ValueError: Another command has written the folder meanwhile.
    """
    folder = folder.resolve()  # of a link, the folder it leads to is replaced
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f".{folder.name}{WRITTEN}"
    with locked(folder), tempfile.TemporaryDirectory(prefix=name, dir=folder.parent) as temporary:
        (new := Path(temporary) / folder.name).mkdir()
        write_durably(new / RESULT, json.dumps(result, indent=1) + "\n")
        if statistics:
            _write_statistics(new / SENTENCES, statistics)
        if trials:
            write_durably(new / TRIALS, json.dumps(trials, indent=1) + "\n")
        keep_tests(new / RESULT)
        if over != content_of(folder):
            raise ValueError(f"{folder} was written by another command meanwhile: run this one again")
        if folder.exists():
            own = shutil.ignore_patterns(RESULT, *COMPANIONS)
            shutil.copytree(folder, new, symlinks=True, ignore=own, dirs_exist_ok=True)
        put_in_place(new, folder)
    return folder / RESULT


def content_of(folder: Path) -> bytes | None:
    """Return result.json, or None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return read_regular(folder / RESULT)
    return None


def _write_statistics(path: Path, statistics: Statistics) -> None:
    """Write the statistics of all rows and seeds into one file. Missing columns of a row are null."""
    tables = []
    for (row, seed), table in statistics.items():
        named = table.add_column(0, pa.field("row", pa.string()), pa.array([row] * len(table)))
        tables.append(named.add_column(1, pa.field("seed", pa.int64()), pa.array([seed] * len(table), pa.int64())))
    together = pa.concat_tables(tables, promote_options="default").combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 19))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, together.schema, options=options) as to:
        to.write_table(together)


def run_of(seed: int, train: str = "", run: str = "") -> dict[str, Any]:
    """Return the origin of a seed: commit of the code, store key of the training and MLflow's run."""
    return {"seed": seed, "commit": commit(), "train": train, "run": run}


def _parts(
    store: Store, seeds: Sequence[Pipeline], lost: Sequence[int], statistics: Statistics, run_ids: Mapping[str, str]
) -> dict[str, Any]:
    """Return the common parts of a row's seeds, and add their statistics to the others'. lost: the diverged seeds."""
    experiment, ended = seeds[0].experiment, [pipeline for pipeline in seeds if pipeline.seed not in lost]
    if not ended:
        raise ValueError(f"{experiment.name}: each of its seeds diverged, so nothing says how: leave it out by --row")
    scores = [store.run(pipeline.scored) for pipeline in ended]
    columns = {answer.statistic.column for answer in experiment.answers if answer.statistic and not lost}
    for pipeline, score in zip(ended, scores, strict=True) if columns else []:
        table = read_shard(score.file(SENTENCES)).select(["id", "group", *sorted(columns)])
        statistics[row_of(experiment.name), pipeline.seed] = table
    models = [store.run(pipeline.trained) for pipeline in ended if pipeline.trains]
    parts = (models or scores)[0].manifest["parts"]
    keys = ["" if p.seed in lost else (p.trained if p.trains else p.scored).key for p in seeds]
    code = code_today(experiment)  # what is kept has the keys of today
    return ({"code": code} if code else {}) | {
        "runs": [run_of(p.seed, key, run_ids.get(key, "")) for p, key in zip(seeds, keys, strict=True)],
        "training": training_of(models) if models else {},
        "settings": {name: value for name, value in parts["settings"].items() if name != "seed"},
        "libraries": parts["libraries"],
        "test_set": scores[0].meta["test_set"],
        "licences": scores[0].manifest["meta"]["licences"],
        "sentences": {"row": row_of(experiment.name)} if columns else [],
    }


def training_of(models: Sequence[Artifact]) -> dict[str, Any]:
    """Return the parameters of the model, and the means over seeds of the changing parts of trainings."""
    means = {name: fmean(model.meta[name] for model in models) for name in MEANS}
    steps = round(fmean(model.meta["steps"] for model in models))  # those with patience end at different ones
    devices = ", ".join(sorted({kind for model in models for kind in model.meta.get("devices", [])}))
    return {"parameters": models[0].meta["parameters"], "steps": steps, **means} | (
        {"devices": devices} if devices else {}
    )


def union(*lists: str) -> str:
    """Merge lists like "2.11.0, 2.13.0" into a sorted list with each item once."""
    return ", ".join(sorted({item for items in lists for item in items.split(", ") if item}))


def all_versions(libraries: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return all versions of each library: "2.11.0, 2.13.0"."""
    names = sorted({name for versions in libraries for name in versions})
    return {name: union(*(versions.get(name, "") for versions in libraries)) for name in names}


def row_of(name: str) -> str:
    """Return the row and its overrides from the name of an experiment."""
    return name.split("/", 3)[3]


def join(folder: Path, other: Path) -> Path:
    """Add the seeds and rows of a kept result to another one. The other one is written anew.

    Raises:
        ValueError: They are of two tables or one contradicts itself. A common row has other settings or another test
        set. A common seed has other values. Or another command has written the folder meanwhile.
    """
    before = content_of(folder)
    read_kept(other / RESULT)
    if (other / SENTENCES).exists():
        check_unpacked(other / SENTENCES)
    for one in (folder, other):
        if problem := contradiction(one / RESULT):
            raise ValueError(f"{one}: {problem}")
    (first, of_first), (second, of_second) = _read(folder), _read(other)
    tables = {tuple(row["experiment"].split("/")[:3]) for row in (*first["rows"], *second["rows"])}
    if first["title"] != second["title"] or len(tables) > 1:
        raise ValueError(
            f"{folder} is of {first['title']}, {other} of {second['title']}: only seeds of one table are joined"
        )
    known = {(row["experiment"], row["metric"]): row for row in second["rows"]}
    rows = [_joined(row, known.pop((row["experiment"], row["metric"]), None)) for row in first["rows"]]
    rows += known.values()
    commits, notes = (
        dict.fromkeys(filter(None, f"{first[part]}; {second[part]}".split("; "))) for part in ("commit", "note")
    )
    trials = json.loads((folder / TRIALS).read_text(encoding="utf-8")) if (folder / TRIALS).exists() else []
    result = first | {"commit": "; ".join(commits), "note": "; ".join(notes), "rows": rows}
    tested = {row_of(row["experiment"]) for row in rows if row["sentences"]}
    statistics = {name: table for name, table in (of_second | of_first).items() if name[0] in tested}
    return write(folder, result, statistics, trials, over=before)


def _read(folder: Path) -> tuple[dict[str, Any], Statistics]:
    """Return a kept result and its statistics. Rows have their names of one file."""
    result = read_kept(folder / RESULT)
    rows = [row for row in result["rows"] if row["sentences"]]
    statistics: Statistics = {}
    for row, tables in zip(rows, statistics_of(folder, rows), strict=True):
        name = row_of(row["experiment"])
        row["sentences"] = {"row": name}
        statistics |= {(name, seed): table for seed, table in zip(row["seeds"], tables, strict=True)}
    result["rows"] = [
        {"runs": runs_of(row, result["commit"])} | {name: value for name, value in row.items() if name not in DERIVED}
        for row in result["rows"]
    ]
    return result, statistics


def _joined(row: Mapping[str, Any], more: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a row with the seeds of another one of the same experiment, in order."""
    if more is None:
        return row
    name = row["experiment"]
    lost = sorted({*row.get("diverged", ()), *more.get("diverged", ())})  # which have the metric of the row alone
    for what, same in (
        (
            "settings",
            row["settings"].keys() == more["settings"].keys() and same_settings(row["settings"], more["settings"]),
        ),
        ("test set", [part.get("rows") for part in row["test_set"]] == [part.get("rows") for part in more["test_set"]]),
        ("parameters", row["training"].get("parameters") == more["training"].get("parameters")),
        ("metrics", bool(lost) or row["values"].keys() == more["values"].keys()),
    ):
        if not same:
            raise ValueError(f"{name}: the two results have different {what}, so their seeds cannot be joined")
    both = [metric for metric in row["values"] if metric in more["values"]]
    values = {metric: dict(zip(row["seeds"], row["values"][metric], strict=True)) for metric in both}
    for metric in both:
        for seed, value in zip(more["seeds"], more["values"][metric], strict=True):
            if values[metric].setdefault(seed, value) != value:
                raise ValueError(
                    f"{name} seed {seed}: {metric} is {values[metric][seed]} in one result and {value} in the other"
                )
    seeds = sorted({*row["seeds"], *more["seeds"]})
    n, m = len(row["seeds"]), len({*more["seeds"]} - {*row["seeds"]})
    if {*row["seeds"]} <= {*more["seeds"]}:  # whose means are of all seeds
        n, m = 0, len(more["seeds"])
    training = dict(row["training"])
    if training and more["training"]:
        for one in (*MEANS, "steps"):
            mean = (n * training[one] + m * more["training"][one]) / (n + m)
            training[one] = round(mean) if one == "steps" else mean
        if devices := union(*(one.get("devices", "") for one in (training, more["training"]))):
            training["devices"] = devices
    ordered = {metric: [own[seed] for seed in seeds] for metric, own in values.items()}
    libraries = all_versions([one.get("libraries", {}) for one in (row, more)])
    runs = {run["seed"]: run for run in (*more["runs"], *row["runs"])}
    return {
        **row,
        "runs": [runs[seed] for seed in seeds],
        "seeds": seeds,
        "values": ordered,
        "training": training,
        "libraries": libraries,
        **({"diverged": lost, "sentences": []} if lost else {}),
    }
