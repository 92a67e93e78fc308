"""Fixtures: a store, the command line in its own process, and the tests that need the mirror of corpora and models."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import small_mirror

import phrasemodels.infra.environment  # noqa: F401  before anything that could phone home
from phrasemodels.data.store.store import Store

os.environ.setdefault("OMP_NUM_THREADS", "1")
for wait in ("RAY_raylet_start_wait_time_s", "RAY_gcs_server_port_wait_time_s"):
    os.environ.setdefault(wait, "120")  # beside other tests Ray may take longer than 30 s to start
# no test depends on how fast the machine is
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")
PROJECT = Path(__file__).parent.parent
CLI = (sys.executable, "-m", "phrasemodels")  # the command line in a process of its own
ISOLATED = (
    shutil.which("unshare") and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
)
# real corpora and Stanza models: in folders that these settings name, or in ../shared beside the project
CORPORA = Path(os.environ.get("PHRASEMODELS_MIRROR", PROJECT.parent / "shared" / "corpora"))
PARSERS = Path(os.environ.get("PHRASEMODELS_PARSERS", PROJECT.parent / "shared" / "models"))


# files that take longest, longest first: begun first, so that no worker is alone with one of them at the end
LONGEST = ("reproduce", "deployment", "answers", "actors", "fire", "gradients", "train", "infra", "embedded_ray", "cli",
           "compiled_answering", "tracking", "distributions", "predict", "cuda_parts", "counts", "truth", "compilation",
           "hostile", "startup", "remote", "hypernode", "forms", "ngram", "packages", "project", "own_layer", "tune")  # fmt: skip


# begins a script of commands of the same process: run(*arguments) returns what one prints, or the line that a mistake ends it with
COMMANDS = """
import contextlib, io, sys
from phrasemodels.flows.cli.main import main

def run(*arguments):
    sys.argv = ["phrasemodels", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            if isinstance(end.code, str):
                return end.code
    return out.getvalue()
"""


def copy_project(to: Path, *others: str) -> None:
    """Copy the project's code, and other folders; links stay links.

    Bytecode and compiled kernels are copied, too: they are valid for files with the same times. Files that another process is
    writing are left out, as they may be gone by then, and so is the bytecode of tests, which names their folder.
    """
    for folder in ("phrasemodels", *others):
        ignored = shutil.ignore_patterns("*.pyc.*", "*.tmp.*", "*-pytest-*.pyc")
        shutil.copytree(PROJECT / folder, to / folder, symlinks=True, ignore=ignored)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and skip tests marked `needs_mirror`, which need CORPORA, or
    `needs_mirror("parsers")`, if the folder is missing."""
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    folders = {"corpora": CORPORA, "parsers": PARSERS / "stanza"}
    for item in items:
        for marker in item.iter_markers("needs_mirror"):
            if missing := [str(folders[name]) for name in marker.args or ["corpora"] if not folders[name].is_dir()]:
                names = "PHRASEMODELS_MIRROR and PHRASEMODELS_PARSERS"
                item.add_marker(pytest.mark.skip(f"needs the mirror: no {missing[0]}; {names} name other folders"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").open()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that the tests of a file share."""
    return Store(tmp_path_factory.mktemp("store")).open()


@pytest.fixture(scope="module")
def whole(shared: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small training that nothing interrupted."""
    from small_training import training

    from phrasemodels.tasks.train.trainer import run_training

    folder = tmp_path_factory.mktemp("undisturbed")
    run_training(training(shared, folder))
    return folder


@pytest.fixture(scope="module")
def undisturbed(whole: Path) -> dict[str, Any]:
    """The weights of a small training that nothing interrupts."""
    from small_training import weights

    return weights(whole)


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `phrasemodels ...` in its own process, with its own store and without the caller's settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}

    def run(*arguments: str, timeout: float = 300, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = inherited | {"PHRASEMODELS_STORE": str(tmp_path / "store")} | variables
        command = [*CLI, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, cwd=tmp_path)

    return run


@pytest.fixture
def in_own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `run_cli` run where `cli` runs: with the test's own store and folder, without the caller's settings."""
    for name in [name for name in os.environ if name.startswith("PHRASEMODELS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PHRASEMODELS_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["small", pytest.param("real", marks=pytest.mark.needs_mirror)])
def mirror(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of corpora: one made here, with manifests to match, and the real one."""
    return CORPORA if request.param == "real" else small_mirror.make(tmp_path, monkeypatch)
