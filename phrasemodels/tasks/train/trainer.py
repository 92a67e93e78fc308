"""One process of a training: its rank and device, its clock, and a setting of its memory.

What a model is trained for; each problem has its own.

Training: one loop for every model and problem, on one worker or many, whatever started it.

A training resumes from its newest checkpoint and ends with the weights that it would have without the interruption, bit
for bit on a CPU. It sees the same batches on any number of workers.
"""

import contextlib
import ctypes
import itertools
import json
import math
import os
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, nn

from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Job, OutOfTimeError, jsonable
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import Batch, Examples, Rows, from_step, in_order, rows_of_worker, stream
from phrasemodels.tasks.train.checkpoints import Progress, newest, resume, save, tensors
from phrasemodels.tasks.train.config import TrainConfig

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


@dataclass
class Worker:
    """The rank of this process, and the number of processes (`world`) that train together."""

    rank: int = field(default_factory=lambda: distributed.get_rank() if distributed.is_initialized() else 0)
    world: int = field(default_factory=lambda: distributed.get_world_size() if distributed.is_initialized() else 1)

    @property
    def device(self) -> torch.device:
        """The GPU of this worker if the machine has any, else the CPU."""
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        return (
            torch.device("cuda", local % torch.cuda.device_count())
            if torch.cuda.is_available()
            else torch.device("cpu")
        )

    def total(self, values: Tensor) -> Tensor:
        """Return the sums of values over all workers, in float64."""
        summed = values.to(self.device, torch.float64)
        if self.world > 1:
            distributed.all_reduce(summed)
        return summed

    def any(self, here: bool) -> bool:
        """Return whether something is so on any worker; all workers get the same answer."""
        return here if self.world == 1 else bool(self.total(torch.tensor([float(here)])).item())


class Clock:
    """Loss and speed since the previous row of the history. saved: when the last checkpoint was written."""

    def __init__(self, progress: Progress) -> None:
        self.before = progress.seconds
        self.started = self.last = self.saved = time.monotonic()
        self.losses: list[Tensor] = []
        self.count = 0

    def seconds(self) -> float:
        """Return how long the training has run, over all its starts."""
        return self.before + time.monotonic() - self.started

    def since_saved(self) -> float:
        """Return the seconds since the last checkpoint."""
        return time.monotonic() - self.saved

    def add(self, loss: Tensor, count: int) -> None:
        """Add the summed loss of an update, and the number of items that it is summed over."""
        self.losses.append(loss)
        self.count += count

    def row(
        self, progress: Progress, dev_loss: float, optimiser: torch.optim.Optimizer, worker: Worker
    ) -> dict[str, float]:
        """Return a row of the history, and start again."""
        now = time.monotonic()
        row = {
            "step": progress.step,
            "epoch": progress.epoch,
            "loss": float(worker.total(torch.stack(self.losses).sum())) / self.count,
            "dev_loss": dev_loss,
            "learning_rate": optimiser.param_groups[0]["lr"],
            "items_per_second": self.count / (now - self.last),
            "workers": worker.world,
            "peak_memory_mib": peak_memory_mib(),
            "seconds": self.seconds(),
        }
        self.losses, self.count, self.last = [], 0, now
        return row


def forget_peak_memory() -> None:
    """Return freed memory to the kernel and measure the peak from now on: a worker may have trained another model before. Only
    Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6", use_errno=False).malloc_trim(0)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_mib() -> float:
    """Return the most memory that this process held, in MiB, since `forget_peak_memory` or, where that is not possible, since
    its start."""
    with contextlib.suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory. By default it returns large blocks to the kernel, and a step spends two thirds of its
    time on page faults."""
    if sys.platform == "linux":
        libc = ctypes.CDLL("libc.so.6", use_errno=False)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


class Objective(ABC):
    """What a model is trained for: its examples, its loss, and the criterion that its weights are chosen by.

    curve: the name of the criterion with its unit, which labels its axis in plots. keeps_last: the last weights are the model, not
    those with the best criterion.
    """

    curve: ClassVar[str]
    keeps_last: ClassVar[bool] = False

    @abstractmethod
    def configure(self, model: Any, vocabulary: Artifact) -> Any:
        """Return the model's configuration with the sizes that the data decides."""

    @abstractmethod
    def examples(self, paths: Sequence[Path]) -> Any:
        """Return the rows of shards, as phrasemodels.tasks.train.batches.Examples."""

    @abstractmethod
    def loss(self, model: Any, batch: Any, smoothing: float) -> Tensor:
        """Return the loss (nats) of a batch, summed over the items that `count` counts."""

    def criterion(self, model: Any, batch: Any) -> Tensor:
        """Return what is to be minimised on dev, for a batch. Here: the loss without smoothing.

        Either a scalar, a sum over the items that `count` counts: the criterion is then their mean over all batches. Or
        pairs (errors, total) (m, 2): the criterion is then the sum of the m shares errors / total over all batches.
        """
        return self.loss(model, batch, 0.0)

    def count(self, data: Any, rows: Rows) -> int:
        """Return over how many items of these rows loss and criterion are summed. Here: the rows."""
        return len(rows)


