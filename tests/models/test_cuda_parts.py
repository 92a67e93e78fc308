"""Every configuration, structure and search on the fake CUDA device: no mixed device, and no more waits or kernels than kept."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "cuda_parts.py"
AGAIN = "python tests/cuda_parts.py PART shows where, --keep accepts the figures"


def figures(lines: list[str]) -> dict[str, tuple[int, int]]:
    rows = csv.DictReader(lines, delimiter="\t")
    return {row["part"]: (int(row["waits"]), int(row["kernels"])) for row in rows}


def test_no_part_waits_more_launches_more_or_mixes_devices() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", PROGRAM], capture_output=True, text=True)
    if done.returncode == 2:
        pytest.skip("no C++ compiler, which the fake CUDA device needs: install g++, or name one by CXX")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = figures(done.stdout.splitlines())
    kept = figures(PROGRAM.with_suffix(".tsv").read_text(encoding="utf-8").splitlines())
    assert found.keys() == kept.keys(), AGAIN
    grown = {part: (kept[part], now) for part, now in found.items() if now[0] > kept[part][0] or now[1] > kept[part][1]}
    assert not grown, AGAIN
