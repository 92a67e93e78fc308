"""Descriptions of an exported result for other catalogues: RO-Crate 1.1 (what was used and made), Croissant 1.0 (its table)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import sha256_of, write_durably
from phrasemodels.flows.results.export_scores import SCORES, kept

CRATE, CROISSANT = "ro-crate-metadata.json", "croissant.json"
CRATE_CONTEXT = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "http://schema.org/sha256"}]  # which 1.1 lacks
AUTHORS = {"@id": "#authors", "@type": "Organization", "name": "The PhraseModels authors"}
LICENCE = "https://spdx.org/licenses/Apache-2.0"
FORMATS = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".json": "application/json"}
TYPES = {"score": "sc:Float", "total": "sc:Float"}  # of columns; others are text
COLUMNS = {
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
    result = kept(name)
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
            {f"{k}=={v}" for row in result["rows"] for k, v in row.get("libraries", {}).items()}
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
        for column, about in COLUMNS.items()
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
