"""Training: one `Trainer` for every model and problem on any number of workers by any launcher.

`train` is the step of the pipeline. It launches `run_training` on each worker. There a `Trainer` updates the weights, evaluates
them and saves checkpoints. A training resumes from its newest checkpoint. It ends with the weights of a training without
interruption, bit for bit on a CPU. It sees the same batches on any number of workers.
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
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, nn
from torch.func import functional_call

from phrasemodels.config import to_json
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.store import Job, OutOfTimeError
from phrasemodels.layers.attention_weights import ReleasedSegmentWeights
from phrasemodels.saved import copied, not_finite
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import Batch, Rows, batches_from, in_order, rows_of_worker, stream
from phrasemodels.tasks.train.checkpoints import (
    CPU,
    Progress,
    adopt,
    best_device,
    keep,
    load_tensors,
    newest,
    resume,
    save,
    without_attention_by_cudnn,
)
from phrasemodels.tasks.train.config import TrainConfig, averaged_weights
from phrasemodels.tasks.train.recorded import RecordedPasses, RecordedStep, can_be_recorded

PROGRESS = "progress.json"
CHECKPOINT_SECONDS = 180.0  # between two checkpoints at most, unless to save them takes more than a share of the time
SAVING = 0.05
GRAPHS = "this GPU waits for the launch of each kernel; --set train.graphs=true may be many times as fast"
HISTORY = "history.json"  # of a finished training; it has seconds, so no two are the same
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


class Objective(ABC):
    """Loss of a problem, its examples and the dev criterion that selects the checkpoint.

    curve: name of the criterion with its unit, for plots. keeps_last: keep the last weights instead of the best ones.
    """

    curve: ClassVar[str]
    keeps_last: ClassVar[bool] = False

    @abstractmethod
    def configure(self, model: Any, vocabulary: Artifact) -> Any:
        """Return the model's configuration with the sizes of the data."""

    @abstractmethod
    def examples(self, paths: Sequence[Path]) -> Any:
        """Return the rows of shards, as phrasemodels.tasks.train.batches.Examples."""

    @abstractmethod
    def loss(self, model: Any, batch: Any, smoothing: float) -> Tensor:
        """Return the loss (nats) of a batch, summed over the items of `count`."""

    def criterion(self, model: Any, batch: Any) -> Tensor:
        """Return the dev criterion of a batch. Lower is better. Default: the loss without smoothing.

        It is either a scalar, a sum over the items of `count`. Then the criterion is their mean over all batches. Or it
        is pairs (errors, total) (m, 2). Then the criterion is the sum of the m shares errors / total over all batches.
        """
        return self.loss(model, batch, 0.0)

    def measure(self, model: Any, data: Any, max_tokens: int, device: torch.device) -> dict[str, float]:
        """Return extra dev metrics by name. Default: none."""
        return {}

    def count(self, data: Any, rows: Rows) -> int:
        """Count the items (tokens, sentences) in the sum of the loss. Default: the rows."""
        return len(rows)


@dataclass(frozen=True)
class TrainSettings:
    """Everything that decides the weights, except for the data."""

    objective: Objective
    model: Any
    config: TrainConfig
    seed: int


