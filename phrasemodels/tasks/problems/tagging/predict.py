"""Predicted tags, and their accuracy over tokens."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.tasks.metrics.accuracy import accuracy_of, by_group
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.sequences import write_predictions
from phrasemodels.tasks.problems.tagging.objective import TagColumn
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained
from phrasemodels.verdicts.significance import Statistic


@torch.inference_mode()
def tag(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Tag the numbered sentences job.inputs["phrases"], whose tokens are ["rows"]; also reads ["model"] and
    ["vocabulary"]. Writes predictions.arrow; the score of a row is the sum of its tags' log-probabilities."""
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    names = np.array(read_words(job.inputs["vocabulary"], "target"), dtype=object)
    known = torch.arange(len(SPECIAL), len(names), device=device)
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        ids, scores = model.tag(batch.source, batch.lengths, batch.members, known)
        for row, n, best, score in zip(rows, batch.lengths, ids, scores, strict=True):
            inner = slice(1, int(n) - 1)
            found[int(row)] = list(names[best[inner].cpu().numpy()]), float(score[inner].sum())
    return write_predictions(job, job.inputs["rows"], found)


ACCURACY = Statistic("tag_counts", accuracy_of)
MOST_GROUPS = 8  # with more, groups are documents of a treebank, not kinds of sentences


def score_tags(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy over tokens (%), of all, by group of sentences, and of words that are
    known and not known to ["vocabulary"]. ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    known = set(read_words(job.inputs["vocabulary"], "source"))
    right, familiar = [], []
    for row in table.to_pylist():
        right.append(np.array([a == b for a, b in zip(row["hypothesis"], row["reference"], strict=True)], bool))
        familiar.append(np.array([word in known for word in row["source"]], bool))
    counts = np.array([[one.sum(), len(one)] for one in right], np.int64)
    groups = table["group"].to_pylist()
    if len(set(groups)) > MOST_GROUPS:
        groups = [""] * len(groups)
    parts = {f"accuracy{suffix}": counts[rows].sum(0) for suffix, rows in by_group(groups).items()}
    flat, seen = np.concatenate(right), np.concatenate(familiar)
    parts |= {f"{name}_words": np.array([flat[of].sum(), of.sum()]) for name, of in (("known", seen), ("new", ~seen))}
    signature = f"right tokens of all, {settings.column}"
    scores = {
        name: Score(100 * float(hits) / max(1, int(tokens)), f"{signature}, n={tokens}", len(right))
        for name, (hits, tokens) in parts.items()
    }
    sentences = pa.table(
        {"id": table["id"], "group": pa.array(groups, pa.string()), ACCURACY.column: pa.array(list(counts))}
    )
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])
