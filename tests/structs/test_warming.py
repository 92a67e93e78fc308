"""warm() compiles the kernel of every function, so that no first call has to."""

import importlib
import pkgutil

import torch
from numba.core.registry import CPUDispatcher

from phrasemodels import structs
from phrasemodels.structs import dispatch, eisner, kernels


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


def test_caches_are_looked_for_beside_all_compiled_functions():
    found = {file.parent for file in dispatch.PACKAGE.rglob("*.py") if dispatch._KERNEL.search(file.read_text())}
    assert found == {dispatch.PACKAGE / name for name in dispatch.COMPILED}
