"""Read scores for `judge` from files of other tools and from MLflow."""

import hashlib
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemodels.data.formats.shards import check_unpacked
from phrasemodels.infra.tracking import KEY, Tracker, readable
from phrasemodels.saved import first_line
from phrasemodels.verdicts.cells import content
from phrasemodels.verdicts.printed import Printed, read_printed
from phrasemodels.verdicts.readers import READERS, from_table, read
from phrasemodels.verdicts.scales import SCALES, is_setting
from phrasemodels.verdicts.scores import Observation, Scores, collected
from phrasemodels.verdicts.tables import OURS, Fold, Names, Row, Table, fold_of, folded, folded_metric, roles_of

# parameters of an MLflow run that name its row, the first that it has
ROWS_OF_RUNS = ("row", "system", "model", "model_name")
SEEDS_OF_RUNS = ("seed", "random_seed", "random_state")
SYSTEM = "system/"  # metrics of the machine
SCHEMES = ("sqlite", "file", "http", "https", "postgresql", "mysql", "mssql", "databricks")
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


@dataclass
class Both:
    """Printed numbers and our scores as read from files. unread: one line for each unread part."""

    printed: list[Printed]
    scores: list[Scores]
    unread: list[str]


def read_both(
    printed: Path,
    sources: Sequence[str],
    names: Names | None = None,
    scales: Mapping[str, str] | None = None,
    better: Mapping[str, str] | None = None,
) -> Both:
    """Return the printed numbers of a file and the scores of files, folders and MLflow.

    Args:
        printed: A table of printed numbers.
        sources: As in `read_scores`.
        names: Names missing in the files.
        scales: Stated scales by metric.
        better: Stated directions by metric, lower or higher.

    Raises:
        ValueError: A source cannot be read, or a statement is of no printed metric.
    """
    unread: list[str] = []
    names = names or Names()
    numbers = read_printed(printed, names, unread)
    stated: list[tuple[str, str, str, dict[str, Any]]] = [
        ("--scale", metric, scale, {"scale": scale}) for metric, scale in (scales or {}).items()
    ]
    for metric, scale in (scales or {}).items():
        if scale not in SCALES:
            raise ValueError(f"--scale {metric}={scale}: must be {', '.join(SCALES)}")
    for metric, way in (better or {}).items():
        if way not in ("lower", "higher"):
            raise ValueError(f"--better {metric}={way}: must be lower or higher")
        stated.append(("--better", metric, way, {"lower_is_better": way == "lower"}))
    for option, metric, said, change in stated:
        named = [folded_metric(one.metric) == folded_metric(metric) for one in numbers]
        if not any(named):
            known = ", ".join(dict.fromkeys(one.metric for one in numbers))
            raise ValueError(f"{option} {metric}={said}: no such metric is printed; printed are {known[:200]}")
        numbers = [replace(one, **change) if of else one for one, of in zip(numbers, named, strict=True)]
    known_names = names._replace(
        systems=frozenset(folded(one.our_row or one.row) for one in numbers),
        datasets=frozenset(folded(one.our_dataset or one.dataset) for one in numbers),
        metrics=frozenset(folded_metric(one.our_metric or one.metric) for one in numbers),
    )
    fold = fold_of(
        [(one.our_row or one.row, one.our_dataset or one.dataset, one.our_metric or one.metric) for one in numbers]
    )
    itself = hashlib.sha256(content(printed)).digest()
    scores = read_scores(sources, lambda metric: folded_metric(metric) in known_names.metrics, known_names, unread, itself, fold)
    return Both(numbers, scores, unread)


def read_scores(
    sources: Sequence[str],
    is_printed: Callable[[str], bool] | None = None,
    names: Names | None = None,
    unread: list[str] | None = None,
    itself: bytes = b"",
    fold: Fold | None = None,
) -> list[Scores]:
    """Return the scores in files and folders, and in databases of MLflow named by URIs or folders.

    Args:
        sources: Files, folders and URIs.
        is_printed: Whether a metric is a printed one, see `collected`.
        names: Names missing in the files.
        unread: Gets a line for each unread file, line or run.
        itself: As in `read`.
        fold: As in `collected`.

    Raises:
        ValueError: A source cannot be read, or seeds have different items.
    """
    left, taken = [] if unread is None else unread, set[Path]()
    found = (
        from_mlflow(uri, left) if (uri := _tracking(source)) else read(Path(source), ALL_READERS, names, left, itself, taken)
        for source in sources
    )
    every: Iterator[Observation] = chain.from_iterable(found)
    if of := tuple(f"{name} " for name in names.same) if names else ():
        every = (one._replace(setting="; ".join(part for part in one.setting.split("; ") if not part.startswith(of))) for one in every)
    try:
        return collected(every, is_printed, left, fold)
    except ValueError as error:
        if any(source in str(error) for source in sources):
            raise
        raise ValueError(f"{', '.join(sources)[:200]}: {error}") from error


