"""What users add: a project folder, an installed package, exported models with torch alone, results in other programs."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
import torch
import typer
from conftest import COMMANDS, PROJECT
from safetensors.torch import save_file
from torch import nn

import phrasemodels
import phrasemodels.study
from phrasemodels import project
from phrasemodels.data.store.store import Store
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.cli.main import app
from phrasemodels.flows.results.sql import VIEWS, write_database
from phrasemodels.infra.tracking import Tracker
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.saved import LIBRARY, describe

# In one process: make a study, list and plan it, fetch its corpus; then keys before and after edits of its file.
STUDY = (
    COMMANDS
    + """
import json, os, pickle, subprocess
from pathlib import Path

run("init", "colours")
Path("colours/below").mkdir()
os.chdir("colours/below")
planned = json.loads(run("plan", "--paper", "colours", "--json"))
run("corpora", "fetch", "commands")
verified = run("corpora", "verify", "commands")

from phrasemodels.data.store import fingerprint
from phrasemodels.flows.experiments.catalogue import Request

def rows(paper, *changes):
    return Request(paper, set=changes).resolve().experiments

def keys(*edit):
    file = Path("../study.py")
    file.write_text(file.read_text().replace(*edit) if edit else file.read_text())
    fingerprint.forget()
    return {name: step.key for name, step in rows("colours")[1].steps(0).stages.items()}

edits = ('corpus="commands",', 'corpus="commands",  # edited'), ("return 100 *", "return 50 * 2 *"), ("return x +", "return 2 * x +")
made = [keys(), *(keys(*edit) for edit in edits)]
# a worker elsewhere gets a step by the names of its parts
WORKER = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer).settings.model.encoder).__module__)"
step = pickle.dumps(rows("colours")[1].steps(0).trained)
worker = subprocess.run([sys.executable, "-c", WORKER], input=step, cwd="/", capture_output=True)
other = rows("000", "model.encoder=mine", "recipe.metrics=their_metric")[0]
parser = rows("004", "model.encoder=mine")[0]
source = other.steps(0).stages["scores"].parts["source"]
from phrasemodels.flows.results.claims import answered_claims, claim_lines
claims = [(one["id"], one["verdict"], [*claim_lines(one)][1].strip()) for one in answered_claims([], paper="colours")]
Path("../claims.csv").write_text(Path("../claims.csv").read_text().replace(",Mine,", ",Nobody,"))
wrong = subprocess.run([sys.executable, "-m", "phrasemodels", "plan", "--paper", "colours"], capture_output=True, text=True)
own = [(row.name, answer.cell and answer.cell.published) for row in rows("colours") for answer in row.answers]
print(json.dumps({"own": own, "claims": claims, "wrong": wrong.stderr,
    "worker": worker.stdout.decode().strip() or worker.stderr.decode(), "planned": [step["label"] for step in planned],
    "verified": verified, "keys": made, "name": other.name,
    "parser": [parser.name, type(parser.model.encoder).__name__],
    "source": list(source), "store": [p.name for p in Path("..").iterdir()]}))
