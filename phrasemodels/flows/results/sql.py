"""SQL over runs, artifacts and verdicts, in a DuckDB that reads nothing else and writes nothing; answers as DataFrames.

`run_id` is the key of a run in all views. The trainings of one experiment and seed with other workers or other code are
several runs. `experiment`, `seed`, `metric`, `paper`, `label` and `key` mean the same in all views, too, but `step`, `value`
and `reason` do not.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels import project
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import read_shard, write_parquet
from phrasemodels.data.store.artifacts import Artifact, atomic_replace
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.published import divided, file_name, published_results
from phrasemodels.flows.results.judged import cached_rows, cached_values, judged, judged_claims
from phrasemodels.flows.results.lineage import Lineage, setting
from phrasemodels.flows.results.records import limited_memory, open_to_read
from phrasemodels.folders import writing_folder
from phrasemodels.infra.tracking import KEY, Tracker, flatten
from phrasemodels.tasks.metrics.compare import finite
from phrasemodels.verdicts.significance import seed_group

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TEXT, NUMBER, WHOLE, FLAG, WORDS, TIME = "text", "double", "bigint", "boolean", "text[]", "timestamp"


@dataclass(frozen=True)
class View:
    """A view: the meaning of a row, the type of each column, and its unique key."""

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
        "a value of a training in the store, at a step; the step of final metrics is 0; run_id: its run in `runs`, if it has one",
        {**_of(TEXT, "train_key run_id"), **EXPERIMENT, "metric": TEXT, "step": WHOLE, "value": NUMBER},
        ("train_key", "experiment", "metric", "step"),
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
    """Return a view of rows. Missing columns of a row are null, and other names are left out."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(view))


def parquet_path(artifact: Artifact, file: str) -> str:
    """Return where `sql --shards` writes a file of an artifact: STEP/LABEL-KEY/FILE.parquet, of the key eight digits."""
    manifest = artifact.manifest
    return f"{manifest['step']}/{file_name(manifest['label'])}-{artifact.key[:8]}/{Path(file).stem}.parquet"


def of_step(store: Store, step: str) -> list[Artifact]:
    """Return the artifacts of a step, oldest first."""
    return [artifact for artifact in store.all_artifacts() if artifact.manifest["step"] == step]


# SQL: phrases per sentence and words per phrase at each level, beside those that Table 1 of paper 001 prints for the corpus
TABLE_1 = r"""
with ours as (
    select label, key, level, round(avg(phrases), 2) as phrases, round(sum(words) / sum(phrases), 2) as words
    from levels where words > 0 group by all
), paper as (
    select replace(dataset, 'SICK-E', 'SICK') as dataset, regexp_extract(variant, '\d')::int as level,
        max(value) filter (printed_metric = 'phrases_per_sentence') as phrases,
        max(value) filter (printed_metric = 'words_per_phrase') as words
    from published where paper = '001' and table_ = 'Table 1' and variant like 'layer%' group by all
)
select label, ours.level, ours.phrases, ours.words, paper.phrases as published_phrases, paper.words as published_words,
    key
from ours left join paper on paper.level = ours.level and regexp_matches(label, '\b' || dataset || '\b')
order by label, key, ours.level
"""

# SQL: views of the file that `write_database` writes
VIEWS_OF_TABLES = {
    "counts": "select paper, verdict, count(*) as numbers from verdicts group by all order by all",
    "answers": "select paper, table_, system, variant, dataset, metric, printed, ours, half_width, seeds, verdict, reason "
    "from verdicts where ours is not null order by number",
    "levels_of_corpora": TABLE_1,
}
CHANGES = {"ALTER", "DELETE", "DROP", "INSERT", "MERGE_INTO", "UPDATE"}  # kinds of statements
MEMORY = "4GB"  # of a question
EMPTY = "the question is empty: ask one, like select * from verdicts"
T = TypeVar("T")


