"""The views of SQL, their columns, and Arrow tables of their rows.

`run_id` is the key of a run in all views; the trainings of one experiment and seed with other workers or other code are several
runs. `experiment`, `seed`, `metric`, `paper`, `label` and `key` mean the same in all views, too, but `step`, `value` and
`reason` do not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.names import file_name

TEXT, NUMBER, WHOLE, FLAG, WORDS, TIME = "text", "double", "bigint", "boolean", "text[]", "timestamp"


@dataclass(frozen=True)
class View:
    """A view: what a row of it is, the type of each column, and the columns that are unique together."""

    row: str
    columns: dict[str, str]
    key: tuple[str, ...]


def _of(kind: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), kind)


# the columns that identify a printed number
PRINTED = _of(TEXT, "paper table_ system variant dataset split printed_metric")


EXPERIMENT = {"experiment": TEXT, "seed": WHOLE}
PLACE = _of(TEXT, "paper table_name profile row")  # of an experiment, as its name says


VIEWS = {
    "verdicts": View(
        "a printed number, as `phrasemodels verdicts` judges it; metric: our name of it; origin: a kept result, or the store, where "
        "key is its comparison",
        {
            "number": WHOLE,
            **PRINTED,
            **_of(TEXT, "printed verdict kind reason needs experiment metric origin key title"),
        }
        | {**_of(NUMBER, "published ours half_width"), "seeds": WHOLE},
        ("number",),
    ),
    "claims": View(
        "a claim of a paper, and its answer at the paper's size; elsewhere: answers at a small size or on other data",
        {**_of(TEXT, "id paper kind claim table_ better than dataset printed_metric verdict reason origin")}
        | {**_of(NUMBER, "printed difference low high"), "seeds": WHOLE, "further_seeds": WHOLE, "elsewhere": WORDS},
        ("id",),
    ),
    "published": View(
        "a row of data/published_results.csv: a number that a paper printed",
        {"number": WHOLE, **PRINTED, "value": NUMBER, "stdev": NUMBER, "notes": TEXT},
        ("number",),
    ),
    "compared": View(
        "a row of a compared table, of a kept result or of the newest run of the table (origin), with its difference from its baseline",
        {
            **_of(TEXT, "title experiment metric origin verdict reason"),
            **PLACE,
            **_of(NUMBER, "published ours half_width"),
            **_of(WHOLE, "seeds diverged"),
        }
        | {"baseline": TEXT, **_of(NUMBER, "difference difference_low difference_high p_holm")},
        ("title", "experiment", "metric", "origin"),
    ),
    "runs": View(
        "a run of MLflow, which `reproduce` records and `train` does not: a training, or a table; workers: of Ray Train, in turn",
        {**_of(TEXT, "run_id run_name kind status"), **EXPERIMENT}
        | {**_of(TEXT, "paper profile row corpus train_key workers commit"), "started": TIME, "seconds": NUMBER},
        ("run_id",),
    ),
    "metrics": View(
        "a value that a run of `runs` logged, at a step and a time; the step of final metrics is 0",
        {"run_id": TEXT, **EXPERIMENT, "metric": TEXT, "step": WHOLE, "value": NUMBER, "logged": TIME},
        ("run_id", "metric", "step"),
    ),
    "seeds": View(
        "a metric over n seeds of a kept result, or of the newest settings and code in the store (origin): 95 % interval "
        "[low, high]; diverged: how many of the n diverged, with the worst value; run_ids: of the seeds' runs, empty for a kept result",
        {**_of(TEXT, "experiment metric origin"), **PLACE, **_of(NUMBER, "mean deviation"), **_of(WHOLE, "n diverged")}
        | {**_of(NUMBER, "low high"), "warning": TEXT, "run_ids": WORDS},
        ("experiment", "metric", "origin"),
    ),
    "costs": View(
        "a training, mean over its seeds, of kept results and of the store: what it cost; origin: a kept result, or the store",
        {"experiment": TEXT, **PLACE, "seeds": WHOLE, "parameters": WHOLE, "steps": WHOLE}
        | {**_of(NUMBER, "train_seconds peak_memory_mib"), "origin": TEXT},
        ("experiment", "origin"),
    ),
    "settings": View(
        "a setting of the trainings of a kept result, or of the newest ones in the store (origin), by the name that `--set` takes",
        _of(TEXT, "experiment origin name value"),
        ("experiment", "origin", "name"),
    ),
    "sentence_scores": View(
        "a test sentence of a kept result, by seed: what its metrics are sums of, such as (right, all) of an accuracy; id: its row",
        {**EXPERIMENT, "id": WHOLE, "grp": TEXT, "statistic": TEXT, "value": "double[]", "origin": TEXT},
        ("experiment", "seed", "id", "statistic", "origin"),
    ),
    "predictions": View(
        "a test sentence with an answer of a run's model; grp: its group of sentences; key: of the artifact with the answers",
        {
            "run_id": TEXT,
            **EXPERIMENT,
            **_of(TEXT, "train_key key"),
            "id": WHOLE,
            "grp": TEXT,
            **_of(WORDS, "source reference hypothesis"),
        }
        | {"score": NUMBER, "licences": TEXT, "redistributable": FLAG},
        ("key", "id"),
    ),
    "levels": View(
        "a sentence at a level of its tree: of how many words and phrases",
        {"label": TEXT, "id": WHOLE, **_of(TEXT, "grp reason"), **_of(WHOLE, "level words phrases"), "key": TEXT},
        ("key", "level", "id"),
    ),
    "shards": View(
        "a file of records in the store, with the terms of its corpora; parquet: its path in the folder of `sql --shards`",
        {
            **_of(TEXT, "step label file"),
            "rows": WHOLE,
            **_of(TEXT, "content licences"),
            **_of(FLAG, "redistributable stand_in"),
        }
        | _of(TEXT, "key parquet"),
        ("key", "file"),
    ),
}


TYPES = {
    TEXT: pa.string(),
    NUMBER: pa.float64(),
    WHOLE: pa.int64(),
    FLAG: pa.bool_(),
    WORDS: pa.list_(pa.string()),
    TIME: pa.timestamp("ms"),
    "double[]": pa.list_(pa.float64()),
}


def schema_of(view: str) -> pa.Schema:
    """Return the columns of a view."""
    return pa.schema([(name, TYPES[kind]) for name, kind in VIEWS[view].columns.items()])


def table(view: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return a view of rows; a column that a row lacks is null, and other names are left out."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(view))


def parquet_path(artifact: Artifact, file: str) -> str:
    """Return where `sql --shards` writes a file of an artifact: STEP/LABEL-KEY/FILE.parquet, of the key eight digits."""
    manifest = artifact.manifest
    return f"{manifest['step']}/{file_name(manifest['label'])}-{artifact.key[:8]}/{Path(file).stem}.parquet"


def of_step(store: Store, step: str) -> list[Artifact]:
    """Return the artifacts of a step, oldest first."""
    return [artifact for artifact in store.all_artifacts() if artifact.manifest["step"] == step]
