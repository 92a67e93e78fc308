"""Execution: where each step of a plan runs and how a training gets to its workers.

Each node has a store folder of its own as a cache at the same path. If nodes share a store, inputs, results and
checkpoints travel through the shared storage.
"""

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.gc import trimmed
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.experiments.published import file_name
from phrasemodels.flows.results.records import sources_of
from phrasemodels.flows.results.results import FinishedTable
from phrasemodels.flows.run.plan import Plan
from phrasemodels.flows.run.record import Record, ended_at
from phrasemodels.infra.cluster import TorchTrainerLaunch, ray_map, run_on_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.infra.tracking import Tracker, TrainingRun
from phrasemodels.tasks.parsers.parse import add_trees
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.trainer import PROGRESS, Training, history, this_machine, train

if TYPE_CHECKING:
    from phrasemodels.data.store.shared import ObjectStorage

PROGRESS_EVERY = 3.0  # seconds between uploads of the progress of a training, and between reads of it
PAUSE = 60.0  # seconds between two checks of the size of a node's cache: there may be thousands of short steps


@dataclass(frozen=True)
class NodeMap:
    """A map over a cluster. Its nodes trim their caches. limit: of each node's cache, in bytes."""

    map: Callable[..., Iterable[Any]]
    store: Store
    limit: int

    def __call__(self, function: Callable[..., Any], items: Collection[tuple[Any, ...]]) -> Iterable[Any]:
        calls = [(self.store, self.limit, function, item) for item in items]
        return self.map(_call_on_node, calls, label=getattr(function, "__name__", ""))


def _call_on_node(store: Store, limit: int, function: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    """In a Ray worker: call the function, then trim the cache."""
    with trimmed(store, limit, PAUSE):
        return function(*item)


def run_on_node(store: Store, limit: int, step: Step, executor: Executor) -> Artifact:
    """In a Ray worker: run one step."""
    with trimmed(store, limit, PAUSE):
        return store.run(step, executor)


def _train_on_nodes(
    launch: Callable[..., None], store: Store, limit: int, function: Callable[..., None], training: Training
) -> None:
    """Launch a training on any node, and take over its checkpoints."""
    launch(_train_on_node, store, limit, function, training)
    SharedCheckpoints.of(store, training.key, training.folder).pull()


def _train_on_node(store: Store, limit: int, function: Callable[..., None], training: Training) -> None:
    """In a training worker: fetch data and the newest checkpoint of all nodes, then train. Checkpoints are uploaded."""
    checkpoints = SharedCheckpoints.of(store, training.key, training.folder)

    def upload(history: list[dict[str, float]]) -> None:
        checkpoints.push()
        if training.report is not None:
            training.report(history)

    with trimmed(store, limit):
        for path in (*training.train, *training.dev):
            store.bring(path)
        checkpoints.pull()
        with checkpoints.sharing_progress():
            function(replace(training, report=upload))


def _train_recorded(run: TrainingRun, function: Callable[..., None], *arguments: Any) -> None:
    """In a training worker: train. MLflow shows the training at work."""
    from torch import distributed

    if not distributed.is_initialized() or not distributed.get_rank():
        run.begin()
    function(*arguments)


@dataclass(frozen=True)
class SharedCheckpoints:
    """The checkpoints of one training in the shared storage: checkpoints/KEY/step-.../, with state.json written last."""

    shared: "ObjectStorage"
    key: str
    folder: Path

    @classmethod
    def of(cls, store: Store, key: str, folder: Path) -> "SharedCheckpoints":
        """Return the checkpoints of a training of a shared store."""
        assert store.shared is not None, "only nodes with a shared store need this"
        return cls(store.shared, key, folder)

    def _complete(self) -> list[str]:
        """Names of the complete checkpoints in the storage, oldest first."""
        listed = self.shared.listed("checkpoints", self.key)
        return sorted(path.split("/")[-2] for path in listed if path.endswith("/state.json"))

    def push(self) -> None:
        """Upload the newest checkpoint of this node and remove older ones.

        Another run of the same training may be ahead. Its newer checkpoints stay.
        """
        if (found := newest(self.folder, self.key)) is None:
            return
        path, _ = found
        before = self._complete()
        if path.name in before:
            return
        names = sorted(file.name for file in path.iterdir())
        # state.json last: `_complete` takes a checkpoint that has it for whole
        for name in sorted(names, key=lambda name: name == "state.json"):
            self.shared.put(path / name, "checkpoints", self.key, path.name, name)
        for old in before:
            if old < path.name:
                self.shared.remove("checkpoints", self.key, old)

    @contextlib.contextmanager
    def sharing_progress(self) -> Iterator[None]:
        """In a training worker, upload a changed progress.json every few seconds during the block."""
        ended, written = threading.Event(), 0.0

        def upload() -> None:
            nonlocal written
            with contextlib.suppress(OSError):  # not written yet; or the next time
                # a file from before `began` is of an earlier run of this training on this node
                if (now := (self.folder / PROGRESS).stat().st_mtime) > max(written, began):
                    self.shared.put(self.folder / PROGRESS, "checkpoints", self.key, PROGRESS)
                    written = now

        def follow() -> None:
            while not ended.wait(PROGRESS_EVERY):
                upload()

        began = time.time() - 1
        following = threading.Thread(target=follow, daemon=True)
        following.start()
        try:
            yield
        finally:
            ended.set()
            following.join()
            upload()

    def progress(self) -> dict[str, Any] | None:
        """Return the progress of the training from its node, or None."""
        with contextlib.suppress(OSError, ValueError), tempfile.TemporaryDirectory() as folder:
            self.shared.get(Path(folder, PROGRESS), "checkpoints", self.key, PROGRESS)
            return dict(json.loads(Path(folder, PROGRESS).read_text(encoding="utf-8")))
        return None

    def pull(self) -> None:
        """Make this node's checkpoints equal to the storage's, so all workers resume from the same one."""
        names = self._complete()
        for path in self.folder.glob("step-*"):
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)
        self.fetch()

    def fetch(self) -> None:
        """Download the checkpoints missing on this node. None is removed, since another run may use them."""
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


