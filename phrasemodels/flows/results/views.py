"""The rows of the views of SQL, from the store, MLflow and the kept results."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels import project
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.names import divided
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.flows.results.columns import of_step, parquet_path, schema_of, table
from phrasemodels.flows.results.judged import cached_rows, cached_values, judged, judged_claims
from phrasemodels.flows.results.lineage import Lineage, setting
from phrasemodels.infra.tracking import KEY, Tracker, flatten
from phrasemodels.tasks.metrics.compare import finite
from phrasemodels.verdicts.significance import seed_group


def shards(store: Store, tracker: Tracker) -> pa.Table:
    """Return the files of records in the store."""
    rows = (
        {
            "step": a.manifest["step"],
            "label": a.manifest["label"],
            **{k: shard[k] for k in ("file", "rows", "content")},
            "licences": ", ".join(a.meta["licences"]),
            "redistributable": a.meta["redistributable"],
            "stand_in": a.meta["stand_in"],
            "key": a.key,
            "parquet": parquet_path(a, shard["file"]),
        }
        for a in store.all_artifacts()
        for shard in a.meta.get("shards", [])
    )
    return table("shards", rows)


def levels(store: Store, tracker: Tracker) -> pa.Table:
    """Return the levels of trees that were divided."""
    schema = schema_of("levels")
    found = [schema.empty_table()]
    for artifact in of_step(store, "divide"):
        for shard in artifact.meta["shards"]:
            read = read_shard(artifact.file(shard["file"]))
            lists = read["levels"].combine_chunks()
            words = np.diff(lists.offsets.to_numpy()).astype(np.int64)
            numbers = lists.values.flatten().to_numpy().reshape(-1, lists.type.value_type.list_size)
            last = np.maximum(np.cumsum(words) - 1, 0)
            for place, level in enumerate(artifact.manifest["parts"]["settings"]["levels"]):
                count = np.where(words > 0, numbers[last, place] + 1 if len(numbers) else 0, 0)
                known = (artifact.manifest["label"], level, artifact.key)
                label, at, key = ([value] * read.num_rows for value in known)
                rows = [label, read["id"], read["group"], read["reason"], at, words, count.astype(np.int64), key]
                found.append(pa.table(rows, schema=schema))
    return pa.concat_tables(found)


STORE = "store"  # origin of results that are not kept
TESTED = "test."  # begins the names of test metrics in MLflow; elsewhere they are named without it


def runs(store: Store, tracker: Tracker) -> pa.Table:
    """Return MLflow's runs."""
    return table("runs", map(_run, tracker.runs()))


def _run(run: Any) -> dict[str, Any]:
    tags, info = run.data.tags, run.info
    return {
        **{name: tags.get(name) for name in ("paper", "profile", "corpus", "workers", "commit")},
        **_owner(tags),
        "run_id": info.run_id,
        "run_name": info.run_name,
        "kind": tags.get("phrasemodels.kind"),
        "status": info.status,
        "row": divided(tags["experiment"])[0].rpartition("/")[2] if "experiment" in tags else None,
        "train_key": tags.get(KEY) if "seed" in tags else None,
        "started": info.start_time,
        "seconds": (info.end_time - info.start_time) / 1000 if info.end_time else None,
    }


