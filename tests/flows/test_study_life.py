"""What can change in a study × what is asked: results are found, made again or marked, and never old ones served as new."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMANDS, PROJECT
from running import small_corpus

from phrasemodels.data.corpora.added import Added, add

STUDY = '''
import json
import os
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from mylab.act import act
from phrasemodels.study import *

PAPER = "life"


class Gated(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.map = nn.Linear(config.d, config.d)
        self.scale = json.loads(config.table.path.read_text())["scale"]
        self.bias = float((config.folder.path / "bias.txt").read_text())

    def forward(self, x, lengths, members):
        return x + act(self.map(x)) * self.scale + self.bias


@dataclass(frozen=True)
class GatedConfig(EncoderConfig):
    gain: float = 1.0
    table: StudyFile = StudyFile("table.json")
    folder: StudyFile = StudyFile("weights")

    def build(self):
        return Gated(self)


def ratio(references, answers):
    return 100 * len(" ".join(answers)) / len(" ".join(references))


GIVEN = json.loads(Path(__file__).with_name("hyper.json").read_text())
SIZE = Size(d=int(os.environ.get("WIDTH", "8")), heads=2, layers=1, d_ff=8)
TRAIN = TrainConfig(steps=2, batch_tokens=300, learning_rate=GIVEN["learning_rate"], warmup=1, evaluate_every=2, checkpoint_every=2)
RECIPE = TranslationRecipe(
    BitextCorpus("commands"), Phrases(adjacent, 2), TranslationText(tokeniser=spaces, detokenise=join), metrics=(ratio,)
)
ROWS = [
    Row("base", "Base", "", lambda size: translator(TransformerEncoderConfig(**size.encoder))),
    Row("gated-3", "Gated", "", lambda size: translator(GatedConfig(**size.encoder))),
]


def translator(encoder):
    return TranslationConfig(encoder, 0, 0, encoder.layers, encoder.d_ff)


def answers(row):
    return (Answer("bleu", Cell(PAPER, "Table 1", row.system, "", "BLEU"), CORPUS_BLEU), Answer("ratio"))


def table_1(profile):
    """Table 1."""
    chosen = Profile(SIZE, TRAIN, RECIPE)
    return experiments(TableName(PAPER, "1", "table1"), profile, chosen, ROWS, answers) if profile == "sample" else []


TABLES = {"1": table_1}
'''
FILES = {
    "study/phrasemodels.toml": '[papers]\nlife = "study"\n',
    "study/study.py": STUDY,
    "study/printed.csv": "table,system,metric,value\nTable 1,Gated,BLEU,1.0\n",
    "study/settings.csv": "table,row,aspect,setting,value,by,source\n"
    + "".join(
        f"table1,*,{aspect},,none,paper,section 1\n" for aspect in ("data", "size", "model", "training", "tuning")
    ),
    "study/table.json": '{"scale": 1.0}',
    "study/weights/bias.txt": "0.0",
    "study/weights/other.txt": "same",
    "study/hyper.json": '{"learning_rate": 0.001}',
    "site/mylab/__init__.py": "",
    "site/mylab/act.py": "import torch\n\n\ndef act(x):\n    return torch.tanh(x)\n",
}
# each change is asked in a fork of one process, which has imported all but the study
ASKED = (
    COMMANDS
    + """
import json, os, shutil
from pathlib import Path

import phrasemodels.infra.environment, torch, sacrebleu, numba, phrasemodels.tasks.problems.translation, phrasemodels.models.translation
import phrasemodels.encoders.baselines, phrasemodels.structs.kernels.simd, duckdb, mlflow
from phrasemodels.data.store import fingerprint, store as stores
from phrasemodels.flows.results import records

records.KEPT = Path("none")  # results of the papers, which take seconds to judge

study, lab, corpora = Path("study"), Path("site/mylab"), Path("study/corpora")
ROW = "life/table1/sample/gated-3"

