"""warm() compiles the kernel of every function, so that no first call has to."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest
import torch
from numba.core.registry import CPUDispatcher

from phrasemodels import structs
from phrasemodels.structs import eisner, kernels


def test_after_warm_every_kernel_over_a_batch_is_compiled():
    seen: list[str] = []
    assert structs.warm(lambda name, seconds: seen.append(name)) > 0
    assert {"chain.argmax, float32", "nonprojective.sample, float64"} <= set(seen)
    found = 0
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        if module.name.endswith("gpu_programs"):  # Triton's
            continue
        for name, x in vars(importlib.import_module(module.name)).items():
            if isinstance(x, CPUDispatcher) and x.py_func.__code__.co_varnames[:2] == ("first", "step"):
                found += 1
                assert x.overloads, f"{module.name}.{name} is not compiled"
    assert found >= 15


def test_a_first_call_after_warm_compiles_nothing(caplog):
    structs.warm()
    caplog.clear()
    eisner.multi_root.marginals(torch.randn(2, 4, 4))
    assert not caplog.records


FIRST = """
import logging, time, torch
logging.basicConfig(format="%(message)s")
from phrasemodels.structs import nonprojective
from phrasemodels.structs.calls import _compilations
arcs = torch.randn(4, 8, 8)
start = time.process_time()
first = nonprojective.multi_root.log_partition(arcs)
print(time.process_time() - start)
compilation = _compilations["nonprojective"]
compilation.process.wait()
while compilation.runs():
    time.sleep(0.1)
torch.testing.assert_close(nonprojective.multi_root.log_partition(arcs), first)
arcs.requires_grad_()
print(nonprojective.multi_root.log_partition(arcs).grad_fn.name())
"""


@pytest.mark.slow
def test_plain_torch_serves_while_kernels_are_compiled(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "STRUCTS_KERNELS": ""}
    done = subprocess.run([sys.executable, "-c", FIRST], env=environment, capture_output=True, text=True, check=True)
    seconds, name = done.stdout.split()
    assert float(seconds) < 5 and name == "LogPartitionBackward"
    assert done.stderr.splitlines() == [
        "compiling the kernels of nonprojective, once for this installation; plain torch serves meanwhile"
    ]
