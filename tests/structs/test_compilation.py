"""numba's cache on disk: a compiled kernel is used until a kernel that it calls changes, also one in another file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import copy_project

VALUES = """
import torch
from phrasemodels.structs import chain
from phrasemodels.structs.kernels import reference_only

torch.manual_seed(0)
unary, pairwise = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 5, 3), (3, 3)))
print(float(chain.log_partition(unary, pairwise).sum()))
with reference_only():
    for factor in (1, 2):
        print(float(chain.log_partition(factor * unary, factor * pairwise).sum()))
"""
ONCE, TWICE = "exponential(load(w, at))", "exponential(load(w, at) + load(w, at))"


def test_a_kernel_is_recompiled_if_a_kernel_of_another_file_that_it_calls_changed(tmp_path: Path) -> None:
    copy = tmp_path / "project"
    copy_project(copy)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(copy)}

    def run() -> tuple[list[float], dict[Path, int]]:
        done = subprocess.run([sys.executable, "-c", VALUES], cwd=copy, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        cached = {path: path.stat().st_mtime_ns for path in copy.rglob("*.nb?")}
        return [round(float(line), 9) for line in done.stdout.splitlines()], cached

    (log_z, once, twice), first = run()
    assert log_z == once != twice
    assert run() == ([log_z, once, twice], first), "unchanged kernels are compiled again"
    edited = copy / "phrasemodels/structs/kernels/simd.py"
    edited.write_text(edited.read_text().replace(ONCE, TWICE))
    (log_z, *_), second = run()
    assert log_z == twice
    assert second.keys() == first.keys(), "the files of the cache are overwritten"


def test_without_a_place_for_a_cache_kernels_are_compiled_uncached_and_a_line_says_so(tmp_path: Path) -> None:
    copy = tmp_path / "project"
    copy_project(copy)
    for folder in ("structs", "structs/kernels", "layers", "tasks/prepare", "tasks/problems"):
        place = copy / "phrasemodels" / folder / "__pycache__"
        shutil.rmtree(place, ignore_errors=True)
        place.write_text("in the way, like the rights of another user")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"PYTHONPATH": str(copy), "HOME": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    code = """
import numpy as np
from phrasemodels.layers import multidim, ngrams
from phrasemodels.tasks.prepare import phrases
from phrasemodels.structs import dispatch
from phrasemodels.structs.kernels import simd
dispatch.announce(simd.exponential)
print(dispatch.CACHED)
"""
    taken, free = tmp_path / "taken", tmp_path / "free"
    for folder in (taken, free):
        folder.mkdir()
    (taken / f"phrasemodels-{os.getuid()}").symlink_to(free)  # as of another user
    expected = (
        (taken, "/dev/null", "False", "in every process: set NUMBA_CACHE_DIR"),
        (free, "/dev/null", "True", "once for this"),
        (taken, str(tmp_path), "True", "once for this"),
    )
    for temporary, home, cached, message in expected:
        variables = environment | {"NUMBA_CACHE_DIR": home, "TMPDIR": str(temporary)}
        done = subprocess.run([sys.executable, "-c", code], cwd=copy, env=variables, capture_output=True, text=True)
        assert done.stdout.strip() == cached, done.stderr
        assert message in done.stderr


@pytest.mark.parametrize("left", [0, 10])
def test_a_damaged_file_of_the_cache_is_replaced(tmp_path: Path, left: int) -> None:
    code = """
import numpy as np
from phrasemodels.structs.kernels import chain
assert chain._range(np.arange(9.0)) == 8
"""

    def run() -> dict[Path, int]:
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, check=True)
        return {path: path.stat().st_size for path in tmp_path.rglob("*.nb?")}

    sizes = run()
    for path in sizes:
        os.truncate(path, left)
    assert run() == sizes
