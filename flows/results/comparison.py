"""Every system of every paper that ran on the same data with the same budget, in one table a problem."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import TestedRow, differences
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.loop import history

BUDGET = ("steps", "batch_tokens")

Same = tuple[str, str, str, str]  # problem and corpus, metric, budget, test set
Row = tuple[Result, list[Artifact], list[Artifact]]  # a result with its trainings and scores, one of each a seed


def comparisons(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Tables of {title, budget, test_set, rows}, of what is in the store: for each experiment the best result.

    A row has quality, parameters, tokens a second, peak memory (MiB), seconds of training (means over seeds), and its
    difference from the first row, Holm-corrected over the table.
    """
    best: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.experiment.name, result.answer.metric)
        if result.runs and result.runs[0]["train"] and (key not in best or best[key].worth < result.worth):
            best[key] = result
    artifacts = {artifact.key: artifact for artifact in store.artifacts()}
    tables: dict[Same, list[Row]] = {}
    for result in best.values():
        trained = [artifacts[run["train"]] for run in result.runs]
        scored = [artifacts[run["score"]] for run in result.runs]
        tables.setdefault(_same(result, trained[0], scored[0]), []).append((result, trained, scored))
    return [_table(same, rows, artifacts) for same, rows in tables.items()]


def _same(result: Result, trained: Artifact, scored: Artifact) -> Same:
    """What all rows of a table have in common: problem and corpus, metric, budget, test set."""
    config = trained.manifest["parts"]["settings"].get("config", {})
    budget = ", ".join(f"{name.replace('_', ' ')} {config[name]}" for name in BUDGET if name in config)
    return result.experiment.recipe.name, result.answer.metric, budget, str(scored.meta["test_set"])


def _table(same: Same, rows: list[Row], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    title, metric, budget, test_set = same
    tested = []
    for result, _, scored in rows:
        statistic = result.answer.statistic
        tables = [read_shard(artifact.file("sentences.arrow")) for artifact in scored if statistic]
        tested.append(TestedRow(result.experiment.name, metric, test_set, statistic, tables))
    lines = [
        {
            "paper": result.experiment.paper,
            "source": result.source,
            "experiment": result.experiment.name,
            "metric": metric,
            "system": result.experiment.system,
            "variant": result.experiment.variant,
            "seeds": len(result.row["seeds"]),
            "quality": result.row["intervals"][metric],
            "parameters": trained[0].meta["parameters"],
            "tokens_per_second": _speed(result, trained, artifacts),
            "peak_memory_mib": _mean(artifact.meta["peak_memory_mib"] for artifact in trained),
            "train_seconds": _mean(artifact.meta["train_seconds"] for artifact in trained),
            "against": against,
        }
        for (result, trained, _), against in zip(rows, differences(tested), strict=True)
    ]
    return {"title": title, "metric": metric, "budget": budget, "test_set": test_set, "rows": lines}


def _speed(result: Result, trained: list[Artifact], artifacts: Mapping[str, Artifact]) -> float | None:
    """Tokens of all sides a second, mean over histories, which count what the loss is a mean of: tokens of a target,
    pairs, sentences. None where the training data is no longer in the store."""
    data = artifacts.get(trained[0].manifest["parts"]["inputs"]["train"])
    if data is None:
        return None
    e = result.experiment
    problem = e.recipe.stages(e.model, e.train, 0)["model"].settings.objective
    examples = problem.examples([shard.path for shard in shards(data)])
    tokens = examples.lengths.sum() / problem.count(examples, np.arange(len(examples)))
    histories = [history(one) for one in trained]
    return _mean(tokens * row["tokens_per_second"] for told in histories for row in told)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