def ask(row=ROW, keep=False, forget=False):
    os.chdir("study")
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.report.page import write_report
    from phrasemodels.flows.run.execute import Execution
    from phrasemodels.flows.run.plan import planned
    from phrasemodels.infra.settings import Settings
    said = {"verdict": verdict()}
    steps = json.loads(run("plan", "--paper", "life", "--seeds", "1", "--json"))
    stages = {"train": "model", "translate": "predictions", "score_with_own": "scores"}
    missed = [(s["label"].split()[1].rpartition("/")[2], stages[s["step"]]) for s in steps if s["step"] in stages and not s["hit"]]
    said["plan"] = [stage for name, stage in missed if name == row.rpartition("/")[2]]
    said["others"] = sorted({name for name, _ in missed} - {row.rpartition("/")[2]})
    Path("in.txt").write_text("walk left\\n")
    said["predict"] = run("predict", row, "in.txt")
    trained = run("train", row, "--local")
    if not trained.startswith("{"):
        return said | {"train": trained}
    said["train"] = Path(json.loads(trained)["weights"]).name
    plan, store = planned(Request("life", "1", "sample", 1), Settings())
    execution = Execution.of(plan, store, Settings())
    for step in plan.steps:
        store.run(step, stores.Executor(sources=execution.sources))
    said["report"] = Path(write_report(execution.finished())).exists()
    said["again"] = verdict()
    said["export"] = run("export", row, "../out", "--force")
    if keep:
        import phrasemodels.flows.results.keep
        phrasemodels.flows.results.keep.commit = lambda: "0" * 40  # the checkout may have changes
        run("keep", "first", "--paper", "life", "--profile", "sample", "--seeds", "1")
    if forget:
        said["forgotten"] = run("store", "forget", row)
        said["gone"] = [s["hit"] for s in json.loads(run("plan", "--paper", "life", "--seeds", "1", "--json")) if row in s["label"]]
    os.environ["PHRASEMODELS_STORE"] = "../empty"
    said["kept"] = verdict()
    return said

def verdict():
    (line,) = json.loads(run("verdicts", "--paper", "life", "--json"))
    return [line["verdict"], line["reason"]]

def fork(change=lambda: None, **options):
    back, there = os.pipe()
    if (child := os.fork()) == 0:
        try:
            options = options | (change() or {})
            text = json.dumps(ask(**options))
        except BaseException as error:
            import traceback
            text = json.dumps(traceback.format_exc())
        with os.fdopen(there, "w") as file:
            file.write(text)
        os._exit(0)
    os.close(there)
    with os.fdopen(back) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text)

def edited(path, old, new):
    text = path.read_text()
    assert old in text, (path, old)
    path.write_text(text.replace(old, new))

def renamed():
    edited(study / "study.py", '"gated-3"', '"gated"')
    return {"row": "life/table1/sample/gated"}

def corpus():
    import hashlib
    file = corpora / "commands/commands.txt"
    file.write_text(file.read_text().replace("walk", "stroll"))
    manifest = corpora / "commands.toml"
    text = manifest.read_text()
    import re
    text = re.sub('sha256 = "[0-9a-f]+"', f'sha256 = "{hashlib.sha256(file.read_bytes()).hexdigest()}"', text)
    manifest.write_text(re.sub(r"bytes = \\d+", f"bytes = {file.stat().st_size}", text))

def library():
    real = fingerprint._version
    fingerprint._version = lambda name, *by: {"sacrebleu": "another"} if name == "sacrebleu" else real(name, *by)
    # a library is another one for another process, which has another list of folders
    shutil.copytree("site/mylab", "site/another-1.dist-info")

