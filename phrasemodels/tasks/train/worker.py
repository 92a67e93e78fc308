"""One process of a training: its rank and device, its clock, and a setting of its memory."""

import contextlib
import ctypes
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, distributed

from phrasemodels.tasks.train.checkpoints import Progress

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
