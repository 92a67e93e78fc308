"""A CUDA device that is none: tensors say cuda:0 and hold numbers of the CPU; code runs as on a GPU, and is watched.

Import it before torch. Counted are kernels (an operation that writes numbers is one; views and allocations are none), and waits:
what makes the CPU wait for the device, as `torch.cuda.set_sync_debug_mode` would report. Operations on tensors of both devices are
logged, where CUDA would refuse them. `tests/cuda_parts.py` runs the project on it.

Not seen: whether a CUDA kernel exists and what it computes, its time and its memory, streams and events, cuDNN (an LSTM counts as
one kernel), Triton, NCCL, CUDA graphs, inference mode.
"""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest import mock


def load_guard() -> None:
    """Compile and load what torch asks of CUDA, before torch: later it would not look."""
    if (compiler := os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")) is None:
        sys.exit(2)
    spec = importlib.util.find_spec("torch")
    torch = Path(spec.origin).parent
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/guard.so"
        given = (
            f"-I{torch}/include",
            Path(__file__).with_suffix(".cpp"),
            "-o",
            made,
            f"-L{torch}/lib",
            "-lc10",
            "-ltorch_cpu",
        )
        subprocess.run([compiler, "-shared", "-fPIC", "-std=c++20", *given], check=True)
        for name in ("libgomp*", "libc10.so", "libtorch_cpu.so"):
            for library in torch.glob(f"lib/{name}"):
                ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(made)


load_guard()

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

GPU = torch.device("cuda", 0)
ALLOCATIONS = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "lift_fresh",
    "_unsafe_view",
    "is_pinned",
}
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive", "bincount",
         "_linalg_check_errors"}  # fmt: skip
FROM_CPU = {
    "index": 1,
    "index_put": 1,
    "index_put_": 1,
    "_index_put_impl_": 1,
}  # indices may be on the CPU, and are copied
CPU_ARGUMENTS = {"_pack_padded_sequence", "copy_", "_to_copy"}


class FakeCudaTensor(torch.Tensor):
    """A tensor of cuda:0 with its numbers in `numbers`, on the CPU."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> "FakeCudaTensor":
        made = torch.Tensor._make_wrapper_subclass(
            cls, numbers.shape, numbers.stride(), numbers.storage_offset(), dtype=numbers.dtype, device=GPU
        )
        made.numbers = numbers
        return made

    def __repr__(self) -> str:
        return f"cuda:0 {self.numbers!r}"

    def __reduce_ex__(self, protocol):
        raise TypeError("a tensor of the fake device cannot be pickled")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return FakeCuda.current.run(func, args, kwargs or {})


def on_cpu(x):
    """Return arguments or results with the numbers of all tensors in them."""
    if isinstance(x, FakeCudaTensor):
        return x.numbers
    return type(x)(map(on_cpu, x)) if type(x) in (list, tuple) else x


def on_gpu(x):
    """Return results with all tensors on the fake device."""
    if isinstance(x, torch.Tensor):
        return x if isinstance(x, FakeCudaTensor) else FakeCudaTensor(x)
    return type(x)(map(on_gpu, x)) if type(x) in (list, tuple) else x


def tensors(x) -> Iterator[torch.Tensor]:
    """Yield all tensors of a list of arguments, or of lists in it."""
    for one in x:
        if isinstance(one, torch.Tensor):
            yield one
        elif type(one) in (list, tuple) and one and not isinstance(one[0], int):
            yield from tensors(one)


@cache
def schema_of(func):
    """Return (name, whether all results are views, places of the arguments that are returned written, by result)."""
    schema = func._schema
    written = {
        str(sorted(a.alias_info.before_set)): i
        for i, a in enumerate(schema.arguments)
        if a.alias_info and a.alias_info.is_write
    }
    views = bool(schema.returns) and all(r.alias_info and not r.alias_info.is_write for r in schema.returns)
    returned = [written.get(str(sorted(r.alias_info.before_set))) if r.alias_info else None for r in schema.returns]
    return schema.name.removeprefix("aten::"), views, returned, [a.name for a in schema.arguments]


class FakeCuda(TorchDispatchMode):
    """Runs every operation, and counts. waits, mixed: (operation, file:line of the project) → times."""

    current: "FakeCuda"

    def __init__(self) -> None:
        super().__init__()
        self.forget()
        self.reached: set[tuple[str, torch.dtype]] = set()

    def forget(self) -> None:
        """Begin to count."""
        self.kernels, self.waits, self.mixed = Counter[str](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def run(self, func, args, kwargs):
        name, views, returned, names = schema_of(func)
        given = [*tensors(args), *tensors(kwargs.values())] if kwargs else list(tensors(args))
        here = any(isinstance(x, FakeCudaTensor) for x in given)
        to = kwargs.get("device")
        there = here if to is None else torch.device(to).type == "cuda"
        if not here and not there:
            return func(*args, **kwargs)
        if to is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if kwargs.pop("pin_memory", None):
            kwargs["pin_memory"] = False
        if here:
            self.look(name, args, kwargs, given)
        self.count(name, views, here, there, args, kwargs, given)
        numbers = on_cpu(args), {k: on_cpu(v) for k, v in kwargs.items()}
        found = REPLACED[name](*numbers[0], **numbers[1]) if name in REPLACED else func(*numbers[0], **numbers[1])
        if name == "_to_copy" and here != there and found is numbers[0][0]:
            found = found.clone()
        if not there:
            return found
        if any(place is not None for place in returned):
            own = [
                args[p] if p is not None and p < len(args) else kwargs.get(names[p]) if p is not None else None
                for p in returned
            ]
            results = found if isinstance(found, tuple) else (found,)
            results = tuple(on_gpu(x) if mine is None else mine for x, mine in zip(results, own, strict=True))
            return results if isinstance(found, tuple) else results[0]
        if name == "_pack_padded_sequence":
            return on_gpu(found[0]), found[1]  # batch sizes are always on the CPU
        return on_gpu(found)

    def look(self, name, args, kwargs, given) -> None:
        """Log an operation on tensors of both devices that CUDA refuses."""
        if name in CPU_ARGUMENTS:
            return
        allowed = [*tensors(args[FROM_CPU[name]])] if name in FROM_CPU else []
        for x in given:
            if not isinstance(x, FakeCudaTensor) and x.dim() and not any(x is y for y in allowed):
                self.mixed[name, where()] += 1

    def count(self, name, views, here, there, args, kwargs, given) -> None:
        """Count an operation as a kernel, and as a wait."""
        moved = name == "_to_copy" and here != there
        crosses = name == "copy_" and isinstance(args[0], FakeCudaTensor) != isinstance(args[1], FakeCudaTensor)
        blocking = not (kwargs.get("non_blocking") or (crosses and len(args) > 2 and args[2]))
        indices = args[1] if name in FROM_CPU else ()
        read = name in READS or (name == "repeat_interleave" and kwargs.get("output_size") is None)
        by_mask = name == "index" and any(x.dtype == torch.bool for x in tensors(indices))
        copied = any(not isinstance(x, FakeCudaTensor) for x in tensors(indices))
        if name.startswith("index_put") and any(x.dtype == torch.bool for x in tensors(indices)):
            by_mask = args[2].numel() > 1 or len(list(tensors(indices))) > 1  # else it is a masked_fill
        if ((moved or crosses) and blocking) or read or by_mask or copied:
            self.waits[name, where()] += 1
        if not (views or moved or crosses or name in ALLOCATIONS or name == "_local_scalar_dense"):
            self.kernels[name] += 1
            self.reached.update((name, x.dtype) for x in given)


def where() -> str:
    """Return file:line of the innermost frame of the project."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/phrasemodels/" in file and "/site-packages/" not in file:
            return f"{file.split('/phrasemodels/')[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "torch"