def progress_of(store: Store, key: str) -> dict[str, Any] | None:
    """Return the progress of a training here or from its node. None before it has any."""
    folder, found = store.workspace(key) / "checkpoints", []
    with contextlib.suppress(OSError, ValueError):
        found.append(json.loads((folder / PROGRESS).read_text(encoding="utf-8")))
    if store.shared is not None and (there := SharedCheckpoints(store.shared, key, folder).progress()):
        found.append(there)
    return max(found, key=lambda state: state["step"], default=None)


def training_group(pipeline: Pipeline, settings: Settings) -> TorchTrainerLaunch:
    """Return the Ray Train group of a training, with the workers of the settings or of its configuration."""
    config = pipeline.experiment.train
    name = f"{pipeline.trained.key[:12]}-{file_name(pipeline.experiment.name)}-s{pipeline.seed}"
    workers, wait = settings.workers or config.workers or 1, 60 * settings.wait_minutes
    return TorchTrainerLaunch(name, workers, config.threads, config.gpus, wait=wait, grows=settings.autoscaling)


def check_here(pipelines: Iterable[Pipeline], settings: Settings) -> None:
    """Refuse trainings for which this machine never has room, before anything starts. ValueError: there is one."""
    here = this_machine(settings.cpus)
    for pipeline in pipelines:
        if pipeline.trains:
            training_group(pipeline, settings).check(here)


def launch_training(
    step: Step,
    store: Store,
    settings: Settings,
    executor: Executor,
    group: TorchTrainerLaunch | None = None,
    run: Callable[[Step, Executor], Artifact] | None = None,
    recorded: TrainingRun | None = None,
) -> Artifact:
    """Run a training on its workers: a Ray Train group, or else the process of the step. Return its artifact.

    With shared storage the workers fetch the data from there and keep their checkpoints there, too.

    Args:
        run: Runs the step with an executor. Default: in this process (`store.run`).
        recorded: Its run in MLflow.

    Raises:
        ValueError: The cluster can never hold the group.
    """
    if group is not None:
        group.check()
    run, executor = run or store.run, replace(executor, keeps_state=settings.keep_states)
    launch: Callable[..., None] = group or executor.launch
    if recorded is not None:
        launch = partial(launch, _train_recorded, recorded)
    if (shared := store.shared) is None:
        return run(step, replace(executor, launch=launch))
    launch = partial(_train_on_nodes, launch, store, settings.cache_bytes)
    trained = run(step, replace(executor, launch=launch, fetches=True))
    with contextlib.suppress(ValueError):  # a damaged lease may belong to another run of the same training
        # one lease is our own; a second one is of a run of the same training, which may still resume from them
        if shared.leased_keys()[step.key] <= 1:
            shared.remove("checkpoints", step.key)
    return trained


