"""Activations that a sentence encoder saves in a training step for its backward pass (paper 001, Table 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from phrasemodels.data.store.step import Job, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.sentence_pair import SentenceEncoderConfig
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.levels import Levels
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.counting.divisions import of_stand_in
from phrasemodels.tasks.problems.counting.parameters import NO_SENTENCES
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe
from phrasemodels.tasks.problems.entailment.recipe import TransferTask
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig

SIGNATURE = "activations saved for the backward pass of a step, as float32, MiB, mean over batches of {rows} sentences"
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Activations:
    """An encoder, the encoders that it is compared with by name, and the sentences. batches: how many, of `rows` each."""

    model: SentenceEncoderConfig
    others: Mapping[str, SentenceEncoderConfig]
    task: TransferTask
    levels: Levels
    stand_in: bool
    rows: int = 16
    batches: int = 32

    def __post_init__(self) -> None:
        at_least(self, 1, "rows", "batches")


def count_activations(job: Job, settings: Activations) -> dict[str, Any]:
    """Count `memory` (MiB) of the encoder on the SENTENCES of all inputs, and `reduction`: the percentage that it has less
    than the other encoders, the least of them."""
    chosen = _sentences(job, settings)
    found = {name: _mebibytes(config, chosen) for name, config in {"": settings.model, **settings.others}.items()}
    signature = SIGNATURE.format(rows=settings.rows)
    scores = {"memory": Score(found[""], signature, sum(len(lengths) for lengths, _ in chosen))}
    if settings.others:
        less = {name: 100 * (1 - found[""] / found[name]) for name in settings.others}
        scores |= {f"reduction {name}": Score(value, signature, 0) for name, value in less.items()}
        scores["reduction"] = Score(min(less.values()), signature, 0)
    test_set = [shard for a in job.inputs.values() for shard in a.meta["shards"]]
    return {**write_scores(job, scores, NO_SENTENCES, test_set), "stand_in": settings.stand_in}


def _sentences(job: Job, settings: Activations) -> list[tuple[Tensor, Tensor]]:
    """Return lengths (B) and levels of phrases (B, L, n) of batches of sentences drawn at random."""
    tokens: list[list[str]] = []
    numbers = []
    for rows in job.inputs.values():
        table = read_shards(rows)
        own = [settings.task.text.words(text) for text in table["text"].to_pylist()]
        divided = settings.levels(own, table["tree"], np.array([len(row) for row in own], np.int64))
        numbers += np.split(divided, np.cumsum([len(row) for row in own])[:-1])
        tokens += own
    order = np.random.default_rng(0).permutation(len(tokens))
    parts = [order[first : first + settings.rows] for first in range(0, len(order), settings.rows)][: settings.batches]
    return [_padded([numbers[i] for i in part]) for part in parts]


def _padded(numbers: list[Any]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(own) for own in numbers])
    levels = torch.full((len(numbers), numbers[0].shape[1], int(lengths.max())), -1)
    for row, own in enumerate(numbers):
        levels[row, :, : len(own)] = torch.from_numpy(own).T
    return lengths, levels


def _mebibytes(config: SentenceEncoderConfig, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Return the mean size of what a forward pass saves. It runs in float64, for which no kernel recomputes weights of
    attention, and is counted as float32."""
    encoder = config.build().double().train()
    sizes = [saved_bytes(encoder, *batch, config.d) for batch in batches]
    return sum(sizes) / len(sizes) / 2**20


def saved_bytes(encoder: nn.Module, lengths: Tensor, levels: Tensor, d: int) -> int:
    """Return the bytes of all tensors that a forward pass saves, each storage once, without the parameters."""
    known = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    found: dict[int, int] = {}
    kept: list[Tensor] = []  # alive until the end, so that no address is given twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            size = FLOAT if tensor.is_floating_point() else tensor.element_size()
            found[storage.data_ptr()] = storage.nbytes() // tensor.element_size() * size
            kept.append(tensor)
        return tensor

    words = torch.randn(len(lengths), levels.shape[2], d, dtype=torch.float64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept.append(encoder(words, lengths, levels))
    return sum(found.values())


@dataclass(frozen=True)
class ActivationsRecipe(CountingRecipe):
    """Activations of an encoder on a transfer task's sentences. corpus: the task's. others: as in Activations."""

    corpus: Any
    task: TransferTask
    levels: Levels
    others: Mapping[str, SentenceEncoderConfig] = field(default_factory=dict)

    slug: ClassVar = "activations"

    def data(self) -> dict[str, Step]:
        return {split: self.task.parsed(self.corpus.split(split)) for split in self.task.splits}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {split: split for split in self.task.splits}
        settings = Activations(model, self.others, self.task, self.levels, of_stand_in(self.corpus, self.task))
        return {"scores": Stage(count_activations, settings, inputs)}