@dataclass(frozen=True)
class Training:
    """The input of `run_training` on each worker.

    train, dev: paths of shards. folder: for checkpoints and progress. key: of the step in the store. Checkpoints must
    have it. report: called with the history after each evaluation. stop_at: the number of updates after which the
    training saves a checkpoint and ends. device: of this worker, as "cuda:1". Empty: a GPU if the process sees one or
    else the CPU. course: equal for trainings that differ only in the number of their updates.
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
    stop_at: float = math.inf
    device: str = ""
    course: str = ""


class DivergedError(ValueError):
    """The loss or a weight was not finite, or the dev loss never was."""


def train(job: Job, settings: TrainSettings) -> dict[str, Any]:
    """Train one model with one seed on the shards of ids job.inputs["train"] and ["dev"].

    It also reads ["vocabulary"]. It writes model.safetensors (the best weights), config.json and history.json. A second
    call goes on from its checkpoint. It also goes on from a checkpoint of the same store if that training differs only
    in the number of its updates.

    Raises:
        DivergedError: The loss or a weight was not finite.
        OutOfTimeError: It was not done at its stop_at.
    """
    training = training_of(job, settings)
    if training.course and job.store.shared is None:
        others = job.store.root.glob("work/*/checkpoints/step-*")
        adopt(training.folder, others, training.course, training.key, settings.config)
    job.executor.launch(run_training, training)
    found = newest(job.checkpoints, job.key)
    assert found is not None, "a finished training has a checkpoint"
    # read from the folder: the workers may be processes on other nodes, and return nothing
    path, state = found
    progress = Progress(**state["progress"])
    if not is_finished(progress, settings.config):
        raise OutOfTimeError(f"it was stopped after {progress.step} of {settings.config.steps} updates, which are kept")
    if progress.diverged or not math.isfinite(progress.best):
        raise DivergedError(f"the training diverged: {progress.why_diverged}; lower train.learning_rate or train.clip")
    weights = load_file(path / "best.safetensors")
    save_file(weights, job.out / "model.safetensors")
    write_durably(job.out / "config.json", json.dumps(to_json(training.model), indent=1))
    write_durably(job.out / HISTORY, json.dumps(progress.history))
    # no longer training would have made an evaluation at another place
    if job.executor.keeps_state and training.course and progress.step % settings.config.evaluate_every == 0:
        keep(path, job.store.workspace(training.course) / "checkpoints")
    return {
        "parameters": state["parameters"],
        "steps": progress.step,
        "epochs": progress.epoch + 1,
        "best_step": progress.best_step,
        "dev_loss": progress.best,
        "seed": settings.seed,
        "train_seconds": progress.history[-1]["seconds"],
        "peak_memory_mib": progress.history[-1]["peak_memory_mib"],
        "workers": [count for count, _ in itertools.groupby(workers for _, workers in progress.starts)],
        "starts": [step for step, _ in progress.starts],
        "devices": [kind for kind, _ in itertools.groupby(progress.devices)],
    }


def training_of(job: Job, settings: TrainSettings) -> Training:
    """Return the training of a step, with its model configured for the vocabulary."""
    return Training(
        settings.objective,
        settings.objective.configure(settings.model, job.inputs["vocabulary"]),
        settings.config,
        settings.seed,
        train=tuple(shard.path for shard in shards(job.inputs["train"], here=not job.executor.fetches)),
        dev=tuple(shard.path for shard in shards(job.inputs["dev"], here=not job.executor.fetches)),
        folder=job.checkpoints,
        key=job.key,
        report=job.executor.report,
        stop_at=job.executor.stop_at,
        course=job.key_without("settings", "config", "steps"),
    )


def history(trained: Artifact) -> list[dict[str, float]]:
    """Return the metrics of a finished training, a row for each evaluation."""
    return json.loads(trained.file(HISTORY).read_text(encoding="utf-8"))


def run_training(training: Training) -> None:
    """Train on this worker from the newest checkpoint or the start to the last update or a stop."""
    Trainer(training).run()


class Trainer:
    """A training on one worker: set it up and then update, evaluate and save in turns.

    All workers run it alike.
    """

    def __init__(self, training: Training) -> None:
        self.training, self.config, self.objective = training, training.config, training.objective
        # cuBLAS reads it when CUDA starts; without it, sums may differ between runs
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self.worker = Worker(training.device)
        torch.set_num_threads(self.config.threads)
        keep_freed_memory()
        forget_peak_memory()
        if self.worker.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.worker.device)
        # some operations have no deterministic kernel on CUDA; on a CPU all that a model uses have one, or it is an
        # error
        torch.use_deterministic_algorithms(True, warn_only=self.worker.device.type == "cuda")
        # both are set: torch allows TF32 to cuDNN unless told not to, and a process may have trained another model
        # before
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.config.precision == "tf32"
        # deterministic mode fills new memory, in case it is read before it is written; nothing does that here
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.data, self.dev = (self.objective.examples(paths) for paths in (training.train, training.dev))
        torch.manual_seed(stream(training.seed, "init"))
        self.model = training.model.build().to(self.worker.device)
        self.optimiser = self.config.optimiser(self.model.parameters(), self.config)
        self.progress, self.best = resume(training.folder, self.model, self.optimiser, training.key)
        self.progress.starts.append((self.progress.step, self.worker.world))
        self.progress.devices.append(self.worker.kind)
        self.alone: nn.Module = ModelWithLoss(self.model, self.objective, self.config.smoothing)
        # DistributedDataParallel would take each weight for used, and give zeros for gradients where there are none
        if self.worker.world == 1:
            self.alone = CastTogether(self.alone)
        self.parallel = (
            # the rows of a worker may have no gold of some kind, and leave parameters out that those of others use
            nn.parallel.DistributedDataParallel(self.alone, find_unused_parameters=True)
            if self.worker.world > 1
            else self.alone
        )
        self.segment_weights = [m for m in self.model.modules() if isinstance(m, ReleasedSegmentWeights)]
        self.counters = [p for p in self.model.parameters() if not p.requires_grad and not p.dim()]
        on_one_gpu = self.worker.device.type == "cuda" and self.worker.world == 1
        fixed = getattr(self.model, "has_fixed_shapes", False)
        if self.config.graphs and not on_one_gpu:
            raise ValueError("train.graphs: CUDA graphs need one worker with one GPU")
        if self.config.graphs and not fixed:
            raise ValueError(f"train.graphs: the steps of this {type(self.model).__name__} depend on its data")
        if on_one_gpu and fixed and not self.config.graphs:
            print(GRAPHS, file=sys.stderr, flush=True)
        self.recorded: RecordedPasses | None = None
        self.do_step: Callable[[], None] = self.step
        if self.config.graphs:
            self.record()
        self.clock = Clock(self.progress.seconds)

    def record(self) -> None:
        """Record updates as CUDA graphs from now on, of an optimiser that cannot be recorded the passes alone."""
        self.recorded = RecordedPasses(self.alone, self.precision)
        if can_be_recorded(self.optimiser):
            self.do_step = RecordedStep(self.optimiser, self.step, self.recorded)

    def run(self) -> None:
        """Train to the last update, or where it is stopped. Either leaves a checkpoint."""
        progress, config = self.progress, self.config
        limits = (config.batch_tokens, self.training.seed, config.batch_rows, config.arrange, config.equal_sides)
        epoch, step = progress.epoch, progress.epoch_step
        # the loop assigns to the fields of progress, so that a checkpoint knows its place in the epoch
        for progress.epoch, progress.epoch_step, rows in batches_from(self.data, epoch, step, *limits):
            if is_finished(progress, config):
                break
            if progress.step >= self.training.stop_at:
                if self.worker.rank == 0:
                    self.save()
                    self.write_progress()
                break
            self.update(rows)
            progress.epoch_step += 1
            if progress.step == config.steps or progress.step % config.evaluate_every == 0:
                self.evaluate()
            if self.worker.rank == 0:
                self.save_if_due()

    def update(self, rows: Rows) -> None:
        """Update the weights by the gradient of the mean loss over a batch's rows. All workers share the batch."""
        config, worker, progress = self.config, self.worker, self.progress
        torch.manual_seed(stream(self.training.seed, "dropout", progress.step, worker.rank))
        own = rows_of_worker(rows, worker.rank, worker.world)
        part = own if len(own) else rows[:1]  # a worker without rows takes part in the reduction with weight 0
        micro_batches = in_order(self.data, config.micro_batch_tokens, part, config.accumulation_steps)
        counts = [counter.clone() for counter in self.counters]
        # gradients are exchanged once, with the last micro-batch
        not_last = (
            self.parallel.no_sync if isinstance(self.parallel, nn.parallel.DistributedDataParallel) else nullcontext
        )
        if not self.parallel.training:
            self.parallel.train()
        rate = config.learning_rate * config.decay([row["dev_loss"] for row in progress.history])
        self.rate = rate * config.schedule(progress.step, config.warmup, config.steps)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.rate)
            else:
                group["lr"] = self.rate
        # DDP averages gradients over workers; this scale makes them gradients of the mean over the global batch
        scale = worker.world / self.objective.count(self.data, rows)
        total = torch.zeros((), device=worker.device)
        for place, micro_batch in enumerate(micro_batches, 1):
            for counter, count in zip(self.counters, counts, strict=True):
                counter.data.copy_(count)  # models count updates in their forward pass, which micro-batches repeat
            batch = self.data.batch(micro_batch)
            if self.recorded is not None:
                self.recorded(batch, scale)
                continue
            with nullcontext() if place == len(micro_batches) else not_last():
                with self.precision():
                    loss = self.parallel(batch.to(worker.device)) * float(len(own) > 0)
                (loss * scale).backward()
            total = total + loss.detach()
        if self.recorded is not None:
            total = self.recorded.taken()
        # asked once, as reading a number waits for the GPU; a loss that becomes NaN later shows on dev
        if progress.step == 0 and math.isnan(total):
            raise DivergedError(
                "the loss is not a number before any update: the model itself computes NaN; check its forward pass"
            )
        self.do_step()
        self.clock.add(total, self.objective.count(self.data, rows))
        progress.step += 1

    def step(self) -> None:
        """Update the weights by their gradients, after all micro-batches and the exchange, and leave no gradients."""
        for module in self.segment_weights:
            module.decay_gradient()
        if math.isfinite(self.config.clip):
            # the norm is of the whole batch's gradient, equal on all workers
            nn.utils.clip_grad_norm_(self.parallel.parameters(), self.config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=self.recorded is None)  # graphs add to gradients in one place

    def precision(self) -> torch.autocast:
        """Return the context for products in the configured type."""
        return torch.autocast(self.worker.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def evaluate(self) -> None:
        """Measure the dev criterion, keep the best weights and add a row to the history."""
        progress = self.progress
        self.clock.pause(self.worker)
        if self.worker.world > 1:  # workers have measured running means by their own rows; those of the first are saved
            for buffer in self.model.buffers():
                distributed.broadcast(buffer, 0)
        with averaged_weights(self.optimiser):
            finite = not self.worker.any(bool(not_finite(self.model)))
            dev_loss, others = math.inf, {}
            if finite:
                dev_loss = self.dev_loss()
                tokens = self.worker.dev_tokens(self.config.micro_batch_tokens)
                others = self.objective.measure(self.model, self.dev, tokens, self.worker.device)
            if math.isfinite(dev_loss) and (self.objective.keeps_last or dev_loss < progress.best):
                progress.best, progress.best_step, self.best = dev_loss, progress.step, copied(self.model)
        row = {"step": progress.step, "epoch": progress.epoch, "dev_loss": dev_loss, "learning_rate": self.rate}
        row |= others | self.clock.row(self.worker)
        progress.history.append(row if finite else row | {"loss": math.nan})
        if progress.diverged:
            load_tensors(self.model, self.best)  # no checkpoint has weights that are not finite

    @torch.inference_mode()
    def dev_loss(self) -> float:
        """Return the objective's criterion over all batches of dev. One worker counts each row."""
        self.parallel.eval()
        tokens = min(self.config.batch_tokens, self.config.micro_batch_tokens)
        batches = in_order(self.dev, self.worker.dev_tokens(tokens))
        own = batches[self.worker.rank :: self.worker.world]
        sums = []
        for rows in own or batches[:1]:  # a worker without a batch takes part in the reduction with weight 0
            with self.precision():
                batch = self.dev.batch(rows).to(self.worker.device)
                # by the bare model: DistributedDataParallel may communicate in each forward pass, and workers have
                # unequal numbers of dev batches
                errors = self.objective.criterion(self.model, batch).double()
            count = errors.new_full((), self.objective.count(self.dev, rows))
            sums.append(errors if errors.dim() else torch.stack([errors, count]))
        # a criterion that takes the best answer takes one of NaN, too: NaN, if the loss of the longest batch is not finite
        if own and type(self.objective).criterion is not Objective.criterion:
            with self.precision():
                sums.append(torch.zeros_like(sums[0]) * self.objective.loss(self.model, batch, 0.0))
        # sums, not means, of the batches: so the criterion does not depend on how many workers divided them
        totals = self.worker.total(torch.stack(sums).sum(0) * bool(own))
        return float((totals[..., 0] / totals[..., 1]).sum())

    def save_if_due(self) -> None:
        """Save a checkpoint at the end, every `checkpoint_every` updates and every CHECKPOINT_SECONDS.

        The seconds count from the last one. On a busy machine saving may take long. Then wait longer. Write
        progress.json every ten updates.
        """
        last, step = is_finished(self.progress, self.config), self.progress.step
        # the clock of rank 0 alone decides: only rank 0 saves, and no other worker waits for it
        late = time.monotonic() - self.clock.saved > max(CHECKPOINT_SECONDS, self.clock.saving / SAVING)
        if last or step % self.config.checkpoint_every == 0 or late:
            self.save()
        if last or step % 10 == 0:
            self.write_progress()

    def save(self) -> None:
        """Save a checkpoint, then report the history."""
        self.progress.seconds = self.clock.seconds()
        begun = time.monotonic()
        said = {"course": self.training.course, "steps": self.config.steps}
        said |= {"parameters": sum(parameter.numel() for parameter in self.model.parameters())}
        save(self.training.folder, self.model, self.best, self.optimiser, self.progress, self.training.key, **said)
        self.clock.saved = time.monotonic()
        self.clock.saving = self.clock.saved - begun
        if self.training.report is not None:
            self.training.report(self.progress.history)

    def write_progress(self) -> None:
        """Write progress.json: finished and total updates, best dev criterion, seconds and time of writing.

        The time is in seconds since 1970.
        """
        folder = self.training.folder
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "step": self.progress.step,
            "steps": self.config.steps,
            "best": self.progress.best,
            "pid": os.getpid(),
            "seconds": self.clock.seconds(),
            "written": time.time(),
        }
        aside = folder / f".{PROGRESS}"
        aside.write_text(json.dumps(state), encoding="utf-8")
        os.replace(aside, folder / PROGRESS)  # atomic: readers never see half of it


