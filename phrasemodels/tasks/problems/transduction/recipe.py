"""Tree transduction: translation of prefix formulas to infix ones, scored by how far they are right."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.accuracy import by_group
from phrasemodels.tasks.metrics.length_to_failure import length_to_failure
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.translation.objective import TranslatorConfig
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe
from phrasemodels.tasks.train.config import TrainConfig


def score_prefixes(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: means of `failure` and `exact` over all rows and by group (`failure/depth2`).
    ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    pairs = list(zip(table["hypothesis"].to_pylist(), table["reference"].to_pylist(), strict=True))
    values = {
        "failure": np.array([length_to_failure(*pair) for pair in pairs]),
        "exact": np.array([100.0 * (hypothesis == reference) for hypothesis, reference in pairs]),
    }
    groups = by_group(table["group"].to_pylist())
    scores = {
        f"{name}{suffix}": Score(float(of[rows].mean()), "mean of rows, in %", int(rows.sum()))
        for name, of in values.items()
        for suffix, rows in groups.items()
    }
    statistics = {name: pa.array([[float(value) / 100, 1.0] for value in of]) for name, of in values.items()}
    sentences = pa.table({"id": table["id"], "group": table["group"], **statistics})
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


@dataclass(frozen=True)
class TransductionRecipe(TranslationRecipe):
    """Formulas. The root of a source's tree is BEGIN."""

    slug: ClassVar = "transduction"
    languages: ClassVar = ("prefix", "infix")

    def stages(self, model: TranslatorConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        scores = Stage(score_prefixes, None, {"predictions": "predictions", "rows": "raw"})
        return {**super().stages(model, config, seed), "scores": scores}
