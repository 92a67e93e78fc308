"""Predicted labels of pairs and their scores, and the attention to single sentences."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.shards import content_digest, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.encoders.adapters import PooledEncoder, adjacent_spans
from phrasemodels.encoders.psan import Psan
from phrasemodels.layers.attention_probe import attention_probe
from phrasemodels.models.sentence_pair import SentencePairClassifier
from phrasemodels.tasks.metrics.accuracy import accuracies, accuracy
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.attention import ATTENTION, attention_row, attention_rows
from phrasemodels.tasks.problems.entailment.data import SentenceText
from phrasemodels.tasks.problems.entailment.objective import SentenceBatch, SentenceExamples
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained


@torch.inference_mode()
def relate(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Label the numbered pairs job.inputs["rows"]; also reads ["model"] and ["vocabulary"].

    Writes predictions.arrow: gold and predicted label, the probabilities of LABELS, and the mean length of the pair.
    """
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    paths = [shard.path for shard in shards(job.inputs["rows"])]
    data = settings.objective.examples(paths)
    probabilities = np.zeros((len(data), len(LABELS)), np.float32)
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        probabilities[rows] = model(batch.tokens, batch.lengths, batch.structure).float().softmax(-1).cpu().numpy()
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    made = pa.table(
        {
            "id": table["id"],
            "group": table["group"],
            "gold": table["label"],
            "label": pa.array(LABELS).take(pa.array(probabilities.argmax(1))),
            "probabilities": pa.array(list(probabilities)),
            "length": pa.array(data.lengths.mean(1)),
        }
    )
    return {"predictions": write_shard(job.out / "predictions.arrow", made)}


@dataclass(frozen=True)
class LookSettings:
    """A model's configuration, and the text of the sentences."""

    model: PredictSettings
    text: SentenceText


@torch.inference_mode()
def look(job: Job, settings: LookSettings) -> dict[str, Any]:
    """Write attention.arrow: the attention to each numbered sentence job.inputs["numbers"], whose text is ["rows"].

    Of PSAN: the alignment on each level (1, n, n), in the order of computation, and the weights of the summary (1, 1, n)
    (paper 001, Figure 3). Of other encoders: the weights of every attention. ValueError: the encoder has no attention.
    """
    model = load_trained(settings.model.objective, settings.model.model, job.inputs)
    data = SentenceExamples([shard.path for shard in shards(job.inputs["numbers"])], settings.text.sides)
    rows: list[dict[str, Any]] = []
    for row, sentence in enumerate(read_shards(job.inputs["rows"]).select(["id", "group", "text"]).to_pylist()):
        tokens = settings.text.words(sentence.pop("text"))
        rows += [{**sentence, **one} for one in _attention(model, data.batch(np.array([row])), tokens)]
    if not rows:
        raise ValueError("this encoder has no attention to look at: name an experiment whose encoder has")
    return {"attention": write_shard(job.out / "attention.arrow", pa.Table.from_pylist(rows, schema=ATTENTION))}


def _attention(model: SentencePairClassifier, batch: SentenceBatch, tokens: list[str]) -> list[dict[str, Any]]:
    """Return rows of ATTENTION without id and group, of one sentence."""
    embedded, encoder = model.embed(batch.tokens), model.encoder
    if not isinstance(encoder, Psan):
        with attention_probe(model) as weights:
            encoder(embedded, batch.lengths, batch.structure)
        longest = encoder.longest if isinstance(encoder, PooledEncoder) else 1
        spans = adjacent_spans(batch.lengths, len(tokens), longest)
        phrases = [[int(i) for i in span if i >= 0] for members in spans for span in members]
        return list(attention_rows(model, weights, tokens, phrases))
    explained = encoder.explain(embedded[0], batch.structure[0])
    phrases = _phrases(batch.structure[0])
    levels = {f"attention {place}": weights[None] for place, weights in enumerate(explained.levels, 1)}
    rows = [attention_row(name, tokens, weights, phrases) for name, weights in levels.items()]
    summary = attention_row("summary", tokens, explained.summary[None, None], phrases)
    return [*rows, summary | {"written": ["sentence"]}]


def _phrases(levels: Tensor) -> list[list[int]]:
    """Return the phrases of several words of all levels (L, n), each once, as positions of their words."""
    found = {tuple((level == number).nonzero()[:, 0].tolist()) for level in levels for number in level.unique()}
    return [list(phrase) for phrase in sorted(found, key=lambda p: (len(p), p)) if len(phrase) > 1]


LENGTHS = range(4, 21)  # bins of paper 001's Figure 2: mean words of the two sentences
SIGNATURE = "accuracy of three labels, %"


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%), also by group and by length; with ["transfer"], its scores are among
    them. ["rows"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = pc.equal(table["gold"], table["label"]).to_numpy()
    length = np.floor(table["length"].to_numpy() + 0.5)  # halves up: bins of equal width
    scores = accuracies(right, table["group"].to_pylist(), SIGNATURE)
    scores |= {f"accuracy/length {n}": accuracy(right[length == n], SIGNATURE) for n in LENGTHS if (length == n).any()}
    if "transfer" in job.inputs:
        scores |= {name: Score(**score) for name, score in job.inputs["transfer"].meta["scores"].items()}
    statistics = pa.array(list(np.stack([right, np.ones_like(right)], 1).astype(np.int64)))
    sentences = pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    return write_scores(job, scores, sentences, _test_set(job.inputs["rows"]))


def _test_set(rows: Artifact) -> list[dict[str, Any]]:
    """Return the identity of numbered pairs without their words and structures, which depend on how a system reads text."""
    table = read_shards(rows).select(["id", "label", "group"])
    return [{"rows": table.num_rows, "content": content_digest(table)}]