CHANGES = {
    "nothing": lambda: None,
    "code here": lambda: edited(study / "study.py", "return x + act", "return x - act"),
    "code elsewhere": lambda: edited(lab / "act.py", "torch.tanh(x)", "torch.sin(x)"),
    "a file": lambda: edited(study / "table.json", "1.0", "2.0"),
    "a folder": lambda: edited(study / "weights/bias.txt", "0.0", "0.5"),
    "an environment": lambda: os.environ.update(WIDTH="16"),
    "a hyperparameter": lambda: edited(study / "hyper.json", "0.001", "0.1"),
    "a row's name": renamed,
    "the corpus": corpus,
    "a library": library,
    "the metric": lambda: edited(study / "study.py", "return 100 *", "return 50 * 2 *"),
    "one more row": lambda: edited(
        study / "study.py", "ROWS = [",
        "ROWS = [Row('more', 'More', '', lambda size: translator(GatedConfig(**size.encoder, gain=2.0))),"),
    "an undeclared file": lambda: edited(
        study / "study.py", "self.bias = ", "self.more = open('hyper.json').read()\\n        self.bias = "),
}
os.environ["PYTHONPATH"] = os.pathsep.join((str(Path("site").absolute()), os.environ["PYTHONPATH"]))
sys.path.insert(0, str(Path("site").absolute()))
found = {"base": fork(keep=True)}
shutil.move("study", "study-kept"), shutil.move("site", "site-kept")
for name, change in CHANGES.items():
    for folder in ("study", "site"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(f"{folder}-kept", folder)
    found[name] = fork(change, forget=name in ("nothing", "a row's name"))
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each command says after each change."""
    folder = tmp_path_factory.mktemp("life")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    lines = [f"{words} {number}\t{words.upper()}" for words in ("walk left", "turn right") for number in range(30)]
    (folder / "commands.txt").write_text("\n".join(lines))
    add(folder / "commands.txt", Added("commands", languages=("en", "zxx")), folder / "study/corpora")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours |= {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ASKED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=ours, timeout=1800)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ALL = ["model", "predictions", "scores"]
OLDER, EARLIER = "made with older code or data", "run with earlier settings"
# each change is asked in a process of its own
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


MATRIX = {  # change: steps made again, what a prediction says before that, and what a verdict says of the old number
    "nothing": ([], "", set()),
    "code here": (ALL, "", {OLDER}),
    "code elsewhere": (ALL, "", {OLDER}),
    "a file": (ALL, "is not trained here", {EARLIER}),
    "a folder": (ALL, "is not trained here", {EARLIER}),
    "an environment": (ALL, "is not trained here", {OLDER, EARLIER}),
    "a hyperparameter": (ALL, "is not trained here", {OLDER, EARLIER}),
    "a row's name": ([], "", set()),
    "the corpus": (ALL, "is not trained here", {OLDER}),
    "a library": (ALL, "", set()),  # that a module of this package runs when the study imports it
    "the metric": (["scores"], "", {OLDER}),
    "one more row": ([], "", set()),
}


@pytest.mark.parametrize("change", MATRIX)
def test_what_changed_is_made_again_and_old_numbers_are_marked(found: dict[str, Any], change: str) -> None:
    again, refused, older = MATRIX[change]
    said, before = found[change], found["base"]
    assert isinstance(said, dict), said
    assert said["plan"] == again
    assert refused in said["predict"] and bool(refused) == said["predict"].startswith("phrasemodels: ")
    assert (said["train"] == before["train"]) == ("model" not in again)
    assert said["report"] and "phrasemodels: " not in said["export"]
    assert before["again"][0] == said["again"][0]
    for marked in (OLDER, EARLIER):
        assert marked not in said["again"][1]
        assert (marked in older) == (marked in said["verdict"][1]) == (marked in said["kept"][1])


def test_one_more_row_makes_nothing_of_the_others_again(found: dict[str, Any]) -> None:
    assert found["nothing"]["others"] == [] and found["one more row"]["others"] == ["more"]


@pytest.mark.parametrize("change", ["nothing", "a row's name"])
def test_a_row_is_forgotten_with_all_that_was_made_for_it(found: dict[str, Any], change: str) -> None:
    assert "train life/table1/sample/gated-3 seed 0" in found[change]["forgotten"]
    assert found[change]["gone"] == [False, False, False]


def test_a_file_that_no_key_knows_is_an_error_that_names_the_field_type(found: dict[str, Any]) -> None:
    assert "hyper.json, but no key knows its content" in found["an undeclared file"]["train"]
    assert "StudyFile('hyper.json')" in found["an undeclared file"]["train"]


PAGE = (PROJECT / "docs/tutorials/own-study.md").read_text(encoding="utf-8")
SMALL = "".join(f" --set {one}" for one in ("train.steps=4", "train.evaluate_every=2", *small_corpus(60, 10, 10)))


@pytest.mark.timeout(3600)
def test_each_command_of_the_page_runs_in_its_order(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith(("pip ", "prefect "))]
    assert len(lines) > 12 and sum("reproduce" in line for line in lines) == 4
    lines = [line + SMALL * ("--like" in line) for line in lines]
    # after `init`: a corpus to add, and few updates
    few = """sed -i.bak 's/corpus="commands",/corpus="commands", train={"steps": 4, "evaluate_every": 2},/' study.py"""
    lines[1:1] = ['for i in $(seq 90); do printf \'%s\\t%s\\n\' "a $i" "$i a"; done > reversed.txt', few]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    ours |= {"PATH": path, "PYTHONPATH": str(PROJECT)}
    command = ["bash", "-euxc", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ours, timeout=3500)
    assert done.returncode == 0, done.stderr[-3000:]
