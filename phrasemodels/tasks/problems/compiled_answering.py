"""Train memory networks by compiled updates with the results of torch, some hundred times faster.

`train_compiled` does the same as phrasemodels.tasks.train.trainer.train for one question an update and SGD. The start
and the order of questions are the same. The numbers are float64. A torch model gives the initial weights and takes the
best ones.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from phrasemodels.config import to_json
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Job
from phrasemodels.models.memory import (
    BinaryPotentials,
    BinaryPotentialsOnce,
    Chain,
    Hops,
    ReleasedPotentials,
    RowNormalisedPotentials,
    UnaryPotentials,
)
from phrasemodels.saved import copied
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.problems import memory_kernels
from phrasemodels.tasks.problems.answering import StoryExamples
from phrasemodels.tasks.problems.memory_kernels import (
    NO_PAIRS,
    PRODUCTS,
    ROWS,
    SLOTS,
    ChainReading,
    ChainWeights,
    HopsWeights,
    Schedule,
    Stories,
)
from phrasemodels.tasks.train.batches import Rows, stream
from phrasemodels.tasks.train.checkpoints import Progress
from phrasemodels.tasks.train.config import TrainConfig, sgd, undecayed
from phrasemodels.tasks.train.trainer import HISTORY, DivergedError, TrainSettings, forget_peak_memory, peak_memory_mib

# the pairwise potentials of both phases, and how often unary potentials count in them
READINGS: dict[type, tuple[list[int], list[float]]] = {
    BinaryPotentials: ([PRODUCTS, PRODUCTS], [2.0, 2.0]),
    BinaryPotentialsOnce: ([PRODUCTS, PRODUCTS], [1.0, 1.0]),
    RowNormalisedPotentials: ([ROWS, ROWS], [1.0, 1.0]),
    ReleasedPotentials: ([PRODUCTS, NO_PAIRS], [2.0, 1.0]),
    UnaryPotentials: ([SLOTS, SLOTS], [1.0, 1.0]),
}


class Parameters(NamedTuple):
    """All weights as one vector (P) and its gradient (P), and views of both by name."""

    vector: NDArray[np.float64]
    gradient: NDArray[np.float64]
    weights: Any
    gradients: Any


@dataclass(frozen=True)
class CompiledModel:
    """The compiled form of a torch memory network.

    fields: its torch parameters by the fields of `parameters.weights`. updates(parameters, reading, stories, schedule)
    does updates and returns their summed loss. answers(weights, reading, stories, phase) returns the best answers (N).
    counter: the torch parameter for the number of updates with their number in phase 0. None for one phase.
    """

    fields: Mapping[str, Any]
    parameters: Parameters
    reading: Any
    updates: Callable[..., float]
    answers: Callable[..., NDArray[np.int64]]
    counter: Tensor | None = None
    linear_updates: int = 0

    def phases(self, step: int, count: int) -> NDArray[np.int64]:
        """Return the phases (count) of the updates after the first `step` updates."""
        return (np.arange(step, step + count) >= self.linear_updates).astype(np.int64)

    def wrong(self, stories: Stories, step: int) -> float:
        """Return the share of wrong answers after `step` updates."""
        phase = int(step > self.linear_updates or not self.linear_updates)
        found = self.answers(self.parameters.weights, self.reading, stories, phase)
        return float((found != stories.answers).mean())

    @torch.no_grad()
    def write_back(self, vector: NDArray[np.float64], step: int) -> None:
        """Copy the weights (P) after `step` updates to the torch model."""
        self.parameters.vector[:] = vector
        for name, parameter in self.fields.items():
            views = getattr(self.parameters.weights, name)
            for one, view in (
                [(parameter, views)] if isinstance(parameter, Tensor) else zip(parameter, views, strict=True)
            ):
                one.copy_(torch.from_numpy(view))
        if self.counter is not None:
            self.counter.fill_(step)


def compiled(model: Hops | Chain, longest: int) -> CompiledModel:
    """Return the compiled form of a torch model with its weights.

    Sentences have at most `longest` words. ValueError: its potentials have no compiled form.
    """
    if isinstance(model, Hops):
        tables = _embeddings("", model.tables)
        scales = _scales(model.tables[0], longest)
        kernels = scales, memory_kernels.hops_updates, memory_kernels.hops_answers, model.updates, model.linear_updates
        return CompiledModel(tables, _parameters(HopsWeights, tables), *kernels)
    potentials = model.potentials
    if type(potentials) not in READINGS:
        raise ValueError(f"no compiled updates for {type(potentials).__name__}: train it with trainer=train")
    pairs, counts = READINGS[type(potentials)]
    maps: Any = getattr(potentials, "maps", ())
    fields: dict[str, Any] = {
        **_embeddings("key_", model.keys),
        **_embeddings("value_", model.values),
        "maps": [step.weight for step in maps],
        "offsets": [step.bias for step in maps],
        "transitions": getattr(potentials, "transitions", torch.empty(0, 0)),
        "answer": model.answer.weight,
    }
    reading = ChainReading(_scales(model.keys[0], longest), np.array(pairs), np.array(counts))
    counter = getattr(potentials, "updates", None), getattr(potentials, "linear_updates", 0)
    parameters = _parameters(ChainWeights, fields)
    return CompiledModel(
        fields, parameters, reading, memory_kernels.chain_updates, memory_kernels.chain_answers, *counter
    )


def _embeddings(prefix: str, tables: Any) -> dict[str, list[Tensor]]:
    """Return the parameters of the embeddings of facts, by the names of fields."""
    return {f"{prefix}words": [table.words.weight for table in tables], f"{prefix}ago": [t.ago for t in tables]}


def _parameters(kind: Callable[..., Any], fields: Mapping[str, Any]) -> Parameters:
    """Return the weights of a torch model: a list of parameters as one array, with a first dimension more."""
    values = [
        value.detach().double().numpy()
        if isinstance(value, Tensor)
        else np.stack([one.detach().double().numpy() for one in value])
        if value
        else np.empty((0, 0, 0) if name == "maps" else (0, 0))
        for name, value in fields.items()
    ]
    ends = np.cumsum([value.size for value in values])
    vector = np.concatenate([value.ravel() for value in values])

    def views(whole: NDArray[np.float64]) -> Any:
        parts = np.split(whole, ends[:-1])
        return kind(*(part.reshape(value.shape) for part, value in zip(parts, values, strict=True)))

    gradient = np.zeros_like(vector)
    return Parameters(vector, gradient, views(vector), views(gradient))


def _scales(table: Any, longest: int) -> NDArray[np.float64]:
    """Return l (longest+1, longest, d), the factor of the embedding of word j in a sentence of each length."""
    d = table.words.embedding_dim
    words = torch.eye(longest, dtype=torch.float64).unsqueeze(-1).expand(longest, longest, d)
    real = torch.arange(longest) < torch.arange(longest + 1)[:, None]
    return np.stack([table.encode(words, row.expand(longest, longest)).numpy() for row in real])


def stories_of(data: StoryExamples, slots: int) -> Stories:
    """Return rows of story shards for the kernels. ValueError: a story has fewer than two facts."""
    batch = data.batch(np.arange(len(data)))
    facts = np.pad(batch.facts.numpy(), ((0, 0), (slots - batch.facts.shape[1], 0), (0, 0)))
    counts, questions = (facts > 0).sum(-1), batch.question.numpy()
    first = slots - (counts > 0).sum(-1)
    if first.max() > slots - 2:
        raise ValueError("a story has fewer than two facts, which compiled training does not take: use trainer=train")
    return Stories(facts, counts, first, questions, (questions > 0).sum(-1), batch.answer.numpy())


def train_compiled(job: Job, settings: TrainSettings) -> dict[str, Any]:
    """Train one memory network with one seed.

    Inputs, files and meta are as for phrasemodels.tasks.train.trainer.train. ValueError: the configuration is not one
    question an update by SGD to the last step. Or the model has no compiled form.
    """
    forget_peak_memory()
    config = settings.config
    _check(config)
    model_config = settings.objective.configure(settings.model, job.inputs["vocabulary"])
    data, dev = (
        settings.objective.examples([shard.path for shard in shards(job.inputs[name])]) for name in ("train", "dev")
    )
    torch.manual_seed(stream(settings.seed, "init"))
    model = model_config.build()
    trained, held_out = (stories_of(examples, model_config.slots) for examples in (data, dev))
    longest = max(x.shape[-1] for part in (trained, held_out) for x in (part.facts, part.questions))
    fast = compiled(model, longest)
    order = one_by_one(data, settings.seed)
    history, best = train_loop(fast, trained, held_out, config, order)
    fast.write_back(*best)
    weights = copied(model)
    save_file(weights, job.out / "model.safetensors")
    write_durably(job.out / "config.json", json.dumps(to_json(model_config), indent=1))
    write_durably(job.out / HISTORY, json.dumps(history))
    return {
        "parameters": sum(weight.numel() for weight in weights.values()),
        "steps": config.steps,
        "epochs": history[-1]["epoch"] + 1,
        "best_step": best[1],
        "dev_loss": min(row["dev_loss"] for row in history),
        "seed": settings.seed,
        "train_seconds": history[-1]["seconds"],
        "peak_memory_mib": history[-1]["peak_memory_mib"],
        "workers": [1],
        "starts": [0],
        "devices": ["cpu"],
    }


def one_by_one(data: StoryExamples, seed: int) -> Iterator[Rows]:
    """Yield the rows of each epoch without end, in the order of phrasemodels.tasks.train.batches.batches_from for batches of
    one row. Those batches take longer than the updates of an epoch.
    """
    length = data.lengths.sum(1)
    for epoch in itertools.count():
        rng = np.random.default_rng(stream(seed, "order", epoch))
        order = np.argsort(length + rng.random(len(length)), kind="stable")
        yield order[rng.permutation(len(length))]


def _check(config: TrainConfig) -> None:
    """Refuse a configuration that compiled updates cannot train (ValueError)."""
    wanted = {"optimiser": sgd, "decay": undecayed, "batch_rows": 1, "smoothing": 0.0, "patience": None}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            shown = getattr(value, "__name__", value)
            raise ValueError(f"train.{name}: compiled training has {shown} alone; for another use recipe.trainer=train")


def train_loop(
    fast: CompiledModel, stories: Stories, held_out: Stories, config: TrainConfig, order: Iterator[Rows]
) -> tuple[list[dict[str, float]], tuple[NDArray[np.float64], int]]:
    """Do all updates of a training and return its history and best weights (P).

    The best weights have the fewest wrong answers on held-out questions. The number of updates before them is returned,
    too. order: the rows of the stories in each epoch. DivergedError: the loss or a weight was not finite at an
    evaluation.
    """
    history: list[dict[str, float]] = []
    rows = itertools.chain.from_iterable(order)
    best, fewest, started = (fast.parameters.vector.copy(), 0), np.inf, time.monotonic()
    for step in range(0, config.steps, config.evaluate_every):
        count = min(config.evaluate_every, config.steps - step)
        rates = [config.learning_rate * config.schedule(step + t, config.warmup, config.steps) for t in range(count)]
        chosen = np.fromiter(rows, np.int64, count)
        schedule = Schedule(chosen, np.array(rates), fast.phases(step, count), float(config.clip))
        begun = time.monotonic()
        loss = fast.updates(fast.parameters, fast.reading, stories, schedule)
        if not (np.isfinite(loss) and np.isfinite(fast.parameters.vector.astype(np.float32)).all()):
            why = Progress(step + count, history=[{"loss": np.nan}]).why_diverged
            raise DivergedError(f"the training diverged: {why}; lower train.learning_rate or train.clip")
        updating, wrong = time.monotonic() - begun, fast.wrong(held_out, step + count)
        if wrong < fewest:
            best, fewest = (fast.parameters.vector.copy(), step + count), wrong
        seconds = time.monotonic() - started
        history.append(
            {
                "step": step + count,
                "epoch": (step + count - 1) // len(stories.answers),
                "loss": loss / count,
                "dev_loss": wrong,
                "learning_rate": rates[-1],
                "items_per_second": count / updating,
                "workers": 1,
                "peak_memory_mib": peak_memory_mib(),
                "seconds": seconds,
            }
        )
    return history, best