"""
)
FILES = {
    "pkg/__init__.py": "",
    "pkg/paper.py": 'from phrasemodels.flows.experiments.paper_000 import table_1\nPAPER = "theirs"\nTABLES = {"1": lambda profile: []}\n',
    "pkg/metrics.py": "from .counts import count\n\n\ndef their_metric(references, answers):\n    return count(answers)\n",
    "pkg/counts.py": "def count(texts):\n    return len(texts)\n",
    "pkg/printed.csv": "table,system,metric,value\nTable 1,A,accuracy,50.0\n",
    "pkg-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n",
    "pkg-1.0.dist-info/entry_points.txt": "[phrasemodels.papers]\ntheirs = pkg.paper\n\n[phrasemodels.metrics]\n"
    "their_metric = pkg.metrics:their_metric\n",
}


def test_a_study_and_a_package_are_listed_planned_and_fingerprinted_like_our_own_code(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours["PYTHONPATH"] = os.pathsep.join(map(str, (PROJECT, tmp_path / "site")))
    done = subprocess.run(
        [sys.executable, "-c", STUDY], capture_output=True, text=True, cwd=tmp_path, env=ours, timeout=300
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    mine = "colours/table1/sample/mine"
    assert said["own"] == [[mine.replace("mine", "transformer"), 80.0], [mine.replace("mine", "transformer"), None],
                           [mine, 90.0], [mine, None]]  # fmt: skip
    assert said["claims"] == [["colours-1", "open", "Mine against Transformer, BLEU"]]
    assert "claim colours-1: 0 printed numbers of 'Nobody' in Table 1" in said["wrong"]
    assert said["worker"] == "study"
    assert {"fetch commands", "train colours/table1/sample/mine seed 0"} <= set(said["planned"])
    assert "commands" in said["verified"] and ".phrasemodels" in said["store"]
    plain, comment, metric, layer = said["keys"]
    assert plain == comment
    assert [name for name in plain if metric[name] != plain[name]] == ["scores"]
    assert [name for name in plain if layer[name] != metric[name]] == list(plain)
    assert said["name"] == "000/table1/sample/transformer+model.encoder=mine+recipe.metrics=their_metric"
    assert said["parser"] == ["004/table1/sample/2-ff-drop+model.encoder=mine", "MineConfig"]
    assert {"pkg.metrics:their_metric", "pkg.counts:count"} <= set(said["source"])


@pytest.mark.parametrize(
    "template", sorted((PROJECT / "phrasemodels/flows/cli/template").rglob("study.py")), ids=lambda p: p.parent.name
)
def test_a_study_imports_at_most_eight_public_names(template: Path) -> None:
    imports = [
        node for node in ast.walk(ast.parse(template.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert sum(len(node.names) for node in imports) <= 8
    ours = {
        name.name
        for node in imports
        if (getattr(node, "module", "") or "").startswith("phrasemodels")
        for name in node.names
    }
    assert ours and ours <= set(phrasemodels.study.__all__)


class Own(nn.Module):
    """A linear map."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.map = nn.Linear(d, d)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
        mapped: torch.Tensor = self.map(x)
        return mapped


class OwnConfig(TransformerEncoderConfig):
    def build(self) -> Own:
        return Own(self.d)


def exported(folder: Path, config: TranslationConfig) -> nn.Module:
    """Write what `export` writes of a translator with these sizes; return the model."""
    model = config.build()
    (folder / "model").mkdir(parents=True)
    (folder / "vocabulary").mkdir()
    save_file({name: p.detach() for name, p in model.named_parameters()}, folder / "model" / "model.safetensors")
    (folder / "vocabulary" / "source.txt").write_text("<pad>\n<unk>\n<s>\n</s>\nred\n")
    (folder / "card.json").write_text('{"experiment": "e"}')
    (folder / LIBRARY).write_text(json.dumps(describe(config, {"model": folder / "model"})))
    return model.eval()


def test_an_exported_model_is_loaded_without_the_pipeline_and_without_code_that_it_names(tmp_path: Path) -> None:
    inputs = (torch.tensor([[4, 1]]), torch.tensor([2]), torch.full((1, 1, 2), -1), torch.tensor([[2, 4]]))
    ours = exported(tmp_path / "ours", TranslationConfig(TransformerEncoderConfig(8, 2, 1, 8), 5, 5, 1, 8))
    loaded = phrasemodels.load(tmp_path / "ours")
    assert torch.equal(loaded.module(*inputs), ours(*inputs))
    assert loaded.ids(["red", "house"]) == [4, 1] and loaded.card["experiment"] == "e"
    own = exported(tmp_path / "own", TranslationConfig(OwnConfig(8, 2, 1, 8), 5, 5, 1, 8))
    with pytest.raises(ValueError, match=r"its part .*:OwnConfig is none that a file may name; pass it"):
        phrasemodels.load(tmp_path / "own")
    assert torch.equal(phrasemodels.load(tmp_path / "own", OwnConfig).module(*inputs), own(*inputs))
    for name in ("os:system", "phrasemodels.flows.cli.main:main", "phrasemodels.saved:safe_open"):
        (tmp_path / "ours" / LIBRARY).write_text(json.dumps({"config": {"type": name}}))
        with pytest.raises(ValueError, match=r"is none that a file may name"):
            phrasemodels.load(tmp_path / "ours")


