"""What a run is doing: bars on a terminal, plain lines elsewhere, always on stderr."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

from data.store import Step
from flows.session import Session
from tasks.train import PROGRESS, train

LINES_EVERY = 15.0  # seconds between plain lines of one training


class Watch:
    """Follows the steps of a session. Trainings write how far they are beside their checkpoints, wherever they run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.console = Console(stderr=True)
        self.seconds: dict[str, float] = {}
        self.running: dict[str, Step] = {}
        self.bars: dict[str, TaskID] = {}
        self.spoken: dict[str, float] = {}
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
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()
        self.bar.stop()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """While a step is under way."""
        started = time.monotonic()
        with self.lock:
            self.running[step.key] = step
        try:
            yield
        finally:
            took = time.monotonic() - started
            with self.lock:
                self.running.pop(step.key)
                self.seconds[step.name] = self.seconds.get(step.name, 0.0) + took
                if step.key in self.bars:
                    self.bar.remove_task(self.bars.pop(step.key))
                self.bar.advance(self.all)
            if self.bar.disable and took > 1:
                self._say(f"{step.label}: {took:.1f} s")

    def stages(self) -> dict[str, float]:
        """Seconds by kind of step, added up over steps that may have run side by side."""
        return {name: round(seconds, 1) for name, seconds in self.seconds.items()}

    def _follow(self) -> None:
        while not self.done.wait(0.5):
            with self.lock:
                trainings = [step for step in self.running.values() if step.make is train]
                for step in trainings:
                    if state := _read(self.session.store.workspace(step.key) / "checkpoints" / PROGRESS):
                        self._show(step, state)

    def _show(self, step: Step, state: dict[str, Any]) -> None:
        if not self.bar.disable:
            bar = self.bars.setdefault(
                step.key,
                self.bar.add_task(step.label, total=state["steps"])
                if step.key not in self.bars
                else self.bars[step.key],
            )
            self.bar.update(bar, completed=state["step"])
        elif time.monotonic() - self.spoken.get(step.key, 0) > LINES_EVERY:
            self.spoken[step.key] = time.monotonic()
            best = f", best dev loss {state['best']:.3f}" if state["best"] < float("inf") else ""
            self._say(f"{step.label}: step {state['step']} of {state['steps']}{best}")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def _read(path: Path) -> dict[str, Any] | None:
    """The progress of a training; None while there is none, or it is being written."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
