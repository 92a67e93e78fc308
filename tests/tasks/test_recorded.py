"""Recorded updates give the weights of others: passes with fixed shapes, by the operations of a graph that is replayed in its memory.

What only a GPU can show is in benchmarks/gpu.py.
"""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from fake_graphs import FakeGraph, fake_graphs
from small_training import training, weights
from torch import nn

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard
from phrasemodels.encoders.transformer import NgramEncoderConfig, TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.layers.blocks import BEGIN, END, PAD, PreNorm
from phrasemodels.layers.phrases import LengthEmbedding
from phrasemodels.models.translation import TranslationConfig, token_loss
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
from phrasemodels.tasks.train import recorded
from phrasemodels.tasks.train.batches import Batch
from phrasemodels.tasks.train.config import TrainConfig, averaged_adam
from phrasemodels.tasks.train.recorded import RecordedPasses, few_sizes
from phrasemodels.tasks.train.trainer import Trainer

SIZES = {"d": 32, "heads": 4, "layers": 2, "d_ff": 64, "dropout": 0.0}
LENGTHS = torch.tensor([7, 3, 11, 1, 9])


def batch():
    gen = torch.Generator().manual_seed(0)
    source, target = (torch.randint(4, 50, (5, n), generator=gen) for n in (11, 13))
    source[torch.arange(11) >= LENGTHS[:, None]] = PAD
    ends = torch.tensor([5, 8, 12, 3, 1])
    target[:, 0] = BEGIN
    target[torch.arange(5), ends] = END
    target[torch.arange(13) > ends[:, None]] = PAD
    pairs = torch.stack([torch.arange(10), torch.arange(1, 11)], 1).expand(5, -1, -1)
    return PhraseBatch(source, LENGTHS, torch.where(pairs[..., 1:] < LENGTHS[:, None, None], pairs, -1), target)


class Loss(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        torch.manual_seed(0)
        self.model = TranslationConfig(encoder, 50, 50, 2, 64).build().double()

    def forward(self, batch):
        return token_loss(self.model, batch.source, batch.lengths, batch.members, batch.target, 0.1)


ENCODERS = [
    TransformerEncoderConfig(**SIZES, residual=PreNorm),
    HypernodeEncoderConfig(**SIZES),
    HypernodeEncoderConfig(**SIZES, attend=softmax_hadamard, initialise=LengthEmbedding),
    NgramEncoderConfig(**SIZES, gram_sizes=(0, 2, 3, 4), phrase_layers=(1,)),
]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_losses_and_gradients_with_fixed_shapes_equal_those_of_packed_rows(encoder):
    module, rows = Loss(encoder), batch()
    loss = module(rows)
    expected = torch.autograd.grad(loss * 0.5, list(module.parameters()))
    padded = rows.padded_to(few_sizes)
    assert (*padded.source.shape, padded.members.shape[1], padded.target.shape[1]) == (8, 16, 16, 16)
    found, gradients = RecordedPasses(module, nullcontext).gradients(padded, torch.tensor(0.5))
    assert float(found) == pytest.approx(float(loss.detach()), rel=1e-6)  # summed in float32
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    assert module.model.has_fixed_shapes


def test_graphs_are_refused_where_they_cannot_be(shared, tmp_path):
    with pytest.raises(ValueError, match=r"train\.graphs: CUDA graphs need one worker with one GPU"):
        Trainer(training(shared, tmp_path, "train.graphs=true"))
    with pytest.raises(ValueError, match=r"train\.graphs: batches of Batch cannot be padded"):
        Batch().padded_to(few_sizes)


def test_there_are_few_sizes():
    sizes = [few_sizes(n) for n in range(1025)]
    assert all(n <= size <= max(n + 7, 1.25 * n) for n, size in enumerate(sizes)) and sizes[:2] == [0, 8]
    assert len({*sizes}) == 25


def test_graphs_change_no_name():
    assert experiment("000/table1/sample/transformer", ["train.graphs=true"]).name == "000/table1/sample/transformer"


@pytest.fixture
def doubles():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with fake_graphs():
        yield
    torch.set_default_dtype(before)


def warmed_up(step: int, warmup: int, steps: int) -> float:
    """A schedule whose rates float32 holds exactly."""
    return min(step + 1, 4) / 4


def trained(shared, folder, record, *more, schedule=warmed_up, **changes):
    """A trainer after its last update, or where it was stopped. record: its updates."""
    still = ("model.encoder.dropout=0", "train.steps=7", "train.evaluate_every=7", "train.clip=0.5")
    run = training(shared, folder, *still, "train.learning_rate=0.0078125", *more)
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, schedule=schedule), **changes)
    trainer = Trainer(run)
    if record:
        trainer.record()
    trainer.run()
    return trainer


