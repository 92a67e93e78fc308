"""The padding of a batch, whatever it holds, changes nothing in the states of words; batches may be empty; phrases are checked."""

import pytest
import torch
from torch import nn

from phrasemodels.encoders.baselines import (
    AdaSentConfig,
    BiLSTMMaxConfig,
    DisanConfig,
    HConvNetConfig,
    MultiHeadConfig,
    TbcnnConfig,
)
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard
from phrasemodels.encoders.parents import HardParentsConfig, SoftParentsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.encoders.psan import PsanConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.encoders.transformer import (
    NgramEncoderConfig,
    PooledEncoderConfig,
    PsanTokenEncoderConfig,
    TransformerEncoderConfig,
)
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.layers.phrases import MeanInit

D, LENGTHS = 8, torch.tensor([5, 3, 1])
MEMBERS = torch.tensor([[[0, 1], [2, 4]], [[1, 2], [-1, -1]], [[-1, -1], [-1, -1]]])
SIZE = {"d": D, "heads": 2, "layers": 2, "d_ff": 16}
TRANSFORMER = TransformerEncoderConfig(**SIZE)
HEADS = torch.tensor([[2, 0, 2, 3, 3], [0, 1, 2, -1, -1], [0, -1, -1, -1, -1]])
STATES = {
    "transformer": (TRANSFORMER, MEMBERS),
    "n-gram": (NgramEncoderConfig(**SIZE, gram_sizes=(0, 2), phrase_layers=(1, 2)), MEMBERS),
    "hypernode": (HypernodeEncoderConfig(**SIZE), MEMBERS),
    "hypernode, means": (HypernodeEncoderConfig(**SIZE, initialise=MeanInit), MEMBERS),
    "hypernode, printed": (HypernodeEncoderConfig(**SIZE, attend=softmax_hadamard), MEMBERS),
    "PSAN": (PsanTokenEncoderConfig(**SIZE), MEMBERS),
    "LSTM": (LSTMEncoderConfig(D), MEMBERS),
    "partitioned": (PartitionedEncoderConfig(D, 2, 2, 8, d_kv=4, top=None), None),
    "labels": (PartitionedEncoderConfig(D, 2, 2, 8, d_kv=4, top=LabelAttentionConfig(3)), None),
    "hard parents": (HardParentsConfig(D), HEADS),
    "soft parents": (SoftParentsConfig(D, 3), HEADS),
}
LEVELS = torch.tensor([[[0, 0, 1, 1, 2]], [[0, 0, 1, 1, 1]], [[0, 0, 0, 0, 0]]])
VECTORS = {
    "BiLSTM-Max": (BiLSTMMaxConfig(D, 4), LEVELS),
    "AdaSent": (AdaSentConfig(D, 4), LEVELS),
    "HConvNet": (HConvNetConfig(D, 4, 2), LEVELS),
    "TBCNN": (TbcnnConfig(D, 3), torch.stack([HEADS, HEADS.clamp(0, 2)], 1)),
    "DiSAN": (DisanConfig(D), LEVELS),
    "multi-head": (MultiHeadConfig(D, 2), LEVELS),
    "pooled": (PooledEncoderConfig(TRANSFORMER, 2), LEVELS),
    "PSAN": (PsanConfig(D, 1), LEVELS),
}
ENCODERS = {
    f"{name} {kind}": x for kind, all_of in (("states", STATES), ("vectors", VECTORS)) for name, x in all_of.items()
}


def built(name: str) -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    config, structure = ENCODERS[name]
    return config.build().eval(), [] if structure is None else [structure]


@pytest.mark.parametrize("filled", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("name", ENCODERS)
def test_padding_of_any_value_changes_no_word(name: str, filled: float) -> None:
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    padding = torch.arange(5) >= LENGTHS[:, None]
    broken = x.masked_fill(padding[..., None], filled).requires_grad_()
    clean, found = encoder(x, LENGTHS, *structure), encoder(broken, LENGTHS, *structure)
    if found.dim() == 3:
        clean, found = clean[~padding], found[~padding]
    torch.testing.assert_close(found, clean)
    (grad,) = torch.autograd.grad(found.sum(), broken)
    assert grad.isfinite().all()
    assert not grad[padding].any()


@pytest.mark.parametrize("name", ENCODERS)
def test_a_batch_may_be_empty(name: str) -> None:
    encoder, structure = built(name)
    x = torch.randn(3, 5, D)
    full = encoder(x, LENGTHS, *structure)
    assert encoder(x[:0], LENGTHS[:0], *(s[:0] for s in structure)).shape == (0, *full.shape[1:])


@pytest.mark.parametrize("name", ENCODERS)
def test_an_empty_sentence_is_finite_and_changes_no_other(name: str) -> None:
    encoder, structure = built(name)
    x, lengths = torch.randn(3, 5, D).requires_grad_(), torch.tensor([5, 0, 1])
    structure = [s.index_fill(0, torch.tensor(1), -1 if s is MEMBERS or s is HEADS else 0) for s in structure]
    full, found = encoder(x, LENGTHS, *built(name)[1]), encoder(x, lengths, *structure)
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), x)[0].isfinite().all()
    for b in (0, 2):
        size = lengths[b] if found.dim() == 3 else None
        torch.testing.assert_close(found[b, :size], full[b, :size])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (torch.tensor([[[0, 4]], [[0, 1]]]), r"0\.\.3 of a sentence of 4 words"),
        (torch.tensor([[[0, 1]], [[1, 2]]]), r"0\.\.1 of a sentence of 2 words"),
        (torch.tensor([[[0, -2]], [[0, 1]]]), "-1"),
        (torch.tensor([[[0.0, 1.5]], [[0.0, 1.0]]]), "integers"),
        (torch.tensor([[0, 1], [0, 1]]), r"\(B, m, k\)"),
    ],
)
def test_phrases_are_words_of_their_sentence(members: torch.Tensor, message: str) -> None:
    encoder = HypernodeEncoderConfig(**SIZE).build()
    with pytest.raises(ValueError, match=f"^members.*{message}"):
        encoder(torch.randn(2, 4, D), torch.tensor([4, 2]), members)
