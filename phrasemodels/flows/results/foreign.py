"""Scores of anybody's runs: the files that `phrasemodels.verdicts` reads, Parquet, and runs in MLflow."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemodels.infra.tracking import Tracker, readable
from phrasemodels.verdicts.readers import READERS, from_rows, read
from phrasemodels.verdicts.scores import Observation, Scores, collected

ROWS_OF_RUNS = (
    "row",
    "system",
    "model",
    "model_name",
)  # parameters of an MLflow run that name its row, the first that it has
SEEDS_OF_RUNS = ("seed", "random_seed", "random_state")
SYSTEM = "system/"  # metrics of the machine


def read_scores(sources: list[str]) -> list[Scores]:
    """Return the scores in files and folders, and in the databases of MLflow that URIs or folders name.

    ValueError: one of them cannot be read, or seeds have different items.
    """
    return collected(chain.from_iterable(map(observations, sources)))


def observations(source: str) -> Iterator[Observation]:
    """Return the scores in a file, a folder, or MLflow's runs. ValueError: it cannot be read."""
    if uri := _tracking(source):
        return from_mlflow(uri)
    return read(Path(source), {**READERS, "*.parquet": from_parquet})


def _tracking(source: str) -> str:
    """Return the URI of MLflow's runs that a source names; empty if it is a file or folder of scores."""
    path = Path(source)
    if "://" in source or source.startswith("sqlite:"):
        return source
    if (path / "mlflow.db").is_file():
        return f"sqlite:///{(path / 'mlflow.db').resolve()}"
    if path.suffix == ".db" and path.is_file():
        return f"sqlite:///{path.resolve()}"
    return path.resolve().as_uri() if path.is_dir() and any(path.glob("*/meta.yaml")) else ""


def from_parquet(path: Path) -> Iterator[Observation]:
    """Yield the scores of a Parquet file; see `from_rows`. ValueError: it is damaged, or a column is missing."""

    def rows() -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(65536):
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
