"""Vectors of n-grams of a corpus, as the n-gram heads of a model compute them (paper 002, Figure 6)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ngrams import PhraseHeads
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.tasks.prepare.sharded import read_shards, required, shards
from phrasemodels.tasks.problems.sequences import PhraseBatch
from phrasemodels.tasks.problems.translation.objective import TranslationObjective
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import load_trained

GRAMS = required(row=pa.int64(), last=pa.int32(), phrase=pa.string(), vector=pa.list_(pa.float32()))


@dataclass(frozen=True)
class GramSettings:
    """A model's configuration, and the number of sentences. batch_tokens bounds memory."""

    objective: TranslationObjective
    model: TranslationConfig
    sentences: int = 500
    batch_tokens: int = 4096


def gram_vectors(job: Job, settings: GramSettings) -> dict[str, Any]:
    """Write grams.arrow: the n-grams of the first sentences, of the longest size, in the last layer that has n-grams.

    A row has the sentence's number, the place of the n-gram's last word, its words, and the queries of the heads of that
    size, [q'_7; q'_8]. Inputs are those of `translate`.
    """
    model = load_trained(settings.objective, settings.model, job.inputs)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = read_shards(job.inputs["rows"]).slice(0, settings.sentences)["source"].to_pylist()
    found: list[dict[str, Any]] = []
    for rows in in_order(data, settings.batch_tokens):
        chosen = rows[rows < len(words)]
        if len(chosen):
            batch = data.batch(chosen)
            size, vectors = longest_grams(model, batch)
            for row, length, of_sentence in zip(chosen.tolist(), batch.lengths.tolist(), vectors, strict=True):
                found += _grams(row, words[row], size, of_sentence[length > len(words[row]) :])
    found.sort(key=lambda gram: (gram["row"], gram["last"]))
    return {"grams": write_shard(job.out / "grams.arrow", pa.Table.from_pylist(found, schema=GRAMS))}


@torch.inference_mode()
def longest_grams(model: Translator, batch: PhraseBatch) -> tuple[int, Tensor]:
    """Return the longest n-gram size of the last layer with n-grams, and the queries of its heads (B, n, heads · width).

    ValueError: a model without n-grams.
    """
    layers = [module for module in model.encoder.modules() if isinstance(module, PhraseHeads)]
    if not layers:
        raise ValueError("this model has no n-grams: name a PhraseTransformer")
    queries: list[Tensor] = []

    def keep_queries(module: nn.Module, inputs: tuple[Tensor, ...], outputs: list[Tensor]) -> None:
        queries.append(outputs[0])

    handle = layers[-1].register_forward_hook(keep_queries)
    try:
        model.encode(batch.source, batch.lengths, batch.members)
    finally:
        handle.remove()
    size = max(layers[-1].groups)
    return size, queries[0][..., layers[-1].groups[size], :].flatten(2)


def _grams(row: int, words: list[str], size: int, vectors: Tensor) -> Iterator[dict[str, Any]]:
    """Yield the n-grams that lie inside a sentence, with the place of the last word, from 1; vectors begin with that of the
    first word."""
    for last in range(size, len(words) + 1):
        phrase = " ".join(words[last - size : last])
        yield {"row": row, "last": last, "phrase": phrase, "vector": np.asarray(vectors[last - 1])}
