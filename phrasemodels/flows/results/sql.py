"""SQL over runs, artifacts and verdicts, in a DuckDB that reads nothing else and writes nothing; answers as DataFrames.

`run_id` is the key of a run in all views. The trainings of one experiment and seed with other workers or other code are
several runs. `experiment`, `seed`, `metric`, `paper`, `label` and `key` mean the same in all views, too, but `step`, `value`
and `reason` do not.
"""

import json
import math
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import phrasemodels.infra.environment  # noqa: F401
from phrasemodels import project
from phrasemodels.config import to_json
from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import read_shard, write_parquet
from phrasemodels.data.store.artifacts import Artifact, atomic_replace
from phrasemodels.data.store.disk_cache import cached_on_disk
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.published import divided, file_name, published_results, reading_lines
from phrasemodels.flows.results.judged import cached_kept, judged, problem_of
from phrasemodels.flows.results.lineage import setting
from phrasemodels.flows.results.records import SENTENCES, limited_memory, place_of
from phrasemodels.folders import writing_folder
from phrasemodels.infra.tracking import KEY, REASON, STATE, Run, Tracker, as_set
from phrasemodels.tasks.metrics.compare import finite
from phrasemodels.verdicts.scales import known, lower_is_better
from phrasemodels.verdicts.significance import seed_group

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class View:
    """A view: the meaning of a row, the type and meaning of each column, and its unique key.

    parents: other views by the columns that join them. Each value that is not null stands there.
    """

    row: str
    columns: dict[str, tuple[str, str]]
    key: tuple[str, ...]
    parents: dict[str, tuple[str, ...]]


def _read_views() -> dict[str, View]:
    """Return the views of views.toml. A line of its columns is NAME TYPE: MEANING."""
    views = {}
    for name, one in tomllib.loads(Path(__file__).with_name("views.toml").read_text(encoding="utf-8")).items():
        lines = (line.partition(": ") for line in one["columns"].strip().splitlines())
        columns = {said.split()[0]: (said.split()[1], meaning) for said, _, meaning in lines}
        parents = {view: tuple(joined.split()) for view, joined in one.get("parents", {}).items()}
        views[name] = View(one["row"], columns, tuple(one["key"].split()), parents)
    return views


