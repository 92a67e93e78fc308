"""The embedded Ray: its folder is private, short and removed after a kill; who lacks the token of the run is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PROJECT

from phrasemodels.infra import services
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short path, in which alone Ray's folders are made."""
    folder = Path(tempfile.mkdtemp(prefix="pm-t-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(services, "PLACES", ())
    yield folder
    shutil.rmtree(folder)


def test_the_folder_of_a_training_is_private_and_goes_with_it(short: Path) -> None:
    with services.scratch_folder() as one, services.scratch_folder() as other:
        assert one != other and {one.parent.stat().st_mode & 0o777} == {0o700}
    assert not list(short.iterdir())


@pytest.mark.parametrize("length", [29, 90])
def test_a_long_folder_for_temporary_files_is_passed_over(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "x" * length)
    assert [str(place) for place in services.places()] == ["/tmp", "/var/tmp", "/dev/shm"]
    monkeypatch.setattr(services, "PLACES", ("/nowhere",))
    with pytest.raises(OSError, match=r"^none of /nowhere can be written to, .*: set TMPDIR to one$"):
        services.make_folder()


def test_folders_of_killed_runs_are_removed_and_those_of_others_stay(short: Path, monkeypatch) -> None:
    monkeypatch.setattr(services, "YOUNG", -1.0)
    code = f"""
import os, signal, tempfile
from phrasemodels.infra import services
tempfile.tempdir = {str(short)!r}
print(services.make_folder(), flush=True)
os.kill(os.getpid(), signal.{{}})
"""
    killed = subprocess.run([sys.executable, "-c", code.format("SIGKILL")], cwd=PROJECT, capture_output=True, text=True)
    stopped = subprocess.Popen(
        [sys.executable, "-c", code.format("SIGSTOP")], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    )
    alive = Path(stopped.stdout.readline().strip())  # type: ignore[union-attr]
    try:
        (short / "pm-ray-unlocked").mkdir()
        (short / "pm-ray-again" / "r").mkdir(parents=True)  # as Ray makes it, if a process of it ends late
        os.utime(short / "pm-ray-again", (0, 0))
        assert Path(killed.stdout.strip()).is_dir() and alive.is_dir()
        ours = services.make_folder()
        assert {path.name for path in short.iterdir()} == {alive.parent.name, ours.parent.name, "pm-ray-unlocked"}
        assert ours.parent.stat().st_mode & 0o777 == 0o700
        services.remove_folder(alive)
        services.remove_folder(ours)
        assert alive.is_dir() and not ours.parent.exists()
    finally:
        os.kill(stopped.pid, signal.SIGKILL)
        stopped.communicate()


ASK = """
import sys
from ray._raylet import GcsClient
print("let in", len(GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, timeout=60)) > 0)
"""


def test_with_a_long_tmpdir_ray_starts_in_a_private_folder_and_refuses_who_lacks_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert start_ray(Settings(store=str(tmp_path), cpus=1))
    try:
        folder = Path(ray._private.worker._global_node.get_temp_dir_path()).parent
        assert folder.stat().st_mode & 0o777 == 0o700
        token = str(ray._raylet.AuthenticationTokenLoader.instance().get_raw_token())
        address = ray.get_runtime_context().gcs_address
        without, with_it = (
            subprocess.run([sys.executable, "-c", ASK, address], env=os.environ | env, capture_output=True, text=True)
            for env in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token})
        )
        assert with_it.stdout == "let in True\n", with_it.stderr
        assert "InvalidAuthToken" in without.stderr and without.stdout == ""
    finally:
        stop_ray()
    assert not folder.exists()
    assert os.environ["RAY_AUTH_MODE"] != "token" and services.new_token()["RAY_AUTH_TOKEN"] != token


KEYS = """
import json, sys
import ray
from phrasemodels import project
from phrasemodels.data.store.fingerprint import closure
from phrasemodels.infra.services import start_ray, stop_ray
from phrasemodels.infra.settings import Settings

metric = project.part("metrics", "mine")
start_ray(Settings(store=sys.argv[1], cpus=1))
try:
    there = ray.get(ray.remote(closure).remote(metric))
finally:
    stop_ray()
print(json.dumps([there, closure(metric)]))
"""


@pytest.mark.slow
def test_a_worker_knows_what_the_import_of_users_code_reads(tmp_path: Path) -> None:
    (study := tmp_path / "study").mkdir()
    (study / "phrasemodels.toml").write_text('[metrics]\nmine = "own:mine"\n')
    (study / "own.py").write_text(
        "from pathlib import Path\nGAIN = Path(__file__).with_name('gain' + '.txt').read_text()\ndef mine():\n    return GAIN\n"
    )
    (study / "gain.txt").write_text("2")
    environment = os.environ | {"PYTHONPATH": f"{study}{os.pathsep}{PROJECT}"}
    done = subprocess.run([sys.executable, "-c", KEYS, str(tmp_path / "store")], cwd=study, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    there, here = json.loads(done.stdout.splitlines()[-1])
    assert there == here and any(name.endswith("gain.txt") for name in here[0])
