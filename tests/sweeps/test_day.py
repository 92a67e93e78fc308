"""A simulated day (tests/sweeps/day.py) on a file system of its own; PM_QUARTERS=N shortens it to N quarters of an hour."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ISOLATED, PROJECT


@pytest.mark.slow
@pytest.mark.timeout(12 * 3600)
@pytest.mark.skipif(not ISOLATED, reason="needs a mount namespace")
def test_in_a_day_of_faults_nothing_is_lost_or_twice_and_disk_and_memory_are_bounded(tmp_path: Path) -> None:
    inside = f'mount -t tmpfs -o size=1g none "{tmp_path}" && exec "$@"'
    command = [
        sys.executable,
        str(PROJECT / "tests" / "sweeps" / "day.py"),
        str(tmp_path),
        os.environ.get("PM_QUARTERS", "96"),
    ]
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside, "sh", *command], env=environment, stdout=subprocess.PIPE, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
