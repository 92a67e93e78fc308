"""Vectors of n-grams of a corpus, as the n-gram heads of a model compute them, or of words (paper 002, Figures 6 and 9)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.attention import MultiHeadAttention
from phrasemodels.layers.ngrams import PhraseHeads
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.tasks.prepare.sharded import read_shards, required, shards
from phrasemodels.tasks.problems.sequences import PhraseBatch
from phrasemodels.tasks.problems.translation.objective import TranslationObjective
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import load_trained

GRAMS = required(row=pa.int64(), last=pa.int32(), phrase=pa.string(), vector=pa.list_(pa.float32()))
WORDS = 4  # up to a word, as its context


@dataclass(frozen=True)
class GramSettings:
    """A model's configuration, and the number of sentences. batch_tokens bounds memory."""

    objective: TranslationObjective
    model: TranslationConfig
    sentences: int = 500
    batch_tokens: int = 4096


def gram_vectors(job: Job, settings: GramSettings) -> dict[str, Any]:
    """Write grams.arrow: the n-grams of the first sentences, with the queries that `phrase_queries` yields for the last word.

    A row has the sentence's number, the place of the n-gram's last word, its words, and the queries. An encoder without heads
    has no rows. Inputs are those of `translate`.
    """
    model = load_trained(settings.objective, settings.model, job.inputs)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = read_shards(job.inputs["rows"]).slice(0, settings.sentences)["source"].to_pylist()
    found: list[dict[str, Any]] = []
    for rows in in_order(data, settings.batch_tokens):
        chosen = rows[rows < len(words)]
        if len(chosen):
            batch = data.batch(chosen)
            size, vectors = phrase_queries(model, batch)
            if not vectors.shape[-1]:
                break
            for row, length, of_sentence in zip(chosen.tolist(), batch.lengths.tolist(), vectors, strict=True):
                found += _grams(row, words[row], size, of_sentence[length > len(words[row]) :])
    found.sort(key=lambda gram: (gram["row"], gram["last"]))
    return {"grams": write_shard(job.out / "grams.arrow", pa.Table.from_pylist(found, schema=GRAMS))}


@torch.inference_mode()
def phrase_queries(model: Translator, batch: PhraseBatch) -> tuple[int, Tensor]:
    """Return a size of n-grams, and queries for the n-gram or word that ends at each place (B, n, heads · width).

    With n-grams: the longest size of the last layer that has them, and the queries of its heads, [q'_7; q'_8] (Figure 6).
    Without: WORDS, and the queries of the last quarter of the heads in the last layer, [q_7; q_8] (Figure 9); of an encoder
    that has no heads, none (B, n, 0).
    """
    modules = list(model.encoder.modules())
    phrases = [module for module in modules if isinstance(module, PhraseHeads)]
    layers = [module for module in modules if isinstance(module, MultiHeadAttention)]
    if phrases:
        size = max(phrases[-1].groups)
        own = phrases[-1].groups[size]
        (queries, *_) = _outputs(model, batch, phrases[-1])
        return size, queries[..., own, :].flatten(2)
    if not layers:
        return WORDS, torch.empty(*batch.source.shape, 0)
    queries = _outputs(model, batch, layers[-1].query)
    return WORDS, queries[..., -(queries.shape[-1] // 4) :]


def _outputs(model: Translator, batch: PhraseBatch, module: nn.Module) -> Any:
    """Return what a module of the encoder returns when the batch is encoded."""
    found: list[Any] = []
    handle = module.register_forward_hook(lambda _, inputs, outputs: found.append(outputs))
    try:
        model.encode(batch.source, batch.lengths, batch.members)
    finally:
        handle.remove()
    return found[-1]


def _grams(row: int, words: list[str], size: int, vectors: Tensor) -> Iterator[dict[str, Any]]:
    """Yield the n-grams that lie inside a sentence, with the place of the last word, from 1; vectors begin with that of the
    first word."""
    for last in range(size, len(words) + 1):
        phrase = " ".join(words[last - size : last])
        yield {"row": row, "last": last, "phrase": phrase, "vector": np.asarray(vectors[last - 1])}
