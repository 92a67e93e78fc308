"""Configurations of encoders, layers and models refuse wrong values of their own fields."""

import dataclasses
import importlib
import pkgutil
import re

import pytest

import phrasemodels.encoders
import phrasemodels.layers
import phrasemodels.models
from phrasemodels.encoders.baselines import (
    AdaSentConfig,
    BiLSTMMaxConfig,
    DisanConfig,
    HConvNetConfig,
    MultiHeadConfig,
    TbcnnConfig,
)
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.inputs import CharactersConfig, PretrainedConfig, TagsConfig, WordsConfig
from phrasemodels.encoders.parents import HardParentsConfig, NoParentsConfig, SoftParentsConfig
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
from phrasemodels.models.memory import ChainConfig, HopsConfig
from phrasemodels.models.parser import Jointly, ParserConfig
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import ClassifierConfig, DecomposableConfig, SentencePairConfig
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import BeamSearch, TranslationConfig

TRANSFORMER = TransformerEncoderConfig()
STACK = {"d": (0, -1), "heads": (0, 7), "layers": (0, 1.5), "d_ff": (-1,), "dropout": (-0.1, 1.0, 9)}
INNER = {"inner_dropout": (1,)}
ATTENTION = {"attention_dropout": (1,)}
# a configuration, and wrong values of each of its fields; None: an encoder or input, which checks itself
WRONG = [
    (TRANSFORMER, STACK | INNER | ATTENTION),
    (HypernodeEncoderConfig(), STACK | {"longest": (1,)} | ATTENTION),
    (
        NgramEncoderConfig(),
        STACK | {"gram_sizes": ((), (2, 2), (0,) * 7 + (-1,)), "phrase_layers": ((), (0,), (1, 7))} | INNER,
    ),
    (PsanTokenEncoderConfig(), STACK | {"sizes": ((), (3, -1))}),
    (PooledEncoderConfig(TRANSFORMER), {"states": None, "longest": (0,), "dropout": (1,)}),
    (AdaSentConfig(), {"d": (0,), "hidden": (0,), "dropout": (1,)}),
    (BiLSTMMaxConfig(), {"d": (0,), "hidden": (0,)}),
    (DisanConfig(), {"d": (0,), "dropout": (1,), "units": (-1,)}),
    (HConvNetConfig(), {"d": (0,), "channels": (0,), "layers": (0,)}),
    (MultiHeadConfig(), {"d": (0,), "heads": (0, 7), "dropout": (1,)}),
    (TbcnnConfig(), {"d": (0,), "relations": (0,), "dropout": (1,)}),
    (PsanConfig(), {"d": (0,), "levels": (0,), "dropout": (1,)}),
    (LSTMEncoderConfig(), {"d": (0,), "layers": (0,), "dropout": (1,)}),
    (NoParentsConfig(), {"d": (0,)}),
    (HardParentsConfig(), {"d": (0,)}),
    (SoftParentsConfig(), {"d": (0,), "h": (0,)}),
    (
        PartitionedEncoderConfig(),
        {"d": (0, 15), "heads": (0,), "layers": (0,), "d_kv": (0, 7), "d_ff": (0,), "dropout": (1,), "top": None},
    ),
    (
        WordsConfig(),
        {"size": (-1,), "dropout": (1,), "std": (0, -1), "width": (-1,), "learned": (-1, 1, 9), "vectors": None},
    ),
    (TagsConfig(), {"size": (-1,), "dropout": (1,), "vector_dropout": (1,)}),
    (CharactersConfig(), {"size": (-1,), "d": (0,), "filters": (0,), "width": (0, 4)}),
    (PretrainedConfig(), {"name": ("",), "folder": None}),
    (
        LabelAttentionConfig(),
        {"labels": (-1,), "d_kv": (0, 7), "d_out": (1,), "d_ff": (-1,), "dropout": (1,), "residual_dropout": (1,)},
    ),
    (
        DecomposableConfig(),
        {"parents": None, "vocabulary": (-1,), "labels": (0,), "dropout": (1,), "initial": (0,), "vectors": None},
    ),
    (
        HopsConfig(),
        {"hops": (0,), "d": (0,), "slots": (0,), "vocabulary": (-1,), "linear_updates": (-1,), "deviation": (0,)},
    ),
    (ChainConfig(), {"hops": (1,), "d": (0,), "slots": (0,), "vocabulary": (-1,), "deviation": (0,)}),
    (
        ParserConfig(),
        {
            "encoder": None,
            "inputs": ((),),
            "hidden": (1,),
            "arc_hidden": (0,),
            "arc_dropout": (1,),
            "start": None,
            "dependency_weight": (-1,),
            "tag_weight": (-1,),
            "labels": (-1,),
            "relations": (-1,),
            "tags": (-1,),
        },
    ),
    (Jointly(), {"weight": (-0.1, 1.1)}),
    (
        RecurrentConfig(),
        {
            "encoder": None,
            "source_vocabulary": (-1,),
            "target_vocabulary": (-1,),
            "layers": (0,),
            "dropout": (1,),
            "initial": (0,),
        },
    ),
    (BeamSearch(), {"beam": (0,), "length_penalty": (-1,), "growth": (-1,), "extra": (-1,), "reach": (-1,)}),
    (
        SentencePairConfig(PsanConfig()),
        {"encoder": None, "words": (-1,), "vectors": None, "classes": (0,), "hidden": (0,), "dropout": (1,)},
    ),
    (
        ClassifierConfig(PsanConfig()),
        {"encoder": None, "words": (-1,), "vectors": None, "classes": (0,), "hidden": (0,), "dropout": (1,)},
    ),
    (
        TaggerConfig(TRANSFORMER, 0, 0),
        {"encoder": None, "vocabulary": (-1,), "tags": (-1,), "hidden": (0,), "vectors": None},
    ),
    (
        TranslationConfig(TRANSFORMER, 0, 0),
        {
            "encoder": None,
            "source_vocabulary": (-1,),
            "target_vocabulary": (-1,),
            "decoder_layers": (0,),
            "decoder_d_ff": (-1,),
            "embedding_dropout": (1,),
            **INNER,
            **ATTENTION,
        },
    ),
]
BY_NAME = {type(config).__name__: (config, fields) for config, fields in WRONG}


