"""What crosses nodes when each has a folder of its own before a shared store: inputs are brought, results fetched,
checkpoints kept where every node finds them. A store's folder has the same path on all nodes."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.gc import trimmed
from phrasemodels.data.store.object_storage import ObjectStorage
from phrasemodels.data.store.step import Executor, Step
from phrasemodels.data.store.store import Store
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.loop import Training

PAUSE = 60.0  # seconds between two looks at what a node's cache holds: there may be thousands of short steps


@dataclass(frozen=True)
class FarMap:
    """A map over the cluster whose results are brought here; each node's cache keeps its limit, in bytes."""

    map: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], list[Any]]
    store: Store
    limit: int

    def __call__(self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> list[Any]:
        found = self.map(_far, [(self.store, self.limit, function, item) for item in items])
        return [bring(self.store, value.path) if isinstance(value, Artifact) else value for value in found]


def _far(store: Store, limit: int, function: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    with trimmed(store, limit, PAUSE):
        for step in (value for value in item if isinstance(value, Step)):
            for given in step.inputs.values():
                if (path := getattr(given, "path", None)) is not None:
                    bring(store, path)
        return function(*item)


def far_run(store: Store, limit: int, step: Step, executor: Executor) -> Artifact:
    """In a Ray worker: run one step."""
    with trimmed(store, limit, PAUSE):
        return store.run(step, executor)


def bring(store: Store, path: Path) -> Artifact:
    """The artifact that a file is in, on this node. An OSError if it is nowhere."""
    folder = store.where(*path.relative_to(store.root / "objects").parts[:2])
    found = store.get(folder, verify=False)  # counts as used
    if found is None:
        raise OSError(f"{folder} is neither on this node nor in the shared store: run it again")
    return found


@dataclass(frozen=True)
class FarLaunch:
    """A launch on workers anywhere: they get the data, go on from the newest checkpoint of any node, and keep theirs."""

    launch: Callable[..., None]
    store: Store
    limit: int

    def __call__(self, function: Callable[..., None], training: Training) -> None:
        shared = self.store.shared
        assert isinstance(shared, ObjectStorage), "nodes share nothing otherwise"
        kept = SharedCheckpoints(shared, training.key, training.folder)
        self.launch(_far_training, self.store, self.limit, kept, function, training)
        kept.pull()


def _far_training(
    store: Store, limit: int, kept: "SharedCheckpoints", function: Callable[..., None], training: Training
) -> None:
    with trimmed(store, limit):
        for path in (*training.train, *training.dev):
            bring(store, path)
        kept.pull()
        function(replace(training, report=Reported(training.report, kept)))


@dataclass(frozen=True)
class Reported:
    """Whoever was told is told; then the checkpoint, which has just been saved, is kept for all nodes."""

    before: Callable[[list[dict[str, float]]], None] | None
    kept: "SharedCheckpoints"

    def __call__(self, history: list[dict[str, float]]) -> None:
        self.kept.push()
        if self.before is not None:
            self.before(history)


@dataclass(frozen=True)
class SharedCheckpoints:
    """The checkpoints of one training in the shared storage: checkpoints/KEY/step-.../, its state.json last."""

    shared: ObjectStorage
    key: str
    folder: Path

    def _there(self) -> list[str]:
        """Names of whole checkpoints, oldest first."""
        listed = self.shared.listed("checkpoints", self.key)
        return sorted(path.split("/")[-2] for path in listed if path.endswith("/state.json"))

    def push(self) -> None:
        """Keep the newest checkpoint of this node; then older ones may go. Another run that makes the same key may be
        further: what it kept stays."""
        if (found := newest(self.folder, self.key)) is None:
            return
        path, _ = found
        before = self._there()
        names = sorted(file.name for file in path.iterdir())
        for name in sorted(names, key=lambda name: name == "state.json"):
            self.shared.put(path / name, "checkpoints", self.key, path.name, name)
        for old in before:
            if old < path.name:
                self.shared.remove("checkpoints", self.key, old)

    def pull(self) -> None:
        """Make this node's checkpoints those of the storage, so that all workers go on from the same one."""
        there = self._there()
        for path in self.folder.glob("step-*"):
            if path.name not in there:
                shutil.rmtree(path, ignore_errors=True)
        for name in there:
            if not (self.folder / name / "state.json").is_file():
                aside = self.folder / f".{name}.{uuid.uuid4().hex}"
                aside.mkdir(parents=True)
                try:
                    with contextlib.suppress(FileNotFoundError):  # a run that is further has just removed it
                        for file in (path.split("/")[-1] for path in self.shared.listed("checkpoints", self.key, name)):
                            self.shared.get(aside / file, "checkpoints", self.key, name, file)
                        with contextlib.suppress(OSError):  # another worker of this node was faster
                            os.replace(aside, self.folder / name)
                finally:
                    shutil.rmtree(aside, ignore_errors=True)
