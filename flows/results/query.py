"""SQL over runs, artifacts and verdicts, in a DuckDB that can read nothing else and write nothing."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.remembered import remembered
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.lineage import Lineage, setting
from phrasemodels.infra.tracking import Tracker
from phrasemodels.tasks.metrics.compare import finite
from phrasemodels.tasks.metrics.significance import seed_group

VIEWS = {
    "runs": "MLflow runs: run_id, name, kind, status, experiment, paper, system, corpus, profile, seed, started, seconds",
    "metrics": "run_id, metric, step, value; of final metrics the step is the last",
    "seeds": "seed groups, of the newest settings: experiment, metric, mean, deviation, half_width, n, low, high, warning",
    "predictions": "experiment, id, grp (group of sentences), source, reference, hypothesis (lists), score, train_key, "
    "licences, redistributable",
    "phrases": "corpora as numbers: label, file, id, grp, tokens, phrases (of each sentence), longest",
    "levels": "trees as levels of phrases: label, id, grp, reason, level, words, phrases (of each sentence)",
    "leaks": "label, shared, rows: test records that stand verbatim in train",
    "shards": "step, label, file, rows, content, licences, redistributable, stand_in, key",
    "lineage": "key, step, label, role, input: what was made from what; input is a key",
    "verdicts": "title, system, variant, metric, published, ours, half_width, seeds, verdict, reason",
    "published": "data/published_results.csv: paper, table_, system, variant, dataset, split, metric, value, ...",
}

# SQL: phrases per sentence and words per phrase at each level, beside those that Table 1 of paper 001 prints for the corpus
TABLE_1 = r"""
with ours as (
    select label, level, round(avg(phrases), 2) as phrases, round(sum(words) / sum(phrases), 2) as words
    from levels where words > 0 group by all
), paper as (
    select replace(dataset, 'SICK-E', 'SICK') as dataset, regexp_extract(variant, '\d')::int as level,
        max(value::double) filter (metric = 'phrases_per_sentence') as phrases,
        max(value::double) filter (metric = 'words_per_phrase') as words
    from published where paper = '001' and table_ = 'Table 1' and variant like 'layer%' group by all
)
select label, ours.level, ours.phrases, ours.words, paper.phrases as published_phrases, paper.words as published_words
from ours left join paper on paper.level = ours.level and regexp_matches(label, '\b' || dataset || '\b')
order by label, ours.level
"""

IN_MLFLOW = ("runs", "metrics")  # the views that are read from MLflow


def query(store: Store, tracker: Tracker, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a question. ValueError: the question is wrong; the message lists the views.

    The connection reads and writes no files, loads no extensions, and cannot be reconfigured.
    """
    import duckdb

    if sql.encode(errors="ignore").decode() != sql:
        raise ValueError("the question is no UTF-8: write it again")
    closed: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",
    }
    connection = duckdb.connect(":memory:", config=closed)
    for name in VIEWS:
        if name in sql:  # building a view takes time: only those that the question names are built
            connection.register(f"_{name}", _BUILDERS[name](store, tracker))
            connection.execute(f"create table {name} as select * from _{name}")
            connection.unregister(f"_{name}")
    connection.execute("set python_enable_replacements = false")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    try:
        connection.execute(sql)
        if connection.description is None:
            raise ValueError("the question is empty: ask one, like select * from verdicts")
        return [column[0] for column in connection.description], connection.fetchall()
    except duckdb.Error as error:
        raise ValueError(
            f"{error}\nviews: " + "; ".join(f"{name}({columns})" for name, columns in VIEWS.items())
        ) from error


def _table(columns: dict[str, pa.DataType], rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns.items())))


def _runs(store: Store, tracker: Tracker) -> pa.Table:
    text = ("run_id", "name", "kind", "status", "experiment", "paper", "system", "corpus", "profile", "seed")
    columns = dict.fromkeys(text, pa.string()) | {"started": pa.timestamp("ms"), "seconds": pa.float64()}
    rows = []
    for run in tracker.runs():
        tags, info = run.data.tags, run.info
        rows.append(
            {
                "run_id": info.run_id,
                "name": info.run_name,
                "status": info.status,
                "kind": tags.get("phrasemodels.kind"),
                **{name: tags.get(name) for name in ("experiment", "paper", "system", "corpus", "profile", "seed")},
                "started": info.start_time,
                "seconds": (info.end_time - info.start_time) / 1000 if info.end_time else None,
            }
        )
    return _table(columns, rows)


def _metrics(store: Store, tracker: Tracker) -> pa.Table:
    client = tracker.client()
    columns = {"run_id": pa.string(), "metric": pa.string(), "step": pa.int64(), "value": pa.float64()}
    rows = {}
    for run in tracker.runs():
        for name in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, name):
                rows[run.info.run_id, name, metric.step] = metric.value
    return _table(columns, ({"run_id": r, "metric": m, "step": s, "value": v} for (r, m, s), v in rows.items()))


