"""The grid: every operation beside enumeration, with low precision, mixed types, empty, padded and forbidden inputs."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "grid.py"


@pytest.mark.slow
@pytest.mark.parametrize("section", ["values", "derivatives"])
def test_every_operation_equals_enumeration_on_the_whole_grid(section: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", PROGRAM, section], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{section}: " in done.stdout