def native_dropout(x, p, train):
    """CUDA's dropout, with the random numbers that the CPU's would draw."""
    noise = torch.empty_like(x).bernoulli_(1 - p)
    return x * noise / (1 - p), noise.bool()


def native_dropout_backward(grad, mask, scale):
    return grad * mask * scale


REPLACED = {"native_dropout": native_dropout, "native_dropout_backward": native_dropout_backward}


CUDA = {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "current_device": 0,
    "is_bf16_supported": True,
}
CUDA |= dict.fromkeys(
    ("_lazy_init", "_lazy_call", "set_device", "manual_seed", "manual_seed_all", "reset_peak_memory_stats")
)
CUDA |= {"max_memory_allocated": 0, "get_device_name": "fake", "_is_in_bad_fork": False}


class OneKernel(torch.autograd.Function):
    """(lstm, tensors) → its results, as cuDNN computes them: one kernel forward, one backward."""

    @staticmethod
    def forward(ctx, call, *given):
        ctx.given = [on_cpu(x.detach()).requires_grad_(x.requires_grad) for x in given]
        with torch.enable_grad():
            ctx.results = call(*ctx.given)
        FakeCuda.current.kernels["cudnn_rnn"] += 1
        return tuple(on_gpu(x.detach()) for x in ctx.results)

    @staticmethod
    def backward(ctx, *grads):
        FakeCuda.current.kernels["cudnn_rnn_backward"] += 1
        wanted = [x for x in ctx.given if x.requires_grad]
        with torch.enable_grad():
            found = iter(torch.autograd.grad(ctx.results, wanted, [on_cpu(g) for g in grads], allow_unused=True))
        each = [next(found) if x.requires_grad else None for x in ctx.given]
        return None, *(x if x is None else on_gpu(x) for x in each)


def dispatch(self, func, types, args=(), kwargs=None):
    return self.run(func, args, kwargs or {})


FakeCuda.__torch_dispatch__ = dispatch  # one that is defined in the class costs a check for compilation at each call
_lstm, _tolist = torch._VF.lstm, torch.Tensor.tolist


def lstm(*args):
    """Return the results of torch's LSTM; on the fake device it is one kernel."""
    given = list(tensors(args))
    if not isinstance(given[0], FakeCudaTensor):
        return _lstm(*args)

    def call(*some):
        left = iter(some)

        def put(x):
            if isinstance(x, torch.Tensor):
                return next(left)
            return type(x)(map(put, x)) if isinstance(x, list | tuple) else x

        return _lstm(*put(list(args)))

    return OneKernel.apply(call, *given)


def tolist(x):
    return _tolist(x.cpu() if isinstance(x, FakeCudaTensor) else x)


@contextlib.contextmanager
def fake_cuda() -> Iterator[FakeCuda]:
    """Have one GPU while the block runs; yield what counts. The process must not have differentiated anything before: torch counts
    devices then."""
    torch._C._ensureCUDADeviceGuardSet()
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, value in CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, value=value, **__: value))
        known = mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", return_value=False)
        stack.enter_context(known)
        # of tensors of a subclass, inference mode cannot make views
        stack.enter_context(mock.patch.object(torch._C, "_InferenceMode", lambda on: torch.set_grad_enabled(not on)))
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swapped)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, False)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # other threads would not be watched
        FakeCuda.current = FakeCuda()
        stack.enter_context(mock.patch.object(torch._VF, "lstm", lstm))
        stack.enter_context(mock.patch.object(torch.Tensor, "tolist", tolist))
        yield stack.enter_context(FakeCuda.current)
