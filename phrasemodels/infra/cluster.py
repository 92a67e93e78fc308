"""How a step runs on Ray: its parts as Ray tasks or in actors, its training on Ray Train."""

import collections
import contextlib
import dataclasses
import datetime
import logging
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from phrasemodels.infra.signals import ClusterError, noting_error_line
from phrasemodels.project import declared_files_only


class ProcessorSlots:
    """Hand out the processors of a run to tasks and training groups, first come, first served.

    Requests wait here and not in Ray's queue. There a group of Ray Train gets its turn after every ready task.
    """

    def __init__(self) -> None:
        self.held = 0
        self.waiting: collections.deque[object] = collections.deque()
        self.changed = threading.Condition()

    @contextlib.contextmanager
    def hold(self, processors: int) -> Iterator[None]:
        """Wait for some processors of the cluster and hold them.

        If no processor is held, the first request gets any number.
        """
        ticket = object()
        with self.changed:
            self.waiting.append(ticket)
            try:
                while self.waiting[0] is not ticket or (self.held and self.held + processors > self._total()):
                    self.changed.wait()
                self.held += processors
            finally:  # also if Ray does not say how many there are
                self.waiting.remove(ticket)
                self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self.held -= processors
                self.changed.notify_all()

    def _total(self) -> int:
        """The number of processors of the cluster."""
        import ray

        return int(ray.cluster_resources().get("CPU", 1)) if ray.is_initialized() else 1


SLOTS = ProcessorSlots()


TASKS = 32  # of a step that fans out, at most for each processor
ROOM_EVERY = 3.0  # seconds between two looks at whether the cluster has room for a group that trains or waits


class NoRoomError(OSError):
    """The cluster had no room for a group of workers for some time: a node is lost or in use."""


def run_on_ray(function: Callable[..., Any], *arguments: Any, label: str = "") -> Any:
    """Call a function in a Ray worker with one processor, and wait.

    Args:
        label: Name of the call in Ray's lists. Default: the name of the function.

    Raises:
        ValueError, OSError: The function raised it in the worker.
    """
    import ray

    # steps may run twice: the store keeps one artifact of a key
    task: Any = ray.remote(num_cpus=1, max_retries=3)(call_in_worker)
    with _plain_errors(), SLOTS.hold(1):
        return ray.get(task.options(name=_title(function, label)).remote(function, *arguments))


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise a ValueError or OSError of a worker as itself, and a failure of the cluster as an OSError of one line."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, ValueError | OSError) else error from None
    except RayError as error:
        message = str(error).split("\n")[0]
        raise ClusterError(f"Ray lost a process or a node ({message}); start again: finished steps are kept") from error


OnProgress = Callable[[int, int], None]  # (items done, all items)


