"""`experiments ROW --settings`: every setting of a row by the name that `--set` takes."""

import pytest
from running import run_cli

from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.flows.experiments.overrides import overridden, settings


@pytest.mark.parametrize(
    "name", ["000/table1/sample/phrase-k2", "004/table1/sample/2-ff-drop", "003/tablebabi/sample/binary-facts2"]
)
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
