"""What a command may import: a library that takes seconds to load is loaded by the commands that need it alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import PROJECT
from running import small_corpus

COMMANDS = (
    ("experiments",),
    ("plan",),
    ("sql", "select 1"),
    ("sql", "select " + ", ".join(f"(select count(*) from {view})" for view in ("verdicts", "compared", "seeds", "published"))),
    ("verdicts", "--paper", "001"),
)
UNTRAINED = (("predict", "000/table1/sample/phrase-k2", os.devnull),)
RUN = """
import contextlib, io, json, sys
from phrasemodels.flows.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["phrasemodels", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()
print(json.dumps(sorted(sys.modules)))
"""


def imported(commands: tuple[tuple[str, ...], ...], store: Path, whole: bool = False) -> set[str]:
    """Return the libraries that a process has imported after it ran some commands one after another. whole: all modules."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    done = subprocess.run([sys.executable, "-c", RUN, json.dumps(commands)], capture_output=True, text=True, cwd=PROJECT,
                          env=ours | {"PHRASEMODELS_STORE": str(store)}, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return set(found) if whole else {name.split(".")[0] for name in found}


def test_commands_that_list_what_is_known_import_neither_torch_nor_a_service(tmp_path: Path) -> None:
    imported(COMMANDS, tmp_path)  # in a new store the answers are made once
    assert not imported(COMMANDS, tmp_path) & {"torch", "mlflow", "ray", "prefect", "numba", "matplotlib"}


def test_a_model_is_looked_up_without_a_service(tmp_path: Path) -> None:
    assert not imported(UNTRAINED, tmp_path) & {"mlflow", "ray", "prefect", "matplotlib"}


ABSENT = (
    *(f"flows.experiments.{name}" for name in ("paper_001", "paper_002", "paper_003", "paper_004", "across")),
    *(f"tasks.parsers.{name}" for name in ("stanza", "stanford", "shipped")),
    *(f"tasks.problems.{name}" for name in ("answering", "decomposition", "parsing", "semantic_parsing")),
)


def test_a_training_imports_the_paper_that_is_named_alone(tmp_path: Path) -> None:
    small = [f"--set={change}" for change in (*small_corpus(20, 4, 4), "train.steps=2", "train.evaluate_every=2")]
    commands = (("train", "--help"), ("train", "000/table1/sample/phrase-k2", "--local", *small))
    found = imported(commands, tmp_path, whole=True)
    assert "phrasemodels.flows.experiments.paper_000" in found and "phrasemodels.tasks.train.trainer" in found
    assert {name for name in found if name.startswith(tuple(f"phrasemodels.{name}" for name in ABSENT))} == set()
