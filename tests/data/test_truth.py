"""The truth table of the store: after each change exactly those steps are made again that it reaches.

The pipeline is real (generation to scores). The project is a copy, so that its source may be edited.
"""

import ast
import json
import os
import subprocess
import sys

import pytest
from conftest import copy_project
from running import small_corpus

from phrasemodels.data.store.fingerprint import Module, closure
from phrasemodels.tasks.prepare import phrases, vocabulary

TABLE = """
import json, os, sys
from pathlib import Path
import phrasemodels.data.store.fingerprint
from phrasemodels.data.store import store as stores
from phrasemodels.flows.experiments.catalogue import Request, experiment
from phrasemodels.data.store.store import with_dependencies
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.run.plan import Plan

made, make = [], stores.Store._make
def _make(self, step, *rest):
    made.append(step.name)
    return make(self, step, *rest)
stores.Store._make = _make

project, store = Path(sys.argv[1]), stores.Store(Path(sys.argv[2])).open()
chosen = experiment("000/table1/sample/phrase-k2", json.loads(sys.argv[3]))

def run(now=chosen):
    phrasemodels.data.store.fingerprint.forget()
    made.clear()
    for step in with_dependencies([now.steps(0).scored]):
        store.run(step)
    return sorted(made)

def keyed(build):
    # what would be made again, known by the keys alone
    def keys():
        phrasemodels.data.store.fingerprint.forget()
        return {(step.name, step.key) for step in with_dependencies([build()])}
    before = keys()
    return lambda: sorted(name for name, _ in keys() - before)

def edited(file, old, new, run=run):
    text = (project / "phrasemodels" / file).read_text()
    assert text.count(old) >= 1, (file, old)
    (project / "phrasemodels" / file).write_text(text.replace(old, new, 1))
    try:
        return run()
    finally:
        (project / "phrasemodels" / file).write_text(text)

def file(step, name):
    return next(store.find(s) for s in with_dependencies([chosen.steps(0).scored]) if s.name == step).file(name)

def flipped(path):
    path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
    return run()

def deleted(path):
    path.unlink()
    return run()

def upgraded(library):
    versions = phrasemodels.data.store.fingerprint._version
    def another(name, *by):
        return {library: "another"} if name == library else versions(name, *by)
    another.cache_clear = versions.cache_clear
    phrasemodels.data.store.fingerprint._version = another
    try:
        return run()
    finally:
        phrasemodels.data.store.fingerprint._version = versions

def python(run):
    before, phrasemodels.data.store.fingerprint.PYTHON = phrasemodels.data.store.fingerprint.PYTHON, "3.99"
    try:
        return run()
    finally:
        phrasemodels.data.store.fingerprint.PYTHON = before

def planned():
    phrasemodels.data.store.fingerprint.forget()
    return {(step.label, step.key) for step in Plan(Request("000", "1", "sample", 1).resolve()).steps}

def changed_rows():
    labels = {label for label, _ in planned() - before}
    return sorted(label.split("/")[-1].split()[0] for label in labels if label.startswith("train "))

before = planned()
structured = keyed(lambda: experiment("003/tablenmt/sample/char-structured").steps(0).scored)
fetched = keyed(lambda: experiment("000/table1/laptop/phrase-k2").steps(0).scored)
QUOTES = chr(34) * 3 + "\\n"
everything = run()
table = {
    "nothing": run(),
    "a setting of the training": run(overridden(chosen, "train.learning_rate=0.002")),
    "the source of a step": edited("tasks/prepare/phrases.py", "before = table.num_rows", "before = int(table.num_rows)"),
    "a function that a step reaches": edited("encoders/hypernode.py", "int(graph.related.sum(2).max())",
                                             "int(graph.related.sum(2).max().item())"),
    "the same, for the rows of a table": edited("encoders/hypernode.py", "int(graph.related.sum(2).max())",
                                                "int(graph.related.sum(2).max().item())", changed_rows),
    "words and a page, for all steps of a table": edited("layers/attention.py", "Return x: the", "Said otherwise", lambda: edited(
        "flows/report/table.py", "EXAMPLES = 8", "EXAMPLES = 9", lambda: sorted(planned() - before))),
    "what a module that is reached registers by a call": edited("structs/kernels/simd.py", '"fsub"', '"fadd"',
                                                                structured),
    "what it registers by a decorator": edited("structs/kernels/simd.py", "init__(manager, kind, kind.vector)",
                                               "init__(manager, kind, lanes.vector)", structured),
    "a package of a step, when it is imported": edited("tasks/metrics/__init__.py", QUOTES, QUOTES + "import os\\nos.nice(0)\\n",
                                                       keyed(lambda: chosen.steps(0).scored)),
    "the variables of the environment": edited("infra/environment.py", '"MLFLOW_LOGGING_LEVEL": "W', '"MLFLOW_LOGGING_LEVEL": "X',
                                               keyed(lambda: chosen.steps(0).scored)),
    "the first of two bindings of a name": edited("tasks/train/trainer.py", "PROGRESS = ", "PROGRESS = 1\\nPROGRESS = ", lambda: edited(
        "tasks/train/trainer.py", "PROGRESS = 1", "PROGRESS = 2", keyed(lambda: chosen.steps(0).scored))),
    "Python's version": python(keyed(lambda: chosen.steps(0).scored)),
    "a comment": edited("tasks/train/trainer.py", "PROGRESS = ", "# said\\nPROGRESS = "),
    "a docstring": edited("tasks/prepare/phrases.py", "Write word ids and phrases of one shard.", "Said otherwise."),
    "source that no step reaches": edited("flows/report/table.py", "EXAMPLES = 8", "EXAMPLES = 9"),
    "how the store keeps what is made": edited("data/store/store.py", "- started, 3)", "- started, 4)"),
    "a library's version": upgraded("sacrebleu"),
    "a byte of a corpus, with its digest": edited("data/manifests/multi30k.toml", 'sha256 = "2', 'sha256 = "3', fetched),
    "a byte of the data, flipped": flipped(file("sample_split", "00000.arrow")),
    "a byte of the weights, flipped": flipped(file("train", "model.safetensors")),
    "the scores, deleted": deleted(file("score_translations", "scores.json")),
    "a manifest, cut off": (lambda m: (m.write_text(m.read_text()[:99]), run())[1])(file("vocabulary", "manifest.json")),
    "nothing again": run(),
}
print(json.dumps({"everything": everything, **table}))
"""
SETTINGS = ["train.steps=4", "train.evaluate_every=4", "train.checkpoint_every=4", "train.batch_tokens=600",
            *small_corpus(60, 10, 10)]  # fmt: skip
