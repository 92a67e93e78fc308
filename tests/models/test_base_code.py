"""The settings by which paper 000's rows train as the code that it was probably built on."""

import dataclasses

import pytest
import torch
from plain_000 import members

from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.layers.blocks import BEGIN, END, PAD, standard_normal
from phrasemodels.models.translation import TranslationConfig, as_attention_is_all_you_need_pytorch, token_loss
from phrasemodels.tasks.problems.sentence_data import PhraseBatch
from phrasemodels.tasks.problems.translation import TokenAccuracyObjective

D = 16
ENCODER = HypernodeEncoderConfig(d=D, heads=2, layers=1, d_ff=24, dropout=0.0)
PLAIN = TranslationConfig(ENCODER, 20, 23, 1, 24)
LENGTHS = (6, 3)


def sentences() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    target = torch.randint(4, 23, (2, 5))
    target[:, 0], target[0, 4], target[1, 3], target[1, 4] = BEGIN, END, END, PAD
    return torch.randint(4, 20, (2, 6)), torch.tensor(LENGTHS), members(LENGTHS, 2), target


@pytest.mark.parametrize("tied", [True, False])
def test_tables_without_scale_compute_the_same_function(tied):
    scaled = dataclasses.replace(PLAIN, tied=tied).build().double()
    as_they_are = dataclasses.replace(PLAIN, tied=tied, scaled=False).build().double()
    weights = scaled.state_dict()
    tables = {name for name in weights if name.endswith("table.weight") or (tied and name == "project.weight")}
    as_they_are.load_state_dict({n: w * D**0.5 if n in tables else w for n, w in weights.items()})
    losses = [token_loss(model, *sentences(), 0.1) for model in (scaled, as_they_are)]
    torch.testing.assert_close(losses[0], losses[1])


def test_weights_are_drawn_as_the_base_code_does():
    torch.manual_seed(0)
    encoder = TransformerEncoderConfig(d=256, heads=4, layers=1, d_ff=1024)
    config = dataclasses.replace(PLAIN, encoder=encoder, start=standard_normal, source_vocabulary=999)
    plain, model = config.build(), dataclasses.replace(config, draw=as_attention_is_all_you_need_pytorch).build()
    attention, feed_forward = model.encoder.layers[0].attention, model.decoder[0].feed_forward
    assert attention.query.weight.detach().std().item() == pytest.approx((2 / 320) ** 0.5, rel=0.02)
    assert attention.output.weight.detach().std().item() == pytest.approx((2 / 512) ** 0.5, rel=0.02)
    assert feed_forward[0].weight.detach().abs().max().item() == pytest.approx(1 / 16, rel=0.02)
    assert attention.key.bias.any() and not plain.encoder.layers[0].attention.key.bias.any()
    assert model.embed_source.table.weight.detach().std().item() == pytest.approx(1, rel=0.02)


def test_the_error_of_dev_is_the_share_of_wrong_tokens():
    model = PLAIN.build().eval()
    source, lengths, phrases, target = sentences()
    found = TokenAccuracyObjective().criterion(model, PhraseBatch(source, lengths, phrases, target))
    best, gold = model(source, lengths, phrases, target[:, :-1]).argmax(-1), target[:, 1:]
    assert found.tolist() == [[int(((best != gold) & (gold != PAD)).sum()), 7]]


@pytest.mark.parametrize("row", ["transformer", "phrase-k2"])
def test_rows_of_the_base_code_have_its_settings(row):
    base, other = (experiment(f"000/table1/paper/{row}-{kind}") for kind in ("base-code", "10-epochs"))
    assert base.train == other.train and base.comparable
    assert base.model.attention_dropout == base.model.encoder.attention_dropout == base.model.encoder.dropout == 0.1
    assert base.model.embedding_dropout == 0 and not base.model.scaled
    small = dataclasses.replace(
        base.model, encoder=dataclasses.replace(base.model.encoder, d=D, heads=2, layers=1, d_ff=24),
        source_vocabulary=20, target_vocabulary=23, decoder_layers=1, decoder_d_ff=24,
    )  # fmt: skip
    token_loss(small.build(), *sentences(), 0.1).backward()