def test_a_file_of_a_configuration_stays_in_the_folder(tmp_path: Path) -> None:
    inside = describe(partial(print, str(tmp_path / "v" / "x.npy")), {"vocabulary": tmp_path / "v"})
    assert inside["config"]["partial"][1] == [{"file": "vocabulary/x.npy"}]


@pytest.mark.slow  # judges all printed numbers
def test_a_plain_duckdb_opens_what_sql_writes(tmp_path: Path, store: Store) -> None:
    file = write_database(store, Tracker(f"sqlite:///{tmp_path}/none.db"), tmp_path / "out.duckdb")
    with duckdb.connect(file, read_only=True) as connection:
        assert connection.execute("select count(*) from verdicts").fetchone() == (470,)
        said = connection.execute(
            "select column_name, comment from duckdb_columns() where table_name = 'seeds'"
        ).fetchall()
    assert said == [(name, meaning) for name, (_, meaning) in VIEWS["seeds"].columns.items()]


@pytest.mark.parametrize(("kind", "package"), [("pandas", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")])
def test_results_are_a_data_frame(kind: str, package: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip(package)
    monkeypatch.setenv("PHRASEMODELS_STORE", str(store.root))
    question = "select paper, sum(value::int) as n, 1 as n from published group by all order by paper"
    frame = phrasemodels.results(question, kind=kind)
    assert isinstance(frame, module.Table if kind == "arrow" else module.DataFrame)
    assert list(frame.column_names if kind == "arrow" else frame.columns) == ["paper", "n", "n_1"]
    whole = frame["n"].type if kind == "arrow" else frame["n"].dtype
    assert str(whole).lower() == "int64" and frame["n_1"].to_numpy().tolist() == [1] * 5


FOREIGN = ("phrasemodels.toml", "study.py", *project.READ_BY_LIBRARIES)


@pytest.mark.parametrize("name", ["", *FOREIGN])
@pytest.mark.parametrize("how", ["belongs to another user", "other users may write to it"])
def test_what_another_user_may_have_written_is_not_run(name: str, how: str, tmp_path: Path, monkeypatch) -> None:
    for one in FOREIGN:
        (tmp_path / one).write_text("# prefect_ tool.prefect\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(project.VARIABLE, raising=False)
    project.folder.cache_clear()
    path = tmp_path / name
    if "belongs" in how:
        real = Path.stat
        foreign = os.stat_result((0o100644, 0, 0, 1, 4242, 0, 0, 0, 0, 0))
        monkeypatch.setattr(Path, "stat", lambda self, **how: foreign if self.absolute() == path else real(self, **how))
    else:
        path.chmod(0o777)
    check = project.check_working_folder if name in project.READ_BY_LIBRARIES else project.folder
    with pytest.raises(ValueError, match=rf"{path} .*{how}"):
        check()
    if name not in project.READ_BY_LIBRARIES:
        monkeypatch.setenv(project.VARIABLE, str(tmp_path))
        monkeypatch.setattr("sys.path", sys.path[:])
        monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        project.folder.cache_clear()
        assert project.folder() == tmp_path, "the user names it"
    project.folder.cache_clear()


def test_no_value_is_completed_by_the_shell() -> None:
    """Values come from names in files, which some shells run."""
    parameters = [one for command in walk(typer.main.get_command(app)) for one in command.params]
    assert len(parameters) > 50
    assert not [one.name for one in parameters if one._custom_shell_complete]


def walk(command: Any) -> Iterator[Any]:
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from walk(one)


def test_a_matplotlibrc_changes_no_figure(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsvg.fonttype: path\n")
    code = "from phrasemodels.flows.report import plots; print(plots.matplotlib.rcParams['text.usetex'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
