"""The custom encoder of CONTRIBUTING.md trains, and errors in such an encoder name their place."""

import json
import os
import re
import subprocess

import pytest
from conftest import CLI, PROJECT, copy_project

from phrasemodels.flows.experiments import paper_000

LAYER, ROW = re.findall(r"```python\n(.*?)```", (PROJECT / "CONTRIBUTING.md").read_text(), re.S)[:2]
TRAIN = next(line for line in (PROJECT / "CONTRIBUTING.md").read_text().splitlines() if "sample/mine" in line)
SMALL = ("--set", "recipe.corpus.train=100", "--set", "recipe.corpus.test=20")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Return a function that runs the command line in a copy of the project with a custom encoder."""
    tmp_path = tmp_path_factory.mktemp("project")
    copy_project(tmp_path)
    table = tmp_path / "phrasemodels/flows/experiments/paper_000.py"
    source = table.read_text().replace(
        "from phrasemodels", "from phrasemodels.encoders.mine import MineConfig\nfrom phrasemodels", 1
    )
    table.write_text(source.replace("ADJACENT = (\n", f"ADJACENT = (\n{ROW.strip()},\n"))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours |= {"PYTHONPATH": str(tmp_path), "PHRASEMODELS_STORE": str(tmp_path / "store")}

    def run(layer, *arguments):
        (tmp_path / "phrasemodels/encoders/mine.py").write_text(layer)
        command = [*CLI, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=ours, timeout=300, cwd=tmp_path)

    return run


def test_the_example_is_in_every_table_and_trains(own):
    listed = own(LAYER, "experiments", "--json")
    assert listed.returncode == 0, listed.stderr
    rows = {row["experiment"]: row["published"] for row in json.loads(listed.stdout) if row["system"] == "Mine"}
    assert {"000/table1/sample/mine", "000/table2/sample/mine", "across/translation/sample/mine"} <= rows.keys()
    assert set(rows.values()) == {None}
    assert own(LAYER, "plan").returncode == 0
    trained = own(LAYER, *TRAIN.split()[1:], *SMALL)
    assert trained.returncode == 0, trained.stderr
    assert "bleu" in json.loads(trained.stdout)["scores"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            "b, n, h, d = x.shape",
            r"not enough values to unpack \(expected 4, got 3\) \(.*; .*mine\.py:\d+, in forward\)",
        ),
        ("x = x * float('nan')", r"the loss is not a number before any update: .* \("),
        ("return x[:, :-1]", r"encoder Mine returned \(\d+, \d+, 64\), not .* = .* \("),
    ],
)
def test_an_error_names_its_line_and_its_experiment(own, mistake, message):
    layer = LAYER.replace("        graph = ", f"        {mistake}\n        graph = ", 1)
    done = own(layer, *TRAIN.split()[1:], *SMALL)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert re.match("phrasemodels: " + message, line), done.stderr
    assert re.search(r"train 000/table1/sample/mine\S* seed 0", line)


def test_every_row_of_the_paper_has_a_published_number():
    for table in (paper_000.table_1, paper_000.table_2(None, "upos")):
        rows = [
            e for e in table("paper") if not e.row.endswith(("-10-epochs", "-base-code"))
        ]  # beside them the converged ones answer
        assert all(answer.cell for experiment in rows for answer in experiment.answers)
