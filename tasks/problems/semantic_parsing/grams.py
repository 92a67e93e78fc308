"""What n-gram heads make of the phrases of a corpus (paper 002, Figure 6)."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ngrams import PhraseHeads
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.translation.objective import PhraseBatch, Translation
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import load_tensors

GRAMS = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("last", pa.int32(), nullable=False),
        pa.field("phrase", pa.string(), nullable=False),
        pa.field("vector", pa.list_(pa.float32()), nullable=False),
    ]
)


@dataclass(frozen=True)
class GramSettings:
    """A model's configuration, how many sentences are looked at, and how many at a time."""

    problem: Translation
    model: TranslationConfig
    sentences: int = 500
    batch_tokens: int = 4096


def gram_vectors(job: Job, settings: GramSettings) -> dict[str, Any]:
    """grams.arrow: the n-grams of the first sentences, inputs as of `translate`: row, place of the last word, words, and
    the queries [q'_7; q'_8] of the heads of the longest n-grams in the last layer that has any."""
    vocabulary = job.inputs["vocabulary"]
    model = settings.problem.configure(settings.model, vocabulary).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    model.eval()
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = read_shards(job.inputs["rows"]).slice(0, settings.sentences)["source"].to_pylist()
    found: list[dict[str, Any]] = []
    for rows in in_order(data, settings.batch_tokens):
        chosen = rows[rows < len(words)]
        if len(chosen):
            size, vectors = longest_grams(cast(Translator, model), data.batch(chosen))
            found += [
                gram for row, one in zip(chosen, vectors, strict=True) for gram in _grams(row, words[row], size, one)
            ]
    found.sort(key=lambda gram: (gram["row"], gram["last"]))
    return {"grams": write_shard(job.out / "grams.arrow", pa.Table.from_pylist(found, schema=GRAMS))}


@torch.inference_mode()
def longest_grams(model: Translator, batch: PhraseBatch) -> tuple[int, Tensor]:
    """The longest gram size s of the last layer with n-grams, and (B, n, own · w): what its heads of that size ask with.

    ValueError: a model without n-grams.
    """
    layers = [module for module in model.encoder.modules() if isinstance(module, PhraseHeads)]
    if not layers:
        raise ValueError("this model has no n-grams: ask a PhraseTransformer")
    kept: list[Tensor] = []

    def keep(module: nn.Module, heads: tuple[Tensor, ...], made: list[Tensor]) -> None:
        kept.append(made[0])

    handle = layers[-1].register_forward_hook(keep)
    try:
        model.encode(batch.source, batch.lengths, batch.members)
    finally:
        handle.remove()
    size = max(layers[-1].groups)
    return size, kept[0][..., layers[-1].groups[size], :].flatten(2)


def _grams(row: Any, words: list[str], size: int, vectors: Tensor) -> list[dict[str, Any]]:
    """Those of one sentence that begin and end in it; its first word stands at position 1."""
    return [
        {
            "row": int(row),
            "last": last,
            "phrase": " ".join(words[last - size : last]),
            "vector": np.asarray(vectors[last]),
        }
        for last in range(size, len(words) + 1)
    ]