@dataclass(frozen=True)
class Execution:
    """Runs the steps of a plan.

    shards: the numbers of finished and of all shards of each running step by key. waits: what trainings wait for by
    key.
    """

    plan: Plan
    store: Store
    record: Record
    settings: Settings
    sources: Sources
    shards: dict[str, tuple[int, int]] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, store: Store, settings: Settings, attempt: str = "") -> "Execution":
        """Return the execution of a plan, recorded in the MLflow of the settings. attempt: the id of the Prefect run."""
        tracker = Tracker(settings.tracking_uri, settings.artifact_location)
        record = Record(plan, store, tracker, attempt)
        return cls(plan, store, record, settings, sources_of(settings))

    def run(self, step: Step) -> Artifact:
        """Run one step where it belongs.

        A training of the plan goes to its workers. Trainings needed by other steps are one Ray task each. So are steps
        that predict and score. Steps that fan out shards or the starts of a training run in this process and send these
        to Ray.
        """
        pipeline = self.plan.owners.get(step.key)
        if pipeline is not None and step.make is train:
            return self._train(step, pipeline)
        if step.make is train:
            return launch_training(step, self.store, self.settings, Executor(), run=self._on_ray)
        if pipeline is not None and not step.fans_out:
            # a hit needs no task
            artifact = self.store.find(step) or self._on_ray(step, Executor())
        else:
            executor = Executor(map=self._map(step), sources=self.sources)
            artifact = self.store.run(step, executor)
        if pipeline is not None and pipeline.trains and step.key == pipeline.scored.key:
            self.record.finish(pipeline, artifact)
        return artifact

    def _train(self, step: Step, pipeline: Pipeline) -> Artifact:
        """Find or run a training, recorded in MLflow."""
        with self.record.training(pipeline) as recorded:
            artifact = self.store.find(step)
            if artifact is None:
                group = self.workers_of(pipeline)
                if group is not None:
                    group = replace(group, on_wait=partial(self.waits.__setitem__, step.key))
                executor = Executor(report=recorded)
                run = self.store.run if group else self._on_ray
                artifact = launch_training(step, self.store, self.settings, executor, group, run, recorded)
            self.record.training_run(pipeline)
            recorded(history(artifact), ended_at(artifact))
        return artifact

    def workers_of(self, pipeline: Pipeline) -> TorchTrainerLaunch | None:
        """Return the Ray Train group of a training. None: it runs as a plain Ray task.

        Starting a group takes longer than a small training. Three kinds of training get one. The first has several
        processors, a GPU or a number of workers in its settings. The second is at the paper's size. The third is the
        first of a run. It shows at once whether the cluster can start groups.
        """
        config = pipeline.experiment.train
        asks = self.settings.workers or config.workers or config.threads > 1 or config.gpus
        if not asks and pipeline.experiment.profile != "paper" and pipeline is not self.plan.pipelines[0]:
            return None
        return training_group(pipeline, self.settings)

    def check(self) -> None:
        """Check that the cluster can hold every training missing from the store. ValueError: it never can."""
        for pipeline in (p for p in self.plan.pipelines if p.trains):
            if (group := self.workers_of(pipeline)) and not self.store.find(pipeline.trained, verify=False):
                group.check()

    def without(self, diverged: Collection[str]) -> "Execution":
        """Return the execution without the scores of diverged trainings, by their keys."""
        plan = Plan(self.plan.table, frozenset(diverged))
        return replace(self, plan=plan, record=replace(self.record, plan=plan)) if diverged else self

    def finished(self) -> FinishedTable:
        """Return the table with its results. Every step of the plan must have run."""
        comparison, runs = self.store.run(self.plan.comparison), self.record.tracker.keys()
        return FinishedTable(self.plan.table, self.plan.pipelines, self.store, comparison, runs)

    def _map(self, step: Step) -> Any:
        """The fan-out over the cluster: in actors if a parser stays loaded, else in tasks.

        If nodes have folders of their own, inputs and results travel through the shared store.
        """
        loads = step.make is add_trees

        def on_progress(done: int, total: int) -> None:
            self.shards[step.key] = (done, total)

        over_ray = partial(ray_map, on_progress=on_progress, actors=loads)
        if self.store.shared is None:
            return over_ray
        return NodeMap(over_ray, self.store, self.settings.cache_bytes)

    def _on_ray(self, step: Step, executor: Executor) -> Artifact:
        """Run one step in a Ray task on any node. Its files are there, and in the shared store."""
        return run_on_ray(run_on_node, self.store, self.settings.cache_bytes, step, executor, label=step.label)