def query(store: Store, tracker: Tracker, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a question. ValueError: the question is wrong.

    Columns have unique names: the second `key` is `key_1`."""
    return answered(store, tracker, sql, _rows_of)


def _rows_of(connection: "DuckDBPyConnection", sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    connection.execute(sql)
    if connection.description is None:
        raise ValueError(EMPTY)
    return _unique([column[0] for column in connection.description]), connection.fetchall()


def arrow_of(connection: "DuckDBPyConnection", sql: str) -> pa.Table:
    """Return the answer to a question as an Arrow table. Whole numbers are int64 if all of a column fit."""
    if (relation := connection.sql(sql)) is None:
        raise ValueError(EMPTY)
    found = relation.to_arrow_table()
    return pa.table(list(map(_narrow, found.columns)), names=_unique(found.column_names))


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        with suppress(pa.ArrowInvalid):  # a number is too large
            return column.cast(pa.int64())
    return column


def answered(store: Store, tracker: Tracker, sql: str, ask: Callable[["DuckDBPyConnection", str], T]) -> T:
    """Return the result of `ask` for a question. ValueError: the question is wrong.

    The connection reads and writes no files, loads no extensions, and cannot be reconfigured. All views are listed. Views
    that the question does not name are empty, because building them takes time.
    """
    import duckdb

    if sql.encode(errors="ignore").decode() != sql:
        raise ValueError("the question is no UTF-8: write it again")
    empty = {name: schema_of(name).empty_table() for name in VIEWS}
    try:
        statements = duckdb.extract_statements(sql)
        if any(statement.type.name in CHANGES for statement in statements):
            raise ValueError("the question changes tables, which are copies: ask one, like select * from verdicts")
        if len(statements) > 1:
            raise ValueError(f"these are {len(statements)} questions: ask one at a time")
        if "pivot" not in sql.lower():  # whose columns are those of the rows
            _answer(empty, sql, ask)  # a mistake is found at once: to build a view may take seconds
        return _answer(empty | {name: _rows(name, store, tracker) for name in _named(sql)}, sql, ask)
    except duckdb.Error as error:
        raise ValueError(explained(str(error))) from error


def _named(sql: str) -> list[str]:
    """Return the views in a question. If DuckDB can't tell, those whose names occur in it, or all if it computes names."""
    import duckdb

    try:
        with duckdb.connect(":memory:") as connection:
            for name, view in VIEWS.items():
                columns = ", ".join(f'"{column}" {kind}' for column, kind in view.columns.items())
                connection.execute(f"create table {name} ({columns})")
            read = {name.lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:  # of a pivot, which is several statements, or of query_table
        computed = re.search(r"\bquery(_table)?\s*\(", sql.lower())
        read = {name for name in VIEWS if computed or name in sql.lower()}
    return [name for name in VIEWS if name in read]


def _answer(tables: dict[str, pa.Table], sql: str, ask: Callable[["DuckDBPyConnection", str], T]) -> T:
    import duckdb

    closed: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": "",
        "memory_limit": MEMORY,
    }
    with duckdb.connect(":memory:", config=closed) as connection:
        for name, rows in tables.items():  # not copied: a question reads the columns that it names, of mapped files
            connection.register(name, rows)
        connection.execute("set python_enable_replacements = false")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        with limited_memory():  # the rows of an answer are not DuckDB's
            return _interruptibly(connection, partial(ask, connection, sql))


def _interruptibly(connection: "DuckDBPyConnection", work: Callable[[], T]) -> T:
    """Return the result of `work`. Ctrl-C ends its question at once. DuckDB by itself may work for ever."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(work)
        try:
            while not wait([found], 0.1).done:  # the signal may reach another thread, which does not end this wait
                pass
            return found.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


LARGE = ("sentence_scores",)  # views of millions of rows, which are made only for a question that names them


def write_database(store: Store, tracker: Tracker, to: Path) -> Path:
    """Write all views but LARGE as tables of a DuckDB file, and VIEWS_OF_TABLES as its views. Return its path."""
    import duckdb

    if str(to).encode(errors="ignore").decode() != str(to):
        raise ValueError(f"{str(to)!r}: DuckDB takes no file whose name is not UTF-8: choose another name")
    try:
        # DuckDB writes a second file beside the first, and leaves it if the disk is full
        with atomic_replace(to) as path, tempfile.TemporaryDirectory(dir=to.parent, prefix=".") as folder:
            with duckdb.connect(Path(folder) / "views") as connection:
                _write_views(connection, store, tracker)
            os.replace(Path(folder) / "views", path)
    except duckdb.Error as error:
        raise OSError(f"{to} could not be written: {str(error).splitlines()[0].rpartition(': ')[2]}") from error
    return to


def _write_views(connection: "DuckDBPyConnection", store: Store, tracker: Tracker) -> None:
    for name, view in ((name, view) for name, view in VIEWS.items() if name not in LARGE):
        connection.register(f"_{name}", _rows(name, store, tracker))
        _interruptibly(connection, partial(connection.execute, f"create table {name} as select * from _{name}"))
        connection.unregister(f"_{name}")
        connection.execute(f"comment on table {name} is '{view.row.replace(chr(39), chr(39) * 2)}'")
    for name, question in VIEWS_OF_TABLES.items():
        connection.execute(f"create view {name} as {question}")


def write_shards(store: Store, to: str, force: bool = False) -> str:
    """Write the files of the view `shards` as Parquet below a folder or URL, by their column `parquet`. Return it.

    Their metadata has the terms of the corpora. ValueError: there are other files, and `force` is false.
    """
    from phrasemodels.data.store.shared import Bucket

    if "://" not in to:
        with writing_folder(Path(to), force) as folder:
            for name, table in _records(store):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_parquet(folder / name, table)
        return to
    bucket = Bucket(to)
    if bucket.listed() and not force:
        raise ValueError(f"{to}: holds files already; name another place, or use --force (in Python force=True)")
    with tempfile.TemporaryDirectory() as temporary:
        for name, table in _records(store):
            write_parquet(Path(temporary, "shard"), table)
            bucket.put(Path(temporary, "shard"), *name.split("/"))
    return to


def _records(store: Store) -> Iterator[tuple[str, pa.Table]]:
    """Yield the path of the Parquet file and the records of each shard in the store."""
    for artifact in store.all_artifacts():
        for shard in artifact.meta.get("shards", []):
            terms = {name: str(artifact.meta[name]) for name in ("licences", "redistributable", "stand_in")}
            yield (
                parquet_path(artifact, shard["file"]),
                read_shard(artifact.file(shard["file"])).replace_schema_metadata(terms),
            )


def _rows(view: str, store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of a view, by the function of its name."""
    rows: pa.Table = globals()[view](store, tracker)
    return rows


def _unique(names: list[str]) -> list[str]:
    """Number repeated names, in any case: key, Key, key_1 -> key, Key_2, key_1."""
    taken = {name.lower() for name in names}
    found: dict[str, str] = {}  # by the name in lower case
    for name in names:
        new, count = name, 0
        while new.lower() in found or (count and new.lower() in taken):
            count += 1
            new = f"{name}_{count}"
        found[new.lower()] = new
    return list(found.values())


def explained(error: str) -> str:
    """Return an error of DuckDB, with the nearest column or view, as one line with its place."""
    said, _, place = error.removeprefix("Binder Error: ").partition("\nLINE ")
    if said.startswith("Out of Memory"):
        return f"{said.splitlines()[0]}; a question may take {MEMORY}: ask for less at a time"
    where = place.partition(":")[2].partition("\n")[0].strip()
    return f"{' '.join(said.split())}{f', in: {where}' if where else ''}; `show tables` lists the views, `describe VIEW` the columns of one"


PACKAGES = {"polars": "polars", "pandas": "pandas", "arrow": "pyarrow"}  # of kinds, the preferred one first


def frame(question: str, kind: str = "") -> Any:
    """Return a view by name, or the answer to a query. ValueError: the kind is unknown or not installed, or the question
    is wrong."""
    chosen = kind or next(name for name, package in PACKAGES.items() if find_spec(package))
    if chosen not in PACKAGES:
        raise ValueError(f"kind {kind!r}: {closest(kind, PACKAGES)}")
    if not find_spec(PACKAGES[chosen]):
        raise ValueError(f"{chosen} is not installed: pip install {PACKAGES[chosen]}")
    if not isinstance(question, str):
        raise ValueError(f"{question!r} is no question: name a view, such as 'verdicts', or write a query")
    if question.isidentifier() and question not in VIEWS:
        raise ValueError(f"no view {question!r}: {closest(question, VIEWS)}")
    sql = f"select * from {question}" if question in VIEWS else question
    table = answered(*open_to_read(), sql, arrow_of)
    if chosen == "pandas":
        return table.to_pandas()
    if chosen == "polars":
        import polars

        return polars.from_arrow(table)
    return table


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
    """Return the levels of divided trees."""
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
CURVE = "history.json"  # of a training


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
    """Return the key of an experiment's rows: its name and the seed, or null if there is none."""
    seed = about.get("seed")
    return {"experiment": about.get("experiment"), "seed": None if seed is None else int(seed)}


def metrics(store: Store, tracker: Tracker) -> pa.Table:
    """Return the curves of trainings in the store, and at step 0 their final values and their scores on test."""
    lineage, run_ids = Lineage(store), tracker.keys()
    rows = []
    for artifact in lineage.artifacts.values():
        trained = artifact if "train_seconds" in artifact.meta else _training(lineage, artifact)
        if trained is None or "experiment" not in artifact.about:
            continue
        known = {"train_key": trained.key, "run_id": run_ids.get(trained.key), **_owner(artifact.about)}
        rows += [{**known, "metric": name, "step": step, "value": value} for name, step, value in _measured(artifact)]
    return table("metrics", rows)


def _measured(artifact: Artifact) -> Iterator[tuple[str, int, float | None]]:
    """Yield metric, step and value of a training or of scores."""
    meta = artifact.meta
    for name, score in meta.get("scores", {}).items():
        yield name, 0, score["value"]
    if "train_seconds" not in meta:
        return
    yield "best_dev_loss", 0, meta.get("dev_loss")
    for name in ("parameters", "train_seconds", "peak_memory_mib"):
        yield name, 0, meta.get(name)
    if CURVE not in artifact.manifest["files"]:
        return
    try:
        rows = json.loads(artifact.file(CURVE).read_bytes())
    except (OSError, ValueError):
        print(
            f"{artifact.manifest['label']}: its curve is lost or damaged: `phrasemodels store verify`", file=sys.stderr
        )
        return
    for row in rows:
        yield from ((name, int(row["step"]), value) for name, value in row.items() if name != "step")


def predictions(store: Store, tracker: Tracker) -> pa.Table:
    """Return the predictions of all problems. Missing columns of a problem are null."""
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
    """Return the columns of the gold and of the predicted answer of every problem with both."""
    from phrasemodels.flows.experiments.catalogue import experiments

    return sorted({pair for experiment in experiments() if (pair := experiment.recipe.answer_columns)})


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in another type. A single label becomes a list of one. A missing column is null."""
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, kind)
    column = rows[name]
    if pa.types.is_list(kind) and not pa.types.is_list(column.type):
        flat = column.combine_chunks().cast(pa.string())
        return pa.ListArray.from_arrays(pa.array(range(rows.num_rows + 1), pa.int32()), flat)
    return column.cast(kind)


def verdicts(store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of `phrasemodels verdicts`, one for each printed number."""
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
    """Return the rows of `phrasemodels verdicts --claims`, one for each claim."""
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
    """Return the columns of the file with other names in SQL: `table` is a word of the language, `metric` is ours."""
    return {"table_": row["table"], "printed_metric": row["metric"]}


def _numbers(row: Mapping[str, str]) -> dict[str, float | None]:
    return {name: float(row[name]) if row[name] else None for name in ("value", "stdev")}


def compared(store: Store, tracker: Tracker) -> pa.Table:
    """Return the rows of compared tables: of the store, each by its newest comparison, and of kept results.

    The reason says if the code or data of a row are older.
    """
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
    """Return the settings and the code of a training, the key of a pool."""
    return str((setting(trained), trained.manifest["parts"]["source"]))


def _stored(
    experiment: str,
    metric: str,
    groups: list[dict[int, tuple[float, str]]],
    compared: Mapping[int, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the row of the newest group of seeds. Its warning names the seeds in earlier ones alone.

    compared: the values by seed of a comparison with a diverged training.
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
    """Return the costs of trainings of kept results and of the store, a row for each, mean over its seeds."""
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
    """Return the paper, table, profile and row in the name of an experiment."""
    names = ("paper", "table_name", "profile", "row")
    return dict(zip(names, divided(experiment)[0].split("/", 3), strict=False))


def settings(store: Store, tracker: Tracker) -> pa.Table:
    """Return the settings of trainings, of the store and of kept results, by the names for `--set`."""
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
    """Return the settings of a training by the names for `--set`: train.steps, model.encoder.layers."""
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
    """Return the training of the scored model, if it is in the store."""
    found = (made for _, _, made, _ in lineage.back(scored) if isinstance(made, Artifact))
    return next((made for made in found if made.manifest["step"].startswith("train")), None)