MODEL = ["score_translations", "train", "translate"]


EVERYTHING = sorted([*["sample_split", "phrases", "tokenise"] * 3, "vocabulary", *MODEL])
MADE = {
    "everything": sorted([*EVERYTHING, *["phrase_shard", "tokenise_shard"] * 3]),
    "nothing": [],
    "a setting of the training": MODEL,
    "the source of a step": sorted([*["phrase_shard", "phrases"] * 3, *MODEL]),
    "a function that a step reaches": MODEL,
    "the same, for the rows of a table": ["linear-k2", "linear-k3", "phrase-k2", "phrase-k3"],
    "words and a page, for all steps of a table": [],
    "what a module that is reached registers by a call": MODEL,
    "what it registers by a decorator": MODEL,
    "a package of a step, when it is imported": MODEL,
    "the variables of the environment": EVERYTHING,
    "the first of two bindings of a name": MODEL,
    "Python's version": EVERYTHING,
    "a comment": [],
    "a docstring": [],
    "source that no step reaches": [],
    "how the store keeps what is made": [],
    "a library's version": ["score_translations"],
    "a byte of a corpus, with its digest": sorted(["fetch_corpus", *["read_split", "tokenise", "phrases"] * 3, "vocabulary", *MODEL]),
    "a byte of the data, flipped": ["sample_split"],
    "a byte of the weights, flipped": ["train"],
    "the scores, deleted": ["score_translations"],
    "a manifest, cut off": ["vocabulary"],
    "nothing again": [],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("truth")
    copy_project(folder / "project")
    command = [sys.executable, "-c", TABLE, str(folder / "project"), str(folder / "store"), json.dumps(SETTINGS)]
    environment = os.environ | {"PYTHONPATH": str(folder / "project")}
    done = subprocess.run(command, cwd=folder / "project", env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("change", MADE)
def test_the_truth_table_of_the_store(change: str, table: dict[str, list[str]]) -> None:
    assert table[change] == MADE[change] and table.keys() == MADE.keys()


def test_relative_imports_and_star_imports_are_read_as_python_reads_them() -> None:
    text = "from . import a\nfrom .b import c as d\nfrom .. import e\nfrom ..f.g import h\nimport i.j, k.l as m\nfrom n import *"
    found = Module("p.q.r", ast.parse(text), "p.q")
    assert found.imports == {
        "a": {("p.q", "a")}, "d": {("p.q.b", "c")}, "e": {("p", "e")}, "h": {("p.f.g", "h")}, "i": {("i", "")},
        "m": {("k.l", "")}, "*": {("n", "*")}, "i.j": {("i.j", "")}, "k.l": {("k.l", "")},
    }  # fmt: skip


def test_no_step_that_prepares_data_counts_the_code_of_structures() -> None:
    steps = (vocabulary.vocabulary, vocabulary.learn_bpe, vocabulary.apply_bpe, phrases.phrases)
    for step in steps:
        assert not [name for name in closure(step)[0] if name.startswith("phrasemodels.structs")], step