PROGRESS = "progress.json"
CHECKPOINT_SECONDS = 180.0  # between two checkpoints at most
HISTORY = "history.json"  # of a finished training; it has seconds, so no two are the same


@dataclass(frozen=True)
class Training:
    """The input of the training loop on each worker.

    train, dev: paths of shards. folder: where checkpoints and progress are written. key: of the step in the store, which
    checkpoints must have. report: called with the history after each evaluation. until: the time (seconds since 1970) at which
    the training saves a checkpoint and ends; stop_at: the updates after which it does.
    """

    objective: Objective
    model: Any
    config: TrainConfig
    seed: int
    train: tuple[Path, ...]
    dev: tuple[Path, ...]
    folder: Path
    key: str
    report: Callable[[list[dict[str, float]]], None] | None = None
    until: float = math.inf
    stop_at: float = math.inf


class DivergedError(ValueError):
    """A training came to no finite loss."""


@dataclass(frozen=True)
class TrainSettings:
    """All that decides the weights, except for the data."""

    objective: Objective
    model: Any
    config: TrainConfig
    seed: int


def train(job: Job, settings: TrainSettings) -> dict[str, Any]:
    """Train one model with one seed on the shards of ids job.inputs["train"] and ["dev"]; also reads ["vocabulary"].

    Writes model.safetensors (the best weights), config.json and history.json. DivergedError: no loss was a finite number.
    OutOfTimeError: it was not done at job.executor.until, or at its stop_at; called again, it goes on from its checkpoint.
    """
    model = settings.objective.configure(settings.model, job.inputs["vocabulary"])
    train_paths, dev_paths = (tuple(s.path for s in shards(job.inputs[name])) for name in ("train", "dev"))
    training = Training(
        settings.objective,
        model,
        settings.config,
        settings.seed,
        train_paths,
        dev_paths,
        job.checkpoints,
        job.key,
        job.executor.report,
        job.executor.until,
        job.executor.stop_at,
    )
    job.executor.launch(training_loop, training)
    found = newest(job.checkpoints, job.key)
    assert found is not None, "a finished training has a checkpoint"
    path, state = found
    progress = Progress(**state["progress"])
    if not _ended(progress, settings.config):
        raise OutOfTimeError(
            f"its time was up after {progress.step} of {settings.config.steps} updates, which are kept"
        )
    if not math.isfinite(progress.best):  # the best weights would be those of the start
        raise DivergedError(
            "the training diverged: its dev loss never was a finite number; lower train.learning_rate or train.clip"
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


def history(trained: Artifact) -> list[dict[str, float]]:
    """Return the metrics of a finished training, a row for each evaluation."""
    return json.loads(trained.file(HISTORY).read_text(encoding="utf-8"))


def training_loop(training: Training) -> None:
    """Train from the newest checkpoint, or from the start, to the last step or the end of its time; either leaves a
    checkpoint."""
    config, worker = training.config, Worker()
    torch.set_num_threads(config.threads)
    keep_freed_memory()
    forget_peak_memory()
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # saves time alone
    data, dev = (training.objective.examples(paths) for paths in (training.train, training.dev))
    torch.manual_seed(stream(training.seed, "init"))
    model = training.model.build().to(worker.device)
    optimiser = config.optimiser(model.parameters(), config)
    progress, best = resume(training.folder, model, optimiser, training.key)
    progress.starts.append((progress.step, worker.world))
    wrapped = ModelWithLoss(model, training.objective, config.smoothing)
    ddp = nn.parallel.DistributedDataParallel(wrapped) if worker.world > 1 else wrapped
    clock = Clock(progress)
    how = (config.batch_rows, config.arrange, config.equal_sides)
    order = from_step(data, config.batch_tokens, training.seed, progress.step, *how)
    for progress.epoch, rows in order:
        if _ended(progress, config):
            break
        late = math.isfinite(training.until) and worker.any(time.time() >= training.until)
        if progress.step >= training.stop_at or late:
            if worker.rank == 0:
                progress.seconds = clock.seconds()
                save(training.folder, model, best, optimiser, progress, training.key)
                _report(training, progress)
                _tell(training, progress, clock)
            break
        torch.manual_seed(stream(training.seed, "dropout", progress.step, worker.rank))
        loss = _update(ddp, optimiser, training, data, rows, worker, progress)
        if progress.step == 0 and math.isnan(loss):
            raise DivergedError(
                "the loss is not a number before any update: the model itself computes NaN; check its forward pass"
            )
        clock.add(loss, training.objective.count(data, rows))
        progress.step += 1
        if progress.step == config.steps or progress.step % config.evaluate_every == 0:
            with getattr(optimiser, "averaged", nullcontext)():  # an optimiser may keep averages of the weights
                dev_loss = _dev_loss(wrapped, dev, config, worker)
                if training.objective.keeps_last or dev_loss < progress.best:
                    progress.best, progress.best_step, best = dev_loss, progress.step, tensors(model)
            progress.history.append(clock.row(progress, dev_loss, optimiser, worker))
        if worker.rank == 0:
            _save_and_report(training, progress, best, model, optimiser, clock)


def _ended(progress: Progress, config: TrainConfig) -> bool:
    """Return whether the last step is done, the dev loss has not improved for `patience` evaluations, or the learning rate
    has decayed to 0."""
    without = progress.step - progress.best_step
    if progress.step >= config.steps or 0 < config.patience * config.evaluate_every <= without:
        return True
    return config.decay([row["dev_loss"] for row in progress.history]) == 0


class ModelWithLoss(nn.Module):
    """A model whose forward pass is its loss, as DistributedDataParallel needs it."""

    def __init__(self, model: nn.Module, objective: Objective, smoothing: float) -> None:
        super().__init__()
        self.model, self.objective, self.smoothing = model, objective, smoothing

    def forward(self, batch: Batch) -> Tensor:
        return self.objective.loss(self.model, batch, self.smoothing)


def _precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    dtype = getattr(torch, config.precision)
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def _update(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    training: Training,
    data: Examples,
    rows: Rows,
    worker: Worker,
    progress: Progress,
) -> Tensor:
    """Do one update; return this worker's part of the summed loss."""
    config = training.config
    own = rows_of_worker(rows, worker.rank, worker.world)
    pieces = [rows_of_worker(own, piece, config.pieces) for piece in range(max(1, min(config.pieces, len(own))))]
    alone = model.no_sync if isinstance(model, nn.parallel.DistributedDataParallel) else nullcontext
    model.train()
    rate = config.learning_rate * config.decay([row["dev_loss"] for row in progress.history])
    for group in optimiser.param_groups:
        group["lr"] = rate * config.schedule(progress.step, config.warmup, config.steps)
    # DDP averages gradients over workers; this scale makes them those of the mean over the global batch
    scale = worker.world / training.objective.count(data, rows)
    total = torch.zeros((), device=worker.device)
    for piece in pieces:
        part = piece if len(piece) else rows[:1]  # a worker without rows takes part in the reduction with weight 0
        with nullcontext() if piece is pieces[-1] else alone():
            with _precision(config, worker.device):
                loss = model(data.batch(part).to(worker.device)) * float(len(own) > 0)
            (loss * scale).backward()
        total = total + loss.detach()
    if math.isfinite(config.clip):
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return total


@torch.inference_mode()
def _dev_loss(model: ModelWithLoss, dev: Examples, config: TrainConfig, worker: Worker) -> float:
    """Return the objective's criterion over all batches of dev; each row is counted by one worker."""
    model.eval()
    batches = in_order(dev, config.batch_tokens)
    own = batches[worker.rank :: worker.world]
    sums = []
    for rows in own or batches[:1]:  # a worker without a batch takes part in the reduction with weight 0
        with _precision(config, worker.device):
            errors = model.objective.criterion(model.model, dev.batch(rows).to(worker.device)).double()
        count = errors.new_tensor(model.objective.count(dev, rows))
        sums.append(errors if errors.dim() else torch.stack([errors, count]))
    totals = worker.total(torch.stack(sums).sum(0) * bool(own))
    return float((totals[..., 0] / totals[..., 1]).sum())


def _save_and_report(
    training: Training,
    progress: Progress,
    best: dict[str, Tensor],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    clock: Clock,
) -> None:
    """Save a checkpoint, then report the history, and write progress.json, each when it is due: a checkpoint every
    `checkpoint_every` updates, and CHECKPOINT_SECONDS after the one before at the latest."""
    config = training.config
    last = _ended(progress, config)
    if last or progress.step % config.checkpoint_every == 0 or clock.since_saved() > CHECKPOINT_SECONDS:
        progress.seconds = clock.seconds()
        save(training.folder, model, best, optimiser, progress, training.key)
        clock.saved = time.monotonic()
        _report(training, progress)
    if last or progress.step % 10 == 0:
        _tell(training, progress, clock)


def _tell(training: Training, progress: Progress, clock: Clock) -> None:
    """Write progress.json: how far the training is, its best dev criterion so far, and what it took."""
    training.folder.mkdir(parents=True, exist_ok=True)
    state = {
        "step": progress.step,
        "steps": training.config.steps,
        "best": progress.best,
        "pid": os.getpid(),
        "seconds": clock.seconds(),
    }
    aside = training.folder / f".{PROGRESS}"
    aside.write_text(json.dumps(state), encoding="utf-8")
    os.replace(aside, training.folder / PROGRESS)  # atomic: readers never see half of it


def _report(training: Training, progress: Progress) -> None:
    if training.report is not None:
        training.report(progress.history)
