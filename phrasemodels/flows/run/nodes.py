"""Runs over several nodes that share a store: inputs, results and checkpoints travel through the shared storage.

Each node has a store folder of its own as a cache, with the same path on all nodes.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
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

PAUSE = 60.0  # seconds between two checks of the size of a node's cache: there may be thousands of short steps


@dataclass(frozen=True)
class NodeMap:
    """A map over the cluster that fetches its results to this node. limit: of each node's cache, in bytes."""

    map: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterable[Any]]
    store: Store
    limit: int

    def __call__(self, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        for value in self.map(_call_on_node, ((self.store, self.limit, function, item) for item in items)):
            yield fetch(self.store, value.path) if isinstance(value, Artifact) else value


def _call_on_node(store: Store, limit: int, function: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    """In a Ray worker: fetch the inputs of the steps among the arguments, then call the function."""
    with trimmed(store, limit, PAUSE):
        for step in (value for value in item if isinstance(value, Step)):
            for value in step.inputs.values():
                if (path := getattr(value, "path", None)) is not None:
                    fetch(store, path)
        return function(*item)


def run_on_node(store: Store, limit: int, step: Step, executor: Executor) -> Artifact:
    """In a Ray worker: run one step."""
    with trimmed(store, limit, PAUSE):
        return store.run(step, executor)


def fetch(store: Store, path: Path) -> Artifact:
    """Return the artifact that a file belongs to, on this node. OSError: neither this node nor the shared store has it."""
    folder = store.where(*path.relative_to(store.root / "objects").parts[:2])
    artifact = store.get(folder, verify=False)  # counts as used
    if artifact is None:
        raise OSError(f"{folder} is neither on this node nor in the shared store: run it again")
    return artifact


@dataclass(frozen=True)
class NodeLaunch:
    """A launch whose workers, on any node, fetch the data, resume from the newest checkpoint of all nodes, and upload
    theirs."""

    launch: Callable[..., None]
    store: Store
    limit: int

    def __call__(self, function: Callable[..., None], training: Training) -> None:
        shared = self.store.shared
        assert isinstance(shared, ObjectStorage), "only nodes with a shared store need this"
        checkpoints = SharedCheckpoints(shared, training.key, training.folder)
        self.launch(_train_on_node, self.store, self.limit, checkpoints, function, training)
        checkpoints.pull()


def _train_on_node(
    store: Store, limit: int, checkpoints: "SharedCheckpoints", function: Callable[..., None], training: Training
) -> None:
    """In a training worker: fetch data and checkpoints, then train."""
    with trimmed(store, limit):
        for path in (*training.train, *training.dev):
            fetch(store, path)
        checkpoints.pull()
        function(replace(training, report=ReportAndUpload(training.report, checkpoints)))


@dataclass(frozen=True)
class ReportAndUpload:
    """Upload the newest checkpoint, which has just been saved, then report the metrics."""

    report: Callable[[list[dict[str, float]]], None] | None
    checkpoints: "SharedCheckpoints"

    def __call__(self, history: list[dict[str, float]]) -> None:
        self.checkpoints.push()
        if self.report is not None:
            self.report(history)


@dataclass(frozen=True)
class SharedCheckpoints:
    """The checkpoints of one training in the shared storage: checkpoints/KEY/step-.../, with state.json written last."""

    shared: ObjectStorage
    key: str
    folder: Path

    def _complete(self) -> list[str]:
        """Names of the complete checkpoints in the storage, oldest first."""
        listed = self.shared.listed("checkpoints", self.key)
        return sorted(path.split("/")[-2] for path in listed if path.endswith("/state.json"))

    def push(self) -> None:
        """Upload the newest checkpoint of this node and remove older ones. Another run of the same training may be ahead:
        its newer checkpoints stay."""
        if (found := newest(self.folder, self.key)) is None:
            return
        path, _ = found
        before = self._complete()
        names = sorted(file.name for file in path.iterdir())
        for name in sorted(names, key=lambda name: name == "state.json"):
            self.shared.put(path / name, "checkpoints", self.key, path.name, name)
        for old in before:
            if old < path.name:
                self.shared.remove("checkpoints", self.key, old)

    def pull(self) -> None:
        """Make this node's checkpoints those of the storage, so that all workers resume from the same one."""
        names = self._complete()
        for path in self.folder.glob("step-*"):
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)
        self.fetch()

    def fetch(self) -> None:
        """Download the checkpoints that are not on this node; none is removed, as a run may be under way here."""
        for name in self._complete():
            if not (self.folder / name / "state.json").is_file():
                self._download(name)

    def _download(self, name: str) -> None:
        aside = self.folder / f".{name}.{uuid.uuid4().hex}"
        aside.mkdir(parents=True)
        try:
            with contextlib.suppress(FileNotFoundError):  # a run that is ahead has just removed it
                for file in (path.split("/")[-1] for path in self.shared.listed("checkpoints", self.key, name)):
                    self.shared.get(aside / file, "checkpoints", self.key, name, file)
                with contextlib.suppress(OSError):  # another worker of this node was faster
                    os.replace(aside, self.folder / name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
