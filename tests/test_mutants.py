"""Mutants of the code: small changes, of which the tests of a module must notice most.

PM_MUTANTS=N takes N mutants of each module, at random but always the same (0: all); 10 by default. The survivors are printed.
"""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from conftest import copy_project

COUNT = int(os.environ.get("PM_MUTANTS", "10"))
LEAST = 0.6  # of the mutants must be noticed
# modules, and the tests that must notice
MODULES = {
    "data/store/store.py": "test_store.py test_fire.py",
    "data/store/gc.py": "test_gc.py test_remote.py",
    "data/store/leases.py": "test_gc.py test_store.py",
    "data/store/artifacts.py": "test_store.py test_gc.py test_outside.py",
    "data/store/fingerprint.py": "test_store.py test_truth.py",
    "tasks/metrics/bleu.py": "test_scores.py",
    "tasks/metrics/compare.py": "test_scores.py test_significance.py test_answers.py",
    "phrasemodels/verdicts/significance.py": "test_significance.py",
    "tasks/train/checkpoints.py": "test_train.py test_weights.py test_outside.py",
    "phrasemodels/structs/chain.py": "test_structs_enumeration.py test_structs_gradients.py",
    "phrasemodels/structs/eisner.py": "test_structs_enumeration.py test_structs_gradients.py",
}


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(shutil.which("cosmic-ray") is None, reason="needs cosmic-ray, which the extra `dev` installs")
@pytest.mark.parametrize("module", MODULES)
def test_most_mutants_of_a_module_are_noticed_by_its_tests(module: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_project(project, "tests", "results")
    for file in ("pyproject.toml", "prefect.yaml", "README.md"):
        shutil.copy(Path(__file__).parent.parent / file, project)
    tests = " ".join(f"tests/{name}" for name in MODULES[module].split())
    command = json.dumps(f"{sys.executable} -m pytest -x -q -p no:warnings {tests}")
    (project / "mutants.toml").write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = 600.0\nexcluded-modules = []\ntest-command = {command}\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    environment = os.environ | {"PYTHONPATH": str(project)}

    def cosmic_ray(*arguments: str) -> None:
        subprocess.run(["cosmic-ray", *arguments], cwd=project, env=environment, check=True, capture_output=True)

    cosmic_ray("baseline", "mutants.toml")  # the tests pass as they are
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
    cosmic_ray("exec", "mutants.toml", "session.sqlite")
    with closing(sqlite3.connect(project / "session.sqlite")) as session:
        found = session.execute("select test_outcome, diff from work_results").fetchall()
    survivors = [diff for outcome, diff in found if "SURVIVED" in str(outcome).upper()]
    print(f"\n{module}: {len(found) - len(survivors)} of {len(found)} mutants noticed, of {len(known)} in all")
    print("\n".join(survivors))
    assert len(found) == (min(COUNT, len(known)) if COUNT else len(known)) > 0
    assert len(survivors) <= (1 - LEAST) * len(found), "too many mutants survived"
