"""Training without Prefect, Ray and MLflow: in this process, from the store or from a prepared folder."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Executor, Job, digest_of, with_dependencies
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.experiment import Experiment, Pipeline
from phrasemodels.tasks.problems.recipe import Stage

if TYPE_CHECKING:
    from phrasemodels.infra.settings import Settings

RECIPE = "recipe.sha256"  # in a prepared folder: of the settings that its data was made with


def train_experiment(experiment: Experiment, seed: int, local: bool) -> dict[str, Any]:
    """All steps of one experiment and seed, kept in the store; on Ray Train unless local. Returns its scores."""
    from phrasemodels.data.download.mirrors import Sources
    from phrasemodels.flows.results.stores import kept, open_store
    from phrasemodels.flows.run.user_files import with_supplied
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    store = open_store(settings)
    sources = Sources(settings.mirrors, settings.offline, settings.private)
    executor = Executor(sources=sources, report=_print if local else None)
    pipeline = with_supplied(experiment, sources).steps(seed)
    with kept(store, with_dependencies([pipeline.scored]), settings):
        return _summary(store, pipeline, executor) if local else _on_ray_train(store, pipeline, executor, settings)


def _on_ray_train(store: Store, pipeline: Pipeline, executor: Executor, settings: "Settings") -> dict[str, Any]:
    from phrasemodels.infra.runner import TorchTrainerLaunch
    from phrasemodels.infra.services import start_ray, stop_ray

    start_ray(settings)
    try:
        name, config = pipeline.experiment.name.replace("/", "-"), pipeline.experiment.train
        name = f"{pipeline.trained.key[:12]}-{name}-s{pipeline.seed}"
        launch = TorchTrainerLaunch(name, settings.workers or max(1, config.workers), config.threads, config.gpus)
        launch.check()
        for step in pipeline.trained.inputs.values():
            store.resolve(step, executor)
        store.run(pipeline.trained, Executor(launch=launch))
        return _summary(store, pipeline, executor)
    finally:
        stop_ray()


def _summary(store: Store, pipeline: Pipeline, executor: Executor) -> dict[str, Any]:
    scored = store.run(pipeline.scored, executor)
    trained = store.run(pipeline.trained)
    return {
        "experiment": pipeline.experiment.name,
        "seed": pipeline.seed,
        "weights": str(trained.path),
        "parameters": trained.meta["parameters"],
        "train_seconds": trained.meta["train_seconds"],
        "scores": scored.meta["scores"],
    }


def prepare_folder(experiment: Experiment, to: Path) -> Path:
    """Copy what an experiment trains and is tested on into one folder."""
    import shutil

    from phrasemodels.data.download.mirrors import Sources
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.flows.run.user_files import with_supplied
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    store = open_store(settings)
    sources = Sources(settings.mirrors, settings.offline, settings.private)
    executor = Executor(sources=sources)
    (to / RECIPE).unlink(missing_ok=True)
    for name, step in with_supplied(experiment, sources).recipe.data().items():
        shutil.copytree(store.run(step, executor).path, to / name, dirs_exist_ok=True)
    (to / RECIPE).write_bytes(_recipe(experiment))
    return to


def _recipe(experiment: Experiment) -> bytes:
    """The recipe by its settings: keys of its data have libraries in them that are not where a folder is trained on."""
    return digest_of(experiment.recipe).encode()


def train_prepared(experiment: Experiment, seed: int, data: Path, out: Path) -> dict[str, Any]:
    """Train, answer and score from a prepared folder; imports torch, pyarrow and sacrebleu alone.

    Checkpoints stand in `out` while it runs, so that it goes on after an interruption. A ValueError if the folder was
    prepared with another recipe.
    """
    if not (data / RECIPE).is_file() or (data / RECIPE).read_bytes() != _recipe(experiment):
        again = f"phrasemodels prepare {experiment.name} --to {data}"
        raise ValueError(f"{data} was not prepared for this: make the folder again with `{again}` and the same --set")
    store = Store(out)
    stages = experiment.recipe.bare().stages(experiment.model, experiment.train, seed)
    names = {name for stage in stages.values() for name in stage.inputs.values()} - stages.keys()
    known = {name: _load(store, data / name) for name in sorted(names)}
    key = digest_of([experiment.model, experiment.train, seed, {name: found.key for name, found in known.items()}])[:32]
    for name, stage in stages.items():
        known[name] = _run(store, key, stage, {ours: known[theirs] for ours, theirs in stage.inputs.items()})
    result = {
        "experiment": experiment.name,
        "seed": seed,
        **{k: v for k, v in known["model"].meta.items() if k != "shards"},
        "scores": known["scores"].meta["scores"],
    }
    (out / f"{experiment.name.replace('/', '-')}-s{seed}.json").write_text(
        json.dumps(result, indent=1), encoding="utf-8"
    )
    return result


def _load(store: Store, folder: Path) -> Artifact:
    if (found := store.load(folder)) is None:
        raise ValueError(f"{folder} is missing or damaged: make the folder again with `phrasemodels prepare`")
    return found


def _run(store: Store, key: str, stage: Stage, inputs: dict[str, Artifact]) -> Artifact:
    """A step outside the store: its key needs no source of what is not installed here."""
    out = store.root / stage.make.__name__ / key
    out.mkdir(parents=True, exist_ok=True)
    job = Job(out, store.root / "checkpoints" / key, inputs, store, Executor(report=_print), key)
    meta = stage.make(job, stage.settings)
    terms = {"licences": [], "redistributable": False, "stand_in": False}
    return Artifact(out, {"key": key, "meta": {**meta, **terms}})


def _print(history: list[dict[str, float]]) -> None:
    import sys

    if history:
        row = history[-1]
        print(
            f"step {row['step']}: loss {row['loss']:.3f}, dev {row['dev_loss']:.3f}, {row['tokens_per_second']:.0f} tokens/s",
            file=sys.stderr,
            flush=True,
        )
