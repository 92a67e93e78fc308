"""Parsers, memory networks and exported models at the edges of their inputs."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from phrasemodels import saved
from phrasemodels.encoders.inputs import PretrainedConfig, most_pieces
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.layers.blocks import SPECIAL
from phrasemodels.models.memory import HopsConfig
from phrasemodels.parsing.parser import Limits, Parse, Parser, joined


def test_the_configuration_of_every_experiment_can_be_exported_and_read() -> None:
    for one in experiments():
        if dataclasses.is_dataclass(one.model):
            written = json.loads(json.dumps(saved.describe(one.model, {})))
            read = saved.restored(written["config"], Any, Path(), [PretrainedConfig])
            assert saved.describe(read, {}) == written, one.name


def test_parts_without_relations_are_joined() -> None:
    parts = [Parse(["a", "b"], [], None, [2, 0], []), Parse(["c"], [], None, [0], [])]
    whole = joined(parts, Limits(max_words=2))
    assert (whole.heads, whole.relations) == ([2, 0, 2], [])


def test_a_parser_of_a_treebank_without_tags_gives_none() -> None:
    english = Parser.load()
    entries = {side: list(own) for side, own in english.ids.ids.items()} | {"tags": list(SPECIAL)}
    (parse,) = Parser(english.original, entries).parse_tokens([["The", "red", "house", "sleeps", "."]])
    assert not parse.tags and "(XX The)" in parse.brackets and "\tThe\t_\t_\t_\t" in parse.conllu()


def test_a_parser_made_during_training_leaves_the_model_as_it_was() -> None:
    english = Parser.load()
    model = copy.deepcopy(english.original).train()
    entries = {side: list(own) for side, own in english.ids.ids.items()}
    parser = Parser(model, entries)
    assert all(module.training for module in model.modules())
    assert not any(module.training for module in parser.fused.modules())
    words = ["The", "house", "sleeps"]
    before = [parse.conllu() for parse in parser.parse_tokens([words])]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert [parse.conllu() for parse in parser.parse_tokens([words])] == before


def test_a_parser_gives_the_same_under_autocast() -> None:
    english = Parser.load()
    words = ["The", "house", "sleeps"]
    plain = [parse.conllu() for parse in english.parse("It rained. He sleeps.")], english.attention(words)[1]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = [parse.conllu() for parse in english.parse("It rained. He sleeps.")], english.attention(words)[1]
    assert mixed[0] == plain[0] and (mixed[1] == plain[1]).all()


def test_wrong_input_of_a_parser_is_named() -> None:
    english = Parser.load()
    for token in ("a\tb", "New\nYork", " "):
        with pytest.raises(ValueError, match="a token"):
            list(english.parse_tokens([[token]]))
    with pytest.raises(TypeError, match="not tokenised"):
        english.attention("The cat")
    with pytest.raises(ValueError, match="batch=0"):
        list(english.parse_each(["A cat."], batch=0))
    assert list(english.parse_each(["A cat."], lambda text: [[]])) == [[]]


def test_a_story_without_facts_has_scores_and_one_with_too_many_is_named() -> None:
    torch.manual_seed(0)
    model = HopsConfig(2, d=4, slots=3, vocabulary=5).build()
    question = torch.tensor([[1, 2]])
    for n in (0, 1):
        assert model(torch.zeros(1, n, 2, dtype=torch.long), question).isfinite().all()
    with pytest.raises(ValueError, match="4 facts, the model 3 slots"):
        model(torch.ones(1, 4, 2, dtype=torch.long), question)


def test_the_positions_of_roberta_are_counted() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 9,
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
    }
    for kind, reads in (("Roberta", 12), ("Bert", 14)):
        config = getattr(transformers, f"{kind}Config")(max_position_embeddings=14, pad_token_id=1, **sizes)
        encoder = getattr(transformers, f"{kind}Model")(config)
        assert most_pieces(encoder) == reads
        ids = torch.full((1, reads), 5)
        assert encoder(input_ids=ids).last_hidden_state.shape == (1, reads, 4)