VIEWS = _read_views()
TYPES = {
    "text": pa.string(),
    "double": pa.float64(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "text[]": pa.list_(pa.string()),
    "double[]": pa.list_(pa.float64()),
    "timestamp": pa.timestamp("ms"),
}


def schema_of(view: str) -> pa.Schema:
    """Return the columns of a view."""
    return pa.schema([(name, TYPES[kind]) for name, (kind, _) in VIEWS[view].columns.items()])


def table(view: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return a view of rows. Missing columns of a row are null, and other names are left out."""
    return pa.Table.from_pylist(list(rows), schema=schema_of(view))


def parquet_path(artifact: Artifact, file: str) -> str:
    """Return where `sql --shards` writes a file of an artifact: STEP/LABEL-KEY/FILE.parquet, of the key eight digits."""
    manifest = artifact.manifest
    return f"{manifest['step']}/{file_name(manifest['label'])}-{artifact.key[:8]}/{Path(file).stem}.parquet"


QUESTIONS = {"SELECT", "EXPLAIN", "MULTI"}  # kinds of statements that leave nothing behind; MULTI: a pivot
MEMORY = "4GB"  # of a question
CLOSED: dict[str, Any] = {  # a DuckDB that loads and writes nothing
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}
LOCKED = {"python_enable_replacements": "false", "enable_external_access": "false", "lock_configuration": "true"}
EMPTY = "the question is empty: ask one, like select * from verdicts"
WHERE = "`show tables` lists the views, `describe VIEW` the columns of one"
PACKAGES = {"polars": "polars", "pandas": "pandas", "arrow": "pyarrow"}  # of kinds, the preferred one first
T = TypeVar("T")


class Answers:
    """The results at one moment, in a DuckDB that reads no other files and writes none.

    A view is made when a question first names it, and kept for the next ones.
    """

    def __init__(self, store: Store, tracker: Tracker) -> None:
        import duckdb

        self._made, self._data = set[str](), Data(store, tracker)
        self._names = duckdb.connect(":memory:")
        self._views = duckdb.connect(":memory:", config=CLOSED | {"memory_limit": MEMORY})
        for name, view in VIEWS.items():
            columns = ", ".join(f'"{column}" {kind}' for column, (kind, _) in view.columns.items())
            self._names.execute(f"create table {name} ({columns})")
            self._views.register(name, schema_of(name).empty_table())
        for name, value in LOCKED.items():
            self._views.execute(f"set {name} = {value}")

    def __enter__(self) -> "Answers":
        return self

    def __exit__(self, *_: object) -> None:
        self._names.close()
        self._views.close()

    def ask(self, question: str, kind: str = "") -> Any:
        """Return a view by its name, or the answer to a query, as a DataFrame.

        Args:
            kind: polars, pandas or arrow. Default: the first installed one.

        Raises:
            ValueError: The kind is unknown or not installed, or the question is wrong.
        """
        chosen = kind or next(name for name, package in PACKAGES.items() if find_spec(package))
        if chosen not in PACKAGES:
            raise ValueError(f"kind {kind!r}: {closest(kind, PACKAGES)}")
        if not find_spec(PACKAGES[chosen]):
            raise ValueError(f"{chosen} is not installed: pip install {PACKAGES[chosen]}")
        if not isinstance(question, str):
            raise ValueError(f"{question!r} is no question: name a view, such as 'verdicts', or write a query")
        if question.isidentifier() and question not in VIEWS:
            raise ValueError(f"no view {question!r}: {closest(question, VIEWS)}")
        table = self.answer(f"select * from {question}" if question in VIEWS else question, arrow_of)
        if chosen == "pandas":
            import pandas as pd

            return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)  # null makes no float of a count
        if chosen == "polars":
            import polars

            return polars.from_arrow(table)
        return table

    def answer(self, sql: str, ask: "Callable[[DuckDBPyConnection, str], T]") -> T:
        """Return the result of `ask` for a question. ValueError: the question is wrong."""
        import duckdb

        if sql.encode(errors="ignore").decode() != sql:
            raise ValueError("the question is no UTF-8: write it again")
        if described := DESCRIBED.fullmatch(sql):
            sql = _columns_of(described[1].lower())
        try:
            statements = duckdb.extract_statements(sql)
            if not statements:
                raise ValueError(EMPTY)
            if any(statement.type.name not in QUESTIONS for statement in statements):
                raise ValueError(f"only questions are answered: ask one, like select * from verdicts; {WHERE}")
            if len(statements) > 1:
                raise ValueError(f"these are {len(statements)} questions: ask one at a time")
            if new := self._named(sql):
                if statements[0].type.name == "SELECT" and "pivot" not in sql.lower():  # whose columns are its rows
                    self._views.execute(f"explain {sql}")  # a mistake is found at once: to make a view may take seconds
                for name in new:  # not copied: a question reads the columns that it names
                    self._views.register(name, _rows(name, self._data))
                    self._made.add(name)
            self._views.begin()
            try:
                with limited_memory():  # the rows of an answer are not DuckDB's
                    return _interruptibly(self._views, partial(ask, self._views, sql))
            finally:
                self._views.rollback()  # `explain analyze` does what it explains
        except duckdb.Error as error:
            raise ValueError(explained(str(error))) from error

    def _named(self, sql: str) -> list[str]:
        """Return the views that a question names and that aren't made.

        If DuckDB can't tell, they are those whose names occur in it, or all if it computes names.
        """
        import duckdb

        try:
            read = {name.lower() for name in self._names.get_table_names(sql)}
        except duckdb.Error:  # of a pivot, which is several statements, or of query_table
            computed = re.search(r"\bquery(_table)?\s*\(", sql.lower())
            read = {name for name in VIEWS if computed or name in sql.lower()}
        return [name for name in VIEWS if name in read - self._made]


DESCRIBED = re.compile(rf"\s*(?:describe|desc)\s+({'|'.join(VIEWS)})\s*;?\s*", re.IGNORECASE)


def _columns_of(view: str) -> str:
    """Return the question whose answer is the columns of a view, with their types and meanings."""
    key, quote = VIEWS[view].key, str.maketrans({"'": "''"})
    rows = (
        f"('{name}', '{kind}', '{'key' if name in key else ''}', '{meaning.translate(quote)}')"
        for name, (kind, meaning) in VIEWS[view].columns.items()
    )
    return f"select * from (values {', '.join(rows)}) as t(column_name, column_type, key, meaning)"


def query(store: Store, tracker: Tracker, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a question. ValueError: the question is wrong.

    Columns have unique names: the second `key` is `key_1`."""
    with Answers(store, tracker) as answers:
        return answers.answer(sql, _rows_of)


def _rows_of(connection: "DuckDBPyConnection", sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    connection.execute(sql)
    return _unique([column[0] for column in connection.description or ()]), connection.fetchall()


def arrow_of(connection: "DuckDBPyConnection", sql: str) -> pa.Table:
    """Return the answer to a question as an Arrow table. Whole numbers are int64 if all of a column fit."""
    found = connection.sql(sql).to_arrow_table()
    return pa.table(list(map(_narrow, found.columns)), names=_unique(found.column_names))


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_decimal(column.type) and column.type.scale == 0:
        with suppress(pa.ArrowInvalid):  # a number is too large
            return column.cast(pa.int64())
    return column


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
    """Write all views but LARGE as tables of a DuckDB file, with comments on tables and columns. Return its path."""
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
    data, quote = Data(store, tracker), str.maketrans({"'": "''"})
    for name, view in ((name, view) for name, view in VIEWS.items() if name not in LARGE):
        connection.register(f"_{name}", _rows(name, data))
        _interruptibly(connection, partial(connection.execute, f"create table {name} as select * from _{name}"))
        connection.unregister(f"_{name}")
        connection.execute(f"comment on table {name} is '{view.row.translate(quote)}'")
        for column, (_, meaning) in view.columns.items():
            connection.execute(f"comment on column {name}.{column} is '{meaning.translate(quote)}'")


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
        for shard in _shards_of(artifact):
            terms = {name: str(artifact.meta[name]) for name in ("licences", "redistributable", "stand_in")}
            records = read_shard(artifact.file(shard["file"])).replace_schema_metadata(terms)
            yield parquet_path(artifact, shard["file"]), records


def _shards_of(artifact: Artifact) -> list[dict[str, Any]]:
    """Return file, rows, schema and content of each file of records, as far as its step names them."""
    if PREDICTIONS not in artifact.manifest["files"]:
        return list(artifact.meta.get("shards", []))
    return [{"file": PREDICTIONS, **artifact.meta.get("predictions", {})}]


class Data:
    """What the views are made of. Each part is read once."""

    def __init__(self, store: Store, tracker: Tracker) -> None:
        self.store, self.tracker = store, tracker
        self._trainings: dict[str, Artifact | None] = {}

    @cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """The artifacts of the store by key, oldest first."""
        return {artifact.key: artifact for artifact in self.store.indexed()}

    @cached_property
    def run_ids(self) -> dict[str, str]:
        """MLflow's runs by the keys of their trainings."""
        return self.tracker.keys()

    @cached_property
    def comparisons(self) -> list[Artifact]:
        """Compared tables in the store, oldest first."""
        return [artifact for artifact in self.artifacts.values() if artifact.manifest["step"] == "compare"]

    @cached_property
    def of_experiments(self) -> list[tuple[str, Artifact, Artifact | None]]:
        """The trainings and scores of experiments, each with the training in the store that it is of, oldest first."""
        found = (artifact for artifact in self.artifacts.values() if "experiment" in artifact.about)
        found = (artifact for artifact in found if artifact.meta.keys() & {"train_seconds", "scores"})
        return [(artifact.about["experiment"], artifact, self.training(artifact)) for artifact in found]

    @cached_property
    def catalogue(self) -> dict[str, Any]:
        """What is known of all experiments of today."""
        return dict(cached_on_disk("experiments of views", None, _catalogue))

    @cached_property
    def recipes(self) -> dict[str, dict[str, str]]:
        """The settings of the recipe of each trained experiment of today."""
        return dict(cached_on_disk("recipes of views", None, _recipes))

    @cached_property
    def problems(self) -> dict[str, list[str]]:
        """The problem and the corpus of each experiment of today, of kept results and of the store's changed recipes."""
        kept = {row["experiment"]: row["problem"] for row in self.kept}
        names = {name for name, *_ in self.of_experiments}
        changed = sorted(one for one in names - kept.keys() if any(map(_of_recipe, divided(one)[1])))
        found = cached_on_disk("problems of views", changed, partial(_problems, changed)) if changed else {}
        return kept | dict(self.catalogue["problems"]) | found

    @cached_property
    def kept(self) -> list[dict[str, Any]]:
        """The rows of kept results."""
        return cached_kept()

    @cached_property
    def kept_experiments(self) -> list[dict[str, Any]]:
        """A row of each experiment of each kept result. All rows of an experiment have the same trainings."""
        return list({(row["origin"], row["experiment"]): row for row in reversed(self.kept)}.values())[::-1]

    def training(self, artifact: Artifact) -> Artifact | None:
        """Return the training behind an artifact, if it is in the store."""
        if artifact.manifest["step"].startswith("train"):
            return artifact
        if artifact.key not in self._trainings:
            inputs = (self.artifacts.get(key) for key in artifact.manifest["parts"]["inputs"].values())
            made = (trained for one in inputs if one is not None and (trained := self.training(one)))
            self._trainings[artifact.key] = next(made, None)
        return self._trainings[artifact.key]

    def recipe(self, experiment: str) -> dict[str, str]:
        """Return the settings of the recipe of an experiment of today, with those that its name overrides."""
        name, changes = divided(experiment)
        changed = dict(change.split("=", 1) for change in changes if _of_recipe(change))
        return self.recipes.get(name, {}) | changed

    def place(self, experiment: str) -> dict[str, str]:
        """Return the parts of an experiment's name, with its problem and corpus."""
        name = divided(experiment)[0]
        known = self.problems.get(experiment) or self.problems.get(name) or ()
        parts = dict(zip(("paper", "table_name", "profile", "row"), name.split("/", 3), strict=False))
        return parts | dict(zip(("problem", "corpus"), known, strict=False))


def _catalogue() -> dict[str, Any]:
    """Return the problem and the corpus of each experiment, and the columns of the gold and of the predicted answer of problems."""
    from phrasemodels.flows.experiments.catalogue import PAPERS, experiments

    known = experiments()
    return {
        "papers": [*PAPERS],
        "problems": {experiment.name: problem_of(experiment) for experiment in known},
        "answers": sorted({pair for experiment in known if (pair := experiment.recipe.answer_columns)}),
    }


def _of_recipe(change: str) -> bool:
    return change.startswith("recipe.")


def _problems(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the problem and the corpus of each experiment whose name has changes, as far as they exist today."""
    from phrasemodels.flows.experiments.catalogue import experiments
    from phrasemodels.flows.experiments.overrides import overridden

    known, found = {experiment.name: experiment for experiment in experiments()}, {}
    for name, (base, changes) in ((name, divided(name)) for name in names):
        with suppress(ValueError, KeyError):
            found[name] = problem_of(overridden(known[base], *changes))
    return found


def _recipes() -> dict[str, dict[str, str]]:
    from phrasemodels.flows.experiments.catalogue import experiments

    return {one.name: as_set({"recipe": to_json(one.recipe)}) for one in experiments() if one.recipe.trains}


def _rows(view: str, data: Data) -> pa.Table:
    """Return the rows of a view, by the function of its name."""
    rows: pa.Table = globals()[view](data)
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
    if lost := re.match(r'Referenced column "(\w+)" not found', said):
        others = [name for name, view in VIEWS.items() if lost[1].lower() in view.columns]
        said += f"; {lost[1]} is a column of {', '.join(others)}" * bool(others)
    where = place.partition(":")[2].partition("\n")[0].strip().removeprefix("explain ")
    return f"{' '.join(said.split())}{f', in: {where}' if where else ''}; {WHERE}"


def shards(data: Data) -> pa.Table:
    """Return the files of records in the store, predictions too."""
    rows = (
        {
            "step": a.manifest["step"],
            "label": a.manifest["label"],
            **{k: shard.get(k) for k in ("file", "rows", "content")},
            "columns": [column.partition(": ")[0] for column in shard["schema"]] if "schema" in shard else None,
            "licences": ", ".join(a.meta["licences"]),
            "redistributable": a.meta["redistributable"],
            "stand_in": a.meta["stand_in"],
            "key": a.key,
            "parquet": parquet_path(a, shard["file"]),
        }
        for a in data.artifacts.values()
        for shard in _shards_of(a)
    )
    return table("shards", rows)


STORE = "store"  # origin of results that are not kept
CURVE, PREDICTIONS = "history.json", "predictions.arrow"  # files of a training, and of its answers


def runs(data: Data) -> pa.Table:
    """Return MLflow's runs."""
    return table("runs", map(_run, data.tracker.listed()))


def _run(run: Run) -> dict[str, Any]:
    tags, trains = run.tags, "seed" in run.tags
    return {
        **{name: tags.get(name) for name in ("paper", "profile", "corpus", "workers", "commit")},
        **_owner(tags),
        "run_id": run.run_id,
        "run_name": run.name,
        "kind": tags.get("phrasemodels.kind"),
        "status": run.status,
        "state": tags.get(STATE),
        "failure": tags.get(REASON),
        "row": divided(tags["experiment"])[0].split("/", 3)[-1] if "experiment" in tags else None,
        "train_key": tags.get(KEY) if trains else None,
        "started": run.started,
        "seconds": (run.ended - run.started) / 1000 if run.ended and run.started else None,
    }


def _owner(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of an experiment's rows: its name and the seed, or null if there is none."""
    seed = about.get("seed")
    return {"experiment": about.get("experiment"), "seed": None if seed is None else int(seed)}


def metrics(data: Data) -> pa.Table:
    """Return the curves of trainings in the store, and at step 0 their final values and their scores on test."""
    rows = {}  # the newest of several scores, as by new code
    for experiment, artifact, trained in data.of_experiments:
        if trained is None:
            continue
        known = {"train_key": trained.key, "run_id": data.run_ids.get(trained.key), **_owner(artifact.about)}
        for name, step, value in _measured(artifact):
            rows[trained.key, experiment, name, step] = {**known, "metric": name, "step": step, "value": value}
    return table("metrics", rows.values())


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


def predictions(data: Data) -> pa.Table:
    """Return the predictions of all problems. Missing columns of a problem are null."""
    schema = schema_of("predictions")
    found = [schema.empty_table()]
    pairs = [tuple(pair) for pair in data.catalogue["answers"]]
    for artifact in data.artifacts.values():
        model = artifact.manifest["parts"]["inputs"].get("model")
        if model is None or PREDICTIONS not in artifact.manifest["files"]:
            continue
        rows = read_shard(artifact.file(PREDICTIONS))
        answers = next((pair for pair in pairs if set(pair) <= set(rows.column_names)), None)
        names = {"grp": "group", **(dict(zip(("reference", "hypothesis"), answers, strict=True)) if answers else {})}
        known: dict[str, Any] = {**_owner(artifact.about), "train_key": model, "key": artifact.key}
        known["run_id"] = data.run_ids.get(model)
        known |= {"licences": ", ".join(artifact.meta["licences"]), "redistributable": artifact.meta["redistributable"]}
        arrays = [
            pa.repeat(pa.scalar(known[field.name], field.type), rows.num_rows)
            if field.name in known
            else _column(rows, names.get(field.name, field.name), field.type)
            for field in schema
        ]
        found.append(pa.table(arrays, schema=schema))
    return pa.concat_tables(found)


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Return a column in another type. A single label becomes a list of one. A missing column is null."""
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, kind)
    column = rows[name]
    if pa.types.is_list(kind) and not pa.types.is_list(column.type):
        flat = column.combine_chunks().cast(pa.string())
        return pa.ListArray.from_arrays(pa.array(range(rows.num_rows + 1), pa.int32()), flat)
    return column.cast(kind)


def verdicts(data: Data) -> pa.Table:
    """Return the rows of `phrasemodels verdicts`, one for each printed number."""
    lines = judged(data.store, data.tracker)
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
    line = {**line, **_identity(line), "number": number, "readings": reading_lines(line)}
    return {**line, **{name: text or None for name, text in ours.items()}}


def claims(data: Data) -> pa.Table:
    """Return the rows of `phrasemodels verdicts --claims`, one for each claim."""
    rows = []
    for one in judged(data.store, data.tracker, claims=True):
        elsewhere = [f"{other['verdict']}: {other['reason']}" for other in one["elsewhere"]]
        texts = {"readings": reading_lines(one), "elsewhere": elsewhere, "origin": one["source"]}
        rows.append({**one, **_identity(one), "seeds": min(one["seeds"], default=0), **texts})
    return table("claims", rows)


def published(data: Data) -> pa.Table:
    """Return data/published_results.csv, its values as numbers."""
    rows = enumerate(published_results(), 1)
    numbers = ("value", "stdev")
    return table(
        "published",
        (
            {**row, **_identity(row), "number": n, **{one: float(row[one]) if row[one] else None for one in numbers}}
            for n, row in rows
        ),
    )


def _identity(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the file with other names in SQL: `table` is a word of the language, `metric` is ours."""
    return {"table_": row["table"], "printed_metric": row["metric"]}


def compared(data: Data) -> pa.Table:
    """Return the rows of compared tables: of the store, each by its newest comparison, and of kept results.

    The reason says if the code or data of a row are older.
    """
    older: dict[tuple[str, str, str], str] = {}
    if project.parts("papers"):
        from phrasemodels.flows.results.results import older_code, stored_results  # imports torch

        for r in stored_results(data.store, {}):
            older[r.source, r.experiment.name, r.row["metric"]] = older_code(r.experiment, r.row["code"])
    rows = {
        (artifact.meta["title"], row["experiment"], row["metric"]): {
            **_compared(row, older.get((artifact.key, row["experiment"], row["metric"]), "")),
            "title": artifact.meta["title"],
            "origin": STORE,
        }
        for artifact in data.comparisons  # oldest first
        for row in artifact.meta["rows"]
    }
    kept = ({**_compared(row, row["older"]), "title": row["title"], "origin": row["origin"]} for row in data.kept)
    return table("compared", ({**row, **data.place(row["experiment"])} for row in (*rows.values(), *kept)))


def _compared(row: Mapping[str, Any], older: str) -> dict[str, Any]:
    ours, against = row["intervals"][row["metric"]], row["against"]
    found = against["differences"][row["metric"]] if against else {}
    return {
        **row,
        "row_verdict": row["verdict"],
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


def seeds(data: Data) -> pa.Table:
    """Return each metric over the seeds of an experiment: of kept results, and of the store's newest settings and code."""
    compared_rows = [row for artifact in data.comparisons for row in artifact.meta["rows"]]  # the newest last
    answers = [*({"origin": STORE, **row} for row in compared_rows), *data.kept]
    exact = {(one["origin"], one["experiment"], one["metric"]) for one in answers if one.get("exact")}
    of_papers = [one for one in answers if one["experiment"].partition("/")[0] in data.catalogue["papers"]]
    shares = {one["metric"] for one in of_papers if not one.get("exact")} - {metric for *_, metric in exact}
    trained_rows = {(STORE, name) for name, _, trained in data.of_experiments if trained}
    trained_rows |= {(one["origin"], one["experiment"]) for one in data.kept if one["training"]}
    counted = {place[:2] for place in exact} - trained_rows
    rows = []
    for place, metric, found in (*_stored_seeds(data), *_kept_seeds(data)):
        scale = _scale(metric, shares)
        row = {"origin": place[0], "experiment": place[1], "metric": metric, **found.over(scale)}
        if place in counted or (*place, metric) in exact:
            row["warning"] = ""  # one seed is enough
        rows.append(row | data.place(row["experiment"]))
    return table("seeds", rows)


@dataclass(frozen=True)
class _Scale:
    """What a metric's name says: the kind of its scale as `known` does, and whether more is better. Empty and None: nothing."""

    kind: str
    higher_is_better: bool | None

    @property
    def worst(self) -> float | None:
        """The value of a diverged seed. None: the scale has no worst end."""
        return None if self.kind in ("", "positive") else 100.0 if self.higher_is_better is False else 0.0


def _scale(metric: str, shares: Collection[str]) -> _Scale:
    """Return the scale of a metric. shares: metrics of papers, which are percentages unless their names say otherwise."""
    parts = (metric, *reversed(metric.split("/")))
    less = next((one for part in parts if (one := lower_is_better(part)) is not None), None)
    share = metric in shares or metric.partition("/")[0] in shares
    kind = next(filter(None, (known(part).kind for part in parts)), "fraction" * share)
    return _Scale(kind, (True if share else None) if less is None else not less)


@dataclass(frozen=True)
class _Seeds:
    """The values of seeds of one setting and code, which seeds diverged, and those that other settings or code had alone."""

    values: Mapping[int, tuple[float, str]]  # with MLflow's run
    diverged: Collection[int] = ()
    left: Collection[int] = ()

    def over(self, scale: _Scale) -> dict[str, Any]:
        """Return the metric over the seeds, its interval within the scale. Diverged ones have the worst value, if there is one."""
        lost, ended = len(self.diverged), [one for seed, one in self.values.items() if seed not in self.diverged]
        worst = [] if scale.worst is None else [scale.worst]
        group = _group([*(value for value, _ in ended), *worst * lost])
        least, most = LIMITS.get(scale.kind, (-math.inf, math.inf))
        if group["low"] is not None:
            group |= {"low": max(group["low"], least), "high": min(group["high"], most)}
        counted = "the worst value" if worst else "no value, as the metric has no known worst"
        said = f"{lost} of {lost + len(ended)} seeds diverged and have {counted}" * bool(lost)
        left = f"seeds {', '.join(map(str, sorted(self.left)))} are of earlier settings or code and left out"
        warning = "; ".join(filter(None, (group["warning"], said, left * bool(self.left))))
        runs = [run_id for _, run_id in ended if run_id]
        about = {"higher_is_better": scale.higher_is_better, "diverged": lost, "warning": warning, "run_ids": runs}
        return {**group, **about}


Found = tuple[tuple[str, str], str, _Seeds]  # origin and experiment, metric, its seeds


def _stored_seeds(data: Data) -> Iterator[Found]:
    values: dict[tuple[str, str], dict[str, dict[int, tuple[float, str]]]] = {}
    for experiment, artifact, trained in data.of_experiments:
        made, run_id = (_made_by(trained), data.run_ids.get(trained.key, "")) if trained else ("", "")
        for metric, score in artifact.meta.get("scores", {}).items():
            groups = values.setdefault((experiment, metric), {})
            groups[made] = groups.pop(made, {}) | {int(artifact.about["seed"]): (score["value"], run_id)}
    for row in (row for artifact in data.comparisons for row in artifact.meta["rows"] if row.get("diverged")):
        values.setdefault((row["experiment"], row["metric"]), {})
    ended = _ended(data)
    for (experiment, metric), groups in values.items():
        yield (STORE, experiment), metric, _newest(groups, ended.get(experiment, {}))


def _ended(data: Data) -> dict[str, dict[str, dict[int, bool]]]:
    """Return whether each seed of an experiment ended or diverged, by its settings and code, the newest last.

    A comparison all of whose seeds diverged tells no settings. They are "".
    """
    scored = {artifact.key: one for one in data.of_experiments if "scores" in (artifact := one[1]).meta}
    ended: dict[str, dict[str, dict[int, bool]]] = {}

    def add(experiment: str, made: str, seeds: dict[int, bool]) -> None:
        groups = ended.setdefault(experiment, {})
        groups[made] = groups.pop(made, {}) | seeds

    for key, artifact in data.artifacts.items():  # oldest first
        if key in scored:
            experiment, _, trained = scored[key]
            add(experiment, _made_by(trained) if trained else "", {int(artifact.about["seed"]): True})
        for row in artifact.meta["rows"] if artifact.manifest["step"] == "compare" else ():
            name, lost = row["experiment"], row.get("diverged", ())
            inputs = (artifact.manifest["parts"]["inputs"][f"{name} seed {seed}"] for seed in row["seeds"])
            trainings = (scored[one][2] for one in inputs if one in scored)
            if lost:
                add(name, next((_made_by(one) for one in trainings if one), ""), dict.fromkeys(lost, False))
    return ended


def _newest(groups: dict[str, dict[int, tuple[float, str]]], ended: dict[str, dict[int, bool]]) -> _Seeds:
    """Return the seeds of the newest settings and code.

    Args:
        groups: Values by settings and code, the newest last.
        ended: As `_ended` returns it. Seeds of unknown settings are of the newest, unless one of them ended there.
    """
    made = next(reversed(groups), "")
    newest, own, unknown = groups.get(made, {}), ended.get(made, {}), ended.get("", {})
    if any(own.get(seed) for seed in unknown if not unknown[seed]):
        made, newest, own = ("", {}, unknown) if next(reversed(ended)) == "" else (made, newest, own)
    else:
        own = {**unknown, **own}
    lost = {seed for seed, well in own.items() if not well}
    earlier = {seed for one, group in groups.items() if one != made for seed in group}
    return _Seeds(newest, lost, earlier - newest.keys() - lost)


def _kept_seeds(data: Data) -> Iterator[Found]:
    """Yield the seeds of kept results. A row with a diverged seed has its own metric alone."""
    rows = {
        ((row["origin"], row["experiment"]), metric): row for row in reversed(data.kept) for metric in row["values"]
    }
    for (place, metric), row in reversed(rows.items()):
        values = {seed: (value, "") for seed, value in zip(row["seeds"], row["values"][metric], strict=True)}
        yield place, metric, _Seeds(values, row.get("diverged", ()))


LIMITS = {
    "fraction": (0.0, 100.0),
    "correlation": (-100.0, 100.0),
    "error": (0.0, math.inf),
    "positive": (0.0, math.inf),
}


def _made_by(trained: Artifact) -> str:
    """Return the settings and the code of a training, the key of a pool."""
    return str((setting(trained), trained.manifest["parts"]["source"]))


def _group(values: Sequence[float]) -> dict[str, Any]:
    group = seed_group(values or [math.nan])
    limits = {"low": group.mean - group.half_width, "high": group.mean + group.half_width}
    return finite({**asdict(group), "warning": group.warning, **limits, "n": len(values)})


def experiments(data: Data) -> pa.Table:
    """Return the experiments of kept results and of the store, with their costs as means over their seeds."""
    names = schema_of("experiments").names
    rows = [
        {"experiment": row["experiment"], "origin": row["origin"], "seeds": len(row["seeds"])}
        | {name: row["training"][name] for name in names if name in row["training"]}
        for row in data.kept_experiments
    ]
    # of trainings by their settings and code, the newest last
    groups: dict[str, dict[str, dict[str, Mapping[str, Any]]]] = {}
    for name, _, trained in data.of_experiments:
        own = groups.setdefault(name, {})
        if trained and "train_seconds" in trained.meta:
            made = _made_by(trained)
            own[made] = own.pop(made, {}) | {trained.key: trained.meta}
    for artifact in data.comparisons:  # a row all of whose trainings diverged
        for row in artifact.meta["rows"]:
            groups.setdefault(row["experiment"], {})
    for name, own in groups.items():
        metas = [*[{}, *own.values()][-1].values()]
        means = {
            one: float(np.mean([meta[one] for meta in metas])) if metas else None
            for one in ("train_seconds", "peak_memory_mib", "steps")
        }
        known = {"parameters": metas[0]["parameters"], "steps": round(means["steps"] or 0)} if metas else {}
        rows.append({"experiment": name, "origin": STORE, "seeds": len(metas), **means, **known})
    return table("experiments", ({**row, **data.place(row["experiment"])} for row in rows))


def sentence_scores(data: Data) -> pa.Table:
    """Return the statistics of each test sentence of kept results, by seed."""
    names, parts = schema_of("sentence_scores").names, []
    for origin in dict.fromkeys(row["origin"] for row in data.kept_experiments):
        named = {
            row["sentences"]["row"]: row["experiment"]
            for row in data.kept_experiments
            if row["origin"] == origin and row["sentences"]
        }
        if not named:
            continue
        found = read_shard(place_of(origin.removeprefix("results/")) / SENTENCES)
        rows = found["row"].combine_chunks().dictionary_encode()
        experiments = pa.array([named.get(row) for row in rows.dictionary.to_pylist()], pa.string())
        experiment = pa.DictionaryArray.from_arrays(rows.indices, experiments)
        group = found["group"].combine_chunks().dictionary_encode()
        about = [experiment, found["seed"].combine_chunks(), found["id"].combine_chunks(), group]
        for statistic in found.column_names[4:]:
            values = found[statistic].combine_chunks()
            own = pc.and_(values.is_valid(), pc.is_in(rows, value_set=pa.array(list(named))))
            values = values.filter(own)
            if not pa.types.is_list(values.type):
                values = pa.FixedSizeListArray.from_arrays(values, 1)
            values, zeros = values.cast(pa.list_(pa.float64())), pa.repeat(pa.scalar(0, pa.int32()), len(values))
            name, place = (pa.DictionaryArray.from_arrays(zeros, pa.array([text])) for text in (statistic, origin))
            parts.append(pa.table([*(one.filter(own) for one in about), name, values, place], names=names))
    return pa.concat_tables(parts).unify_dictionaries() if parts else schema_of("sentence_scores").empty_table()


def settings(data: Data) -> pa.Table:
    """Return the settings of trainings, of the store and of kept results, by the names for `--set`."""
    found = {(name, STORE): one.manifest["parts"]["settings"] for name, _, one in data.of_experiments if one}
    found |= {(row["experiment"], row["origin"]): row["settings"] for row in data.kept_experiments}
    rows = ((key, (as_set(own) | data.recipe(key[0])).items()) for key, own in found.items())
    return table(
        "settings",
        (
            {"experiment": experiment, "origin": origin, "name": name, "value": value}
            for (experiment, origin), own in rows
            for name, value in own
        ),
    )