@pytest.mark.parametrize(
    ("optimiser", "micro_batches", "most"), [("adam_with_decay", 1, 64), ("averaged_adam", 3, 2), ("sgd", 1, 64)]
)
def test_recorded_updates_give_the_same_weights(doubles, shared, tmp_path, monkeypatch, optimiser, micro_batches, most):
    monkeypatch.setattr(recorded, "MOST", most)
    more = f"train.optimiser={optimiser}", f"train.accumulation_steps={micro_batches}"
    plain = trained(shared, tmp_path / "plain", False, *more)
    monkeypatch.setattr(FakeGraph, "launched", 0)
    graphs = trained(shared, tmp_path / "graphs", True, *more)
    assert FakeGraph.launched == 7 * micro_batches + 6 * (optimiser != "sgd")  # of SGD passes alone
    assert 2 <= len(graphs.recorded.recordings) <= most
    resumed = (False, True) if optimiser == "averaged_adam" else ()
    for first in resumed:  # stopped, and resumed as the other
        trained(shared, tmp_path / f"{first}", first, *more, stop_at=3)
        trained(shared, tmp_path / f"{first}", not first, *more)
    for folder in ("graphs", *map(str, resumed)):
        found = weights(tmp_path / folder)
        for name, weight in weights(tmp_path / "plain").items():
            if "key.bias" not in name:  # its gradient is 0, and Adam enlarges the rounding
                torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-12)
    rows = [one.progress.history[-1] for one in (plain, graphs)]
    for name in ("loss", "dev_loss", "learning_rate"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-6)


def test_a_recorded_update_that_is_not_finite_shows_at_the_next_evaluation(shared, tmp_path):
    with fake_graphs():
        steps = "train.steps=4", "train.evaluate_every=4"
        graphs = trained(shared, tmp_path, True, *steps, schedule=lambda step, *_: 1e38 if step == 2 else 1.0)
    assert graphs.progress.diverged and graphs.progress.step == 4


class Odd(nn.Module):
    """Its use of a weight, or the loss, depends on the data."""

    def __init__(self, reads):
        super().__init__()
        self.reads, self.each = reads, nn.ParameterList(torch.ones(2) for _ in range(2))

    def forward(self, batch):
        if self.reads and batch.source[0, 0].item() < 0:
            return self.each[0].sum()
        return sum(weight.sum() for weight in [*self.each][: 1 + (batch.source.shape[1] > 8)])


def test_what_cannot_be_recorded_is_one_line():
    with fake_graphs():
        with pytest.raises(
            ValueError, match=r"^train\.graphs: an update cannot be recorded, train without it: .*_local_scalar"
        ):
            RecordedPasses(Odd(True), nullcontext)(batch(), 1.0)
        passes, short = RecordedPasses(Odd(False), nullcontext), batch()
        passes(dataclasses.replace(short, source=short.source[:, :8]), 1.0)
        with pytest.raises(ValueError, match=r"^train\.graphs: batches of another shape use other weights"):
            passes(batch(), 1.0)


def test_an_average_is_copied_from_its_weight_once(monkeypatch):
    weight = nn.Parameter(torch.ones(3))
    optimiser = averaged_adam([weight], TrainConfig(learning_rate=1.0))
    for _ in range(2):
        weight.grad = torch.ones(3)
        optimiser.step()
        monkeypatch.setattr(torch.Tensor, "clone", None)
    assert not torch.equal(optimiser.state[weight]["average"], weight)
