"""Predicted tags."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.sequences import write_predictions
from phrasemodels.tasks.problems.tagging.objective import TaggingObjective
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import best_device, load_trained


@dataclass(frozen=True)
class TagSettings:
    """A model's configuration. batch_tokens bounds memory and does not change the result."""

    objective: TaggingObjective
    model: TaggerConfig
    batch_tokens: int = 8192


@torch.inference_mode()
def tag(job: Job, settings: TagSettings) -> dict[str, Any]:
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
