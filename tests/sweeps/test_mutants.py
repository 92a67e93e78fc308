"""Mutants of the code: small changes, of which the tests of a module must notice most.

PM_MUTANTS=N takes N mutants of each module, at random but always the same (0: all); 10 by default. The survivors are printed.
The libraries are imported once: a process that has them forks a child for the tests of each mutant.
"""

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from conftest import copy_project

COUNT = int(os.environ.get("PM_MUTANTS", "10"))
LEAST = 0.6  # of the mutants must be noticed
STRUCTS = (
    "structs/test_enumeration.py structs/test_decoding.py structs/test_gradients.py structs/test_topk.py "
    "structs/test_distributions.py"
)
# modules, and the tests that must notice: files or single tests, and what `pytest -k` keeps of them
MODULES = {
    "phrasemodels/data/store/store.py": "data/test_store.py data/test_gc.py data/test_remote.py",
    "phrasemodels/data/store/gc.py": "data/test_gc.py data/test_remote.py data/test_store.py",
    "phrasemodels/data/store/artifacts.py": "data/test_store.py data/test_gc.py",
    "phrasemodels/data/store/fingerprint.py": "data/test_store.py data/test_truth.py",
    "phrasemodels/tasks/metrics/scores.py": "tasks/test_scores.py "
    "verdicts/test_significance.py::test_metrics_of_summed_statistics_are_the_corpus_metrics",
    "phrasemodels/tasks/metrics/compare.py": "tasks/test_scores.py "
    "flows/test_silence.py::test_one_seed_has_no_p_and_two_have_a_warning_beside_it "
    "flows/test_answers.py::test_each_row_is_tested_against_the_first "
    "flows/test_answers.py::test_every_printed_number_has_a_verdict_and_a_reason",
    "phrasemodels/verdicts/judgement.py": "tasks/test_scores.py "
    "verdicts/test_judge.py::test_a_number_is_judged_by_its_margin_and_the_interval",
    "phrasemodels/verdicts/significance.py": "verdicts/test_significance.py",
    "phrasemodels/tasks/train/checkpoints.py": "layers/test_weights.py "
    "tasks/test_train.py -k not (killed or workers or equal_seeds or pieces)",
    # the trust boundary
    "phrasemodels/data/download/archives.py": "data/test_outside.py data/test_data.py "
    "data/test_corpora_supplied.py data/test_fetch.py -k archive or zip or tar or entry or bytes or unpacked or bomb",
    "phrasemodels/data/download/fetch.py": "data/test_fetch.py data/test_corpora_supplied.py data/test_outside.py "
    "-k test_fetch or supplied or gz or xz",
    "phrasemodels/saved.py": "models/test_saved.py",
    "phrasemodels/parsing/saved.py": "models/test_saved.py parsing/test_splitter.py data/test_outside.py "
    "-k packed or saved or splitter",
    "phrasemodels/flows/results/sql.py": "flows/test_query.py flows/test_project.py data/test_hostile.py "
    "flows/test_study_mistakes.py -k (test_query or refused or sql or question or frame) and not stays",
    "phrasemodels/flows/run/page_server.py": "flows/test_served.py tasks/test_parsing.py "
    "-k test_served or client or page or server or refused or port or turn",
    "phrasemodels/folders.py": "flows/test_written.py -k a_folder or no_file",
    "phrasemodels/structs/chain.py": f"{STRUCTS} -k chain or tags or argmax or without or k_best or refused",
    "phrasemodels/structs/eisner.py": f"{STRUCTS} -k root or argmax or without or k_best or refused or counts",
}

FORKS = """
import os, resource, signal, socket, sys, time
import hypothesis, numba, numpy, pyarrow, pytest, scipy.stats, torch

def tested(child):
    # return the exit status of a child, which is killed after an hour if it waits for ever
    until = time.monotonic() + 3600
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])

sys.dont_write_bytecode = True
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a mutant of a signal 0 may send
with socket.socket(socket.AF_UNIX) as server:
    server.bind("ask")
    server.listen()
    print("ready", flush=True)
    while True:
        asking, _ = server.accept()
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (600, 600))  # not by the clock: a busy machine notices no mutant
            os.dup2(os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os._exit(int(pytest.main(["-o", "timeout=0", *sys.argv[1:]])))
        asking.sendall(str(tested(child)).encode())
        asking.close()
"""
ASKS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect("ask")
    sys.exit(int(server.recv(8) != b"0"))
"""


@contextlib.contextmanager
def forking(project: Path, environment: dict[str, str], tests: list[str]) -> Iterator[None]:
    """Run a process that runs these tests in a child whenever `ask.py` asks for it."""
    (project / "ask.py").write_text(ASKS)
    command = [sys.executable, "-c", FORKS, "-x", "-q", "-p", "no:warnings", *tests]
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield
            assert process.poll() is None, "a mutant killed the process that forks, so that all after it seem noticed"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(shutil.which("cosmic-ray") is None, reason="needs cosmic-ray, which the extra `dev` installs")
@pytest.mark.parametrize("module", MODULES)
def test_most_mutants_of_a_module_are_noticed_by_its_tests(module: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_project(project, "tests", "results", "benchmarks")
    for file in ("pyproject.toml", "prefect.yaml", "README.md"):
        shutil.copy(Path(__file__).parents[2] / file, project)
    command = json.dumps(f"{sys.executable} -S ask.py")
    (project / "mutants.toml").write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = 4000.0\nexcluded-modules = []\ntest-command = {command}\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    environment = os.environ | {"PYTHONPATH": str(project)}

    def cosmic_ray(*arguments: str) -> None:
        subprocess.run(["cosmic-ray", *arguments], cwd=project, env=environment, check=True, capture_output=True)

    cosmic_ray("init", "mutants.toml", "session.sqlite")
    with closing(sqlite3.connect(project / "session.sqlite")) as session:
        known = sorted(
            session.execute(
                "select start_pos_row, start_pos_col, operator_name, occurrence, job_id from mutation_specs"
            )
        )
        left_out = random.Random(module).sample(known, max(0, len(known) - COUNT)) if COUNT else []
        for table in ("mutation_specs", "work_items"):
            session.executemany(f"delete from {table} where job_id = ?", [(row[-1],) for row in left_out])
        session.commit()
    names, *chosen = MODULES[module].split(" -k ")
    with forking(project, environment, [*(f"-k {words}" for words in chosen), *(f"tests/{n}" for n in names.split())]):
        done = subprocess.run([sys.executable, "-S", "ask.py"], cwd=project)
        assert done.returncode == 0, f"the tests fail without a mutant:\n{(project / 'tests.log').read_text()[-3000:]}"
        cosmic_ray("exec", "mutants.toml", "session.sqlite")
    with closing(sqlite3.connect(project / "session.sqlite")) as session:
        found = session.execute("select test_outcome, diff from work_results").fetchall()
    survivors = [diff for outcome, diff in found if "SURVIVED" in str(outcome).upper()]
    print(f"\n{module}: {len(found) - len(survivors)} of {len(found)} mutants noticed, of {len(known)} in all")
    print("\n".join(survivors))
    assert len(found) == (min(COUNT, len(known)) if COUNT else len(known)) > 0
    assert len(survivors) <= (1 - LEAST) * len(found), "too many mutants survived"