def is_finished(progress: Progress, config: TrainConfig) -> bool:
    """Return whether the training has ended.

    The last update is done or the training has diverged. Or the dev loss has not improved for `patience` evaluations.
    Or the learning rate has decayed to 0.
    """
    if progress.step >= config.steps or progress.diverged:
        return True
    if config.patience and progress.step - progress.best_step >= config.patience * config.evaluate_every:
        return True
    return config.decay([row["dev_loss"] for row in progress.history]) == 0


class ModelWithLoss(nn.Module):
    """A model with its loss as forward pass, for DistributedDataParallel."""

    def __init__(self, model: nn.Module, objective: Objective, smoothing: float) -> None:
        super().__init__()
        self.model, self.objective, self.smoothing = model, objective, smoothing

    def forward(self, batch: Batch) -> Tensor:
        return self.objective.loss(self.model, batch, self.smoothing)


class CastTogether(nn.Module):
    """A module on a GPU under autocast. One kernel casts the weights of all its linear layers to bfloat16.

    Autocast would cast each by a kernel of its own, and its gradient by another. The numbers are the same, but small models wait for
    launches.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        own = dict(module.named_parameters(remove_duplicate=False))
        names = Counter(map(id, own.values()))
        layers = (f"{name}." * bool(name) for name, layer in module.named_modules() if isinstance(layer, nn.Linear))
        each = (name for layer in layers for name in (f"{layer}weight", f"{layer}bias") if name in own)
        # a weight that is tied may be a table of embeddings, which autocast leaves in float32
        self.names = [name for name in each if names[id(own[name])] == 1]
        self.weights = [own[name] for name in self.names]  # a list, so they have no second name among the parameters

    def forward(self, batch: Batch) -> Tensor:
        if not torch.is_autocast_enabled("cuda"):
            return self.module(batch)
        cast = _Cast.apply(*self.weights)
        return functional_call(self.module, dict(zip(self.names, cast, strict=True)), (batch,))


class _Cast(torch.autograd.Function):
    """Tensors of float32 -> the same in bfloat16, and back for gradients."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return _all_to(torch.bfloat16, weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        found = iter(_all_to(torch.float32, [grad for grad in grads if grad is not None]))
        return tuple(None if grad is None else next(found) for grad in grads)


