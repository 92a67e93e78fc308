"""`phrasemodels train`: one training without Prefect and MLflow, from the store or from a prepared folder."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from phrasemodels.data.download.manifest import Sources
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, HasKey, Store, call_here, digest_of, with_dependencies
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.flows.run import LINES_EVERY, Pace
from phrasemodels.folders import check_folder, writing_folder
from phrasemodels.tasks.train.trainer import (
    PROGRESS,
    this_machine,
)

if TYPE_CHECKING:
    pass

RECIPE = "recipe.sha256"  # in a prepared folder: digest of the settings that its data was made with
OVERRIDES = "overrides"  # in the manifests of a training from a prepared folder: all of its overrides


def train_experiment(experiment: Experiment, seed: int, local: bool) -> dict[str, Any]:
    """Run all steps of one experiment and seed, kept in the store. Return its scores.

    The training runs on Ray Train unless local.
    """
    from phrasemodels.flows.results.records import leased_steps, open_store, sources_of
    from phrasemodels.flows.run.execute import check_here, launch_training, training_group
    from phrasemodels.infra.services import start_ray, stop_ray
    from phrasemodels.infra.settings import Settings

    if not experiment.recipe.trains:
        raise ValueError(f"{experiment.name} trains nothing: `phrasemodels verdicts --count` runs it")
    if local:
        _check_local(experiment)
    settings = Settings()
    store, sources = open_store(settings), sources_of(settings)
    pipeline = _with_files(experiment, sources).steps(seed)
    if not local and not settings.ray_address:
        check_here([pipeline], settings)
    report = _Printer(pipeline.trained.settings) if local else None
    executor = Executor(sources=sources, report=report, launch=group_here(experiment) if local else call_here)
    checkpoints = store.workspace(pipeline.trained.key) / "checkpoints"
    with contextlib.ExitStack() as stack:
        # before the first look-up: garbage collection must not take what is found
        stack.enter_context(leased_steps(store, with_dependencies([pipeline.scored]), settings))
        stack.enter_context(progress_lines(checkpoints))
        if not local:
            start_ray(settings)
            stack.callback(stop_ray)
        group = None if local else training_group(pipeline, settings)
        trained = launch_training(pipeline.trained, store, settings, executor, group)
        scored = store.run(pipeline.scored, executor)
    return _result(pipeline, trained, scored)


def _check_local(experiment: Experiment) -> None:
    """Refuse a training for which this machine never has room. ValueError: it is one, or torchrun started this process."""
    from phrasemodels.infra.cluster import TorchTrainerLaunch

    config, workers = experiment.train, experiment.train.workers or 1
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ValueError("torchrun would train the same several times: leave it out, and set train.workers=N")
    TorchTrainerLaunch(experiment.name, workers, config.threads, config.gpus).check(this_machine())


def group_here(experiment: Experiment) -> Callable[..., None]:
    """Return what launches a training on its workers: this process, or as many as `train.workers` on this machine."""
    workers = experiment.train.workers or 1
    return call_here if workers == 1 else LocalLaunch(workers, max(1, int(experiment.train.gpus)))


@dataclass(frozen=True)
class LocalLaunch:
    """Launch a training on processes of this machine as one torch.distributed group, without Ray or torchrun.

    Each worker has `gpus` GPUs of its own. With too few of them some share one. Where there are none the processors train.
    """

    workers: int
    gpus: int = 1

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Return when all workers have. The error of a worker is raised, and ends the others."""
        with tempfile.TemporaryDirectory(prefix="phrasemodels-") as folder:
            try:
                spawn(self._work, (Path(folder), function, *arguments), self.workers)
            except ProcessExitedException as error:
                raise OSError(
                    f"a worker was ended, often for want of memory ({error}); start again to go on"
                ) from error
            except ProcessRaisedException:
                for found in sorted(Path(folder).glob("error-*")):
                    kind, message = json.loads(found.read_text(encoding="utf-8"))
                    raise (OSError if kind == "OSError" else ValueError)(message) from None
                raise

    def _work(self, rank: int, folder: Path, function: Callable[..., None], *arguments: Any) -> None:
        """In a worker: join the group and train. ValueErrors and OSErrors are left in the folder."""
        count = torch.cuda.device_count()
        device = f"cuda:{rank * self.gpus % count}" if count else "cpu"
        # nccl refuses two workers on one GPU
        backend, place = "nccl" if count >= self.workers * self.gpus else "gloo", f"file://{folder}/group"
        torch.distributed.init_process_group(backend, place, rank=rank, world_size=self.workers)
        try:
            function(*arguments[:-1], replace(arguments[-1], device=device))
        except (ValueError, OSError) as error:
            kind = "OSError" if isinstance(error, OSError) else "ValueError"
            (folder / f"error-{rank}").write_text(json.dumps([kind, str(error)]), encoding="utf-8")
            raise
        torch.distributed.destroy_process_group()


