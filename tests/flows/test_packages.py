"""An installed package that offers papers, corpora, encoders, metrics and parsers: listed, planned, run and fingerprinted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMANDS, PROJECT

from phrasemodels.data.corpora.added import Added, add

TEMPLATE = PROJECT / "phrasemodels" / "flows" / "cli" / "template"
PARSER = """
from dataclasses import dataclass

from phrasemodels.tasks.parsers.parse import Analysis, sentences, trees

from .grammar import brackets


@dataclass(frozen=True)
class Right:
    label: str = "X"

    def analyse(self, table, column, models):
        found = sentences(table, column)
        return trees(table, [Analysis(words, tree=brackets(words, self.label)) for words in found])
"""
GRAMMAR = '''
from pathlib import Path

WORD = Path(__file__).with_name("root.txt").read_text()


def brackets(words, label):
    """Each word and the rest of the sentence are a phrase."""
    *most, last = [f"({label} {word})" for word in words]
    for word in reversed(most):
        last = f"({label} {word} {last})"
    return f"({WORD} {last})"
'''
PARTS = {
    "papers": "theirs = theirs.study",
    "corpora": "theirs = theirs.corpora",
    "encoders": "their_layer = theirs.study:MineConfig",
    "metrics": "their_ratio = theirs.study:length_ratio",
    "parsers": "right = theirs.parser:Right",
}
# In one process: what commands list; keys before and after edits; a table's rows with the package's trees in them.
USED = (
    COMMANDS
    + """
import json
from pathlib import Path

OVERRIDES = ("model.encoder=their_layer", "recipe.metrics=their_ratio")
said = {
    "experiments": run("experiments", "--paper", "theirs", "--json"),
    "plan": run("plan", "--paper", "theirs", "--json"),
    "corpora": run("corpora", "list"),
    "verified": run("corpora", "fetch", "theirs") and run("corpora", "verify", "theirs"),
    "parsers": run("parsers", "list", "--json"),
    "verdicts": run("verdicts", "--paper", "theirs", "--json"),
}

import theirs
from phrasemodels.data.store import fingerprint
from phrasemodels.data.store.store import Executor
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import Request
from phrasemodels.tasks.prepare.sharded import read_shards

def rows(paper, table, *changes):
    return Request(paper, table, set=changes).resolve().experiments

parsed = "recipe.corpus.train=30", "recipe.corpus.dev=5", "recipe.corpus.test=5", "recipe.parsed=right"

def keys(file="study.py", *edit):
    path = Path(theirs.__file__).with_name(file)
    if edit:
        path.write_text(path.read_text().replace(*edit))
    fingerprint.forget()
    own, other = rows("theirs", "1")[1], rows("000", "1", *OVERRIDES)[0]
    with_trees = rows("001", "5", *parsed)[2]
    return {place: {name: step.key for name, step in row.steps(0).stages.items()}
            for place, row in (("own", own), ("other", other), ("parsed", with_trees))}

said["keys"] = [keys(), keys("study.py", "return 100 *", "return 50 * 2 *"), keys("study.py", "return x +", "return 2 * x +"),
                keys("grammar.py", "reversed(most)", "most[::-1]"), keys("root.txt", "ROOT", "TOP")]
psan = rows("001", "5", *parsed)[2]
data = psan.recipe.parsed(psan.recipe.corpus.split("test"))
table = read_shards(Store(Path("store")).open().run(data, Executor()))
try:
    rows("001", "5", "recipe.parsed=rigth")
except ValueError as error:
    said["unknown"] = str(error)
said["shown"] = [answer.metric for answer in rows("000", "1", *OVERRIDES)[0].answers]
said["name"], said["trees"] = psan.name, table["premise_tree"].to_pylist()
print(json.dumps(said))
"""
)


@pytest.mark.slow
def test_a_package_offers_all_that_a_project_folder_does(tmp_path: Path) -> None:
    package, info = tmp_path / "site" / "theirs", tmp_path / "site" / "theirs-1.0.dist-info"
    for folder in (package / "corpora", info):
        folder.mkdir(parents=True)
    study = (TEMPLATE / "study.py").read_text().replace("my-study", "theirs")
    files = {"study.py": study.replace('"commands"', '"theirs"'), "parser.py": PARSER, "grammar.py": GRAMMAR}
    files |= {"root.txt": "ROOT"} | {name: (TEMPLATE / name).read_text() for name in ("printed.csv", "settings.csv")}
    for name, text in ({"__init__.py": "", "corpora/__init__.py": ""} | files).items():
        (package / name).write_text(text)
    add(TEMPLATE / "commands.txt", Added("theirs", languages=("en", "zxx")), package / "corpora")
    (info / "RECORD").write_text("".join(f"theirs/{name},,\n" for name in ("__init__.py", *files)))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[phrasemodels.{k}]\n{v}\n\n" for k, v in PARTS.items()))
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours["PYTHONPATH"] = os.pathsep.join(map(str, (PROJECT, tmp_path / "site")))
    done = subprocess.run(
        [sys.executable, "-c", USED], capture_output=True, text=True, cwd=tmp_path, env=ours, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    row = "theirs/table1/sample/mine"
    assert (row, 90.0) in {(one["experiment"], one["published"]) for one in json.loads(said["experiments"])}
    assert {"fetch theirs", f"train {row} seed 0"} <= {step["label"] for step in json.loads(said["plan"])}
    assert "theirs               bitext            600 / 74 / 74" in said["corpora"] and "600 rows" in said["verified"]
    assert ("right", "theirs.parser:Right") in {(one["name"], one["title"]) for one in json.loads(said["parsers"])}
    assert {(one["system"], one["verdict"]) for one in json.loads(said["verdicts"])} == {
        ("Transformer", "not run"),
        ("Mine", "not run"),
    }
    assert said["name"].endswith("+recipe.parsed=right") and said["trees"][1].startswith("(ROOT (X (X a) (X (X horse) ")
    assert (
        said["unknown"]
        == "multi-head: recipe.parsed=rigth: no 'rigth' among the parsers that users add: did you mean 'right'?"
    )
    assert said["shown"] == ["bleu", "length_ratio"]
    plain, metric, layer, grammar, read = said["keys"]
    assert changed(plain, metric) == {"own": ["scores"], "other": ["scores"], "parsed": []}
    trained = ["model", "predictions", "scores"]
    assert changed(metric, layer) == {"own": trained, "other": trained, "parsed": []}
    assert changed(layer, grammar) == {"own": [], "other": [], "parsed": list(plain["parsed"])}
    assert changed(grammar, read) == {"own": [], "other": [], "parsed": list(plain["parsed"])}


def changed(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    """Return the steps of each row whose keys are other ones."""
    return {row: [name for name in keys if after[row][name] != keys[name]] for row, keys in before.items()}
