"""Progress of a run on stderr. Prefect has the same lines in its logs."""

import contextlib
import contextvars
import math
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from phrasemodels.data.store.store import Step
from phrasemodels.flows.run import Pace
from phrasemodels.flows.run.execute import PROGRESS_EVERY, Execution, progress_of
from phrasemodels.tasks.train.trainer import train

GRACE = 2.0  # seconds: a worker that is missing for longer was lost, and has not just finished


@dataclass
class Outcome:
    """How a step ended, before its seconds. Empty if it is done."""

    text: str = ""


class Watch:
    """Follows the steps of an execution. Trainings write their progress beside their checkpoints on any node."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.seconds: dict[str, float] = {}
        self.running: dict[str, Step] = {}
        self.paces: dict[str, Pace] = {}  # of steps whose progress was seen
        # progress of each training, and when it was read
        self.states: dict[str, tuple[dict[str, Any] | None, float]] = {}
        self.workers: dict[str, int] = {}  # process of each training
        self.missing: dict[str, float] = {}  # since when a training's process has been missing
        self.lost: set[str] = set()
        self.began = time.time()
        self.done = threading.Event()
        self.lock = threading.Lock()

    def __enter__(self) -> "Watch":
        context = contextvars.copy_context()  # Prefect's: its logs belong to this run
        self.thread = threading.Thread(target=context.run, args=(self._follow,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator["Outcome"]:
        """During a step, show its progress and measure its seconds of work. The caller may say how it ended."""
        started = time.monotonic()
        with self.lock:
            self.running[step.key] = step
        outcome = Outcome()
        try:
            yield outcome
        except BaseException:
            outcome.text = "failed after "
            raise
        finally:
            took = self._at_work(step, started)
            text = f"{step.label}: {outcome.text}{took:.1f} s"
            with self.lock:
                self.running.pop(step.key)
                self.seconds[step.name] = self.seconds.get(step.name, 0.0) + took
            if outcome.text or took > 1:
                report_line(text)
            else:
                log(text)

    def _at_work(self, step: Step, started: float) -> float:
        """Return the seconds of work of a step by its manifest, without its wait for a free processor.

        For a stopped training they count since its progress was first seen.
        """
        now = time.monotonic()
        # the smaller one: the manifest of a hit has the seconds of the run that made it
        if (made := self.execution.store.find(step, verify=False)) is not None:
            return min(now - started, made.manifest["seconds"])
        pace = self.paces.get(step.key)
        return now - (pace.began[1] if pace and pace.began else started)

    def stages(self) -> dict[str, float]:
        """Return seconds by kind of step, summed over steps that may have run side by side."""
        return {name: round(seconds, 1) for name, seconds in self.seconds.items()}

    def _follow(self) -> None:
        while not self.done.wait(0.5):
            with self.lock:
                trainings = [step.key for step in self.running.values() if step.make is train]
            states = {key: self._state(key) for key in trainings}
            with self.lock:
                for step in self.running.values():
                    if step.make is not train:
                        done, total = self.execution.shards.get(step.key, (0, 0))
                    elif state := states.get(step.key):
                        self._check_worker(step, state)
                        done, total = state["step"], state["steps"]
                    else:
                        continue
                    if total or step.key in self.execution.waits:
                        best = state.get("best") if step.make is train and state else None
                        self._show(step, done, total, math.nan if best is None else best)

    def _state(self, key: str) -> dict[str, Any] | None:
        """Return the progress of a training. From another node it is read every few seconds."""
        store, (_, read) = self.execution.store, self.states.get(key, (None, 0.0))
        if store.shared is None or time.monotonic() - read > PROGRESS_EVERY:
            self.states[key] = progress_of(store, key), time.monotonic()
        return self.states[key][0]

    def _check_worker(self, step: Step, state: dict[str, Any]) -> None:
        """Print at once if a worker died, and where another one continues."""
        pid, at, now = state["pid"], state["step"], time.monotonic()
        # processes of other machines cannot be checked
        alive = bool(self.execution.settings.ray_address) or _alive(pid)
        if (known := self.workers.get(step.key)) != pid:
            if not alive or state.get("written", 0.0) < self.began:  # by an earlier run
                return
            if known is not None:
                report_line(f"{step.label}: worker {known} was lost; worker {pid} continues at step {at}")
            self.workers[step.key] = pid
            self.paces.pop(step.key, None)
            self.execution.waits.pop(step.key, None)
        if alive:
            self.missing.pop(step.key, None)
            self.lost.discard(step.key)
        elif now - self.missing.setdefault(step.key, now) > GRACE and step.key not in self.lost:
            report_line(
                f"{step.label}: worker {pid} was lost at step {at}; another one will continue from its checkpoint"
            )
            self.lost.add(step.key)

    def _show(self, step: Step, done: int, total: int, best: float) -> None:
        """Print a line if it is due. best: the lowest dev loss of a training (NaN: none)."""
        lost = " (worker lost)" if step.key in self.lost else ""
        pace = self.paces.setdefault(step.key, Pace())
        if waits := self.execution.waits.get(step.key):
            left = f", waits for {waits}"
            pace.began = None
        else:
            left = pace.time_left(done, total)
        loss = f", best dev loss {best:.3f}" if math.isfinite(best) else ""
        if pace.is_due():
            what = "step" if step.make is train else "part"
            report_line(f"{step.label}: {what} {done} of {total}{loss}{left}{lost}")


def report_line(line: str) -> None:
    """Print a line to stderr, and log it in Prefect."""
    print(line, file=sys.stderr, flush=True)
    log(line)


def log(line: str) -> None:
    """Log a line in the current flow run or task of Prefect, if there is one."""
    with contextlib.suppress(Exception):  # a message must never end the run
        get_run_logger().info(line)


def _alive(pid: int) -> bool:
    """Return whether a process of this machine exists and is no zombie. Without /proc, every process counts as alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc").is_dir()
