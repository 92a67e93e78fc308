"""Where the parts of a step run: Ray tasks over shards, Ray Train for trainings. The one place that uses Ray."""

import collections
import contextlib
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from phrasemodels.infra.located import located


class Room:
    """Processors that this run's tasks and training groups hold, first come, first served. What waits, waits here and
    not in Ray: there a group of Ray Train would get its turn after every task that is ready."""

    def __init__(self) -> None:
        self.held = 0
        self.waiting: collections.deque[object] = collections.deque()
        self.changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, processors: int) -> Iterator[None]:
        """Hold so many processors of the cluster; the first in the queue always gets them if nothing else runs."""
        import ray

        ticket = object()
        with self.changed:
            self.waiting.append(ticket)
            while self.waiting[0] is not ticket or (self.held and self.held + processors > self._all(ray)):
                self.changed.wait()
            self.waiting.popleft()
            self.held += processors
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self.held -= processors
                self.changed.notify_all()

    def _all(self, ray: Any) -> int:
        return int(ray.cluster_resources().get("CPU", 1)) if ray.is_initialized() else 1


ROOM = Room()


def on_ray(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a Ray worker with one processor, and wait; a user's error comes back as itself."""
    import ray

    with _errors(), ROOM.take(1):
        return ray.get(_task().remote(function, *arguments))


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """A user's error comes back from Ray as itself; a cluster that was lost is said in a line."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, ValueError | OSError) else error from None
    except RayError as error:
        said = str(error).split("\n")[0]
        raise OSError(f"Ray lost a process or a node ({said}); start again: what was made is kept") from error


Told = Callable[[int, int], None]  # is given how many items are done, of how many begun


def nobody(done: int, begun: int) -> None:
    """Nobody is told."""


def ray_map(function: Callable[..., Any], items: Iterable[tuple[Any, ...]], told: Told = nobody) -> list[Any]:
    """function(*item) of each item, as plain Ray tasks with bounded work in flight; results in order.

    A task whose worker dies is run again by Ray.
    """
    import ray

    remote = _task()
    limit = 2 * int(ray.cluster_resources().get("CPU", 1))
    results: dict[Any, Any] = {}
    pending: dict[Any, int] = {}
    with _errors():
        for index, item in enumerate(items):
            if len(pending) >= limit:
                _collect(pending, results)
            pending[remote.remote(function, *item)] = index
            told(len(results), index + 1)
        while pending:
            _collect(pending, results)
            told(len(results), len(results) + len(pending))
    return [results[index] for index in range(len(results))]


def actor_map(function: Callable[..., Any], items: Iterable[tuple[Any, ...]], told: Told = nobody) -> list[Any]:
    """The same in actors, one a processor, for functions that keep something large, such as a parser's models: an
    actor takes item after item, so it is loaded once. One that dies starts anew and is given its item again; one that
    finds no item left ends, and others have its processor.
    """
    import ray

    work = list(items)
    left = iter(enumerate(work))
    count = min(len(work), max(1, int(ray.cluster_resources().get("CPU", 1))))
    environment = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    keeper = ray.remote(num_cpus=1, max_restarts=3, max_task_retries=3, runtime_env=environment)(_Keeper)
    actors: list[Any] = [keeper.remote() for _ in range(count)]
    results: dict[int, Any] = {}
    busy: dict[Any, tuple[int, Any]] = {}

    def give(actor: Any) -> None:
        if (found := next(left, None)) is None:
            ray.kill(actor)
        else:
            busy[actor.call.remote(function, *found[1])] = (found[0], actor)

    try:
        with _errors():
            for actor in actors:
                give(actor)
            while busy:
                (done,), _ = ray.wait(list(busy), num_returns=1)
                index, actor = busy.pop(done)
                results[index] = ray.get(done)
                give(actor)
                told(len(results), len(work))
    finally:
        for actor in actors:
            ray.kill(actor)
    return [results[index] for index in range(len(work))]


class _Keeper:
    """An actor: what a function keeps in its process is there for the next item."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with located():
            return function(*arguments)


def _collect(pending: dict[Any, int], results: dict[Any, Any]) -> None:
    """Wait for one task and take its result."""
    import ray

    (done,), _ = ray.wait(list(pending), num_returns=1)
    results[pending.pop(done)] = ray.get(done)


def _task() -> Any:
    import ray

    return ray.remote(num_cpus=1, max_retries=3)(_call)


def room_for(bundle: dict[str, float], node: dict[str, float]) -> int:
    """How many such bundles a node can hold at once; a part of a GPU is on one GPU."""
    return min(
        int(node.get(kind, 0)) * int(1 / share) if share < 1 else int(node.get(kind, 0) / share)
        for kind, share in bundle.items()
    )


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    with located():
        return function(*arguments)


@dataclass(frozen=True)
class TorchTrainerLaunch:
    """Launch a training loop on Ray Train workers, each a process of a torch.distributed group (gloo, or nccl on GPUs).

    workers processes of `threads` processors and `gpus` GPUs each; with a fraction, several trainings share a GPU. A
    dead worker restarts the group, which goes on from the loop's own checkpoint: those are verified, Ray's snapshots
    are not.
    """

    name: str
    workers: int = 1
    threads: int = 1
    gpus: float = 0.0
    failures: int = 3

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        import ray
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchConfig, TorchTrainer

        self.check()
        backend = "nccl" if self.gpus >= 1 else "gloo"  # nccl refuses two workers on one GPU

        def config(folder: str) -> TorchConfig:
            if len(ray.nodes()) > 1:
                return TorchConfig(backend=backend)
            from phrasemodels.infra.rendezvous import FileTorchConfig

            return FileTorchConfig(backend=backend, folder=folder)

        logging.getLogger("ray.train").setLevel(logging.ERROR)
        # Ray's own snapshots get a fresh folder: a truncated one would refuse every later start of this name
        with ROOM.take(self.workers * self.threads), tempfile.TemporaryDirectory(prefix="pm-train-") as storage:
            trainer = TorchTrainer(
                _run,
                train_loop_config={"function": function, "arguments": arguments},
                scaling_config=ScalingConfig(
                    num_workers=self.workers, use_gpu=self.gpus > 0, resources_per_worker=self.bundle
                ),
                torch_config=config(storage),
                run_config=RunConfig(
                    name=self.name,
                    storage_path=storage,
                    failure_config=FailureConfig(max_failures=self.failures, controller_failure_limit=1),  # type: ignore[call-arg]
                ),
            )
            try:
                with _errors():
                    trainer.fit()
            except TrainingFailedError as error:
                for cause in getattr(error, "worker_failures", {}).values():
                    if isinstance(root := getattr(cause, "cause", cause), ValueError | OSError):
                        raise root from None
                raise

    @property
    def bundle(self) -> dict[str, float]:
        """What each worker holds, all of it on one node."""
        return {"CPU": float(self.threads)} | ({"GPU": self.gpus} if self.gpus else {})

    def check(self) -> None:
        """A ValueError, at once, if the cluster can never hold this group."""
        import ray

        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if (room := sum(room_for(self.bundle, node) for node in nodes)) < self.workers:
            have = [{kind: int(node.get(kind, 0)) for kind in self.bundle} for node in nodes]
            raise ValueError(
                f"{self.workers} workers need {self.bundle} each, the cluster has {have}, which is room for {room}: "
                "set train.workers, train.threads or train.gpus lower, or add nodes"
            )


def _run(config: dict[str, Any]) -> None:
    """What each Ray Train worker calls."""
    with located():
        config["function"](*config["arguments"])