def _all_to(dtype: torch.dtype, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    found = tuple(torch.empty_like(value, dtype=dtype) for value in values)
    if found:
        torch._foreach_copy_(found, tuple(values))
    return found


class Worker:
    """A process of a training: its rank among `world` processes and its (current) device.

    device: as of `Training`.
    """

    def __init__(self, device: str = "") -> None:
        together = distributed.is_initialized()
        self.rank, self.world = (distributed.get_rank(), distributed.get_world_size()) if together else (0, 1)
        self.device = torch.device(device or best_device())
        if self.device.type == "cuda":
            self.device = torch.device("cuda", self.device.index or 0)
            torch.cuda.set_device(self.device)
            without_attention_by_cudnn()

    @property
    def kind(self) -> str:
        """The name of the device (as "NVIDIA H100 80GB HBM3") or "cpu"."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type

    def dev_tokens(self, tokens: int) -> int:
        """Return the tokens of a batch of dev, from those of an update. A GPU takes more: they need no memory for gradients."""
        return tokens if self.device.type == "cpu" else 4 * tokens

    def total(self, values: Tensor) -> Tensor:
        """Return the sums of values over all workers, in float64."""
        summed = values.to(self.device, torch.float64)
        if self.world > 1:
            distributed.all_reduce(summed)
        return summed

    def any(self, here: bool) -> bool:
        """Return whether something is so on any worker. All workers get the same answer."""
        return here if self.world == 1 else bool(self.total(torch.tensor([float(here)])).item())


class Clock:
    """Loss and speed since the previous row of the history.

    before: seconds of earlier starts of the training. saved: when the last checkpoint was written. saving: its seconds.
    """

    def __init__(self, before: float) -> None:
        self.before = before
        self.started = self.last = self.saved = time.monotonic()
        self.saving = 0.0
        self.losses: list[Tensor] = []
        self.count = 0
        self.updating = 0.0

    def seconds(self) -> float:
        """Return how long the training has run, over all its starts."""
        return self.before + time.monotonic() - self.started

    def add(self, loss: Tensor, count: int) -> None:
        """Add the summed loss of an update, and its number of items."""
        self.losses.append(loss)
        self.count += count

    def pause(self, worker: Worker) -> None:
        """End the time of updates once the device has done them all. An evaluation follows."""
        if worker.device.type == "cuda":
            torch.cuda.synchronize(worker.device)
        self.updating = time.monotonic() - self.last

    def row(self, worker: Worker) -> dict[str, float]:
        """Return mean loss, speed of the updates and memory since the previous row. Start again."""
        now = time.monotonic()
        row = {
            "loss": float(worker.total(torch.stack(self.losses).sum())) / self.count,
            "items_per_second": self.count / self.updating,
            "workers": worker.world,
            "peak_memory_mib": peak_memory_mib(worker.device),
            "seconds": self.seconds(),
        }
        self.losses, self.count, self.last = [], 0, now
        return row


def forget_peak_memory() -> None:
    """Return freed memory to the kernel and measure the peak from now on. Only Linux can.

    A worker may have trained another model before.
    """
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6", use_errno=False).malloc_trim(0)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def this_machine(cpus: int | None = None) -> list[dict[str, float]]:
    """Return the resources of this machine, or `cpus` of its processors, before Ray is asked."""
    return [{"CPU": float(cpus or os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}]


def peak_memory_mib(device: torch.device = CPU) -> float:
    """Return the peak memory of this process in MiB, of a GPU the peak of its tensors.

    It counts since `forget_peak_memory`, or since the start of the process if that is impossible.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / (1 << 20)
    with contextlib.suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory. By default large blocks go back to the kernel, and page faults take two thirds of a step."""
    if sys.platform == "linux":
        libc = ctypes.CDLL("libc.so.6", use_errno=False)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
