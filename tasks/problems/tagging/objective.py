"""The problem of tagging: from a treebank to the share of tokens whose tag is right."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.models.tagger import Tagger, TaggerConfig
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.metrics.significance import Statistic, accuracy_of
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.translation.objective import PREDICTIONS, PhraseBatch, PhraseExamples
from phrasemodels.tasks.train.batches import Rows, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors

ACCURACY = Statistic("tag_counts", accuracy_of)
MOST_GROUPS = 8  # more are documents of a treebank, not kinds of sentences


@dataclass(frozen=True)
class TagColumn:
    """Which tags: `tags` (Penn's), or `universal`."""

    column: str = "tags"


def tag_tokens(job: Job, settings: TagColumn) -> dict[str, Any]:
    """TOKENS of TREES or TAGGED shards: words as the source, their tags as the target. One step a shard."""
    return map_shards(job, tag_tokens_shard, settings)


def tag_tokens_shard(job: Job, settings: TagColumn) -> dict[str, Any]:
    """TOKENS of one shard; a ValueError names a row with words that have no tag."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    if settings.column not in table.column_names:
        raise ValueError(f"{path}: no column {settings.column!r}; there are {table.column_names}")
    columns = {"id": table["id"], "source": table["tokens"], "target": table[settings.column], "group": table["group"]}
    made = check(pa.table(columns, schema=TOKENS), TOKENS, str(path))
    for row, words, tags in zip(made["id"], made["source"], made["target"], strict=True):
        if len(words) != len(tags):
            raise ValueError(f"{path}: row {row} has {len(words)} words and {len(tags)} tags in {settings.column!r}")
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


@dataclass(frozen=True)
class Tagging:
    """Words to tags. The target of a row is its tags between BEGIN and END, which are not predicted."""

    def configure(self, model: TaggerConfig, vocabulary: Artifact) -> TaggerConfig:
        """The model with the sizes of the vocabularies."""
        return replace(model, vocabulary=vocabulary.meta["source"], tags=vocabulary.meta["target"])

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        """Rows of phrase shards."""
        return PhraseExamples(paths)

    def loss(self, model: Tagger, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of each word's tag."""
        scores = model(batch.source, batch.lengths, batch.members).flatten(0, 1).float()
        gold = batch.target.masked_fill(batch.target < len(SPECIAL), 0).flatten()  # also a tag that train lacks
        return F.cross_entropy(scores, gold, ignore_index=0, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: Tagger, batch: PhraseBatch) -> Tensor:
        """The same without smoothing."""
        return self.loss(model, batch, 0.0)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Words, without BEGIN and END."""
        return int((data.lengths[rows, 1] - 2).sum())


@dataclass(frozen=True)
class TagSettings:
    """A model's configuration; batch_tokens bounds memory and does not change the result."""

    problem: Tagging
    model: TaggerConfig
    batch_tokens: int = 8192


@torch.inference_mode()
def tag(job: Job, settings: TagSettings) -> dict[str, Any]:
    """predictions.arrow: the tags of every row of job.inputs["phrases"], beside the tokens of ["rows"]; the score is
    the sum of their log-probabilities."""
    vocabulary = job.inputs["vocabulary"]
    model = settings.problem.configure(settings.model, vocabulary).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().to(device)
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["phrases"])])
    names = np.array(read_words(vocabulary, "target"), dtype=object)
    known = torch.arange(len(SPECIAL), len(names), device=device)
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        ids, scores = model.tag(batch.source, batch.lengths, batch.members, known)
        for row, n, best, score in zip(rows, batch.lengths, ids, scores, strict=True):
            inner = slice(1, int(n) - 1)
            found[int(row)] = list(names[best[inner].cpu().numpy()]), float(score[inner].sum())
    rows_in = read_shards(job.inputs["rows"])
    columns = {
        "id": rows_in["id"],
        "group": rows_in["group"],
        "source": rows_in["source"],
        "reference": rows_in["target"],
        "hypothesis": [found[row][0] for row in range(rows_in.num_rows)],
        "score": [found[row][1] for row in range(rows_in.num_rows)],
    }
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=PREDICTIONS))}


def score_tags(job: Job, settings: TagColumn) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"]: accuracy over tokens (%), of all, of each group of
    sentences, and of words that job.inputs["vocabulary"] knows and does not know."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    known = set(read_words(job.inputs["vocabulary"], "source"))
    right, familiar = [], []
    for row in table.to_pylist():
        right.append(np.array([a == b for a, b in zip(row["hypothesis"], row["reference"], strict=True)], bool))
        familiar.append(np.array([word in known for word in row["source"]], bool))
    counts = np.array([[one.sum(), len(one)] for one in right], np.int64)
    parts = {"accuracy": counts.sum(0)}
    groups = np.array(table["group"].to_pylist())
    if len(set(groups)) > MOST_GROUPS:
        groups = np.full(len(groups), "")
    parts |= {f"accuracy/{group}": counts[groups == group].sum(0) for group in sorted(set(groups) - {""})}
    flat, seen = np.concatenate(right), np.concatenate(familiar)
    parts |= {f"{name}_words": np.array([flat[of].sum(), of.sum()]) for name, of in (("known", seen), ("new", ~seen))}
    signature = f"right tokens of all, {settings.column}"
    scores = {
        name: asdict(Score(100 * float(hit) / max(1, int(all_)), f"{signature}, n={all_}", len(right)))
        for name, (hit, all_) in parts.items()
    }
    statistics = pa.table({"id": table["id"], "group": groups, ACCURACY.column: pa.array(list(counts))})
    write_shard(job.out / "sentences.arrow", statistics)
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {"scores": scores, "test_set": job.inputs["rows"].meta["shards"]}