@pytest.mark.parametrize("name", BY_NAME)
def test_wrong_values_are_refused_by_the_name_of_their_field(name):
    config, wrong = BY_NAME[name]
    for field, values in wrong.items():
        kind = type(getattr(config, field))
        for value in (*(values or ()), *((float("nan"), float("inf")) if kind in (int, float) else ())):
            with pytest.raises(ValueError, match=f"^{field}={re.escape(str(value))}: must ") as error:
                dataclasses.replace(config, **{field: value})
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_field_but_functions_and_switches_is_in_the_list(name):
    config, wrong = BY_NAME[name]
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert wrong.keys() == {name for name, x in values.items() if not callable(x) and not isinstance(x, bool)}


def test_every_configuration_is_in_the_list():
    modules = [
        importlib.import_module(f"{package.__name__}.{module.name}")
        for package in (phrasemodels.encoders, phrasemodels.layers, phrasemodels.models)
        for module in pkgutil.iter_modules(package.__path__)
    ]
    classes = {x for module in modules for name, x in vars(module).items() if name.endswith("Config")}
    assert {x.__name__ for x in classes if dataclasses.is_dataclass(x)} - {
        "EncoderConfig",
        "ExportedEncoderConfig",
        "PretrainedWordsConfig",  # these two need the files of an encoder: test_pretrained_words.py
        "ExportedWordsConfig",
    } <= (BY_NAME.keys())


def test_a_shared_embedding_needs_one_vocabulary():
    assert TranslationConfig(TRANSFORMER, 20, 20, shared=True)
    with pytest.raises(ValueError, match=r"^shared=True: .*; make one vocabulary of both sides"):
        TranslationConfig(TRANSFORMER, 20, 23, shared=True)
