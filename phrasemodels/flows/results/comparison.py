"""Compare systems of all papers: one table for each problem, corpus, training budget and test set."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Store
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import TestedRow, differences
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.trainer import history

BUDGET = ("steps", "batch_tokens")

Setting = tuple[str, str, str, str]  # problem and corpus, metric, budget, test set
Row = tuple[Result, list[Artifact], list[Artifact]]  # a result with its trainings and scores, one of each per seed


def comparisons(store: Store, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return tables {title, metric, budget, test_set, rows} of the results in the store, the best one of each experiment.

    A row has quality, parameters, tokens per second, peak memory (MiB), seconds of training (means over seeds), and its
    difference from its baseline, Holm-corrected over the table.
    """
    artifacts = {artifact.key: artifact for artifact in store.all_artifacts()}
    best: dict[tuple[str, str], Result] = {}
    for result in results:
        key = (result.experiment.name, result.answer.metric)
        whole = bool(result.runs) and all(run[part] in artifacts for run in result.runs for part in ("train", "score"))
        if whole and (key not in best or best[key].worth < result.worth):
            best[key] = result
    tables: dict[Setting, list[Row]] = {}
    for result in best.values():
        trained = [artifacts[run["train"]] for run in result.runs]
        scored = [artifacts[run["score"]] for run in result.runs]
        tables.setdefault(_setting(result, trained[0], scored[0]), []).append((result, trained, scored))
    return [_table(setting, rows, artifacts) for setting, rows in tables.items()]


def _setting(result: Result, trained: Artifact, scored: Artifact) -> Setting:
    """Return the common setting of a table's rows: problem and corpus, metric, budget, test set."""
    config = trained.manifest["parts"]["settings"].get("config", {})
    budget = ", ".join(f"{name.replace('_', ' ')} {config[name]}" for name in BUDGET if name in config)
    return result.experiment.recipe.name, result.answer.metric, budget, str(scored.meta["test_set"])


def _table(setting: Setting, rows: list[Row], artifacts: Mapping[str, Artifact]) -> dict[str, Any]:
    title, metric, budget, test_set = setting
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
    """Return the tokens per second of all sides together, mean over the rows of all histories.

    None if the training data is no longer in the store. A history counts the items in the mean of the loss (target tokens,
    pairs or sentences), so its speed is multiplied by the tokens per item.
    """
    data = artifacts.get(trained[0].manifest["parts"]["inputs"]["train"])
    if data is None:
        return None
    e = result.experiment
    problem = e.recipe.stages(e.model, e.train, 0)["model"].settings.objective
    examples = problem.examples([shard.path for shard in shards(data)])
    tokens = examples.lengths.sum() / problem.count(examples, np.arange(len(examples)))
    return _mean(tokens * row["items_per_second"] for training in trained for row in history(training))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
