"""The custom encoder of CONTRIBUTING.md trains, and errors in such an encoder name their place."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import COMMANDS, PROJECT, copy_project

from phrasemodels.flows.experiments import paper_000

LAYER, ROW = re.findall(r"```python\n(.*?)```", (PROJECT / "CONTRIBUTING.md").read_text(), re.S)[:2]
TRAIN = next(line for line in (PROJECT / "CONTRIBUTING.md").read_text().splitlines() if "sample/mine" in line)
MISTAKES = {
    "mine_unpacks": (
        "b, n, h, d = x.shape",
        r"not enough values to unpack \(expected 4, got 3\) \(.*; .*mine_unpacks\.py:\d+, in forward\)",
    ),
    "mine_nan": ("x = x * float('nan')", r"the loss is not a number before any update: .* \("),
    "mine_cuts": ("return x[:, :-1]", r"encoder Mine returned \(\d+, \d+, 64\), not .* = .* \("),
}
USED = (
    COMMANDS
    + """
import json

train, names = json.loads(sys.argv[1])
said = {"experiments": run("experiments", "--json"), "plan": run("plan")}
print(json.dumps(said | {name: run(*(word.replace("/mine", f"/{name}") for word in train)) for name in names}))
"""
)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Run commands in a copy of the project with the encoder, and with wrong ones; return what each command prints, by name."""
    tmp_path = tmp_path_factory.mktemp("project")
    copy_project(tmp_path)
    table = tmp_path / "phrasemodels/flows/experiments/paper_000.py"
    source, layers = table.read_text(), {"mine": LAYER}
    for name, (mistake, _) in MISTAKES.items():
        layers[name] = LAYER.replace("        graph = ", f"        {mistake}\n        graph = ", 1)
    for name, layer in layers.items():
        (tmp_path / f"phrasemodels/encoders/{name}.py").write_text(layer)
        source = source.replace("from phrasemodels", f"from phrasemodels.encoders import {name}\nfrom phrasemodels", 1)
        row = ROW.strip().replace('"mine"', f'"{name}"').replace("MineConfig", f"{name}.MineConfig")
        source = source.replace("ADJACENT = (", f"ADJACENT = (\n{row},\n", 1)
    table.write_text(source)
    small = ("--set", "recipe.corpus.train=100", "--set", "recipe.corpus.test=20")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours |= {"PYTHONPATH": str(tmp_path), "PHRASEMODELS_STORE": str(tmp_path / "store")}
    command = [sys.executable, "-c", USED, json.dumps([[*TRAIN.split()[1:], *small], [*layers]])]
    done = subprocess.run(command, capture_output=True, text=True, env=ours, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_example_is_in_every_table_and_trains(said):
    listed = json.loads(said["experiments"])
    rows = {row["experiment"]: row["published"] for row in listed if row["system"] == "Mine"}
    assert {"000/table1/sample/mine", "000/table2/sample/mine", "across/translation/sample/mine"} <= rows.keys()
    assert set(rows.values()) == {None}
    assert "train 000/table1/sample/mine seed 0" in said["plan"]
    assert "bleu" in json.loads(said["mine"])["scores"]


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_names_its_line_and_its_experiment(said, name):
    assert re.match("phrasemodels: " + MISTAKES[name][1], said[name])
    assert re.search(rf"train 000/table1/sample/{name}\S* seed 0", said[name])


def test_every_row_of_the_paper_has_a_published_number():
    for table in (paper_000.table_1, paper_000.table_2(None, "upos")):
        rows = [
            e for e in table("paper") if not e.row.endswith(("-epochs", "-base-code"))
        ]  # beside them the converged ones answer
        assert all(answer.cell for experiment in rows for answer in experiment.answers)
