"""CUDA graphs that are none: a capture notes the operations and undoes what they wrote, a replay runs them into the same memory.

To read a number is an error within a capture, as on a GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive"}


class FakeGraph(TorchDispatchMode):
    """A graph: its operations with arguments and results, once `capture` has ended."""

    launched = 0  # replays of all graphs

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Callable[..., Any], Any, Any, Any]] = []
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        schema, kwargs = func._schema, kwargs or {}
        if schema.name.removeprefix("aten::") in READS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {schema.name}")
        for each, value in zip(schema.arguments, args, strict=False):
            if each.alias_info is not None and each.alias_info.is_write:
                self.before += [(x, x.clone()) for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
        found = func(*args, **kwargs)
        if not (schema.returns and all(r.alias_info and not r.alias_info.is_write for r in schema.returns)):  # a view
            self.noted.append((func, args, kwargs, found))
        return found

    @torch.no_grad()
    def undo(self) -> None:
        """Give all that was written the numbers of before."""
        for x, value in reversed(self.before):
            x.copy_(value)
        self.before.clear()

    @torch.no_grad()
    def replay(self) -> None:
        """Run the operations; their results are where they were."""
        FakeGraph.launched += 1
        for func, args, kwargs, found in self.noted:
            for old, new in zip(tree_leaves(found), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)


@contextmanager
def capture(graph: FakeGraph, pool: Any = None) -> Iterator[None]:
    with torch.autograd.set_multithreading_enabled(False), graph:
        yield
    graph.undo()


@contextmanager
def fake_graphs() -> Iterator[None]:
    """Have CUDA graphs without a GPU while the block runs."""
    fakes = {
        "CUDAGraph": FakeGraph,
        "graph": capture,
        "graph_pool_handle": lambda: 1,
        "Stream": mock.Mock,
        "current_stream": mock.Mock,
        "stream": nullcontext,
        "synchronize": lambda: None,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
    }
    with mock.patch.multiple(torch.cuda, **fakes), mock.patch.object(torch.Tensor, "pin_memory", lambda x: x):
        yield
