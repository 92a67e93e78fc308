"""ray_map on a Ray cluster: order, caching, errors, dead workers, and parsing in actors."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from phrasemodels.data.corpora.samples import Entailment
from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.run.execute import NodeMap
from phrasemodels.infra.cluster import TorchTrainerLaunch, ray_map, run_on_ray, train_worker
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings
from phrasemodels.tasks.parsers.parse import AddTrees, add_trees
from phrasemodels.tasks.parsers.stanza import Stanza, fetched
from phrasemodels.tasks.prepare.corpora import SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards

pytestmark = pytest.mark.slow  # services start and wait for minutes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:  # workers import the functions of this file
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        started = start_ray(Settings(store=tmp_path_factory.mktemp("ray"), cpus=2))
    yield
    if started:
        stop_ray()


def in_actors(function: Callable[..., Any], items: list[tuple[Any, ...]], **options: Any) -> list[Any]:
    return list(ray_map(function, items, actors=True, **options))


@cache
def loaded() -> list[int]:
    """Return a list that the process keeps, in place of a large model."""
    return []


def work(item: int, folder: str = "") -> tuple[int, int, int]:
    """Return (item squared, number of items of this process, process id); die at item 3 the first time."""
    loaded().append(item)
    if item == 3 and folder and not (mark := Path(folder) / "died").exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if item < 0:
        raise ValueError(f"{item} is no item")
    return item * item, len(loaded()), os.getpid()


def test_actors_load_once(cluster: None) -> None:
    found = in_actors(work, [(n,) for n in range(12)])
    assert [square for square, _, _ in found] == [n * n for n in range(12)]
    processes = {process for _, _, process in found}
    assert len(processes) <= 2 and sum(max(n for _, n, p in found if p == process) for process in processes) == 12


def title() -> tuple[str, str]:
    """Return what Ray lists this call as, and its actor, if it is in one."""
    import ray

    actors = ray._private.worker.global_worker.actors.values()
    return ray.get_runtime_context().get_task_name(), "".join(type(actor).__name__ for actor in actors)


def test_ray_lists_tasks_and_actors_by_what_they_do(cluster: None, tmp_path: Path) -> None:
    assert run_on_ray(title)[0] == "step:title"
    assert run_on_ray(title, label="train x seed 0")[0] == "step:train x seed 0"
    assert next(ray_map(title, [()]))[0] == "Map(step:title)"
    store = Store(tmp_path / "store").open()
    assert [one for one, _ in NodeMap(ray_map, store, 10**9)(title, [()])] == ["Map(step:title)"], (
        "on a shared store too"
    )
    assert [actor for _, actor in in_actors(title, [()])] == ["MapWorker(Map(step:title))"]


def visible() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_task_without_a_gpu_sees_none(cluster: None) -> None:
    assert run_on_ray(visible) == "" and in_actors(visible, [()]) == [""]


@dataclass(frozen=True)
class OnDevice:
    device: str = ""


@pytest.mark.parametrize("gpu", [True, False])
def test_a_training_runs_on_the_device_of_its_worker(gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on that of its rank: with a fraction of a GPU, or two, these differ."""
    import ray.train.torch

    monkeypatch.setattr(ray.train.torch, "get_device", lambda: "cuda:2")
    found: list[OnDevice] = []
    train_worker({"function": found.append, "arguments": [OnDevice()], "gpu": gpu})
    assert found == [OnDevice("cuda:2" if gpu else "cpu")]


def test_tasks_begin_once_results_are_asked_for_and_come_in_order(cluster: None) -> None:
    said: list[tuple[int, int]] = []
    results = ray_map(abs, [(n,) for n in range(12)], lambda *counts: said.append(counts))
    assert not said
    assert list(results) == list(range(12))
    assert said == [(n, 12) for n in range(13)]


def test_errors_of_workers_keep_their_type(cluster: None) -> None:
    with pytest.raises(ValueError, match="-1 is no item"):
        in_actors(work, [(1,), (-1,)])
    assert in_actors(work, []) == []


