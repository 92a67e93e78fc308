"""Points of a run at which processes are killed; every Python process of a cluster imports this first (see test_matrix.py).

A folder holds PLAN, {"name": ..., "points": {"stage, moment": victim}}; PIDS, {victim: process id} of the services that
answer; and, for each point that was reached, the file NAME/"stage, moment" with the result of the kill.
"""

import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PLACE = Path(os.environ.get("PM_POINTS", "/nowhere"))
PLAN, PIDS = "plan.json", "pids.json"
MOMENTS = ("before write", "after write", "after commit")
# process titles of workers that run our tasks; idle workers have no work to lose
TITLES = {"Ray worker": r"ray::(step:|ActorWorker)", "Train worker": "ray::RayTrainWorker"}
NODE = "lost node"  # a node of Ray, which is killed with all its processes
LOCAL = threading.local()


def reached(stage: str, moment: str) -> None:
    """Record that a point was reached; the first process that reaches it kills the victim."""
    plan, here = json.loads((PLACE / PLAN).read_text()), f"{stage}, {moment}"
    seen = PLACE / plan["name"] / here
    try:
        os.close(os.open(seen, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    if victim := plan["points"].get(here):
        end = time.monotonic() + (60 if victim not in TITLES else 0)
        while not (pid := alive(victim)) and time.monotonic() < end:
            time.sleep(0.2)
        seen.write_text("killed" if pid else "nobody")
        for one in [pid, *below(pid)] if victim == NODE else [pid]:
            with contextlib.suppress(ProcessLookupError):
                if one:
                    os.kill(one, signal.SIGKILL)
        time.sleep(0.2 if pid else 0)  # if the victim is this process, it ends here


def below(pid: int) -> list[int]:
    """Return the ids of the descendants of a process, this process last."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return sorted(found[1:] if pid else [], key=lambda one: one == os.getpid())


def alive(victim: str) -> int:
    """Return the process id of a victim that is alive, 0 if there is none. Of workers, this process is tried first."""
    if victim not in TITLES:
        pid = json.loads((PLACE / PIDS).read_text()).get(victim, 0)
        return pid if pid and Path(f"/proc/{pid}/exe").exists() else 0
    for pid in [os.getpid(), *(int(path.name) for path in Path("/proc").glob("[0-9]*"))]:
        try:
            ours = f"PM_POINTS={PLACE}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            if ours and re.match(TITLES[victim], Path(f"/proc/{pid}/cmdline").read_text()):
                return pid
        except OSError:
            continue
    return 0


def around(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reaches the first moment before its call and the third after it; `inside` reaches the second."""

    def inner(*arguments: Any, **named: Any) -> Any:
        name = stage or arguments[1].name
        stack = LOCAL.__dict__.setdefault("stack", [])
        reached(name, MOMENTS[0])
        stack.append(name)
        try:
            made = function(*arguments, **named)
        finally:
            stack.pop()
        reached(name, MOMENTS[2])
        return made

    return inner


def inside(function: Callable[..., Any], true: Callable[..., bool]) -> Callable[..., Any]:
    """Return a function that reaches the second moment before its call: files are written, but not yet published."""

    def inner(*arguments: Any, **named: Any) -> Any:
        if LOCAL.__dict__.get("stack") and true(*arguments):
            reached(LOCAL.stack[-1], MOMENTS[1])
        return function(*arguments, **named)

    return inner


def artifacts(module: Any) -> None:
    module.write_durably = inside(
        module.write_durably, lambda path, *_: path.name in ("manifest.json",) or path.suffix == ".html"
    )


def store(module: Any) -> None:
    module.Store._make = around("", module.Store._make)


def checkpoints(module: Any) -> None:
    module.save = around("checkpoint", module.save)
    module.describe = inside(
        module.describe, lambda path: (LOCAL.stack[-1], path.name) == ("checkpoint", "optimiser.safetensors")
    )


def tracking(module: Any) -> None:
    finish = module.Tracker.finish

    class Files(list[Path]):
        def __iter__(self) -> Iterator[Path]:
            yield from super().__iter__()
            reached("log", MOMENTS[1])  # all is logged, but the run has not ended yet

    def watched_finish(self: Any, run_id: str, metrics: Any, files: list[Path], *rest: Any) -> None:
        finish(self, run_id, metrics, Files(files), *rest)

    module.Tracker.finish = around("log", watched_finish)


def report(module: Any) -> None:
    module.write_report = around("report", module.write_report)


WATCHED = {
    "phrasemodels.data.store.artifacts": artifacts,
    "phrasemodels.data.store.store": store,
    "phrasemodels.tasks.train.checkpoints": checkpoints,
    "phrasemodels.infra.tracking": tracking,
    "phrasemodels.flows.report.page": report,
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes a watched module of the project after it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in WATCHED or (spec := importlib.machinery.PathFinder.find_spec(name, path)) is None:
            return None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            WATCHED[name](module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


if PLACE.is_dir():
    sys.meta_path.insert(0, Finder())
