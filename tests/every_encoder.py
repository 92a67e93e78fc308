"""An encoder of each kind with small sizes, for tests and for `benchmarks/gpu.py`."""

import torch
from torch import Tensor, nn

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


def built(name: str) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    config, structure = ENCODERS[name]
    return config.build().eval(), [] if structure is None else [structure]
