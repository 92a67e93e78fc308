"""Trees to trees, as sequences: trained and answered like translation, scored by how far an answer is right."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.metrics.bleu import Score


def length_to_failure(hypothesis: list[str], reference: list[str]) -> float:
    """The share of the reference, in %, that stands before the first wrong token; 100 needs the same end too."""
    right = 0
    for ours, theirs in zip(hypothesis, reference, strict=False):
        if ours != theirs:
            break
        right += 1
    # what goes on after the last token fails there, one token late
    longer = right == len(reference) < len(hypothesis)
    return 100 * right / (len(reference) + longer)


@dataclass(frozen=True)
class PrefixScoring:
    """Nothing to choose."""


def score_prefixes(job: Job, settings: PrefixScoring) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"]: average length to failure and exact matches, of
    all rows and of each group of ["rows"] (`failure/depth2`)."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    pairs = list(zip(table["hypothesis"].to_pylist(), table["reference"].to_pylist(), strict=True))
    values = {
        "failure": np.array([length_to_failure(*pair) for pair in pairs]),
        "exact": np.array([100.0 * (hypothesis == reference) for hypothesis, reference in pairs]),
    }
    groups = np.array(table["group"].to_pylist())
    scores = {}
    for name, of_rows in values.items():
        scores[name] = asdict(Score(float(of_rows.mean()), "mean of rows, in %", len(of_rows)))
        for group in sorted(set(groups) - {""}):
            chosen = of_rows[groups == group]
            scores[f"{name}/{group}"] = asdict(Score(float(chosen.mean()), "mean of rows, in %", len(chosen)))
    statistics = {name: pa.array([[float(v) / 100, 1.0] for v in of_rows]) for name, of_rows in values.items()}
    write_shard(job.out / "sentences.arrow", pa.table({"id": table["id"], "group": table["group"], **statistics}))
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {"scores": scores, "test_set": job.inputs["rows"].meta["shards"]}