def _of(store: Store, step: str) -> list[Artifact]:
    """Return the artifacts of a step, oldest first."""
    return [artifact for artifact in store.artifacts() if artifact.manifest["step"] == step]


def _predictions(store: Store, tracker: Tracker) -> pa.Table:
    """Return the predictions of all problems; columns that a problem lacks are null."""
    text, words = pa.string(), pa.list_(pa.string())
    columns = {"experiment": text, "id": pa.int64(), "grp": text, "source": words, "reference": words}
    columns |= {"hypothesis": words, "score": pa.float64(), "train_key": text}
    columns |= {"licences": text, "redistributable": pa.bool_()}
    tables = [_table(columns, [])]
    pairs = {tuple(pair) for pair in remembered("answer columns", None, _answer_columns)}
    for artifact in store.artifacts():
        model, file = artifact.manifest["parts"]["inputs"].get("model"), "predictions.arrow"
        if model is None or file not in artifact.manifest["files"]:
            continue
        table = read_shard(artifact.file(file))
        answers = next((pair for pair in pairs if set(pair) <= set(table.column_names)), None)
        names = {"grp": "group", **(dict(zip(("reference", "hypothesis"), answers, strict=True)) if answers else {})}
        known: dict[str, Any] = {"experiment": _training_name(artifact), "train_key": model}
        known |= {"licences": ", ".join(artifact.meta["licences"]), "redistributable": artifact.meta["redistributable"]}
        arrays = [
            pa.array([known[name]] * table.num_rows, kind)
            if name in known
            else _column(table, names.get(name, name), kind)
            for name, kind in columns.items()
        ]
        tables.append(pa.table(arrays, schema=pa.schema(list(columns.items()))))
    return pa.concat_tables(tables)


def _answer_columns() -> list[tuple[str, str]]:
    """Return the columns of the gold and of the predicted answer of every problem that has them."""
    from phrasemodels.flows.experiments.catalogue import experiments

    return sorted({pair for experiment in experiments() if (pair := experiment.recipe.answer_columns)})


def _training_name(artifact: Artifact) -> str:
    """Return "EXPERIMENT seed N" of the training that an artifact belongs to, or else the artifact's label."""
    about = artifact.about
    return f"{about['experiment']} seed {about['seed']}" if about else artifact.manifest["label"]


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in another type: a single label becomes a list of one; a missing column is null."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    column = table[name]
    if pa.types.is_list(kind) and not pa.types.is_list(column.type):
        flat = column.combine_chunks().cast(pa.string())
        return pa.ListArray.from_arrays(pa.array(range(table.num_rows + 1), pa.int32()), flat)
    return column.cast(kind)


def _shards(store: Store, tracker: Tracker) -> pa.Table:
    text, flag = pa.string(), pa.bool_()
    columns = {"step": text, "label": text, "file": text, "rows": pa.int64(), "content": text, "licences": text}
    columns |= {"redistributable": flag, "stand_in": flag, "key": text}
    rows = (
        {
            "step": a.manifest["step"],
            "label": a.manifest["label"],
            **{k: shard[k] for k in ("file", "rows", "content")},
            "licences": ", ".join(a.meta["licences"]),
            "redistributable": a.meta["redistributable"],
            "stand_in": a.meta["stand_in"],
            "key": a.key,
        }
        for a in store.artifacts()
        for shard in a.meta.get("shards", [])
    )
    return _table(columns, rows)


def _verdicts(store: Store, tracker: Tracker) -> pa.Table:
    columns = dict.fromkeys(("title", "experiment", "system", "variant", "metric", "verdict", "reason"), pa.string())
    columns |= {"published": pa.float64(), "ours": pa.float64(), "half_width": pa.float64(), "seeds": pa.int64()}
    rows = {
        (artifact.meta["title"], row["experiment"], row["metric"]): {
            **{name: row.get(name) for name in columns},
            "title": artifact.meta["title"],
            "ours": row["intervals"][row["metric"]]["mean"],
            "half_width": row["intervals"][row["metric"]]["half_width"],
            "seeds": len(row["seeds"]),
        }
        for artifact in _of(store, "compare")  # oldest first: the newest comparison replaces the others
        for row in artifact.meta["rows"]
    }
    return _table(columns, rows.values())


