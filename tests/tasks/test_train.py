"""Training: the same weights however often it is killed, and on any number of workers."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import PROJECT
from running import prepared, small_corpus
from safetensors.torch import load_file
from small_training import SETTINGS, same, small, starts, training, weights

import phrasemodels.flows.run.local
import phrasemodels.tasks.train.checkpoints
import phrasemodels.tasks.train.trainer
from phrasemodels import LoadedModel, load
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Executor, OutOfTimeError, Store, digest_of
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.flows.run.local import LocalLaunch, progress_lines
from phrasemodels.infra.services import start_mlflow
from phrasemodels.infra.settings import Settings
from phrasemodels.layers.attention_weights import ReleasedSegmentWeights
from phrasemodels.saved import copied, not_finite
from phrasemodels.tasks.train.batches import in_order
from phrasemodels.tasks.train.checkpoints import Progress, load_tensors, newest, resume, save
from phrasemodels.tasks.train.config import TrainConfig, averaged_adam, averaged_weights
from phrasemodels.tasks.train.trainer import (
    PROGRESS,
    CastTogether,
    Clock,
    DivergedError,
    Trainer,
    Training,
    Worker,
    forget_peak_memory,
    history,
    peak_memory_mib,
    run_training,
)  # fmt: skip


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not(shared, undisturbed, tmp_path):
    again = training(shared, tmp_path / "again")
    run_training(again)
    assert same(weights(tmp_path / "again"), undisturbed)
    run_training(dataclasses.replace(again, seed=1, folder=tmp_path / "other"))
    assert not same(weights(tmp_path / "other"), undisturbed)


@pytest.mark.parametrize("cut", ["train.micro_batch_tokens=100", "train.accumulation_steps=3"])
def test_an_update_does_not_depend_on_how_its_batch_was_cut(shared, tmp_path, cut):
    still = ("model.encoder.dropout=0", "train.steps=6", "train.evaluate_every=6", "train.optimiser=sgd")
    losses = []
    for folder, more in (("whole", ()), ("parts", (cut,))):
        run = training(shared, tmp_path / folder, *still, *more)
        run_training(run)
        (row,) = newest(tmp_path / folder, "key")[1]["progress"]["history"]
        losses.append([row["loss"], row["dev_loss"]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    whole, parts = (weights(tmp_path / folder) for folder in ("whole", "parts"))
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-5, atol=1e-6)


def test_micro_batches_are_counted_as_one_update(shared, tmp_path):
    trainer = Trainer(training(shared, tmp_path, "train.accumulation_steps=3"))
    forward, counted = trainer.model.encode, torch.nn.Parameter(torch.zeros(()), requires_grad=False)
    seen: list[int] = []
    trainer.counters.append(counted)

    def counting(*inputs):
        counted.add_(1)
        seen.append(int(counted))
        return forward(*inputs)

    trainer.model.encode = counting
    for rows in (np.arange(9), np.arange(9, 18)):
        trainer.update(rows)
    assert seen == [1, 1, 1, 2, 2, 2]


def test_the_decay_of_segments_is_added_once_an_update(shared, tmp_path):
    gradients = []
    for pieces in (1, 3):
        more = (f"train.accumulation_steps={pieces}", "train.clip=inf", "train.optimiser=sgd")
        trainer = Trainer(training(shared, tmp_path / str(pieces), *more))
        trainer.model.segments = weights_of_segments = ReleasedSegmentWeights()
        trainer.segment_weights.append(weights_of_segments)
        weights_of_segments.transitions.data.fill_(2.0)
        forward = trainer.model.encode

        def with_segments(*inputs, forward=forward, module=weights_of_segments):
            memory = forward(*inputs)
            return memory + 0 * module(memory[..., :1].mT, inputs[1]).sum()

        trainer.model.encode = with_segments
        trainer.update(np.arange(9))  # its optimiser, which sets gradients to None, doesn't know the module
        gradients.append(weights_of_segments.transitions.grad)
    assert torch.allclose(gradients[0], torch.full((2, 2), 0.01)) and torch.allclose(gradients[1], gradients[0])


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_products_are_tf32_only_where_the_training_says_so(shared, tmp_path, precision):
    trainer = Trainer(training(shared, tmp_path, f"train.precision={precision}"))
    allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    assert allowed == (precision == "tf32",) * 2
    with trainer.precision():
        assert torch.is_autocast_enabled("cpu") == (precision == "bfloat16")


def test_weights_cast_together_give_the_gradients_of_autocast(shared, tmp_path, monkeypatch):
    trainer = Trainer(training(shared, tmp_path, "train.precision=bfloat16"))
    batch, found = trainer.data.batch(np.arange(4)), []
    ask = torch.is_autocast_enabled
    for together in (False, True):
        asked = partial(lambda on, device: on if device == "cuda" else ask(device), together)
        with trainer.precision(), monkeypatch.context() as patch:
            patch.setattr(torch, "is_autocast_enabled", asked)
            loss = trainer.alone(batch)
        found.append((loss, *torch.autograd.grad(loss, list(trainer.model.parameters()))))
    assert len(trainer.alone.names) > 20
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


def test_a_tied_weight_is_not_cast_together():
    linear, table = torch.nn.Linear(3, 5), torch.nn.Embedding(5, 3)
    table.weight = linear.weight
    modules = torch.nn.ModuleList([linear, table, torch.nn.Linear(3, 2)])
    assert CastTogether(modules).names == ["0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize("given", ["", "cpu"])
def test_a_training_says_on_which_device_it_ran(shared, tmp_path, given):
    trainer = Trainer(dataclasses.replace(training(shared, tmp_path), device=given))
    assert trainer.worker.device == torch.device("cpu") and trainer.progress.devices == ["cpu"]


def test_how_a_batch_is_cut_is_in_no_key():
    plain, parts = small(), small("train.accumulation_steps=3", "train.micro_batch_tokens=500")
    assert parts.train.accumulation_steps == 3 and parts.train.micro_batch_tokens == 500
    assert plain.steps(0).trained.key == parts.steps(0).trained.key and plain.name == parts.name


def test_an_error_while_averaged_weights_are_evaluated_puts_the_weights_back():
    model = torch.nn.Linear(2, 1)
    optimiser = averaged_adam(model.parameters(), TrainConfig(learning_rate=1.0))
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimiser.step()
    before = model.weight.detach().clone()
    with contextlib.suppress(RuntimeError), averaged_weights(optimiser):
        assert not torch.equal(model.weight, before)
        raise RuntimeError("broken")
    assert torch.equal(model.weight, before)


def destructive(step: int, warmup: int, steps: int) -> float:
    """A schedule whose second half destroys what the first half learned."""
    return 1.0 if 2 * step < steps else 1000.0


def test_the_best_weights_have_the_lowest_dev_loss(shared, tmp_path):
    run = training(shared, tmp_path)
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, schedule=destructive))
    run_training(run)
    path, state = newest(tmp_path, "key")
    progress, trainer = state["progress"], Trainer(run)
    assert progress["best_step"] < progress["step"] == 40
    load_tensors(trainer.model, load_file(path / "best.safetensors"))
    assert trainer.dev_loss() == progress["best"]


PROBLEMS = (
    "000/table1/sample/transformer", "000/table2/sample/transformer", "001/table2/sample/bilstm-max",
    "002/table2/sample/atis-transformer", "003/tablebabi/sample/memn2n-facts2", "003/tablesnli/sample/none",
    "003/tabletrees/sample/none", "004/table1/sample/2-ff-drop",
)  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_training_that_diverges_is_no_hit_of_the_store(name, tmp_path):
    small = (*small_corpus(60, 10, 10), "train.steps=12", "train.evaluate_every=6", "train.learning_rate=1e30")
    step = experiment(name, (*small, *["recipe.restarts=2"] * ("babi" in name))).steps(0).trained
    store = Store(tmp_path).open()
    for _ in range(2):
        with pytest.raises(DivergedError, match="its loss or a weight was not finite after update 6; lower"):
            store.run(step)
    assert store.find(step) is None


def exploding(step: int, warmup: int, steps: int) -> float:
    """A schedule whose second half has no finite weights."""
    return 1.0 if 2 * step < steps else 1e38


@pytest.mark.parametrize("keeps_last", [False, True])
def test_no_checkpoint_has_weights_that_are_not_finite(shared, tmp_path, keeps_last):
    run = training(shared, tmp_path)
    objective = type("Kept", (type(run.objective),), {"keeps_last": keeps_last})()
    config = dataclasses.replace(run.config, schedule=exploding)
    run_training(dataclasses.replace(run, objective=objective, config=config))
    path, state = newest(tmp_path, "key")
    assert Progress(**state["progress"]).diverged and state["progress"]["best_step"] == 20 < state["progress"]["step"]
    for name in ("model", "best"):
        assert all(weight.isfinite().all() for weight in load_file(path / f"{name}.safetensors").values())


def test_a_criterion_that_takes_the_best_answer_takes_none_of_nan(shared, tmp_path):
    trainer = Trainer(training(shared, tmp_path))
    assert math.isfinite(trainer.dev_loss())
    for weight in trainer.model.parameters():
        weight.data.fill_(1e30)  # finite, but its products are not
    assert not_finite(trainer.model) == [] and not math.isfinite(trainer.dev_loss())


@pytest.mark.parametrize("damage", ["delete", "truncate", "no state"])
def test_resuming_from_an_older_checkpoint_gives_the_same_bits(shared, whole, undisturbed, tmp_path, monkeypatch, damage):
    last = sorted(Path(shutil.copytree(whole, tmp_path, dirs_exist_ok=True)).glob("step-*"))[-1]
    if damage == "delete":
        shutil.rmtree(last)
    elif damage == "truncate":
        (last / "model.safetensors").write_bytes((last / "model.safetensors").read_bytes()[:-1])
    else:
        (last / "state.json").unlink()
    assert newest(tmp_path, "key")[1]["progress"]["step"] == 35
    computed = recorded(monkeypatch)
    run_training(training(shared, tmp_path))
    assert same(weights(tmp_path), undisturbed)
    assert computed == [35, 36, 37, 38, 39], "no step is computed twice"


def recorded(monkeypatch) -> list[int]:
    """Return a list that gets the number of updates before each update from now on."""
    computed, update = [], Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda self, rows: (computed.append(self.progress.step), update(self, rows)))
    return computed


KILLED = """
import os, pickle, signal, sys
import torch._dynamo  # once for all three processes: optimisers import it
from pathlib import Path
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.trainer import Trainer, run_training