def _owner(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of all that is about an experiment: its name and the seed; null if there is none."""
    seed = about.get("seed")
    return {"experiment": about.get("experiment"), "seed": None if seed is None else int(seed)}


def metrics(store: Store, tracker: Tracker) -> pa.Table:
    """Return what MLflow's runs logged, each step once."""
    runs = tracker.runs()
    owners = {run.info.run_id: _owner(run.data.tags) for run in runs}
    rows = {
        (run_id, metric.key, metric.step): {
            "run_id": run_id,
            **owners[run_id],
            "metric": metric.key.removeprefix(TESTED),
            "step": metric.step,
            "value": metric.value,
            "logged": metric.timestamp,
        }
        for run_id, metric in tracker.histories(runs)
    }
    return table("metrics", rows.values())


def predictions(store: Store, tracker: Tracker) -> pa.Table:
    """Return the predictions of all problems; columns that a problem lacks are null."""
    schema = schema_of("predictions")
    found = [schema.empty_table()]
    pairs = {tuple(pair) for pair in cached_on_disk("answer columns", None, _answer_columns)}
    run_ids = tracker.keys()
    for artifact in store.all_artifacts():
        model, file = artifact.manifest["parts"]["inputs"].get("model"), "predictions.arrow"
        if model is None or file not in artifact.manifest["files"]:
            continue
        rows = read_shard(artifact.file(file))
        answers = next((pair for pair in pairs if pair and set(pair) <= set(rows.column_names)), None)
        names = {"grp": "group", **(dict(zip(("reference", "hypothesis"), answers, strict=True)) if answers else {})}
        known: dict[str, Any] = {**_owner(artifact.about), "train_key": model, "key": artifact.key}
        known["run_id"] = run_ids.get(model)
        known |= {"licences": ", ".join(artifact.meta["licences"]), "redistributable": artifact.meta["redistributable"]}
        arrays = [
            pa.repeat(pa.scalar(known[field.name], field.type), rows.num_rows)
            if field.name in known
            else _column(rows, names.get(field.name, field.name), field.type)
            for field in schema
        ]
        found.append(pa.table(arrays, schema=schema))
    return pa.concat_tables(found)


def _answer_columns() -> list[tuple[str, str]]:
    """Return the columns of the gold and of the predicted answer of every problem that has them."""
    from phrasemodels.flows.experiments.catalogue import experiments

    return sorted({pair for experiment in experiments() if (pair := experiment.recipe.answer_columns)})


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in another type: a single label becomes a list of one; a missing column is null."""
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, kind)
    column = rows[name]
    if pa.types.is_list(kind) and not pa.types.is_list(column.type):
        flat = column.combine_chunks().cast(pa.string())
        return pa.ListArray.from_arrays(pa.array(range(rows.num_rows + 1), pa.int32()), flat)
    return column.cast(kind)


def verdicts(store: Store, tracker: Tracker) -> pa.Table:
    """Return what `phrasemodels verdicts` prints: a row for each printed number."""
    lines = judged(store, tracker)
    return table("verdicts", (_verdict(number, line) for number, line in enumerate(lines, 1)))


def _verdict(number: int, line: Mapping[str, Any]) -> dict[str, Any]:
    source = line["source"]
    kept = not source or source.startswith("results/")
    ours = {
        "metric": line["measured"],
        "experiment": line["experiment"],
        "origin": source if kept else STORE,
        "key": "" if kept else source,
        "title": line["title"],
    }
    return {**line, **_identity(line), "number": number, **{name: text or None for name, text in ours.items()}}


def claims(store: Store, tracker: Tracker) -> pa.Table:
    """Return what `phrasemodels verdicts --claims` prints: a row for each claim."""
    found = judged_claims(store, tracker)
    return table("claims", ({**one, **_claim(one)} for one in found))


def _claim(one: Mapping[str, Any]) -> dict[str, Any]:
    others = [f"{other['verdict']}: {other['reason']}" for other in one["elsewhere"]]
    return {**_identity(one), "origin": one["source"], "seeds": min(one["seeds"], default=0), "elsewhere": others}


def published(store: Store, tracker: Tracker) -> pa.Table:
    """Return data/published_results.csv, its values as numbers."""
    rows = enumerate(published_results(), 1)
    return table("published", ({**row, **_identity(row), "number": n, **_numbers(row)} for n, row in rows))


def _identity(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the file whose names are others in SQL: `table` is a word of the language, `metric` is ours."""
    return {"table_": row["table"], "printed_metric": row["metric"]}


def _numbers(row: Mapping[str, str]) -> dict[str, float | None]:
    return {name: float(row[name]) if row[name] else None for name in ("value", "stdev")}


def compared(store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of compared tables: of the store, each by the newest comparison that has it, and of kept results. The reason
    says if the code or data of a row are older."""
    older: dict[tuple[str, str, str], str] = {}
    if project.parts("papers"):
        from phrasemodels.flows.results.results import older_code, stored_results  # imports torch

        for r in stored_results(store, {}):
            older[r.source, r.experiment.name, r.row["metric"]] = older_code(r.experiment, r.row["code"])
    rows = {
        (artifact.meta["title"], row["experiment"], row["metric"]): _compared(
            artifact.meta["title"], STORE, row, older.get((artifact.key, row["experiment"], row["metric"]), "")
        )
        for artifact in of_step(store, "compare")  # oldest first
        for row in artifact.meta["rows"]
    }
    kept = (_compared(*one) for one in cached_rows())
    return table("compared", [*rows.values(), *kept])


def _compared(title: str, origin: str, row: Mapping[str, Any], older: str) -> dict[str, Any]:
    ours, against = row["intervals"][row["metric"]], row["against"]
    found = against["differences"][row["metric"]] if against else {}
    return {
        **row,
        **_place(row["experiment"]),
        "title": title,
        "origin": origin,
        "reason": "; ".join(filter(None, (older, row["reason"]))),
        "ours": ours["mean"],
        "half_width": ours["half_width"],
        "seeds": len(row["seeds"]),
        "diverged": len(row.get("diverged", ())),
        "baseline": against["baseline"] if against else None,
        "difference": found.get("difference"),
        "difference_low": found.get("low"),
        "difference_high": found.get("high"),
        "p_holm": found.get("p_holm") if len(row["seeds"]) > 1 else None,
    }


def seeds(store: Store, tracker: Tracker) -> pa.Table:
    """Return each metric over the seeds of an experiment: of kept results, and of the store's newest settings and code."""
    values: dict[tuple[str, str], dict[str, dict[int, tuple[float, str]]]] = {}
    lineage, run_ids = Lineage(store), tracker.keys()
    for artifact in (a for a in lineage.artifacts.values() if "experiment" in a.about and "scores" in a.meta):
        trained = _training(lineage, artifact)
        made, run_id = (_made_by(trained), run_ids.get(trained.key, "")) if trained else ("", "")
        for metric, score in artifact.meta["scores"].items():
            groups = values.setdefault((artifact.about["experiment"], metric), {})
            known = groups.pop(made, {})
            groups[made] = known | {int(artifact.about["seed"]): (score["value"], run_id)}
    lost = {  # of the newest comparison of a row
        (row["experiment"], row["metric"]): dict(zip(row["seeds"], row["values"][row["metric"]], strict=True))
        for artifact in of_step(store, "compare")
        for row in artifact.meta["rows"]
        if row.get("diverged")
    }
    rows = [_stored(*key, list(values.get(key, {"": {}}).values()), lost.get(key, {})) for key in {**values, **lost}]
    rows += [
        _group(name, metric, origin, own) for origin, name, kept in cached_values() for metric, own in kept.items()
    ]
    return table("seeds", rows)


def _made_by(trained: Artifact) -> str:
    """Return the settings and the code of a training, as a key of what may be pooled."""
    return str((setting(trained), trained.manifest["parts"]["source"]))


def _stored(
    experiment: str,
    metric: str,
    groups: list[dict[int, tuple[float, str]]],
    compared: Mapping[int, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the row of the newest group of seeds; its warning names the seeds that are in earlier ones alone.

    compared: the values by seed of a comparison in which a training diverged.
    """
    *earlier, newest = groups
    lost = [value for seed, value in compared.items() if not any(seed in group for group in groups)]
    row = _group(experiment, metric, STORE, [*(value for value, _ in newest.values()), *lost]) | {"diverged": len(lost)}
    row["run_ids"] = [run_id for _, run_id in newest.values() if run_id]
    if left := sorted({seed for group in earlier for seed in group} - newest.keys()):
        said = f"seeds {', '.join(map(str, left))} are of earlier settings or code and left out"
        row["warning"] = "; ".join(filter(None, (row["warning"], said)))
    return row


def costs(store: Store, tracker: Tracker) -> pa.Table:
    """Return what the trainings of kept results, and of the store, cost: a row for each, mean over its seeds."""
    from phrasemodels.flows.results.results import kept_rows  # imports torch

    rows = [
        {"experiment": name, "seeds": len(row["seeds"]), **row["training"], "origin": f"results/{folder.name}"}
        for folder, name, row in kept_rows()
        if row.get("training")
    ]
    trained: dict[str, list[Mapping[str, Any]]] = {}
    for artifact in Lineage(store).artifacts.values():
        if "experiment" in artifact.about and "train_seconds" in artifact.meta:
            trained.setdefault(artifact.about["experiment"], []).append(artifact.meta)
    for name, metas in trained.items():
        means = {one: float(np.mean([meta[one] for meta in metas])) for one in ("train_seconds", "peak_memory_mib")}
        steps, parameters = round(np.mean([meta["steps"] for meta in metas])), metas[0]["parameters"]
        rows.append(
            {
                "experiment": name,
                "seeds": len(metas),
                "parameters": parameters,
                "steps": steps,
                **means,
                "origin": STORE,
            }
        )
    names = schema_of("costs").names
    return table("costs", ({name: row.get(name) for name in names} | _place(row["experiment"]) for row in rows))


def sentence_scores(store: Store, tracker: Tracker) -> pa.Table:
    """Return the statistics of each test sentence of kept results, by seed."""
    from phrasemodels.flows.results.results import kept_sentences  # imports torch

    schema, parts = schema_of("sentence_scores"), []
    for origin, name, seed, found in kept_sentences():
        n = found.num_rows
        for statistic in (one for one in found.column_names if one not in ("row", "seed", "id", "group")):
            values = found[statistic].combine_chunks()
            if not pa.types.is_list(values.type):
                values = pa.FixedSizeListArray.from_arrays(values, 1).cast(pa.list_(values.type))
            name_, seed_, statistic_, origin_ = (pa.repeat(value, n) for value in (name, seed, statistic, origin))
            own = [name_, seed_, found["id"], found["group"], statistic_, values, origin_]
            parts.append(pa.table(own, names=schema.names).cast(schema))
    return pa.concat_tables(parts)


def _place(experiment: str) -> dict[str, str]:
    """Return the paper, table, profile and row that the name of an experiment says."""
    names = ("paper", "table_name", "profile", "row")
    return dict(zip(names, divided(experiment)[0].split("/", 3), strict=False))


def settings(store: Store, tracker: Tracker) -> pa.Table:
    """Return the settings of trainings, of the store and of kept results, by the names that `--set` takes."""
    from phrasemodels.flows.results.results import kept_rows  # imports torch

    found = {
        (artifact.about["experiment"], STORE): artifact.manifest["parts"]["settings"]
        for artifact in store.all_artifacts()
        if "experiment" in artifact.about and "train_seconds" in artifact.meta
    }
    found |= {(name, f"results/{folder.name}"): row.get("settings", {}) for folder, name, row in kept_rows()}
    return table(
        "settings",
        (
            {"experiment": experiment, "origin": origin, "name": name, "value": str(value)}
            for (experiment, origin), own in found.items()
            for name, value in _as_set(own).items()
        ),
    )


def _as_set(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training by the names that `--set` takes: train.steps, model.encoder.layers."""
    parts = {"train": settings.get("config", {}), "model": settings.get("model", {})}
    return {name: value for name, value in flatten(parts).items() if not name.endswith(".type")}


def _group(experiment: str, metric: str, origin: str, values: Sequence[float]) -> dict[str, Any]:
    group = seed_group(values)
    limits = {"low": group.mean - group.half_width, "high": group.mean + group.half_width}
    known = {
        "experiment": experiment,
        "metric": metric,
        "origin": origin,
        "warning": group.warning,
        "run_ids": [],
        "diverged": 0,
    }
    known |= _place(experiment)
    return {**known, **finite({**asdict(group), **limits})}


def _training(lineage: Lineage, scored: Artifact) -> Artifact | None:
    """Return the training of the model that was scored, if it is in the store."""
    found = (made for _, _, made, _ in lineage.back(scored) if isinstance(made, Artifact))
    return next((made for made in found if made.manifest["step"].startswith("train")), None)
