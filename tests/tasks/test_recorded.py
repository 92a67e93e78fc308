"""Passes with fixed shapes, as CUDA graphs need them, equal those of packed rows. What only a GPU can show is in benchmarks/gpu.py."""

from contextlib import nullcontext

import pytest
import torch
from small_training import training
from torch import nn

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard
from phrasemodels.encoders.transformer import NgramEncoderConfig, TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.layers.blocks import BEGIN, END, PAD, PreNorm
from phrasemodels.layers.phrases import LengthEmbedding
from phrasemodels.models.translation import TranslationConfig, token_loss
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
from phrasemodels.tasks.train.batches import Batch
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
    assert (*padded.source.shape, padded.members.shape[1], padded.target.shape[1]) == (5, 16, 16, 16)
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
