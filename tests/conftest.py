"""Fixtures: a store of one's own, the command line as users run it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import phrasemodels.infra.environment  # noqa: F401  before anything that could phone home
from phrasemodels.data.store.store import Store

os.environ.setdefault("OMP_NUM_THREADS", "1")
PROJECT = Path(__file__).parent.parent
ISOLATED = (
    shutil.which("unshare") and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
)


FOLDERS = ("phrasemodels", "data", "tasks", "flows", "infra")


def copy_project(to: Path, *others: str) -> None:
    """Copy the project's code, and other folders, with the links of phrasemodels/ as links."""
    for folder in (*FOLDERS, *others):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / folder, to / folder, symlinks=True, ignore=ignored)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").open()


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `phrasemodels ...` in a process of its own, with a store of its own and no settings of the caller's."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}

    def run(*arguments: str, timeout: float = 300, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = ours | {"PHRASEMODELS_STORE": str(tmp_path / "store")} | variables
        command = [sys.executable, "-m", "phrasemodels.flows.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, cwd=tmp_path)

    return run