def _with_files(experiment: Experiment, sources: Sources) -> Experiment:
    """Return the experiment with its files resolved. Say on stderr which word vectors are missing."""
    from phrasemodels.flows.experiments.catalogue import missing_vectors, resolved

    for name in missing_vectors(experiment, sources):
        print(
            f"{experiment.name}: no {name} in the folder that PHRASEMODELS_SUPPLIED names; the model is trained without it",
            file=sys.stderr,
        )
    return resolved(experiment, sources)


@contextlib.contextmanager
def progress_lines(checkpoints: Path, every: float = LINES_EVERY) -> Iterator[None]:
    """Print the progress of a training on stderr and the remaining time at its speed so far."""
    ended, pace = threading.Event(), Pace()

    def print_lines() -> None:
        seen = 0
        while not ended.wait(every):
            with contextlib.suppress(OSError, ValueError):  # not written yet
                state = json.loads((checkpoints / PROGRESS).read_text(encoding="utf-8"))
                step, steps = state["step"], state["steps"]
                left = pace.time_left(step, steps, state["seconds"])
                if seen < step < steps:
                    print(f"step {step} of {steps}{left}", file=sys.stderr, flush=True)
                seen = step

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield
    finally:
        ended.set()
        printer.join()


def prepare_folder(experiment: Experiment, to: Path, force: bool = False) -> Path:
    """Copy the training and test data of an experiment into one folder.

    ValueError: something else is there, and `force` does not say to replace it.
    """
    from phrasemodels.flows.results.records import open_store, sources_of
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    store, sources = open_store(settings), sources_of(settings)
    with writing_folder(to, force) as folder:
        for name, step in _with_files(experiment, sources).recipe.data().items():
            shutil.copytree(store.run(step, Executor(sources=sources)).path, folder / name)
        (folder / RECIPE).write_bytes(_digest(experiment))
    return to


def _digest(experiment: Experiment) -> bytes:
    """Digest of the recipe's settings. Keys of its data depend on libraries missing on a training machine."""
    return digest_of(experiment.recipe).encode()


def train_prepared(
    experiment: Experiment, seed: int, data: Path, out: Path, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the steps of one experiment and seed on the data of a prepared folder, kept in a store in `out`. Return its scores.

    It needs no other part of the pipeline. `keep --trained` reads the store. The training resumes after an interruption, and one
    with more updates goes on from it.

    Args:
        overrides: All overrides of the experiment, also those without an effect on scores.

    Raises:
        ValueError: The folder was prepared with another recipe.
    """
    _check_local(experiment)
    check_folder(data)
    if not (data / RECIPE).is_file() or (data / RECIPE).read_bytes() != _digest(experiment):
        again = f"phrasemodels prepare {experiment.name} --to {data}"
        raise ValueError(f"{data} was not prepared for this: make the folder again with `{again}` and the same --set")
    store, known, lean = Store(out).open(), dict[str, HasKey](), experiment.lean
    for name in sorted(lean.data_names(seed)):
        if (artifact := store.load(data / name)) is None:
            raise ValueError(f"{data / name} is missing or damaged: make the folder again with `phrasemodels prepare`")
        known[name] = artifact
    pipeline = lean.steps(seed, known, {OVERRIDES: list(overrides)})
    report = _Printer(pipeline.trained.settings)
    executor = Executor(report=report, keeps_state=True, launch=group_here(experiment))
    with progress_lines(store.workspace(pipeline.trained.key) / "checkpoints"):
        scored = store.run(pipeline.scored, executor)
    return _result(pipeline, store.run(pipeline.trained), scored)


def _result(pipeline: Pipeline, trained: Artifact, scored: Artifact) -> dict[str, Any]:
    """Return the scores of a training, the content of its manifest and the place of its weights."""
    about = {"experiment": pipeline.experiment.name, "seed": pipeline.seed, "weights": str(trained.path)}
    meta = {name: value for name, value in trained.meta.items() if name != "shards"}
    return {**about, **meta, "scores": scored.meta["scores"]}


class _Printer:
    """Prints the last evaluation of a history.

    An evaluation is printed once because checkpoints report, too. A learning rate that never gets to its peak is said
    at once. settings: of the training with objective and config.
    """

    def __init__(self, settings: Any) -> None:
        config, self.curve, self.printed = settings.config, settings.objective.curve, 0.0
        if config.warmup > config.steps:
            peak = max(config.schedule(step, config.warmup, config.steps) for step in range(config.steps))
            if peak < 1:
                reason = f"train.warmup={config.warmup} is more than train.steps={config.steps}"
                print(f"{reason}: the learning rate gets to {peak:.0%} of its peak", file=sys.stderr, flush=True)

    def __call__(self, history: list[dict[str, float]]) -> None:
        if history and history[-1]["step"] != self.printed:
            row = history[-1]
            self.printed = row["step"]
            line = f"step {row['step']}: training loss {row['loss']:.3f}, {self.curve} {row['dev_loss']:.3f}"
            line = f"{line}, learning rate {row['learning_rate']:.3g}"
            print(f"{line}, {row['items_per_second']:.0f} items/s", file=sys.stderr, flush=True)
