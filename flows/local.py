"""Training without Prefect, Ray and MLflow: in this process, from the store or from a prepared folder."""

import json
from pathlib import Path
from typing import Any

from data.store import Artifact, Job, Places, Step, Store, digest_of
from flows.experiment import Experiment, Pipeline

INPUTS = ("train", "dev", "test", "vocabulary", "rows", "raw")


def train_experiment(experiment: Experiment, seed: int, local: bool) -> dict[str, Any]:
    """All steps of one experiment and seed, kept in the store; on Ray Train unless local. Returns its scores."""
    from data.fetch import Sources
    from infra.settings import Settings

    settings = Settings()
    store = Store(settings.root).open()
    places = Places(sources=Sources((settings.mirror.absolute(),) if settings.mirror else (), settings.offline))
    pipeline = experiment.steps(seed)
    if local:
        return _summary(store, pipeline, places)
    from infra.runner import TorchTrainerLaunch
    from infra.services import start_ray, stop_ray

    start_ray(settings)
    try:
        name = f"{pipeline.trained.key[:12]}-{experiment.name.replace('/', '-')}-s{seed}"
        launch = TorchTrainerLaunch(name, max(1, experiment.train.workers), experiment.train.threads)
        launch.room()
        for step in pipeline.trained.inputs.values():
            store.resolve(step, places)
        store.run(pipeline.trained, Places(launch=launch))
        return _summary(store, pipeline, places)
    finally:
        stop_ray()


def _summary(store: Store, pipeline: Pipeline, places: Places) -> dict[str, Any]:
    scored = store.run(pipeline.scored, places)
    trained = store.run(pipeline.trained)
    return {
        "experiment": pipeline.experiment.name,
        "seed": pipeline.seed,
        "weights": str(trained.path),
        "parameters": trained.meta["parameters"],
        "train_seconds": trained.meta["train_seconds"],
        "scores": scored.meta["scores"],
    }


def _parts(pipeline: Pipeline) -> dict[str, Step]:
    """The steps whose results a training and its test need."""
    found = {
        **pipeline.trained.inputs,
        "test": pipeline.predicted.inputs["phrases"],
        "rows": pipeline.predicted.inputs["rows"],
        "raw": pipeline.scored.inputs["rows"],
    }
    return {name: step for name, step in found.items() if isinstance(step, Step)}


def prepare_folder(experiment: Experiment, to: Path) -> Path:
    """Copy what an experiment trains and is tested on into one folder."""
    import shutil

    from data.fetch import Sources
    from infra.settings import Settings

    settings = Settings()
    store = Store(settings.root).open()
    places = Places(sources=Sources((settings.mirror.absolute(),) if settings.mirror else (), settings.offline))
    for name, step in _parts(experiment.steps(0)).items():
        shutil.copytree(store.run(step, places).path, to / name, dirs_exist_ok=True)
    return to


def train_prepared(experiment: Experiment, seed: int, data: Path, out: Path) -> dict[str, Any]:
    """Train, decode and score from a prepared folder; imports torch, pyarrow and sacrebleu alone.

    Checkpoints stand in `out` while it runs, so that it goes on after an interruption.
    """
    from tasks.metrics import ScoreSettings, score_translations
    from tasks.tokenise import join
    from tasks.train import TrainSettings, train
    from tasks.translation import TranslateSettings, Translation, translate

    store = Store(out)
    inputs = {name: _load(store, data / name) for name in INPUTS}
    settings = TrainSettings(Translation(), experiment.model, experiment.train, seed)
    key = digest_of([settings, {name: artifact.key for name, artifact in inputs.items()}])[:32]
    trained = _run(store, key, train, settings, inputs)
    search = TranslateSettings(Translation(), experiment.model, experiment.search)
    predicted = _run(store, key, translate, search, {"model": trained, "phrases": inputs["test"], **inputs})
    # running text needs a detokeniser, which may not be installed here; the token scores do not
    scored = _run(
        store,
        key,
        score_translations,
        ScoreSettings(join, experiment.text.target_language),
        {"predictions": predicted, "rows": inputs["raw"]},
    )
    bleu = {name: score for name, score in scored.meta["scores"].items() if name.startswith("bleu")}
    result = {
        "experiment": experiment.name,
        "seed": seed,
        **{k: v for k, v in trained.meta.items() if k != "shards"},
        "scores": bleu,
    }
    (out / f"{experiment.name.replace('/', '-')}-s{seed}.json").write_text(
        json.dumps(result, indent=1), encoding="utf-8"
    )
    return result


def _load(store: Store, folder: Path) -> Artifact:
    if (found := store.load(folder)) is None:
        raise ValueError(f"{folder} is missing or damaged: make the folder again with `phrasemodels prepare`")
    return found


def _run(store: Store, key: str, make: Any, settings: Any, inputs: dict[str, Artifact]) -> Artifact:
    """A step outside the store: its key needs no source of what is not installed here."""
    out = store.root / make.__name__ / key
    out.mkdir(parents=True, exist_ok=True)
    report = _print if make.__name__ == "train" else None
    meta = make(Job(out, store.root / "checkpoints" / key, inputs, store, Places(report=report), key), settings)
    return Artifact(
        out,
        {
            "key": key,
            "meta": {**meta, "licences": [], "redistributable": False, "stand_in": False},
        },
    )


def _print(history: list[dict[str, float]]) -> None:
    import sys

    if history:
        row = history[-1]
        print(
            f"step {row['step']}: loss {row['loss']:.3f}, dev {row['dev_loss']:.3f}, {row['tokens_per_second']:.0f} tokens/s",
            file=sys.stderr,
            flush=True,
        )
