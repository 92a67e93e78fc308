"""Scores in files of other tools, read for `judge`; from MLflow, too."""

import os
import socket
from collections.abc import Container, Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemodels.flows.results.records import limited_memory
from phrasemodels.infra.tracking import Tracker, readable
from phrasemodels.verdicts.readers import (
    NAMES_OF_ROWS,
    NO_MEASURES,
    READERS,
    Observation,
    Scores,
    collected,
    from_rows,
    read,
)

# parameters of an MLflow run that name its row, the first that it has
ROWS_OF_RUNS = ("row", "system", "model", "model_name")
SEEDS_OF_RUNS = ("seed", "random_seed", "random_state")
SYSTEM = "system/"  # metrics of the machine
SCHEMES = ("sqlite", "file", "http", "https", "postgresql", "mysql", "mssql", "databricks")
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def read_scores(sources: list[str], metrics: Container[str] | None = None) -> list[Scores]:
    """Return the scores in files and folders, and in the databases of MLflow that URIs or folders name.

    metrics: the printed ones, see `collected`. ValueError: a source cannot be read, or seeds have different items.
    """
    return collected(chain.from_iterable(map(observations, sources)), metrics)


def observations(source: str) -> Iterator[Observation]:
    """Return the scores in a file, a folder, or MLflow's runs. ValueError: it cannot be read."""
    if uri := _tracking(source):
        return from_mlflow(uri)
    return read(Path(source), {**READERS, "*.parquet": from_parquet})


def _tracking(source: str) -> str:
    """Return the URI of MLflow's runs that a source names; empty if it is a file or folder of scores.

    ValueError: it is no URI of MLflow, or there is nothing; MLflow would make a database there, or try again for minutes.
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


KNOWN = {"score", "total", "item", *NO_MEASURES, *NAMES_OF_ROWS}  # columns of a table with a column score
MOST_ROWS = 20_000_000


def from_parquet(path: Path) -> Iterator[Observation]:
    """Yield the scores of a Parquet file; see `from_rows`. ValueError: it is damaged, or a column is missing."""

    def rows() -> Iterator[dict[str, Any]]:
        with limited_memory(), pq.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if "score" not in file.schema_arrow.names or name in KNOWN]
            if nested := [name for name in names if pa.types.is_nested(file.schema_arrow.field(name).type)]:
                raise ValueError(f"{path}: column {nested[0]} has lists or records; scores are numbers")
            if file.metadata.num_rows > MOST_ROWS:
                raise ValueError(f"{path}: more than {MOST_ROWS:,} rows: divide it")
            for batch in file.iter_batches(4096, columns=names):
                yield from batch.to_pylist()

    try:
        yield from from_rows(rows(), str(path), path.stem)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"{path}: no Parquet ({str(error).splitlines()[0][:100]})") from error


def from_mlflow(uri: str) -> Iterator[Observation]:
    """Yield the last value of each metric of each finished run: one for each seed, without items.

    The row is the parameter row, system, model or model_name, or else the run's name; the seed the parameter seed, random_seed or
    random_state, or else the run; the data set the parameter dataset, or the first one that the run logged.
    """
    # MLflow reads runs in files only if it is asked to
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    for run in Tracker(readable(uri)).runs():
        if run.info.status != "FINISHED":
            continue
        known = run.data.params
        row = next((known[name] for name in ROWS_OF_RUNS if name in known), run.info.run_name or run.info.run_id)
        seed = next((known[name] for name in SEEDS_OF_RUNS if name in known), run.info.run_id)
        logged = [one.dataset.name for one in run.inputs.dataset_inputs] if run.inputs else []
        dataset = known.get("dataset", next(iter(logged), ""))
        for metric, value in run.data.metrics.items():
            if not metric.startswith(SYSTEM):
                yield Observation(row, dataset, metric, seed, "", float(value))
