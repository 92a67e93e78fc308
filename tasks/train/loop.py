"""Training: one loop for every model and problem, on one worker or many, with no knowledge of what started it.

It goes on from its last checkpoint, ends with the same weights as if it had not been interrupted (bit for bit on a
CPU), and sees the same batches on any number of workers.
"""

import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job, jsonable
from phrasemodels.tasks.prepare.sharded import HISTORY, shards
from phrasemodels.tasks.train.batches import Batch, Examples, Rows, from_step, in_order, share, stream
from phrasemodels.tasks.train.checkpoints import Progress, newest, resume, save, tensors
from phrasemodels.tasks.train.worker import Clock, Worker, keep_freed_memory

PROGRESS = "progress.json"
LEAST = {
    **dict.fromkeys(("steps", "warmup", "batch_tokens", "evaluate_every", "checkpoint_every", "threads"), 1),
    **dict.fromkeys(("batch_rows", "patience", "workers", "gpus"), 0),
}
PRECISIONS = ("float32", "bfloat16", "float16")


def inverse_sqrt(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then 1/√step (Vaswani et al. 2017, Eq 3), as a share of the peak."""
    return min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)


def linear_decay(step: int, warmup: int, steps: int) -> float:
    """Linear warm-up, then linearly to zero at the last step, as a share of the peak."""
    return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


def undecayed(losses: Sequence[float]) -> float:
    """No change by what has been measured on dev."""
    return 1.0


def adam(parameters: Iterable[nn.Parameter], config: "TrainConfig") -> torch.optim.Optimizer:
    """Adam with the betas and epsilon of the configuration."""
    return torch.optim.Adam(parameters, config.learning_rate, config.betas, config.epsilon, fused=True)


@dataclass(frozen=True)
class TrainConfig:
    """How to train. batch_tokens counts padded tokens of all sides in the global batch, whatever the number of workers;
    batch_rows bounds its rows (0: any number).

    decay: a factor of the learning rate, by the dev losses so far.
    patience: evaluations without a better one after which it ends (0: it goes on to the last step).
    precision: what products are computed in (torch.bfloat16 by autocast; weights stay float32). threads: of torch, a
    worker; part of the settings because it changes sums in their last bits. gpus: of each worker; several trainings
    share a GPU by fractions.
    """

    steps: int = 1000
    batch_tokens: int = 2048
    learning_rate: float = 1e-3
    warmup: int = 100
    batch_rows: int = 0
    schedule: Callable[[int, int, int], float] = inverse_sqrt
    decay: Callable[[Sequence[float]], float] = undecayed
    optimiser: Callable[[Iterable[nn.Parameter], "TrainConfig"], torch.optim.Optimizer] = adam
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip: float = 1.0
    smoothing: float = 0.1
    precision: str = "float32"
    evaluate_every: int = 100
    checkpoint_every: int = 200
    patience: int = 0
    workers: int = 0
    threads: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        """A ValueError that names a field with which nothing can be trained."""
        for name, least in LEAST.items():
            if not getattr(self, name) >= least:  # NaN is not
                raise ValueError(f"train.{name}={getattr(self, name)}: it is {least} or more")
        if self.gpus > 1 and self.gpus % 1:
            raise ValueError(f"train.gpus={self.gpus}: it is a part of one GPU, or whole ones")
        if self.precision not in PRECISIONS:
            raise ValueError(f"train.precision={self.precision}: it is one of {', '.join(PRECISIONS)}")


class Problem(Protocol):
    """What a model is trained for."""

    def configure(self, model: Any, vocabulary: Artifact) -> Any:
        """The model's configuration, completed by what the data decides."""

    def examples(self, paths: Sequence[Path]) -> Any:
        """The rows of shards: phrasemodels.tasks.train.batches.Examples."""

    def loss(self, model: Any, batch: Any, smoothing: float) -> Tensor:
        """Summed loss (nats) of a batch."""

    def criterion(self, model: Any, batch: Any) -> Tensor:
        """Of a batch of dev, what the best weights have least of: the sum of losses or errors, of which the mean counts,
        or rows (errors, of how many), of which the shares of all batches are added up."""

    def count(self, data: Any, rows: Rows) -> int:
        """How many things loss and criterion are summed over."""


@dataclass(frozen=True)
class Training:
    """One training: what the loop is given on each worker."""

    problem: Problem
    model: Any
    config: TrainConfig
    seed: int
    train: tuple[Path, ...]
    dev: tuple[Path, ...]
    folder: Path
    key: str
    report: Callable[[list[dict[str, float]]], None] | None = None


@dataclass(frozen=True)
class TrainSettings:
    """What decides the weights, but for the data."""

    problem: Problem
    model: Any
    config: TrainConfig
    seed: int


def train(job: Job, settings: TrainSettings) -> dict[str, Any]:
    """Weights of one model and seed, from phrase shards job.inputs["train"] and ["dev"] and ["vocabulary"]."""
    model = settings.problem.configure(settings.model, job.inputs["vocabulary"])
    train_paths, dev_paths = (tuple(s.path for s in shards(job.inputs[name])) for name in ("train", "dev"))
    training = Training(
        settings.problem,
        model,
        settings.config,
        settings.seed,
        train_paths,
        dev_paths,
        job.checkpoints,
        job.key,
        job.executor.report,
    )
    job.executor.launch(training_loop, training)
    found = newest(job.checkpoints, job.key)
    assert found is not None, "a training that ended has a checkpoint"
    path, state = found
    progress = Progress(**state["progress"])
    if not math.isfinite(progress.best):  # what would be scored are the weights it began with
        raise ValueError(
            "the training diverged, its dev loss never was a number; lower train.learning_rate or train.clip"
        )
    weights = load_file(path / "best.safetensors")
    save_file(weights, job.out / "model.safetensors")
    write_durably(job.out / "config.json", json.dumps(jsonable(model), indent=1))
    write_durably(job.out / HISTORY, json.dumps(progress.history))
    parameters = sum(weight.numel() for weight in weights.values())
    return {
        "parameters": parameters,
        "steps": progress.step,
        "epochs": progress.epoch + 1,
        "best_step": progress.best_step,
        "dev_loss": progress.best,
        "seed": settings.seed,
        "train_seconds": progress.history[-1]["seconds"],
        "peak_memory_mib": progress.history[-1]["peak_memory_mib"],
        "workers": [count for count, _ in itertools.groupby(workers for _, workers in progress.starts)],
        "starts": [step for step, _ in progress.starts],
    }


def training_loop(training: Training) -> None:
    """Train from the last checkpoint, if there is one, to the last step; the result is the newest checkpoint."""
    config, worker = training.config, Worker()
    torch.set_num_threads(config.threads)
    keep_freed_memory()
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    data, dev = (training.problem.examples(paths) for paths in (training.train, training.dev))
    torch.manual_seed(stream(training.seed, "init"))
    model = training.model.build().to(worker.device)
    optimiser = config.optimiser(model.parameters(), config)
    progress, best = resume(training.folder, model, optimiser, training.key)
    progress.starts.append((progress.step, worker.world))
    wrapped = Objective(model, training.problem, config.smoothing)
    ddp = nn.parallel.DistributedDataParallel(wrapped) if worker.world > 1 else wrapped
    clock = Clock(progress)
    order = from_step(data, config.batch_tokens, training.seed, progress.step, config.batch_rows)
    for progress.epoch, rows in order:
        if _ended(progress, config):
            break
        torch.manual_seed(stream(training.seed, "dropout", progress.step, worker.rank))
        loss = _update(ddp, optimiser, training, data, rows, worker, progress)
        if progress.step == 0 and math.isnan(loss):
            raise ValueError("the loss is not a number before any update, so the model's own output is none")
        clock.add(loss, training.problem.count(data, rows))
        progress.step += 1
        if progress.step == config.steps or progress.step % config.evaluate_every == 0:
            dev_loss = _dev_loss(wrapped, dev, config, worker)
            if dev_loss < progress.best:
                progress.best, progress.best_step, best = dev_loss, progress.step, tensors(model)
            progress.history.append(clock.row(progress, dev_loss, optimiser, worker))
        if worker.rank == 0:
            _tell(training, progress, best, model, optimiser)


def _ended(progress: Progress, config: TrainConfig) -> bool:
    """After the last step, or when nothing has become better for long enough."""
    without = progress.step - progress.best_step
    return progress.step >= config.steps or 0 < config.patience * config.evaluate_every <= without


class Objective(nn.Module):
    """A model together with its loss, so that DistributedDataParallel sees one forward call."""

    def __init__(self, model: nn.Module, problem: Problem, smoothing: float) -> None:
        super().__init__()
        self.model, self.problem, self.smoothing = model, problem, smoothing

    def forward(self, batch: Batch) -> Tensor:
        return self.problem.loss(self.model, batch, self.smoothing)


def _precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    dtype = getattr(torch, config.precision)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def _update(
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    training: Training,
    data: Examples,
    rows: Rows,
    worker: Worker,
    progress: Progress,
) -> Tensor:
    """One update; returns this worker's part of the summed loss."""
    config = training.config
    own = share(rows, worker.rank, worker.world)
    part = own if len(own) else rows[:1]  # a worker without rows still takes part in the reduction, with weight 0
    objective.train()
    rate = config.learning_rate * config.decay([row["dev_loss"] for row in progress.history])
    for group in optimiser.param_groups:
        group["lr"] = rate * config.schedule(progress.step, config.warmup, config.steps)
    with _precision(config, worker.device):
        loss = objective(data.batch(part).to(worker.device)) * float(len(own) > 0)
    # gradients are averaged over workers: scaled so that they are those of the mean over the global batch
    (loss * (worker.world / training.problem.count(data, rows))).backward()
    nn.utils.clip_grad_norm_(objective.parameters(), config.clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return loss.detach()


@torch.inference_mode()
def _dev_loss(objective: Objective, dev: Examples, config: TrainConfig, worker: Worker) -> float:
    """The problem's criterion over all batches; every row counts once, on one worker."""
    objective.eval()
    batches = in_order(dev, config.batch_tokens)
    own = batches[worker.rank :: worker.world]
    found = []
    for rows in own or batches[:1]:  # a worker without a batch still takes part in the sums, with weight 0
        with _precision(config, worker.device):
            errors = objective.problem.criterion(objective.model, dev.batch(rows).to(worker.device)).double()
        count = errors.new_tensor(objective.problem.count(dev, rows))
        found.append(errors if errors.dim() else torch.stack([errors, count]))
    sums = worker.total(torch.stack(found).sum(0) * bool(own))
    return float((sums[..., 0] / sums[..., 1]).sum())


def _tell(
    training: Training,
    progress: Progress,
    best: dict[str, Tensor],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
) -> None:
    """Checkpoint, trackers, and a small file that anybody may watch. What is reported has been saved before."""
    config = training.config
    last = _ended(progress, config)
    if last or progress.step % config.checkpoint_every == 0:
        save(training.folder, model, best, optimiser, progress, training.key)
        if training.report is not None:
            training.report(progress.history)
    if last or progress.step % 10 == 0:
        training.folder.mkdir(parents=True, exist_ok=True)
        state = {"step": progress.step, "steps": config.steps, "best": progress.best, "pid": os.getpid()}
        aside = training.folder / f".{PROGRESS}"
        aside.write_text(json.dumps(state), encoding="utf-8")
        os.replace(aside, training.folder / PROGRESS)  # whoever watches never reads half of it
