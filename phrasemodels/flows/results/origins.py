"""The origin of each result on the page over all papers: its runs, configuration, data and licences."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import digest_of
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.results import Result


def origins(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return {id, experiment, title, source, commit, seeds, config, test_set, licences} of each experiment of a source.

    seeds: {seed, run, train, score, values} of each; values: by metric, of all metrics of the results.
    """
    artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
    alike: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        alike.setdefault((result.source, result.experiment.name), []).append(result)
    return [_origin(group, artifacts) for group in alike.values()]


def _origin(results: Sequence[Result], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    result = results[0]
    run, row = result.runs[0], result.row
    metrics = dict.fromkeys(one.row["metric"] for one in results)
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
        "seeds": [
            {**of, "values": {name: row["values"][name][place] for name in metrics}}
            for place, of in enumerate(result.runs)
        ],
        "config": json.dumps({name: value for name, value in settings.items() if name != "seed"}, indent=1),
        "test_set": digest_of([shard["content"] for shard in test_set])[:16],
        "licences": licences,
    }
