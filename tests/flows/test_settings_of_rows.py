"""`experiments ROW --settings`: every setting of a row by the name that `--set` takes."""

import dataclasses
import re

import pytest
from running import run_cli

from phrasemodels.config import to_json
from phrasemodels.flows.experiments.catalogue import experiment, experiments
from phrasemodels.flows.experiments.overrides import PARTS, meanings, overridden, settings
from phrasemodels.infra.tracking import as_set

SENTENCE = re.compile(r"([A-Z0-9]|\w+_\w+|torch\.).*\.", re.DOTALL)  # it may begin with the name of a choice


ROWS = ["000/table1/sample/phrase-k2", "004/table1/sample/2-ff-drop", "003/tablebabi/sample/binary-facts2"]


@pytest.mark.parametrize("name", ROWS)
def test_a_training_is_recorded_with_the_names_and_values_that_are_listed(name):
    row = experiment(name)
    listed = {one["setting"]: one["value"] for one in settings(row)}
    made = as_set({**to_json(row.steps(0).trained.settings), "recipe": to_json(row.recipe)})
    assert listed.keys() - made.keys() <= {"train.accumulation_steps", "train.micro_batch_tokens"}  # change no score
    assert {one: made[one] for one in listed.keys() & made.keys()}.items() <= listed.items()


def test_fixed_arguments_and_lists_of_parts_are_recorded():
    model = {
        "type": "a:M",
        "act": {"partial": ["a.b:Act", [], {"low": None}]},
        "inputs": [{"type": "a:Words", "size": 1}],
    }
    assert as_set({"model": model}) == {
        "model.act": "Act",
        "model.act.low": "none",
        "model.inputs": '[{"type": "a:Words", "size": 1}]',
    }


@pytest.mark.parametrize("name", ROWS)
def test_each_listed_setting_can_be_set_to_its_own_value(name):
    row = experiment(name)
    listed = {one["setting"]: one for one in settings(row)}
    own = [f"{path}={one['value']}" for path, one in listed.items() if not one["takes"].startswith("one of your")]
    assert all(overridden(row, one) == row for one in own) and {"train.steps", "train.learning_rate"} <= listed.keys()


def test_a_setting_has_its_choices_and_its_meaning():
    listed = {one["setting"]: one for one in settings(experiment("000/table1/sample/phrase-k2"))}
    sigma = listed["model.encoder.sigma"]
    assert (
        sigma["value"] == "sigmoid"
        and "identity" in sigma["takes"].split(" · ")
        and sigma["meaning"].startswith("Activation")
    )
    done = run_cli("experiments", "000/table1/sample/phrase-k2", "--settings")
    assert done.exit_code == 0 and "train.learning_rate" in done.stdout
    assert "name one experiment" in str(run_cli("experiments", "--settings").exception)


def is_configuration(value):
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def test_each_field_that_a_row_can_set_has_a_sentence_that_says_its_meaning():
    rows, seen, fields = experiments(), set(), set()
    waiting = [getattr(row, part) for row in rows for part in PARTS]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += value
        elif is_configuration(value) and id(value) not in seen:
            seen.add(id(value))
            inner = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            waiting += inner.values()
            fields |= {(type(value), name) for name, own in inner.items() if not is_configuration(own)}
    said = {kind: meanings(kind) for kind, _ in fields}
    assert len(said) > 60
    wrong = {f"{kind.__name__}.{name}": said[kind].get(name, "") for kind, name in fields}
    assert not {name: text for name, text in wrong.items() if not SENTENCE.fullmatch(text)}


def test_a_row_without_a_model_has_the_settings_of_its_recipe():
    assert {one["setting"] for one in settings(experiment("000/sizes/paper/multi30k"))} >= {"recipe.corpus.name"}