def _tracking(source: str) -> str:
    """Return the URI of MLflow's runs in a source, or an empty text for a file or folder of scores.

    ValueError: it is no URI of MLflow, or there is nothing. MLflow would make a database there, or try again for minutes.
    """
    path = Path(source)
    scheme, _, rest = source.partition(":")
    if "://" in source or scheme == "sqlite":
        if scheme.partition("+")[0] not in SCHEMES or (scheme == "sqlite" and not rest.startswith("///")):
            raise ValueError(f"{source}: no URI of MLflow; they begin with sqlite:///, {', '.join(SCHEMES[1:])}")
        if scheme == "sqlite" and not any(map(os.path.isfile, (rest[3:], rest[3:].partition("?")[0]))):
            raise ValueError(f"{source}: no such database")
        if scheme == "file" and not os.path.isdir(unquote(rest.removeprefix("//"))):
            raise ValueError(f"{source}: no such folder")
        if (usual := PORTS.get(scheme.partition("+")[0])) and (address := urlsplit(source)).hostname:
            try:
                port = address.port or usual
                socket.create_connection((address.hostname, port), 10).close()
            except (OSError, ValueError) as error:
                raise ValueError(f"{scheme}://{address.hostname}: MLflow does not answer there ({error})") from error
        return source
    if (path / "mlflow.db").is_file():
        return f"sqlite:///{(path / 'mlflow.db').resolve()}"
    if path.suffix == ".db" and path.is_file():
        return f"sqlite:///{path.resolve()}"
    return path.resolve().as_uri() if path.is_dir() and any(path.glob("*/meta.yaml")) else ""


MOST_ROWS = 20_000_000


def from_parquet(path: Path, names: Names, unread: list[str]) -> Iterator[Observation]:
    """Yield the scores of a Parquet file as `from_table` does. ValueError: it is damaged, or a column is missing."""

    def rows(columns: list[str]) -> Iterator[Row]:
        check_unpacked(path, columns)
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(4096, columns=columns):
                yield from (Row(f"{path}", cells) for cells in batch.to_pylist())

    try:
        columns = _columns(path)
        yield from from_table(Table(str(path), columns, rows(columns)), names, unread)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"{path}: no Parquet ({str(error).splitlines()[0][:100]})") from error


def _columns(path: Path) -> list[str]:
    """Return the needed columns of a Parquet file. ValueError: one has lists or records, or there are too many rows."""
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows > MOST_ROWS:
            raise ValueError(f"{path}: more than {MOST_ROWS:,} rows: divide it")
        names, schema = list(file.schema_arrow.names), file.schema_arrow
    roles = roles_of(names, OURS)
    names = [name for name in names if "number" not in roles or name in roles.values()]
    if nested := [name for name in names if pa.types.is_nested(schema.field(name).type)]:
        raise ValueError(f"{path}: column {nested[0]} has lists or records; scores are numbers")
    return names


ALL_READERS = {**READERS, "*.parquet": from_parquet}


def from_mlflow(uri: str, unread: list[str]) -> Iterator[Observation]:
    """Yield the last value of each metric of each finished run: one for each seed, without items.

    The row is the parameter row, system, model or model_name. Without one it is the run's name. The seed is the
    parameter seed, random_seed or random_state. Without one it is the run. The data set is the parameter dataset or
    else the run's first data set.
    """
    # MLflow reads runs in files only if it is asked to
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    tracker = Tracker(readable(uri))
    if tracker.damage():
        raise ValueError(f"{uri}: the database is damaged: take a copy of it that is whole")
    said: list[str] = []

    def heard(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logging.root.addFilter(heard)  # MLflow logs what it leaves out
    try:
        runs = tracker.runs()
    except Exception as error:  # whatever a file of others makes MLflow and its libraries raise
        why = f"MLflow cannot read the runs there ({type(error).__name__}: {first_line(error)})"
        raise ValueError(f"{uri}: {why}") from error
    finally:
        logging.root.removeFilter(heard)
    unread += [f"{uri}: {' '.join(line.split())[:200]}" for line in said]
    for run in runs:
        if run.info.status != "FINISHED":
            unread.append(
                f"{uri}: run {run.info.run_name or run.info.run_id} isn't read: its status is {run.info.status}"
            )
            continue
        tags = run.data.tags if KEY in run.data.tags else {}  # of a run of this project
        if tags.get("phrasemodels.kind", "training") != "training":  # a table, whose metrics are means, or a trial
            continue
        known = {name: tags[name] for name in ("row", "seed") if name in tags} | run.data.params
        row = next((known[name] for name in ROWS_OF_RUNS if name in known), run.info.run_name or run.info.run_id)
        seed = next((known[name] for name in SEEDS_OF_RUNS if name in known), run.info.run_id)
        logged = [one.dataset.name for one in run.inputs.dataset_inputs] if run.inputs else []
        dataset = known.get("dataset", next(iter(logged), ""))
        own = "; ".join(sorted(f"{name} {value}" for name, value in known.items() if is_setting(f"params.{name}")))
        setting = own if seed != run.info.run_id else f"no parameter seed; {own}"
        setting += f"; experiment {run.info.experiment_id}" * (not tags)  # those of others may hold old runs
        for metric, value in run.data.metrics.items():
            if not metric.startswith(SYSTEM):
                where = f"{uri}, run {run.info.run_name or run.info.run_id}"
                yield Observation(
                    row, dataset, metric, seed, "", float(value), where=where, file=where, setting=setting
                )