def _seeds(store: Store, tracker: Tracker) -> pa.Table:
    columns = {"experiment": pa.string(), "metric": pa.string(), "mean": pa.float64(), "deviation": pa.float64()}
    columns |= {"half_width": pa.float64(), "n": pa.int64(), "low": pa.float64(), "high": pa.float64()}
    values: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    lineage = Lineage(store)
    for artifact in lineage.artifacts.values():
        name, seed = artifact.about.get("experiment", ""), str(artifact.about.get("seed", ""))
        settings = _training(lineage, artifact) if "scores" in artifact.meta else ""
        for metric, score in artifact.meta.get("scores", {}).items():
            by_settings = values.setdefault((name, metric), {})
            by_settings[settings] = by_settings.pop(settings, {}) | {seed: score["value"]}
    rows = []
    for (name, metric), by_settings in values.items():
        group = seed_group(list(list(by_settings.values())[-1].values()))  # of the newest settings
        limits = {"low": group.mean - group.half_width, "high": group.mean + group.half_width}
        known = {"experiment": name, "metric": metric, **finite({**asdict(group), **limits})}
        rows.append({**known, "warning": group.warning})
    return _table(columns | {"warning": pa.string()}, rows)


def _training(lineage: Lineage, scored: Artifact) -> str:
    """Return how and on what the model of a score was trained, without the seed, as text."""
    for _, _, found, _ in lineage.back(scored):
        if isinstance(found, Artifact) and found.manifest["step"].startswith("train"):
            return str(setting(found))
    return ""


def _phrases(store: Store, tracker: Tracker) -> pa.Table:
    columns = {"label": pa.string(), "file": pa.string(), "id": pa.int64(), "grp": pa.string()}
    columns |= {"tokens": pa.int64(), "phrases": pa.int64(), "longest": pa.int64()}
    tables = [_table(columns, [])]
    for artifact in _of(store, "phrases"):
        for shard in artifact.meta["shards"]:
            table = read_shard(artifact.file(shard["file"]))
            longest = table.schema.field("phrases").type.value_type.list_size
            known = [artifact.manifest["label"], shard["file"], longest]
            label, file, width = (pa.array([value] * table.num_rows) for value in known)
            lengths = [pc.list_value_length(table[name]).cast(pa.int64()) for name in ("source", "phrases")]
            rows = [label, file, table["id"], table["group"], *lengths, width]
            tables.append(pa.table(rows, schema=pa.schema(list(columns.items()))))
    return pa.concat_tables(tables)


def _levels(store: Store, tracker: Tracker) -> pa.Table:
    columns = {"label": pa.string(), "id": pa.int64(), "grp": pa.string(), "reason": pa.string()}
    columns |= {"level": pa.int64(), "words": pa.int64(), "phrases": pa.int64()}
    tables = [_table(columns, [])]
    for artifact in _of(store, "divide"):
        for shard in artifact.meta["shards"]:
            table = read_shard(artifact.file(shard["file"]))
            lists = table["levels"].combine_chunks()
            words = np.diff(lists.offsets.to_numpy()).astype(np.int64)
            numbers = lists.values.flatten().to_numpy().reshape(-1, lists.type.value_type.list_size)
            last = np.maximum(np.cumsum(words) - 1, 0)
            for place, level in enumerate(artifact.manifest["parts"]["settings"]["levels"]):
                count = np.where(words > 0, numbers[last, place] + 1 if len(numbers) else 0, 0)
                label, at = ([value] * table.num_rows for value in (artifact.manifest["label"], level))
                rows = [label, table["id"], table["group"], table["reason"], at, words, count.astype(np.int64)]
                tables.append(pa.table(rows, schema=pa.schema(list(columns.items()))))
    return pa.concat_tables(tables)


def _leaks(store: Store, tracker: Tracker) -> pa.Table:
    columns = {"label": pa.string(), "shared": pa.int64(), "rows": pa.int64()}
    return _table(columns, ({"label": a.manifest["label"], **a.meta["leak"]} for a in _of(store, "leaks")))


def _lineage(store: Store, tracker: Tracker) -> pa.Table:
    rows = (
        {"key": a.key, "step": a.manifest["step"], "label": a.manifest["label"], "role": role, "input": key}
        for a in store.artifacts()
        for role, key in a.manifest["parts"]["inputs"].items()
    )
    return _table(dict.fromkeys(("key", "step", "label", "role", "input"), pa.string()), rows)


def _published(store: Store, tracker: Tracker) -> pa.Table:
    from phrasemodels.flows.experiments.published import published_results

    rows = [{("table_" if k == "table" else k): v for k, v in row.items()} for row in published_results()]
    return _table(dict.fromkeys(rows[0], pa.string()), rows)


_BUILDERS = {
    "runs": _runs,
    "metrics": _metrics,
    "seeds": _seeds,
    "predictions": _predictions,
    "phrases": _phrases,
    "levels": _levels,
    "leaks": _leaks,
    "shards": _shards,
    "lineage": _lineage,
    "verdicts": _verdicts,
    "published": _published,
}
