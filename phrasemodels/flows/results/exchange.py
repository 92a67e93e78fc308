"""Scores in files of other tools: read for `judge`, from MLflow too, and written with an RO-Crate 1.1 and a Croissant 1.0."""

import csv
import json
import os
import socket
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import write_parquet
from phrasemodels.data.store.artifacts import sha256_of, write_durably
from phrasemodels.flows.results.records import kept_files, place_of, read_kept
from phrasemodels.flows.results.results import Result, kept_results, tested
from phrasemodels.infra.tracking import Tracker, readable
from phrasemodels.tasks.metrics.compare import TestedRow, reason_not
from phrasemodels.tasks.metrics.parseval import f1_of
from phrasemodels.tasks.metrics.scores import accuracy_of
from phrasemodels.verdicts.printed import NEEDED
from phrasemodels.verdicts.readers import READERS, Observation, Scores, collected, from_rows, read
from phrasemodels.verdicts.significance import Array

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


PRINTED, SCORES = "printed.csv", "scores.parquet"
PRINTED_COLUMNS = (*NEEDED, "baseline", "not_comparable")
# Score and total of an item, (..., 2), by the metric of its statistics.
SHARES: Mapping[Callable[[Array], Array], Callable[[Array], Array]] = {
    accuracy_of: lambda counts: counts,
    f1_of: lambda counts: np.stack([2 * counts[..., 0], counts[..., 1] + counts[..., 2]], -1),
}


def export_scores(name: str, folder: Path) -> list[Path]:
    """Write a kept result, results/NAME, into a folder: printed.csv and scores.parquet; return their paths.

    Metrics that are no Σ score / Σ total, such as BLEU, are left out. ValueError: there is no such result, or it has no other
    metric.
    """
    kept_result(name)
    path = place_of(name) / "result.json"
    results = [one for one in kept_results() if one.source == f"results/{name}"]
    rows = [
        pair
        for pair in zip(results, tested(path)[1](), strict=True)
        if pair[1].statistic and pair[1].statistic.value in SHARES
    ]
    if not rows:
        metrics = ", ".join(dict.fromkeys(one.answer.metric for one in results))
        raise ValueError(
            f"{name}: no metric is a mean over items ({metrics}), so there are no scores of items to write"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / PRINTED).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, PRINTED_COLUMNS)
        writer.writeheader()
        writer.writerows(_printed(result) for result, _ in rows)
    write_parquet(folder / SCORES, pa.concat_tables(_scores(*pair) for pair in rows))
    return [folder / PRINTED, folder / SCORES]


def _printed(result: Result) -> dict[str, str]:
    """Return the printed number of a row, with why it cannot be compared, as its verdict says."""
    cell, against = result.answer.cell, result.row["against"]
    unlike = result.experiment.reason_not(result.answer) or result.row["reason_not"]
    return {
        "paper": result.experiment.paper,
        "table": result.title,
        "row": result.experiment.name,
        "dataset": "",
        "metric": result.answer.metric,
        "value": cell.printed if cell else "",
        "baseline": against["baseline"] if against else result.experiment.name,
        "not_comparable": reason_not(result.row["stand_in"], unlike),
    }


def _scores(result: Result, row: TestedRow) -> pa.Table:
    """Return score and total of each seed and item of a row; an item is named by its place."""
    assert row.statistic is not None
    sums = SHARES[row.statistic.value](row.statistics(""))
    seeds, n = sums.shape[:2]
    return pa.table(
        {
            "row": [result.experiment.name] * (seeds * n),
            "metric": [row.metric] * (seeds * n),
            "seed": [str(seed) for seed in result.row["seeds"] for _ in range(n)],
            "item": [f"{place:06}" for place in range(n)] * seeds,
            "score": sums[..., 0].ravel(),
            "total": sums[..., 1].ravel(),
        }
    )


def kept_result(name: str) -> dict[str, Any]:
    """Return result.json of a kept result. ValueError: there is no such result."""
    known = [path.parent.name for path in kept_files()]
    if name not in known:
        raise ValueError(f"no kept result {name!r}: {closest(name, known)}")
    return read_kept(place_of(name) / "result.json")


CRATE, CROISSANT = "ro-crate-metadata.json", "croissant.json"
CRATE_CONTEXT = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "http://schema.org/sha256"}]  # which 1.1 lacks
AUTHORS = {"@id": "#authors", "@type": "Organization", "name": "The PhraseModels authors"}
LICENCE = "https://spdx.org/licenses/Apache-2.0"
FORMATS = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".json": "application/json"}
TYPES = {"score": "sc:Float", "total": "sc:Float"}  # of columns; others are text
CROISSANT_COLUMNS = {
    "row": "experiment that was trained",
    "metric": "metric that the score belongs to",
    "seed": "seed of the training",
    "item": "place of the item in the test set",
    "score": "score of the item",
    "total": "what the score is out of; the metric is the sum of scores divided by the sum of totals",
}
# The context of Croissant 1.0, as its specification gives it: terms that are no schema.org terms.
_JSON = {"@type": "@json"}
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", **_JSON},
    "examples": {"@id": "cr:examples", **_JSON},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{
        term: f"cr:{term}"
        for term in (
            "citeAs column extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath key md5 "
            "parentField path recordSet references regex repeated replace separator source subField transform "
            "equivalentProperty samplingRate"
        ).split()
    },
}


