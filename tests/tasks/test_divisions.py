"""An update is exchanged between workers however its rows are divided: no row, one row, rows without gold of a kind."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.trainer import Trainer, Training

SMALL = ("recipe.corpus.train=8", "recipe.corpus.dev=4", "recipe.corpus.test=4")
PROBLEMS = {
    "translation": "000/table1/sample/phrase-k2",
    "recurrent translation": "003/tablenmt/sample/char-simple",
    "tagging": "000/table2/sample/semantic-k2",
    "entailment": "001/table2/sample/psan",
    "entailment by trees": "001/table2/sample/tbcnn",
    "semantic parsing": "002/table2/sample/atis-model-4",
    "answering": "003/tablebabi/sample/binary-facts2",
    "memory": "003/tablebabi/sample/memn2n-facts2",
    "decomposition": "003/tablesnli/sample/structured",
    "transduction": "003/tabletrees/sample/simple",
    "parsing": "004/table1/sample/2",
    "joint parsing": "004/table3/sample/hpsg-2",
}
KINDS = "cells", "heads", "relations", "tags"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store")).open()


@pytest.fixture(params=[0, 1], ids=["first worker", "second worker"])
def of_two(request: pytest.FixtureRequest) -> Iterator[int]:
    """Be one of two workers, whose exchanges do nothing."""
    distributed.init_process_group("fake", rank=request.param, world_size=2, store=FakeStore())
    yield request.param
    distributed.destroy_process_group()


def trainer(name: str, store: Store, folder: Path) -> Trainer:
    step = experiment(name, SMALL).steps(0).trained
    inputs = {part: store.run(value, Executor()) for part, value in step.inputs.items() if isinstance(value, Step)}
    model = step.settings.objective.configure(step.settings.model, inputs["vocabulary"])
    train, dev = (tuple(shard.path for shard in shards(inputs[split])) for split in ("train", "dev"))
    made = Trainer(Training(step.settings.objective, model, step.settings.config, 0, train, dev, folder, "key"))
    made.parallel.register_comm_hook(None, own_gradients)
    return made


def own_gradients(_: None, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Take a worker's gradients for those of both."""
    found = torch.futures.Future()
    found.set_result(bucket.buffer())
    return found


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_division_of_rows_is_exchanged(problem: str, of_two: int, store: Store, tmp_path: Path) -> None:
    made = trainer(PROBLEMS[problem], store, tmp_path)
    for rows in (1, 2, 5):  # of the second worker: none, one, two
        made.update(np.arange(rows))
    assert made.progress.step == 3 and all(p.isfinite().all() for p in made.model.parameters())


@pytest.mark.parametrize("lacking", [*((kind,) for kind in KINDS), KINDS[:3], KINDS])
def test_rows_without_a_kind_of_gold_are_exchanged(
    lacking: tuple[str, ...], of_two: int, store: Store, tmp_path: Path, monkeypatch
) -> None:
    made = trainer(PROBLEMS["joint parsing"], store, tmp_path)
    batch = made.data.batch

    def without(rows):
        found = batch(rows)
        gone = {kind: torch.full_like(getattr(found.gold, kind), -1) for kind in lacking}
        return dataclasses.replace(found, gold=found.gold._replace(**gone))

    for some in (without, batch, without):
        monkeypatch.setattr(made.data, "batch", some)
        made.update(np.arange(4))
    assert made.progress.step == 3 and all(p.isfinite().all() for p in made.model.parameters())
