"""Every model refuses an encoder's output of the wrong shape, and names the encoder."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from phrasemodels.encoders.transformer import PooledEncoderConfig, TransformerEncoderConfig
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import DecomposableConfig, SentencePairConfig
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import TranslationConfig

B, N, D = 4, 6, 8
WRONG = {
    "a token fewer": (lambda x: x[:, :-1], "(4, 5, 8)"),
    "another width": (lambda x: x[..., :-1], "(4, 6, 7)"),
    "a pair": (lambda x: (x, x), "a tuple"),
}
MODELS = {
    "translation": lambda e: TranslationConfig(e, 9, 9, 1, 16),
    "tagger": lambda e: TaggerConfig(e, 9, 5),
    "recurrent": lambda e: RecurrentConfig(e, 9, 9),
    "summarised": lambda e: SentencePairConfig(PooledEncoderConfig(e), 9),
    "pair": lambda e: SentencePairConfig(e, 9),
    "decomposable": lambda e: DecomposableConfig(e, 9),
}


class Mine(nn.Module):
    width = D

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x, lengths, *structure):
        return WRONG[self.name][0](x)


@dataclass(frozen=True)
class MineConfig(TransformerEncoderConfig):
    d: int = D
    heads: int = 2
    width: int = D
    name: str = ""

    def build(self):
        return Mine(self.name)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("model", MODELS)
def test_models_refuse_encoder_outputs_of_the_wrong_shape(model, wrong):
    built = MODELS[model](MineConfig(name=wrong)).build()
    ids, lengths, members = torch.ones(B, N, dtype=torch.long), torch.full((B,), N), torch.full((B, 1, 2), -1)
    run = getattr(built, "encode", built)
    output = "" if model == "pair" else WRONG[wrong][1]
    with pytest.raises(ValueError, match=r"^encoder Mine returned .*, not \(B, .*\) = \(4, .*\)$") as error:
        run(ids, lengths, members)
    assert f"returned {output}" in str(error.value)