training, update = pickle.load(open(sys.argv[1], "rb")), Trainer.update

def train(kill_at):
    def killed(trainer, rows):
        if trainer.progress.step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        update(trainer, rows)

    if (child := os.fork()) == 0:
        Trainer.update = killed
        run_training(training)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), newest(training.folder, "key")[1]["progress"]["step"])

for step in (17, 32, None):
    train(step)
"""


def test_a_killed_training_ends_with_the_same_bits(shared, undisturbed, tmp_path):
    folder = tmp_path / "checkpoints"
    (tmp_path / "training").write_bytes(pickle.dumps(training(shared, folder)))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "training")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    codes, steps = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert codes == (-signal.SIGKILL, -signal.SIGKILL, 0)
    assert steps[1] < 40 == steps[2], "it was killed before its end"
    assert json.loads((folder / PROGRESS).read_text())["pid"]
    assert same(weights(folder), undisturbed)
    assert starts(folder) == [(0, 1), (steps[0], 1), (steps[1], 1)], "it resumed from the newest checkpoint each time"
    history = newest(folder, "key")[1]["progress"]["history"]
    assert [row["step"] for row in history] == [10, 20, 30, 40]


@pytest.fixture
def tiny():
    """A model and its optimiser, for checkpoints."""
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.Adam(model.parameters())


def test_an_unfinished_checkpoint_is_removed_if_its_process_ended(tiny, tmp_path, monkeypatch):
    model, optimiser = tiny

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(phrasemodels.tasks.train.checkpoints, "_optimiser_tensors", full)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, model, copied(model), optimiser, Progress(1), "key")
    assert not list(tmp_path.iterdir())
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    kept = {f".step-00000001.{os.getppid()}", f".step-00000001.{uuid.uuid4().hex}"}
    for name in (*kept, f".step-00000001.{ended.pid}", f".step-00000002.{os.getpid()}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    resume(tmp_path, model, optimiser, "key")
    assert {path.name for path in tmp_path.iterdir()} == kept


def on_two_workers(chosen: Training) -> None:
    LocalLaunch(2)(run_training, chosen)


def refuse_on_the_second(chosen: Training) -> None:
    if Worker().rank == 1:
        raise ValueError(f"no room on {chosen.device}")
    Worker().total(torch.ones(1))


def test_two_workers_train_like_one_and_one_may_resume_from_two(shared, tmp_path):
    more = ("model.encoder.dropout=0.0", "train.steps=10", "train.evaluate_every=5")
    alone, pair = training(shared, tmp_path / "alone", *more), training(shared, tmp_path / "pair", *more)
    run_training(alone)
    on_two_workers(pair)
    expected = losses(alone.folder)
    assert losses(pair.folder) == pytest.approx(expected, rel=1e-5)  # sums in another order
    shutil.rmtree(pair.folder / "step-00000010")
    run_training(pair)
    assert losses(pair.folder) == pytest.approx(expected, rel=1e-5)
    assert starts(pair.folder) == [(0, 2), (5, 1)]
    with pytest.raises(ValueError, match=r"^no room on cpu$"):
        LocalLaunch(2)(refuse_on_the_second, pair)


@pytest.mark.slow
def test_a_change_of_workers_before_the_first_evaluation_is_recorded(tmp_path):
    more = (*SETTINGS, "train.steps=10", "recipe.corpus.dev=20", "recipe.corpus.test=20")
    made = prepared(Settings(store=tmp_path / "store"), Request("000", "1", "sample", 1, more, ("phrase-k2",)))
    start_mlflow(made.settings)
    (pipeline,) = made.plan.pipelines

    def launch(loop, chosen):
        on_two_workers(chosen)
        shutil.rmtree(chosen.folder / "step-00000010")
        loop(chosen)

    trained = made.store.run(pipeline.trained, Executor(launch=launch))
    assert trained.meta["workers"] == [2, 1]
    made.record.finish(pipeline, made.store.run(pipeline.scored))
    assert made.record.tracker.client().get_run(made.record.training_run(pipeline)).data.tags["workers"] == "2 then 1"


def test_a_checkpoint_of_another_version_is_refused_in_one_line(tiny, tmp_path):
    model, optimiser = tiny
    path = save(tmp_path, model, copied(model), optimiser, Progress(1), "key") / "state.json"
    state = json.loads(path.read_text())
    del state["digest"]
    state["progress"]["sides"] = state["progress"].pop("starts")
    path.write_text(json.dumps(state | {"digest": digest_of(state)}))
    with pytest.raises(ValueError, match=r"cannot be read .*'sides'.*delete the folder and run again"):
        resume(tmp_path, model, optimiser, "key")


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2,)])
def test_a_checkpoint_whose_optimiser_has_another_shape_is_refused(tiny, tmp_path, monkeypatch, shape):
    model, optimiser = tiny
    other = {"0.step": torch.tensor(1.0), "0.exp_avg": torch.ones(shape), "0.exp_avg_sq": torch.ones(1, 2)}
    monkeypatch.setattr(phrasemodels.tasks.train.checkpoints, "_optimiser_tensors", lambda _: other)
    save(tmp_path, model, copied(model), optimiser, Progress(1), "key")
    with pytest.raises(ValueError, match=r"0.exp_avg of the optimiser is \(.*\), not \(1, 2\)"):
        resume(tmp_path, model, optimiser, "key")


def test_a_checkpoint_of_another_key_is_not_resumed_and_only_the_newest_are_kept(tiny, tmp_path):
    model, optimiser = tiny
    for step in (1, 2, 10):
        save(tmp_path, model, copied(model), optimiser, Progress(step), "key")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000002", "step-00000010"]
    assert newest(tmp_path, "key")[1]["progress"]["step"] == 10
    assert newest(tmp_path, "kex") is newest(tmp_path, "kez") is None
    assert resume(tmp_path, model, optimiser, "kez")[0] == Progress()


def losses(folder: Path) -> list[float]:
    found = newest(folder, "key")
    assert found is not None
    return [row[name] for row in found[1]["progress"]["history"] for name in ("loss", "dev_loss")]


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux can forget a peak")
def test_the_peak_of_memory_is_that_of_this_training_alone():
    held = np.ones(1 << 25)  # 256 MiB of a training before
    before = peak_memory_mib()
    del held
    forget_peak_memory()
    assert 0 < peak_memory_mib() < before - 200


def test_a_local_training_prints_how_far_it_is(tmp_path, capsys):
    with progress_lines(tmp_path, every=0.05):
        for step, seconds in ((10, 100), (20, 120), (25, 160), (40, 170)):  # 4 seconds a step since step 10
            (tmp_path / PROGRESS).write_text(json.dumps({"step": step, "steps": 40, "seconds": seconds}))
            time.sleep(0.3)
    assert capsys.readouterr().err.splitlines() == [
        "step 10 of 40",
        "step 20 of 40, about 0:00:40 left",
        "step 25 of 40, about 0:01:00 left",
    ]


@pytest.mark.parametrize(("saving", "saved"), [(1.0, True), (30.0, False)])
def test_checkpoints_take_a_small_share_of_the_time(shared, tmp_path, saving, saved):
    trainer = Trainer(training(shared, tmp_path))
    trainer.progress.step, trainer.clock.saving = 1, saving
    trainer.clock.saved -= phrasemodels.tasks.train.trainer.CHECKPOINT_SECONDS + 1
    trainer.save_if_due()
    assert (newest(tmp_path, "key") is not None) == saved


def test_greedy_bleu_of_dev_is_in_the_history(shared, tmp_path):
    run = training(shared, tmp_path, "recipe.problem.greedy_bleu=true", "train.steps=20")
    trainer = Trainer(run)
    trainer.run()
    rows = newest(tmp_path, "key")[1]["progress"]["history"]
    assert [row["step"] for row in rows] == [10, 20] and all(0 <= row["dev_bleu"] < 100 for row in rows)

    class Oracle(torch.nn.Module):
        """Writes the reference of each batch, in turn."""

        def __init__(self) -> None:
            super().__init__()
            self.batches = iter(in_order(trainer.dev, 500))

        def encode(self, source, lengths, members):
            self.target = trainer.dev.batch(next(self.batches)).target
            return source

        def start(self, memory, lengths):
            return SimpleNamespace(place=0, rows=torch.arange(len(memory)), select=lambda rows: self.keep(rows))

        def keep(self, rows):
            self.target = self.target[rows]

        def advance(self, tokens, cache):
            cache.place += 1
            return torch.nn.functional.one_hot(self.target[:, cache.place], 5000).float()[:, None]

        def project(self, states):
            return states * 100

    found = run.objective.measure(Oracle(), trainer.dev, 500, torch.device("cpu"))["dev_bleu"]
    assert 85 < found < 100, "all but the unknown words"


def test_items_per_second_leave_the_evaluation_out():
    clock = Clock(0.0)
    clock.add(torch.tensor(1.0), 100)
    time.sleep(0.01)
    clock.pause(Worker())
    time.sleep(0.3)
    row = clock.row(Worker())
    assert row["items_per_second"] > 100 / 0.3 and row["seconds"] > 0.3


@pytest.fixture
def fresh(shared, tmp_path) -> Store:
    """A store of its own, with the data of the small training."""
    training(shared, tmp_path / "unused")  # makes them
    shutil.copytree(shared.root / "objects", tmp_path / "store" / "objects")
    return Store(tmp_path / "store")


def trained(store: Store, *more: str, **limits: object) -> Artifact:
    return store.run(small(*more).steps(0).trained, Executor(**limits))


def test_a_longer_training_goes_on_from_a_finished_one_that_kept_its_state(fresh, undisturbed, tmp_path):
    short = trained(fresh, "train.steps=20", keeps_state=True)
    long = trained(fresh, keeps_state=True)
    assert (short.meta["starts"], long.meta["starts"]) == ([0], [0, 20])
    assert [row["step"] for row in history(long)] == [10, 20, 30, 40]
    (kept,) = fresh.root.glob("work/*/checkpoints/step-*")
    assert kept.name == "step-00000040"
    assert same(load_file(kept / "model.safetensors"), undisturbed)


@pytest.mark.parametrize("steps", [20, 30])
def test_a_shorter_training_goes_on_from_a_longer_one_under_way(fresh, undisturbed, monkeypatch, steps):
    with pytest.raises(OutOfTimeError):
        trained(fresh, stop_at=20)
    done = recorded(monkeypatch)
    short = trained(fresh, f"train.steps={steps}", keeps_state=True)
    assert done == list(range(20, steps)) and short.meta["steps"] == steps
    trained(fresh, keeps_state=True)  # from the longest
    assert done == [*range(20, steps), *range(steps, 40)]
    (kept,) = fresh.root.glob("work/*/checkpoints/step-*")
    assert same(load_file(kept / "model.safetensors"), undisturbed)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (("train.steps=20", "train.learning_rate=0.002"), "another rate"),
        (("train.steps=20", "train.schedule=halved_thrice"), "a schedule of all updates, which the other does not have"),
        (("train.steps=15",), "an evaluation at its end"),
    ],
)
def test_a_training_goes_on_from_none_that_went_another_way(fresh, other, why):
    trained(fresh, *other, keeps_state=True)
    more = [setting for setting in other[1:] if "schedule" in setting]
    assert trained(fresh, *more).meta["starts"] == [0], why


def test_a_damaged_state_of_a_shorter_training_is_not_taken(fresh):
    trained(fresh, "train.steps=20", keeps_state=True)
    (kept,) = fresh.root.glob("work/*/checkpoints/step-*")
    (kept / "optimiser.safetensors").write_bytes(b"x")
    assert trained(fresh).meta["starts"] == [0]


def test_a_state_that_no_longer_training_can_use_takes_the_place_of_none(fresh):
    for steps in (20, 25):  # an evaluation is made every ten updates, and at the end
        trained(fresh, f"train.steps={steps}", keeps_state=True)
    assert trained(fresh).meta["starts"] == [0, 20]


class Stateful(torch.nn.Module):
    """An encoder with each kind of buffer: running means, vectors of a spectral norm, random features, and one that is built again."""

    def __init__(self, inner, d):
        super().__init__()
        self.inner, self.norm = inner, torch.nn.BatchNorm1d(d)
        self.bounded = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(d, d))
        self.register_buffer("features", torch.randn(d, d))
        self.register_buffer("places", torch.arange(d) / d, persistent=False)

    def forward(self, words, lengths, members):
        x = self.inner(words, lengths, members)
        x = self.bounded(self.norm(x.flatten(0, 1)).view_as(x))
        return x + (x @ self.features + self.places).cos()


@dataclasses.dataclass(frozen=True)
class StatefulConfig(HypernodeEncoderConfig):
    """Configuration of `Stateful`."""

    def build(self):
        return Stateful(super().build(), self.d)


def stateful(store: Store, folder: Path, *more: str) -> Training:
    """A training of a translator with an encoder that has buffers."""
    run = training(store, folder, "train.optimiser=averaged_adam", "train.steps=20", *more)
    encoder = StatefulConfig(**vars(run.model.encoder))
    return dataclasses.replace(run, model=dataclasses.replace(run.model, encoder=encoder))


def test_buffers_are_trained_resumed_and_exported_bit_for_bit(shared, tmp_path):
    run_training(whole := stateful(shared, tmp_path / "whole"))
    parts = dataclasses.replace(whole, folder=tmp_path / "parts")
    run_training(dataclasses.replace(parts, stop_at=7))
    run_training(parts)
    found = {name: newest(tmp_path / name, "key")[0] for name in ("whole", "parts")}
    for file in ("model", "best"):
        first, second = (load_file(found[name] / f"{file}.safetensors") for name in found)
        assert same(first, second)
        buffers = {"encoder.norm.running_var", "encoder.features", "encoder.bounded.parametrizations.weight.0._u"}
        assert buffers < {*first}
        assert "encoder.places" not in first and first["encoder.norm.num_batches_tracked"] > 10
    torch.manual_seed(99)
    model = whole.model.build().eval()
    load_tensors(model, first)
    with pytest.raises(ValueError, match=r"part test_train:StatefulConfig is none .* load\(folder, StatefulConfig\)"):
        load(LoadedModel(model, whole.model).save_pretrained(tmp_path / "exported"))
    readme = (tmp_path / "exported" / "README.md").read_text()
    for line in ("from test_train import StatefulConfig", 'from_pretrained("FOLDER OR NAME", StatefulConfig)'):
        assert line in readme
    again = load(tmp_path / "exported", StatefulConfig)
    assert same(copied(again.module), first)
    inputs = torch.randint(4, 50, (3, 6)), torch.tensor([6, 4, 4]), torch.tensor([[[0, 1], [2, 3]]] * 3)
    target = torch.randint(4, 50, (3, 5))
    assert torch.equal(again.module(*inputs, target), model(*inputs, target))
    rounded = {name: weight.half() for name, weight in first.items() if weight.is_floating_point()}
    with pytest.raises(ValueError, match="float16"):
        load_tensors(model, first | rounded)


def test_two_workers_evaluate_and_save_the_buffers_of_the_first(shared, tmp_path):
    pair = stateful(shared, tmp_path / "pair", "train.steps=4", "train.evaluate_every=2")
    on_two_workers(pair)
    path, state = newest(pair.folder, "key")
    trainer = Trainer(pair)
    load_tensors(trainer.model, load_file(path / "best.safetensors"))
    assert trainer.dev_loss() == pytest.approx(state["progress"]["best"], rel=1e-5)


class Named(torch.nn.Module):
    """A module with state that is no tensor."""

    def get_extra_state(self):
        return {"name": "x"}


def test_state_that_is_no_buffer_is_refused():
    with pytest.raises(ValueError, match="_extra_state: this state of a module cannot be saved; keep it in a buffer"):
        copied(Named())