def there(path: Path, seconds: float = 300) -> bool:
    """Wait until a path exists; false after some seconds."""
    end = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.1)
    return path.exists()


def begin_and_wait(begun: Path, waits: bool) -> None:
    """Say which process this is and wait for ever, or fail once another one waits."""
    if not waits:
        assert there(begun)
        raise ValueError("no")
    begun.write_text(str(os.getpid()))
    there(Path("/nothing"), 90)


@pytest.mark.parametrize("actors", [False, True])
def test_calls_beside_one_that_fails_are_ended(cluster: None, tmp_path: Path, actors: bool) -> None:
    begun, started = tmp_path / "begun", time.monotonic()
    with pytest.raises(ValueError, match="no"):
        list(ray_map(begin_and_wait, [(begun, True), (begun, False)], actors=actors))
    while Path("/proc", begun.read_text()).exists():
        assert time.monotonic() < started + 60
        time.sleep(0.1)


@pytest.mark.parametrize("actors", [False, True])
def test_a_call_that_kills_its_worker_every_time_fails(cluster: None, actors: bool) -> None:
    with pytest.raises(OSError, match="Ray lost a process or a node"):
        list(ray_map(os.abort, [()], actors=actors))


@pytest.mark.parametrize("actors", [False, True])
def test_a_call_may_take_longer_than_ray_waits(cluster: None, actors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.data import DataContext

    monkeypatch.setattr(DataContext.get_current(), "execution_no_progress_timeout_s", 1)
    assert list(ray_map(time.sleep, [(4,)], actors=actors)) == [None]


def test_an_actor_without_items_frees_its_processor(cluster: None, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def on_progress(done: int, total: int) -> None:
        if done == 1:
            list(ray_map(Path.touch, [(mark,)]))  # a task that needs one of the two processors

    assert in_actors(there, [(mark,), (tmp_path,)], on_progress=on_progress) == [True, True]


def test_a_dead_actor_is_started_again(cluster: None, tmp_path: Path) -> None:
    found = in_actors(work, [(n, str(tmp_path)) for n in range(6)])
    assert [square for square, _, _ in found] == [n * n for n in range(6)]
    assert (tmp_path / "died").exists()


def cut_off() -> None:
    """In a worker of Ray Train: truncate Ray's own snapshot, as a full disk or a kill does."""
    from ray.train.v2._internal.execution.context import get_train_context

    storage = get_train_context().get_storage()
    Path(storage.experiment_fs_path).mkdir(parents=True, exist_ok=True)
    (Path(storage.experiment_fs_path) / "checkpoint_manager_snapshot.json").write_text('{"cut')


@pytest.mark.slow
def test_a_truncated_snapshot_of_ray_train_does_not_stop_the_next_run(cluster: None) -> None:
    for _ in range(2):
        TorchTrainerLaunch("the-same")(cut_off)


@pytest.mark.slow
@pytest.mark.needs_mirror("parsers")
def test_actors_parse_as_this_process_does(cluster: None, store: Store, tmp_path: Path) -> None:

    rows = SampleCorpus(train=2_050, dev=5, test=5, records=Entailment()).split("train")
    models = fetched("gum")
    parser = AddTrees(Stanza(processors=("pos", "constituency"), longest=8))
    from conftest import PARSERS  # workers of Ray cannot import it

    executor = Executor(sources=Sources((PARSERS,), offline=True))
    step = Step(add_trees, "p", parser, {"rows": rows, "models": store.run(models, executor)})
    spread = store.run(step, Executor(map=in_actors))
    other = Store(tmp_path / "other").open()
    here = other.run(Step(add_trees, "p", parser, {"rows": rows, "models": other.run(models, executor)}))
    assert len(spread.meta["shards"]) == 2 and spread.meta == here.meta
    assert read_shards(spread).equals(read_shards(here))