def write_crate(name: str, folder: Path) -> list[Path]:
    """Write both descriptions of a kept result beside its files in a folder; return their paths."""
    result = kept_result(name)
    files = sorted(path for path in folder.iterdir() if path.suffix in FORMATS and path.name not in (CRATE, CROISSANT))
    write_durably(folder / CROISSANT, json.dumps(croissant(name, result, folder / SCORES), indent=1) + "\n")
    described = [*files, folder / CROISSANT]
    write_durably(folder / CRATE, json.dumps(crate(name, result, described), indent=1) + "\n")
    return [folder / CRATE, folder / CROISSANT]


def crate(name: str, result: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """Return the RO-Crate of a kept result: its files, and the runs that made them from which corpora, with which settings."""
    software = {
        "@id": "#phrasemodels",
        "@type": "SoftwareApplication",
        "name": "PhraseModels",
        "version": version("phrasemodels"),
        "identifier": result["commit"],
        "softwareRequirements": sorted(
            {
                f"{k}=={v}"
                for row in result["rows"]
                for k, of in row.get("libraries", {}).items()
                for v in of.split(", ")
            }
        ),
    }
    data = list(_test_sets(result))
    action = {
        "@id": "#runs",
        "@type": "CreateAction",
        "name": f"Trainings and tests of {result['title']}",
        "description": result.get("note") or "Trained and scored by PhraseModels.",
        "instrument": _id(software),
        "object": [_id(one) for one in data],
        "result": [{"@id": file.name} for file in files],
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"PhraseModels: {result['title']}",
        "description": f"Scores of {len(result['rows'])} rows by seed and test item, beside the printed numbers ({name}).",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "license": {"@id": LICENCE},
        "hasPart": [{"@id": file.name} for file in files],
        "author": _id(AUTHORS),
        "publisher": _id(AUTHORS),
        "mentions": _id(action),
    }
    descriptor = {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
    }
    licence = {"@id": LICENCE, "@type": "CreativeWork", "name": "Apache License 2.0", "description": "Of the numbers."}
    graph: list[dict[str, Any]] = [descriptor, root, *map(_file, files), action, software, AUTHORS, *data, licence]
    return {"@context": CRATE_CONTEXT, "@graph": [_compact(entity) for entity in graph]}


def _file(path: Path) -> dict[str, Any]:
    return {
        "@id": path.name,
        "@type": "File",
        "name": path.name,
        "encodingFormat": FORMATS[path.suffix],
        "contentSize": str(path.stat().st_size),
        "sha256": sha256_of(path),
    }


def _compact(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entity without lists of one value, as JSON-LD is compacted."""
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in entity.items()}


def _id(entity: Mapping[str, Any]) -> dict[str, str]:
    return {"@id": entity["@id"]}


def _test_sets(result: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the test sets of a result, each once, by the digests of their shards, with the licences of their corpora."""
    known = {json.dumps(row["test_set"], sort_keys=True): row for row in result["rows"]}
    for place, row in enumerate(known.values(), 1):
        yield {
            "@id": f"#test-set-{place}",
            "@type": "Dataset",
            "name": f"Test set {place}",
            "description": f"Licences: {', '.join(row['licences'])}. Its text is not in this crate.",
            "identifier": [str(shard.get("content", "")) for shard in row["test_set"]],
        }


def croissant(name: str, result: Mapping[str, Any], scores: Path) -> dict[str, Any]:
    """Return the Croissant description of the table of scores."""
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"scores/{column}",
            "name": column,
            "description": about,
            "dataType": TYPES.get(column, "sc:Text"),
            "source": {"fileObject": {"@id": scores.name}, "extract": {"column": column}},
        }
        for column, about in CROISSANT_COLUMNS.items()
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"phrasemodels-{name}",
        "description": f"Scores of {result['title']} by row, metric, seed and test item.",
        "license": LICENCE,
        "version": version("phrasemodels"),
        "datePublished": datetime.now(UTC).date().isoformat(),
        "citeAs": f"PhraseModels, {result['title']}, commit {result['commit']}",
        "creator": {"@type": "sc:Organization", "name": AUTHORS["name"]},
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": scores.name,
                "name": scores.name,
                "contentUrl": scores.name,
                "contentSize": f"{scores.stat().st_size} B",
                "encodingFormat": "application/x-parquet",  # as Croissant names it
                "sha256": sha256_of(scores),
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "scores", "name": "scores", "field": fields}],
    }
