"""A small training of a table of the sample corpus, its weights at the end, which fixtures of conftest.py share within a file."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from phrasemodels.data.store.store import Step, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.trainer import Training

SETTINGS = (
    "train.steps=40",
    "train.evaluate_every=10",
    "train.checkpoint_every=5",
    "train.batch_tokens=600",
    "recipe.corpus.train=200",
)


def small(*more: str):
    return experiment("000/table1/sample/phrase-k2", (*SETTINGS, *more))


def training(store: Store, folder: Path, *more: str) -> Training:
    """The input of the training loop, with data from the store."""
    chosen = small(*more)
    step = chosen.steps(0).trained
    inputs = {name: store.run(value) for name, value in step.inputs.items() if isinstance(value, Step)}
    settings = step.settings
    paths = {name: tuple(inputs[name].path.glob("*.arrow")) for name in ("train", "dev")}
    model = settings.objective.configure(settings.model, inputs["vocabulary"])
    return Training(settings.objective, model, settings.config, 0, paths["train"], paths["dev"], folder, "key")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = newest(folder, "key")
    assert found is not None
    return load_file(found[0] / "model.safetensors")


def starts(folder: Path) -> list[tuple[int, int]]:
    """(steps done, workers) at each start."""
    found = newest(folder, "key")
    assert found is not None
    return [tuple(start) for start in found[1]["progress"]["starts"]]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
