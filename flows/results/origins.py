"""The origin of each result on the page over all papers: its runs, configuration, data and licences."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import digest_of
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.results import Result


def origins(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return {id, experiment, title, source, commit, metric, seeds, config, test_set, licences} of each result, once.

    seeds: {seed, run, train, score, value} of each.
    """
    artifacts = {artifact.key: artifact for artifact in store.artifacts()}
    distinct = {(result.source, result.experiment.name): result for result in results}
    return [_origin(result, artifacts) for result in distinct.values()]


def _origin(result: Result, artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    run, row = result.runs[0], result.row
    trained, scored = (artifacts.get(run[name]) for name in ("train", "score"))
    settings = trained.manifest["parts"]["settings"] if trained else row.get("settings", {})
    test_set = scored.meta["test_set"] if scored else row.get("test_set", [])
    licences = scored.meta["licences"] if scored else row.get("licences", [])
    return {
        "id": f"{result.source}/{result.experiment.name}",
        "experiment": result.experiment.name,
        "title": result.title,
        "source": result.source,
        "commit": row.get("commit", ""),
        "metric": row["metric"],
        "seeds": [{**of, "value": value} for of, value in zip(result.runs, row["values"][row["metric"]], strict=True)],
        "config": json.dumps({name: value for name, value in settings.items() if name != "seed"}, indent=1),
        "test_set": digest_of([shard["content"] for shard in test_set])[:16],
        "licences": licences,
    }
