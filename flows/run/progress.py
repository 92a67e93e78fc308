"""What a run is doing: bars on a terminal, plain lines elsewhere, always on stderr."""

import contextlib
import contextvars
import datetime
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from phrasemodels.data.store.step import Step
from phrasemodels.flows.run.session import Session
from phrasemodels.tasks.train.loop import PROGRESS, train

LINES_EVERY = 15.0  # seconds between plain lines of one step
GRACE = 2.0  # seconds after which a worker that is gone did not just end its work
ARTIFACTS_EVERY = 5.0  # seconds between what Prefect is told of one step


class Watch:
    """Follows the steps of a session. Trainings write how far they are beside their checkpoints, wherever they run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.console = Console(stderr=True)
        self.seconds: dict[str, float] = {}
        self.running: dict[str, Step] = {}
        self.bars: dict[str, TaskID] = {}
        self.spoken: dict[str, float] = {}
        self.since: dict[str, tuple[int, float]] = {}  # how far a step was when it was first seen, and when
        self.artifacts: dict[str, tuple[UUID | None, float]] = {}  # Prefect's, and when they were last told
        self.workers: dict[str, int] = {}  # process of each training
        self.missing: dict[str, float] = {}  # since when it has been gone
        self.lost: set[str] = set()
        self.finished = 0
        self.done = threading.Event()
        self.lock = threading.Lock()
        total = len(session.steps)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not sys.stderr.isatty(),
        )
        self.all = self.bar.add_task("steps", total=total)

    def __enter__(self) -> "Watch":
        self.bar.start()
        context = contextvars.copy_context()  # Prefect's: what it is told belongs to this run
        self.thread = threading.Thread(target=context.run, args=(self._follow,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self._tell(*self._all())
        self.bar.stop()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """While a step is under way."""
        started = time.monotonic()
        with self.lock:
            self.running[step.key] = step
        ended = "failed after "
        try:
            yield
            ended = ""
        finally:
            took = time.monotonic() - started
            said = f"{step.label}: {ended}{took:.1f} s"
            with self.lock:
                self.running.pop(step.key)
                self.seconds[step.name] = self.seconds.get(step.name, 0.0) + took
                if step.key in self.bars:
                    self.bar.remove_task(self.bars.pop(step.key))
                self.bar.advance(self.all)
                self.finished += 1
            made, _ = self.artifacts.get(step.key[:12], (None, 0.0))
            if made is not None:
                self._tell(step.key[:12], said, 100.0)
            if self.bar.disable and (ended or took > 1):
                self._say(said)

    def stages(self) -> dict[str, float]:
        """Seconds by kind of step, added up over steps that may have run side by side."""
        return {name: round(seconds, 1) for name, seconds in self.seconds.items()}

    def _follow(self) -> None:
        while not self.done.wait(0.5):
            told = []
            with self.lock:
                for step in self.running.values():
                    if step.make is not train:
                        done, total = self.session.shards.get(step.key, (0, 0))
                    elif state := _read(self.session.store.workspace(step.key) / "checkpoints" / PROGRESS):
                        self._look(step, state)
                        done, total = state["step"], state["steps"]
                    else:
                        continue
                    if total:
                        told.append(self._show(step, done, total))
                told.append(self._all())
            for news in told:
                self._tell(*news)

    def _all(self) -> tuple[str, str, float]:
        """What Prefect is told of all steps together."""
        total = len(self.session.steps)
        return "steps", f"step {self.finished} of {total}", 100 * self.finished / total

    def _look(self, step: Step, state: dict[str, Any]) -> None:
        """Say at once that a worker died, and where another goes on."""
        pid, at, now = state["pid"], state["step"], time.monotonic()
        alive = bool(self.session.settings.ray_address) or _alive(pid)  # of other machines nothing is known
        if (known := self.workers.get(step.key)) != pid:
            if not alive:  # of a run before this one
                return
            if known is not None:
                self._say(f"{step.label}: worker {known} was lost; worker {pid} goes on, at step {at}")
            self.workers[step.key] = pid
            self.since.pop(step.key, None)
        if alive:
            self.missing.pop(step.key, None)
            self.lost.discard(step.key)
        elif now - self.missing.setdefault(step.key, now) > GRACE and step.key not in self.lost:
            self._say(f"{step.label}: worker {pid} was lost at step {at}; another will go on from its checkpoint")
            self.lost.add(step.key)

    def _left(self, key: str, done: int, total: int) -> str:
        """About how long a step still takes, from its speed since it was first seen to move."""
        began, since = self.since.setdefault(key, (done, time.monotonic()))
        if done <= began:
            return ""
        seconds = (time.monotonic() - since) / (done - began) * (total - done)
        return f", about {datetime.timedelta(seconds=round(seconds))} left"

    def _show(self, step: Step, done: int, total: int) -> tuple[str, str, float]:
        """Bars or lines; returns what Prefect is told."""
        lost = " (worker lost)" if step.key in self.lost else ""
        left = self._left(step.key, done, total)
        what = "step" if step.make is train else "shard"
        if not self.bar.disable:
            if step.key not in self.bars:
                self.bars[step.key] = self.bar.add_task(step.label, total=total)
            self.bar.update(self.bars[step.key], completed=done, total=total, description=step.label + lost)
        elif time.monotonic() - self.spoken.get(step.key, 0) > LINES_EVERY:
            self.spoken[step.key] = time.monotonic()
            self._say(f"{step.label}: {what} {done} of {total}{left}{lost}")
        return step.key[:12], f"{step.label}: {what} {done} of {total}{left}{lost}", 100 * done / total

    def _tell(self, name: str, said: str, percent: float) -> None:
        """A progress artifact of Prefect, told anew every few seconds, and at its end."""
        made, when = self.artifacts.get(name, (None, 0.0))
        if time.monotonic() - when < ARTIFACTS_EVERY and percent < 100:
            return
        try:
            if made is None:
                made = cast(UUID, create_progress_artifact(percent, f"progress-{name}", said))
            else:
                update_progress_artifact(made, percent, said)
        except Exception as error:  # whoever watches never ends what is watched
            self._say(f"Prefect was not told of {said}: {error}")
        self.artifacts[name] = (made, time.monotonic())

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any] | None:
    """The progress of a training; None while there is none, or it is being written."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _alive(pid: int) -> bool:
    """Whether a process of this machine is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc").is_dir()