def ray_map(
    function: Callable[..., Any],
    items: Collection[tuple[Any, ...]],
    on_progress: OnProgress = lambda done, total: None,
    label: str = "",
    actors: bool = False,
) -> Iterator[Any]:
    """Call function(*item) for each item by Ray Data and yield the results in order.

    Short calls share a task. Ray repeats a task if its worker dies. After an error, or once the caller stops asking, running
    calls are ended.

    Args:
        label: As in `run_on_ray`.
        actors: Call in actors, at most one a processor. An actor loads its models once and then gets item after item.
    """
    import ray
    import ray.data

    processors = max(1, int(ray.cluster_resources().get("CPU", 1)))  # a cluster that grows may have none yet
    tasks = len(items) if actors else min(len(items), TASKS * processors)
    on_progress(0, len(items))
    if not items:
        return
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # Ray 2.60 has no other way to bound how often a call that ends its worker is tried again
    warnings.filterwarnings("ignore", "`ray_remote_args_fn` is deprecated")
    rows = [{"index": index, "item": ray.cloudpickle.dumps(item)} for index, item in enumerate(items)]
    data = ray.data.from_items(rows, override_num_blocks=tasks)
    data.context.enable_progress_bars = False
    data.context.execution_no_progress_timeout_s = -1  # a shard may take longer than Ray's half an hour
    title = _title(function, label)
    if actors:
        # one thread: there is an actor on each processor, and more threads than processors make parsers slower (stanza#552)
        called = data.map(
            type(title, (Calls,), {}),
            fn_constructor_args=(function,),
            compute=ray.data.ActorPoolStrategy(size=min(len(items), processors), max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
            ray_remote_args_fn=lambda: {"max_restarts": 3, "max_task_retries": 3},
        )
    else:
        called = data.map(_named(Calls(function), title), num_cpus=1, ray_remote_args_fn=lambda: {"max_retries": 3})
    results: dict[int, Any] = {}
    done = wanted = 0
    # none is fetched ahead: a call that fails would wait for the next one
    batches: Any = iter(called.iter_batches(batch_size=None, prefetch_batches=0))
    with _plain_errors(), contextlib.closing(batches):
        for batch in batches:
            for index, text in zip(batch["index"], batch["made"], strict=True):
                result = ray.cloudpickle.loads(text)  # of a worker of this run
                if isinstance(result, _Failure):
                    raise result.error
                results[int(index)] = result
                done += 1
                on_progress(done, len(items))
            while wanted in results:
                yield results.pop(wanted)
                wanted += 1


class _Failure(NamedTuple):
    """An error of a call, kept for its caller. Ray Data would wrap it."""

    error: Exception


class Calls:
    """The function of a pipeline of Ray Data. It gets the pickled item of each row."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        import ray

        try:
            made = call_in_worker(self.function, *ray.cloudpickle.loads(row["item"]))
        except (ValueError, OSError) as error:
            made = _Failure(error)
        return {"index": row["index"], "made": ray.cloudpickle.dumps(made)}


def _named(calls: Calls, title: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Name a function for Ray's lists. An object with __call__ would run in actors."""

    def call(row: dict[str, Any]) -> dict[str, Any]:
        return calls(row)

    call.__name__ = title
    return call


def call_in_worker(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a Ray worker. An error in a layer gets the line of its source."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # a run in the background ignores the signal by which Ray cancels tasks
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with noting_error_line(), declared_files_only():
        return function(*arguments)


def _title(function: Callable[..., Any], label: str = "") -> str:
    """Return the name of a call in Ray's lists and in the list of processes."""
    return f"step:{label or getattr(function, '__name__', type(function).__name__)}"


def bundles_on(node: dict[str, float], bundle: dict[str, float]) -> int:
    """Count the bundles of resources for which a node has room. A fraction of a GPU must be on one GPU."""
    return min(
        int(node.get(kind, 0)) * int(1 / share) if share < 1 else int(node.get(kind, 0) / share)
        for kind, share in bundle.items()
    )


def _living_nodes() -> list[dict[str, float]]:
    """Return the resources of the nodes of the cluster."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


FAILURES = 3  # after which a group doesn't start again


@dataclass(frozen=True)
class TorchTrainerLaunch:
    """Launch a training loop on the workers of Ray Train as one torch.distributed group.

    The group is of gloo or (on GPUs) of nccl. Each worker has `threads` processors and `gpus` GPUs. With a fraction
    several trainings share a GPU. If a worker dies, the group starts again at most FAILURES times. It continues from
    the loop's own verified checkpoint and not from Ray's snapshots.

    Args:
        wait: Seconds to wait for room after the loss of a node or for new nodes if the cluster `grows`.
        on_wait: Gets the text of what the group waits for and an empty text once it waits no longer.
    """

    name: str
    workers: int = 1
    threads: int = 1
    gpus: float = 0.0
    wait: float = 1800.0
    grows: bool = False
    on_wait: Callable[[str], None] = lambda what: None

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        from phrasemodels.infra.services import scratch_folder

        self.check()
        # Ray's own snapshots get a new folder: a truncated one would stop every later run of this name
        with SLOTS.hold(self.workers * self.threads), self._saying_what_it_waits_for() as lost:
            while True:
                try:
                    with scratch_folder() as storage:
                        self._fit(str(storage), function, *arguments)
                    return
                except NoRoomError as error:
                    if lost.is_set():  # no ClusterError, after which the step would be tried again
                        raise OSError(
                            f"{self.name}: {self._missing()}, for {self.wait / 60:g} min; add nodes and start "
                            "again: finished steps are kept, and the training goes on from its checkpoint"
                        ) from error
                    if self._room() >= self.workers:
                        self.on_wait(f"processors ({self.workers} times {self.bundle}), which other runs hold")

    @contextlib.contextmanager
    def _saying_what_it_waits_for(self) -> Iterator[threading.Event]:
        """Say in the block if the cluster lacks room. The event is set once it lacked room for `wait` seconds."""
        ended, lost, until = threading.Event(), threading.Event(), math.inf

        def follow() -> None:
            nonlocal until
            while not ended.wait(ROOM_EVERY):
                with contextlib.suppress(Exception):  # the cluster itself is lost: the training fails with that
                    if self._room() >= self.workers:
                        if math.isfinite(until):
                            self.on_wait("")
                        until = math.inf
                    elif math.isinf(until):
                        until = time.time() + self.wait
                        ends = datetime.datetime.fromtimestamp(until, datetime.UTC)
                        self.on_wait(f"nodes ({self._missing()}); gives up at {ends:%H:%M} UTC")
                    elif time.time() > until:
                        lost.set()

        following = threading.Thread(target=follow, daemon=True)
        following.start()
        try:
            yield lost
        finally:
            ended.set()
            following.join()

    def _fit(self, storage: str, function: Callable[..., None], *arguments: Any) -> None:
        """Train once in a group. NoRoomError: Ray found no room in the time set by infra/environment.py."""
        import ray
        from ray.train import ControllerError, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchConfig, TorchTrainer

        from phrasemodels.infra.ray_private import file_torch_config

        backend = "nccl" if self.gpus >= 1 else "gloo"  # nccl refuses two workers on one GPU

        def config(folder: str) -> Any:
            if len(ray.nodes()) > 1:
                return TorchConfig(backend=backend)
            return file_torch_config(backend, folder)

        logging.getLogger("ray.train").setLevel(logging.CRITICAL)
        trainer = TorchTrainer(
            train_worker,
            train_loop_config={"function": function, "arguments": arguments, "gpu": self.gpus > 0},
            scaling_config=ScalingConfig(
                num_workers=self.workers, use_gpu=self.gpus > 0, resources_per_worker=self.bundle
            ),
            torch_config=config(storage),
            run_config=RunConfig(
                name=self.name,
                storage_path=storage,
                failure_config=FailureConfig(max_failures=FAILURES, controller_failure_limit=1),  # type: ignore[call-arg]
            ),
        )
        try:
            with _plain_errors():
                trainer.fit()
        except ControllerError as error:
            if type(error.controller_failure).__name__ == "WorkerGroupStartupTimeoutError":
                raise NoRoomError(str(error)) from error
            raise
        except TrainingFailedError as error:
            for cause in getattr(error, "worker_failures", {}).values():
                if isinstance(root := getattr(cause, "cause", cause), ValueError | OSError):
                    raise root from None
            raise

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker, all of them on one node."""
        return {"CPU": float(self.threads)} | ({"GPU": self.gpus} if self.gpus else {})

    def check(self, here: Sequence[dict[str, float]] = ()) -> None:
        """Check that there can be room for this group. A growing cluster may have no nodes yet.

        Args:
            here: Resources of this machine, in place of the cluster that Ray has joined.

        Raises:
            ValueError: There never is.
        """
        if (here or not self.grows) and self._room(here) < self.workers:
            more = "set train.workers, train.threads or train.gpus lower, or add nodes"
            raise ValueError(f"{self._missing(here)}: {more}")

    def _room(self, here: Sequence[dict[str, float]] = ()) -> int:
        """Count the workers for which the cluster has room."""
        return sum(bundles_on(node, self.bundle) for node in here or _living_nodes())

    def _missing(self, here: Sequence[dict[str, float]] = ()) -> str:
        """Say what the group needs and what the cluster has."""
        have = [{kind: int(node.get(kind, 0)) for kind in self.bundle} for node in here or _living_nodes()]
        what, room = "this machine" if here else "the cluster", self._room(here)
        return f"{self.workers} workers need {self.bundle} each, {what} has {have}, which is room for {room}"


def train_worker(config: dict[str, Any]) -> None:
    """Call the training loop in a worker of Ray Train.

    The field `device` of an argument becomes the device of this worker.
    """
    from ray.train.torch import get_device

    device = str(get_device()) if config["gpu"] else "cpu"
    arguments = [
        dataclasses.replace(value, device=device)
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "device")
        else value
        for value in config["arguments"]
    ]
    with noting_error_line(), declared_files_only():
        config["function"](*arguments)
