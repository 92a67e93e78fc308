"""Structures that are the derivations of a rule, with every operation over them.

A structure is a compiled function that writes the nodes and runs of `kernels.engine`, and what the first methods of `Structure` say:
`semimarkov` is a whole one in 60 lines. It then has all operations, on the CPU by the engine, elsewhere by an inside pass in torch.
`kernels` of a class is the table of implementations: the first that has an operation and takes the scores serves the call.

Shapes: B sentences, A axes of length, P scores of a sentence and Q that all sentences share, R the most parts of a structure.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache, partial, update_wrapper
from itertools import takewhile
from math import prod
from numbers import Integral
from threading import local
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.structs import dispatch, kernels, semiring
from phrasemodels.structs.dispatch import Lengths, untracked
from phrasemodels.structs.kernels import NONE, Chosen, Entropy, Kernel, LogPartition, LogZ, Parts
from phrasemodels.structs.kernels import Scores as Scores
from phrasemodels.structs.kernels.gpu import LevelPrograms
from phrasemodels.structs.semiring import Log

if TYPE_CHECKING:
    from phrasemodels.structs.kernels.engine import Table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class TableSizes(NamedTuple):
    """The table of a rule for one batch: the rule's arguments, and bounds on what it writes."""

    arguments: tuple[Any, ...]
    numbers: int  # the largest number of a node plus 1
    nodes: int  # rows of nodes
    runs: int  # rows of runs
    longest: int  # the longest length of the first axis
    parts: int  # R
    choices: int  # of a derivation between several edges


class ScoreLayout:
    """Scores of these shapes, numbered as the engine does: first each sentence's own, then the scores that all sentences share."""

    def __init__(self, structure: "Structure", shapes: tuple[torch.Size, ...]):
        self.structure, self.shapes = structure, shapes
        self.shared = [len(s) == dim for s, dim in zip(shapes, structure.shared_dims, strict=False)]
        self.by_position = [len(s) == dim for s, dim in zip(shapes, structure.dims, strict=False)]
        self.lengths = [prod(s[0 if one else 1 :]) for s, one in zip(shapes, self.shared, strict=True)]
        self.offsets, place = [0] * len(shapes), 0
        for i in sorted(range(len(shapes)), key=self.shared.__getitem__):
            self.offsets[i], place = place, place + self.lengths[i]
        self.P = sum(size for size, one in zip(self.lengths, self.shared, strict=True) if not one)
        self.event_scores = sum(self.lengths[: structure.event_scores])
        self.sizes = structure.sizes(self)
        self._kept: tuple[Table, Integers, Integers] | None = None

    def table(self, plain: bool = False) -> tuple["Table", Integers]:
        """Return the table, and the rows that a sentence of each length needs; plain: without a kernel.

        Large ones are in memory that this thread uses again.
        """
        return self._kept[:2] if self._kept else self._table(plain)

    def _table(self, plain: bool) -> tuple["Table", Integers]:
        sizes, small = self.sizes, self.sizes.runs <= SMALL
        shapes = (sizes.nodes + 1, 3), (max(sizes.runs, 1), 7)
        nodes, runs = (
            np.empty(x, np.int64) if small else _buffer(name, *x) for x, name in zip(shapes, ("n", "r"), strict=True)
        )
        ends = np.zeros(sizes.longest + 1, np.int64)
        rule = type(self.structure).rule  # a compiled function of an object would be bound
        rows = (uncompiled(rule) if plain else rule)(*sizes.arguments, nodes, runs, ends)
        table = kernels.engine.Table(nodes, runs, rows, sizes.numbers)
        # the goals of all lengths are kept too; with two axes these would be as many as pairs of lengths
        if small and self.structure.length_axes == 1:
            each = np.arange(sizes.longest + 1)[:, None]
            self._kept = table, ends, self.structure.goals(sizes, self, each)
        return table, ends

    def goals(self, lengths: Integers) -> Integers:
        """Return the goals (B, 7) of sentences of these lengths (B, A)."""
        if self._kept:
            return self._kept[2][lengths[:, 0]]
        return self.structure.goals(self.sizes, self, lengths)

    def flat(self, values: Sequence[Tensor | None], shared: bool) -> Floats:
        """Return numbers in the shapes of the scores, 0 in place of None, as (rows, P) or (rows, Q), float64."""
        chosen = [i for i, one in enumerate(self.shared) if one == shared]
        given = {i: self._rows_of(kernels.numbers(x), i) for i in chosen if (x := values[i]) is not None}
        rows = max(map(len, given.values()), default=1) if shared else self.shapes[0][0]
        if len(given) == len(chosen) == 1:
            return given[chosen[0]].astype(np.float64, copy=False)
        each = [np.broadcast_to(given.get(i, 0), (rows, self.lengths[i])) for i in chosen]
        return np.concatenate(each, 1, dtype=np.float64) if each else np.empty((rows, 0))

    def _rows_of(self, x: Floats, i: int) -> Floats:
        size = self.lengths[i]  # numpy cannot tell how many rows without numbers there are
        return x.reshape(x.size // size if size else self.shapes[0][0], size)

    def tensors(self, own: NDArray[Any], shared: NDArray[Any], which: Sequence[int], dtype: torch.dtype) -> Scores:
        """Return numbers (B, P) and (Q,), or (B, Q), as tensors in the shapes of the scores."""
        found = []
        for i in which:
            offset = self.offsets[i] - (self.P if self.shared[i] else 0)
            x = (shared if self.shared[i] else own)[..., offset : offset + self.lengths[i]]
            shape = (len(x), *self.shapes[i]) if self.shared[i] and x.ndim > 1 else self.shapes[i]
            found.append(kernels.tensor(x, dtype).view(shape))
        return tuple(found)


SMALL = 2**12  # runs of a table that is kept, at most 224 KiB


@lru_cache(maxsize=64)
def numbered(structure: "Structure", shapes: tuple[torch.Size, ...]) -> ScoreLayout:
    """Return the numbers of scores of these shapes, with their table if it is small."""
    return ScoreLayout(structure, shapes)


class _Run:
    """The arguments of the engine for a batch. A score that is NaN or +inf is 0 in it, and the sentence gets NaN at the end."""

    def __init__(self, structure: "Structure", scores: Scores, lengths: Tensor):
        self.structure, self.scores, self.lengths = structure, scores, lengths
        self.layout = numbered(structure, tuple([s.shape for s in scores]))
        self.table, ends = self.layout.table()
        words = lengths.numpy()
        own, shared = self.layout.flat(scores, False), self.layout.flat(scores, True)[0]
        self.unknown: NDArray[np.bool_] | None = None
        if not (own.max(initial=0) < np.inf and shared.max(initial=0) < np.inf):  # false if a score is NaN
            wrong, lost = ~(own < np.inf), ~(shared < np.inf)
            self.unknown = (wrong & self.read()).any(1) | (lost.any() & (words[:, 0] > 1))
            own, shared = np.where(wrong, 0, own), np.where(lost, 0, shared)
        self.batch = kernels.engine.Batch(own, shared, self.layout.goals(words), ends[words[:, 0]])

    def read(self) -> NDArray[np.bool_]:
        """Return whether a sentence reads each of its own scores, (B, P)."""
        masks = zip(self.structure.valid(self.scores, self.lengths), self.scores, self.layout.shared, strict=True)
        return np.concatenate([m.expand(s.shape).reshape(len(s), -1).numpy() for m, s, one in masks if not one], 1)

    def finish(self, *rows: Floats, own: Floats | None = None, shared: Floats | None = None) -> None:
        """Write NaN for the sentences whose results are unknown: to their rows (B, ...), to the results `own` (B, P) that they read,
        and to all of what sentences share, (Q,), or their rows of (B, Q)."""
        if self.unknown is None:
            return
        for x in rows:
            x[self.unknown] = np.nan
        if own is not None and own.size:
            own[self.unknown[:, None] & self.read()] = np.nan
        if shared is not None and shared.size:
            shared[self.unknown if shared.ndim > 1 else self.unknown.any()] = np.nan


class Engine(Kernel):
    """Every operation, by the rule of a structure."""

    def marginals(self, structure: "Structure", scores: Scores, lengths: Tensor, scale: Tensor | float | None,
                  which: Sequence[int], each: bool) -> tuple[Tensor, Scores]:  # fmt: skip
        run = _Run(structure, scores, lengths)
        wanted = tuple(any(run.layout.shared[i] == one for i in which) for one in (False, True))
        by = kernels.engine.NOTHING if scale is None else kernels.factors(scale, len(lengths))
        log_z, own, shared = kernels.engine.passes(run.table, run.batch, by, wanted=wanted, each=each)
        run.finish(log_z, own=own, shared=shared)
        found = () if scale is None else run.layout.tensors(own, shared, which, scores[0].dtype)
        return kernels.tensor(log_z, scores[0].dtype), found

    def hessian_vector(
        self, structure: "Structure", scores: Scores, lengths: Tensor, grads: Sequence[Tensor | None]
    ) -> Scores:
        run = _Run(structure, scores, lengths)
        masks = structure.valid(scores, lengths)
        given = [x if x is None or one else torch.where(mask, x, 0)
                 for x, mask, one in zip(grads, masks, run.layout.shared, strict=True)]  # fmt: skip
        own, shared = (run.layout.flat(given, one) for one in (False, True))
        _, own, shared = kernels.engine.passes(run.table, run.batch, np.ones(len(lengths)), own, shared)
        run.finish(own=own, shared=shared)
        return run.layout.tensors(own, shared, range(len(scores)), scores[0].dtype)

    @dispatch.not_traced
    def entropy(self, structure: "Structure", scores: Scores, lengths: Tensor) -> Tensor:
        run = _Run(structure, scores, lengths)
        ones = np.ones(len(lengths))
        value, _, _ = kernels.engine.passes(run.table, run.batch, ones, wanted=(False, False), entropy=True)
        # -inf without a structure; and the difference of almost equal numbers may be below 0
        value = np.maximum(value, 0)
        run.finish(value)
        return kernels.tensor(value, scores[0].dtype)

    @dispatch.not_traced
    def best(self, structure: "Structure", scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        run = _Run(structure, scores, lengths)
        best, parts = kernels.engine.best(run.table, run.batch, run.layout.event_scores, run.layout.sizes.parts)
        run.finish(best)
        rows = structure.rows(scores, torch.from_numpy(parts), lengths)[0]
        return kernels.tensor(best, scores[0].dtype), rows

    @dispatch.not_traced
    def topk(self, structure: "Structure", scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        run = _Run(structure, scores, lengths)
        best, parts = kernels.engine.topk(run.table, run.batch, k, run.layout.event_scores, run.layout.sizes.parts)
        run.finish(best.T)
        return kernels.tensor(best, scores[0].dtype), structure.rows(scores, torch.from_numpy(parts), lengths)

    @dispatch.not_traced
    def sample(
        self, structure: "Structure", scores: Scores, lengths: Tensor, k: int, generator: torch.Generator | None
    ) -> Tensor:
        run = _Run(structure, scores, lengths)
        draws = torch.rand((k, len(lengths), run.layout.sizes.choices + 1), generator=generator, dtype=torch.float64)
        parts = kernels.engine.samples(
            run.table, run.batch, draws.numpy(), run.layout.event_scores, run.layout.sizes.parts
        )
        return structure.rows(scores, torch.from_numpy(parts), lengths)


_buffers = local()


def _buffer(name: str, rows: int, columns: int) -> Integers:
    """Return memory (≥ rows, columns) that this thread uses again, as fresh pages take longer than most rules."""
    found = getattr(_buffers, name, None)
    if found is None or len(found) < rows:
        found = np.empty((rows, columns), np.int64)
        if rows * columns <= kernels.LARGEST_SCRATCH:
            setattr(_buffers, name, found)
    return found


ENGINE, LEVELS = Engine(), LevelPrograms()


R = TypeVar("R")
Made = TypeVar("Made")


class AtFirstUse(Generic[Made]):
    """An attribute of a class that is made when it is first read, for kernels: numba takes half a second and 130 MB to import."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self.make = cache(make)

    def __get__(self, owner: object, kind: type | None = None) -> Made:
        return self.make()


class Structure:
    """The functions over one kind of structures. A class defines the first part of the attributes and methods.

    Every function takes the scores, then `lengths`: a tensor, a list, or a mask (B, n) that is true inside of sentences; None: all are
    full. Scores may have any number of batch dimensions in place of B, also none; results have the same. Lengths may have the first of
    these dimensions alone, as (B,) with scores (B, heads, ...).
    """

    kernels: ClassVar[tuple[Kernel, ...]] = (ENGINE, LEVELS)
    names: ClassVar[tuple[str, ...]]  # of the scores, as keywords
    optional: ClassVar[tuple[str, ...]] = ()  # those of the scores that may be left out
    # dimensions of the scores, if each sentence, and where there are some each position, has its own
    dims: tuple[int, ...]
    shared_dims: tuple[int, ...]  # their dimensions if all sentences share them; 0 if they cannot
    # (*arguments, nodes, runs, ends): writes nodes, runs, and the rows that each length needs; returns the rows
    rule: ClassVar[Any]
    event_scores: ClassVar[int] = 1  # the first tensors of scores, whose parts are a structure
    length_axes: ClassVar[int] = 1  # A
    event_dims: ClassVar[int] = 2  # dimensions of a structure: of rows (R, w) 2, of tags or heads 1

    def __init_subclass__(cls) -> None:
        """Give the operations of a class signatures with the names of its scores, which `help` and notebooks show."""
        for method in (
            cls.log_partition,
            cls.marginals,
            cls.argmax,
            cls.topk,
            cls.sample,
            cls.entropy,
            cls.minimum_risk,
        ):
            setattr(cls, method.__name__, _with_names(method, getattr(cls, "names", ()), cls.optional))

    def check(self, *scores: Tensor, lengths: Lengths = None) -> Tensor:
        """Return lengths (B, A). ValueError: shapes or lengths are wrong."""
        raise NotImplementedError

    def sizes(self, numbered: ScoreLayout) -> TableSizes:
        """Return the sizes of the table for these scores."""
        raise NotImplementedError

    def goals(self, sizes: TableSizes, numbered: ScoreLayout, lengths: Integers) -> Integers:
        """Return the goals (B, 7) of sentences of these lengths (B, A)."""
        raise NotImplementedError

    def valid(self, scores: Scores, lengths: Tensor) -> Scores:
        """Return which scores are read: masks that broadcast to the tensors of scores."""
        raise NotImplementedError

    def rows(self, scores: Scores, parts: Tensor, lengths: Tensor) -> Tensor:
        """Return structures (k, B, ...) from the numbers (k, B, R) of their parts, in any order, NONE in unused places."""
        raise NotImplementedError

    def total_score(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return the sums (..., B) of the scores of structures (..., B, ...), differentiable; -inf where a word is left out."""
        raise NotImplementedError

    def inside(self, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
        """Return log Z lifted into a semiring, (S, B), for scores that each sentence has of its own: the plain torch path."""
        return _inside_by_levels(self, semiring, scores, lengths)

    @property
    def has_levels(self) -> bool:
        """Whether the inside pass is that of the rule."""
        return type(self).inside is Structure.inside

    def steps(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, "DepthSchedule", Tensor, Tensor]:
        """Return scores (B, P + Q + 2), the steps of the rule, and the goals of sentences."""
        return _by_levels(self, self._expanded(scores), lengths)

    def is_structure(self, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return which of the rows (..., B, ...) are a structure of their sentence, (..., B). Padding is not looked at."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.module}.{type(self).__name__}"

    @dispatch.not_traced
    def log_partition(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Tensor:
        """Return log Z, (B,), at least float32."""
        return self._call(self._log_partition, self._given(scores, named), lengths, rounded=False)

    @dispatch.not_traced
    def marginals(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Any:
        """Return the expected number of times that each score is in a structure, in the shape of each score tensor."""
        found = self._call(self._expected_parts, self._given(scores, named), lengths)
        return found if len(found) > 1 else found[0]

    @dispatch.not_traced
    def expected_parts(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Scores:
        """Return the marginals as a tuple of one tensor for each tensor of scores."""
        found: Scores = self._call(self._expected_parts, self._given(scores, named), lengths)
        return found

    @dispatch.not_traced
    def argmax(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> tuple[Tensor, Tensor]:
        """Return the score (B,), differentiable, and a best structure (B, ...)."""
        return self._call(self._argmax, self._given(scores, named), lengths)

    @dispatch.not_traced
    def topk(
        self, *scores: Any, k: int | None = None, lengths: Lengths = None, **named: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the scores (k, B), differentiable, and the k best structures (k, B, ...), best first: topk(*scores, k, lengths).

        Where there are fewer that are not forbidden, the other scores are -inf and their structures -1.
        """
        return self._call(self._topk, self._given(scores, named), lengths, k, ranked=True)

    @dispatch.not_traced
    def sample(self, *scores: Any, k: int | None = None, lengths: Lengths = None, generator: torch.Generator | None = None,
               **named: Tensor) -> Tensor:  # fmt: skip
        """Return k independent samples (k, B, ...): sample(*scores, k, lengths)."""
        return self._call(self._sample, self._given(scores, named), lengths, k, ranked=True, generator=generator)

    @dispatch.not_traced
    def entropy(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Tensor:
        """Return −Σ p log p over all structures, in nats, (B,)."""
        return self._call(self._entropy, self._given(scores, named), lengths)

    @dispatch.not_traced
    def minimum_risk(self, *scores: Any, lengths: Lengths = None, **named: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected number (B,) of right parts, differentiable, and the structure (B, ...) with most of them (Goodman 1996)."""
        return self._call(self._minimum_risk, self._given(scores, named), lengths)

    @dispatch.not_traced
    def score(self, *scores: Any, rows: Tensor, lengths: Lengths = None, **named: Tensor) -> Tensor:
        """Return the scores (..., B), differentiable, of structures (..., B, ...); -inf for what is no structure of its sentence."""
        return self._call(self._checked_score, self._given(scores, named), lengths, rows=rows)

    @dispatch.not_traced
    def total(self, semiring: Log, *scores: Any, lengths: Lengths = None, **named: Tensor) -> Tensor:
        """Return ⊕ over all structures of the products ⊗ of their scores in any semiring, lowered; see `semiring`."""
        return self._call(self._total, self._given(scores, named), lengths, semiring=semiring)

    def first_calls(self) -> list[Callable[..., Any]]:
        """Return functions of the scores alone that run all operations with kernels."""
        some = [self.log_partition, self.expected_parts, self.entropy, self.argmax]
        return [*some, partial(self.topk, k=1), partial(self.sample, k=1)]

    def _given(self, scores: tuple[Any, ...], named: dict[str, Tensor]) -> tuple[Any, ...]:
        """Return the arguments with the scores that were given by name."""
        if unknown := set(named) - set(self.names[len(scores) :]):
            raise TypeError(f"{min(unknown)}: the scores of {self!r} are {', '.join(self.names)}, each given once")
        return (*scores, *(named[name] for name in self.names if name in named))

    def _call(self, operation: Callable[..., Any], arguments: tuple[Any, ...], lengths: Lengths, k: int | None = None,
              ranked: bool = False, rounded: bool = True, **options: Any) -> Any:  # fmt: skip
        """Run a function of scores and lengths on arguments as users give them: scores, k if `ranked`, lengths."""
        dispatch.refuse_tracing()
        if torch.is_inference_mode_enabled():  # whose tensors, kept for later calls, would be refused in training
            with torch.inference_mode(False), torch.no_grad():
                return self._call(operation, arguments, lengths, k, ranked, rounded, **options)
        scores = tuple(takewhile(_is_score, arguments))
        rest = list(arguments[len(scores) :])
        if not scores:
            given = [x.dtype if isinstance(x, Tensor) else type(x).__name__ for x in rest[:1]]
            raise ValueError(f"scores must be tensors of floating point, not {given[0] if given else 'none'}")
        if len(scores) > len(self.dims):
            raise ValueError(f"{len(scores)} scores, but there are {len(self.dims)}; lengths must be integers, not {scores[-1].dtype}")
        if ranked:
            k = rest.pop(0) if k is None and rest else k
            if not isinstance(k, Integral) or k < 0:
                raise ValueError(f"k={k}: must be a number of structures")
            options["k"] = int(k)
        if rest:
            lengths = rest.pop(0)
        if rest:
            raise ValueError(f"{len(arguments)} arguments: must be scores of floating point, {'k, ' * ranked}lengths")
        nested = scores[0].dim() - self.dims[0] + 1
        batch = scores[0].shape[: max(nested, 0)]
        if nested != 1 and nested >= 0:
            scores = tuple(
                s if common and s.dim() == common else _one_batch(s, batch)
                for s, common in zip(scores, self.shared_dims, strict=False)
            )
            if lengths is not None:
                lengths = _of_batch(dispatch.as_numbers(lengths), batch, self.length_axes)
            if "rows" in options:
                event = options["rows"].dim() - self.event_dims
                options["rows"] = (
                    options["rows"].flatten(event - nested, event - 1) if nested else options["rows"].unsqueeze(event)
                )
        checked = self.check(*scores, lengths=lengths)
        # a copy, which callers can't change before the backward pass
        lengths = checked if lengths is None else checked.clone()
        result = dispatch.run(partial(operation, **options) if options else operation, scores, lengths, rounded)
        if nested == 1:
            return result
        results = result if isinstance(result, tuple) else (result,)
        axes = [x.dim() - 1 if "rows" in options else int(ranked) for x in results]
        shaped = tuple(
            x.reshape((*x.shape[:at], *batch, *x.shape[at + 1 :])) for x, at in zip(results, axes, strict=True)
        )
        return shaped if isinstance(result, tuple) else shaped[0]

    @cached_property
    def module(self) -> str:
        """The module whose first calls compile the kernels of this structure."""
        return type(self).__module__.rpartition(".")[2]

    def kernel(self, operation: Callable[..., Any], scores: Scores) -> Kernel | None:
        """Return the kernel that serves an operation, a method of `Kernel`, on these scores, or None: torch does."""
        if not kernels.allowed("numba", "triton"):
            return None
        for kernel in self.kernels:
            if kernel.serves(operation) and kernel.supports(self, scores):
                return kernel
        return None

    def _log_partition(self, scores: Scores, lengths: Tensor) -> Tensor:
        if dispatch.transformed():
            return LogZ.apply(self, lengths, *self._own(scores))
        if kernel := self.kernel(Kernel.marginals, scores):
            if not differentiated(scores):
                return kernel.marginals(self, scores, lengths, None, (), False)[0]
            return LogPartition.apply(self, kernel, lengths, *scores)
        return semiring.log_partition(self._inside(lengths), *self._expanded(scores))

    def _expected_parts(self, scores: Scores, lengths: Tensor, which: Sequence[int] | None = None) -> Scores:
        which = tuple(range(len(scores)) if which is None else which)
        if dispatch.transformed():
            found: Scores = Parts.apply(self, which, lengths, *self._own(scores))
            return found
        if kernel := self.kernel(Kernel.marginals, scores):
            if differentiated(scores):
                found = Parts.apply(self, which, lengths, *scores)
            else:
                found = kernel.marginals(self, scores, lengths, 1.0, which, True)[1]
            return found
        every = semiring.marginals(self._inside(lengths), *self._expanded(scores))
        # those that positions share are summed, as kernels do
        return tuple(every[i].sum(tuple(range(1, every[i].dim() - scores[i].dim())))
                     if every[i].dim() > scores[i].dim() + 1 else every[i] for i in which)  # fmt: skip

    def _covariances(self, scores: Scores, lengths: Tensor, given: dict[int, Tensor]) -> Scores:
        """Return Cov[Σ g, part], in the shapes of the scores, for numbers g of some scores."""
        if kernel := self.kernel(Kernel.hessian_vector, scores):
            return kernel.hessian_vector(self, scores, lengths, [given.get(i) for i in range(len(scores))])
        with torch.inference_mode(False), torch.enable_grad(), kernels.reference_only():
            leaves = tuple(s.detach().clone().requires_grad_() for s in semiring.in_float64(scores))
            parts = self._expected_parts(leaves, lengths, tuple(given))
            found = torch.autograd.grad(
                parts, leaves, semiring.in_float64(tuple(given.values())), materialize_grads=True
            )
            return tuple(x.to(s.dtype) for x, s in zip(found, scores, strict=True))

    def _entropy(self, scores: Scores, lengths: Tensor) -> Tensor:
        if dispatch.transformed():
            return Entropy.apply(self, lengths, *self._own(scores))
        if kernel := self.kernel(Kernel.entropy, scores):
            if differentiated(scores):
                return Entropy.apply(self, lengths, *scores)
            return kernel.entropy(self, scores, lengths)
        return semiring.entropy(self._inside(lengths), *self._expanded(scores))

    def _argmax(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        best, rows = self._chosen(self._best, 0, scores, lengths)
        return self._rescored(best, scores, rows, lengths), rows

    def _topk(self, scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        best, rows = self._chosen(partial(self._k_best, k=k), 1, scores, lengths)
        return self._rescored(best, scores, rows, lengths), rows

    def _sample(self, scores: Scores, lengths: Tensor, k: int, generator: Any) -> Tensor:
        found: Tensor = self._chosen(partial(self._draw, k=k, generator=generator), None, scores, lengths)
        return found

    def _chosen(self, operation: Callable[..., Any], axis: int | None, scores: Scores, lengths: Tensor) -> Any:
        """Run an operation without derivatives, whose results have the batch in this dimension."""
        if dispatch.transformed():
            return Chosen.apply(operation, axis, lengths, *(s.detach() for s in self._own(scores)))
        return operation(scores, lengths)

    def _best(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        if kernel := self.kernel(Kernel.best, scores):
            return kernel.best(self, scores, lengths)
        best, flags = semiring.argmax(self._inside(lengths), *self._expanded(scores))
        return best, self._rows(scores, [f[None] for f in flags], lengths)[0]

    def _k_best(self, scores: Scores, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
        if kernel := self.kernel(Kernel.topk, scores):
            return kernel.topk(self, scores, lengths, k)
        best, rows = kernels.on_cpu(lambda n, *some: ENGINE.topk(self, some, n, k), lengths, *scores)
        return best.to(scores[0]), rows.to(lengths.device)

    def _draw(self, scores: Scores, lengths: Tensor, k: int, generator: Any) -> Tensor:
        if kernel := self.kernel(Kernel.sample, scores):
            return kernel.sample(self, scores, lengths, k, generator)
        inside = self._inside(lengths.repeat(k, 1))
        flags = semiring.sample(inside, *self._expanded(scores), k=k, generator=generator)
        return self._rows(scores, flags, lengths)

    def _minimum_risk(self, scores: Scores, lengths: Tensor) -> tuple[Tensor, Tensor]:
        # the marginals take the place of the scores: the best structure by them has the most right parts (Goodman 1996)
        p = self._expected_parts(scores, lengths, range(self.event_scores))
        zeros = [*p, *(torch.zeros_like(s) for s in scores[self.event_scores :])]
        # what is forbidden stays forbidden, although its marginal, 0, would be a score like others
        return self._argmax(
            tuple(torch.where(s == -torch.inf, s, x) for s, x in zip(scores, zeros, strict=True)), lengths
        )

    def _checked_score(self, scores: Scores, lengths: Tensor, rows: Tensor) -> Tensor:
        if rows.is_floating_point() or rows.dim() < self.event_dims + 1:
            raise ValueError(f"structures must be integers (..., B, ...), not {tuple(rows.shape)} of {rows.dtype}")
        rows = rows.long()
        right = self.is_structure(scores, rows, lengths)
        safe = rows.masked_fill(~right[(..., *(None for _ in range(self.event_dims)))], NONE)
        return self.total_score(scores, safe, lengths).masked_fill(~right, -torch.inf)

    def _total(self, scores: Scores, lengths: Tensor, semiring: Log) -> Tensor:
        return semiring.lower(self.inside(semiring, self._expanded(scores), lengths))

    def _rescored(self, best: Tensor, scores: Scores, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return the best scores with the derivatives of the sums of the parts of their structures."""
        return kernels.with_gradient(best, lambda *some: self.total_score(some, rows, lengths), *scores)

    def _inside(self, lengths: Tensor) -> Callable[..., Tensor]:
        return lambda semiring, *scores: self.inside(semiring, scores, lengths)

    def _expanded(self, scores: Scores) -> Scores:
        """Return scores that each sentence has of its own."""
        return self._own(scores)

    def _own(self, scores: Sequence[Tensor]) -> Scores:
        """Return scores with a batch dimension; those that sentences share are the same at all positions, too."""
        B = len(scores[0])
        return tuple(
            s.expand(B, *s.shape) if common and s.dim() == common else s
            for s, common in zip(scores, self.shared_dims, strict=False)
        )

    def _rows(self, scores: Scores, flags: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """Return structures (k, B, ...) from flags (k, B, ...), 1 for the parts of a structure."""
        flat = torch.cat([f.detach().flatten(2) for f in flags[: self.event_scores]], 2) > 0
        most = min(numbered(self, tuple(s.shape for s in scores)).sizes.parts, flat.shape[2])
        found = torch.where(flat, torch.arange(flat.shape[2], device=flat.device), flat.shape[2])
        found = found.topk(most, largest=False).values if most else found[..., :0]
        return self.rows(scores, torch.where(found < flat.shape[2], found, NONE), lengths)


def _with_names(method: Callable[..., R], names: Sequence[str], optional: Sequence[str]) -> Callable[..., R]:
    """Return a copy of a method (*scores, ...) whose signature has the names of the scores."""
    copy = FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
    copy.__kwdefaults__ = method.__kwdefaults__
    update_wrapper(copy, method)
    shown, kind, none = inspect.signature(method), inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    given = shown.parameters
    scores = [inspect.Parameter(x, kind, annotation=Tensor, default=None if x in optional else none) for x in names]
    count = [inspect.Parameter("k", kind, annotation=int, default=None if optional else none)] if "k" in given else []
    rest = [given["lengths"].replace(kind=kind), *(x for x in given.values() if x.name == "generator")]
    copy.__signature__ = shown.replace(parameters=[given["self"], *scores, *count, *rest])  # type: ignore[attr-defined]
    return copy


def differentiated(scores: Scores) -> bool:
    """Return whether results need a graph, without which a call takes less time."""
    return torch.is_grad_enabled() and any(s.requires_grad for s in scores)


def _one_batch(x: Tensor, batch: torch.Size) -> Tensor:
    """Return scores (*batch, ...) with one dimension for all of the batch."""
    if x.shape[: len(batch)] != batch:
        raise ValueError(
            f"scores must begin with the batch dimensions {tuple(batch)} as the first ones do, not {tuple(x.shape)}"
        )
    return x.reshape(prod(batch), *x.shape[len(batch) :])


def _of_batch(lengths: Tensor, batch: torch.Size, axes: int) -> Tensor:
    """Return lengths (*batch, ...), or of the first batch dimensions alone, with one dimension for all of the batch."""
    own = lengths.dim() - (lengths.dtype == torch.bool or axes > 1)
    event = lengths.shape[own:]
    if 0 < own < len(batch):
        lengths = lengths.view(*lengths.shape[:own], *(1 for _ in batch[own:]), *event).expand(*batch, *event)
    return lengths.reshape(prod(batch), *lengths.shape[len(batch) :])


def _is_score(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


@lru_cache(maxsize=64)
def uncompiled(function: Any) -> Callable[..., Any]:
    """Return a compiled function as one of Python, which calls others as functions of Python."""
    plain = function.py_func
    names = {name: x.py_func if hasattr(x, "py_func") else x for name, x in plain.__globals__.items()}
    return FunctionType(plain.__code__, names)


class Level(NamedTuple):
    """n nodes of the same depth with at most E edges; score P + Q is the weight 1, P + Q + 1 the weight 0."""

    own: Tensor  # scores (n,)
    left: Tensor  # places of tails (n, E)
    right: Tensor
    part: Tensor  # scores (n, E)


class DepthSchedule(NamedTuple):
    """A table as steps: the nodes of one depth at once, and for each sentence its goal.

    The places of the nodes of a level follow the places of the levels before; place 0 is the empty derivation. places: of nodes, by number.
    sizes (levels, 4): the first place of each level, its nodes n, its edges E, and where its edges begin in `edges`, of which each level is
    a view.
    """

    levels: list[Level]
    places: Integers
    sizes: Tensor
    own: Tensor  # scores of all nodes
    edges: Tensor  # (3, all edges): places of left and right tails, scores
    widest: int  # the largest E


_schedules: OrderedDict[Any, DepthSchedule] = OrderedDict()
LARGEST_SCHEDULES = 2**26  # bytes of the schedules that are kept


def _levels(*key: Any) -> DepthSchedule:
    """Return the steps for a structure, shapes of scores and a device; the last ones are kept."""
    if key not in _schedules:
        _schedules[key] = _schedule(*key)
        while len(_schedules) > 1 and sum(map(_size, _schedules.values())) > LARGEST_SCHEDULES:
            _schedules.popitem(last=False)
    _schedules.move_to_end(key)
    return _schedules[key]


def _size(schedule: DepthSchedule) -> int:
    return schedule.places.nbytes + sum(x.numel() * x.element_size() for x in schedule[2:5])


def _schedule(structure: Structure, shapes: tuple[torch.Size, ...], device: torch.device) -> DepthSchedule:
    scores = ScoreLayout(structure, shapes)
    table, _ = scores.table(plain=not kernels.allowed("numba"))
    nodes, P = table.nodes[: table.rows], sum(scores.lengths)
    runs = table.runs[: table.nodes[table.rows, kernels.engine.FIRST]]
    left, right, part = _edges(runs)
    begin = np.r_[0, runs[:, kernels.engine.COUNT].cumsum()][table.nodes[: table.rows + 1, kernels.engine.FIRST]]
    begin, count = begin[:-1], np.diff(begin)
    depth = _depths(nodes[:, 0], left, right, begin[count > 0], count > 0, table.numbers)
    order = np.argsort(depth, kind="stable")
    places = np.zeros(table.numbers, np.int64)
    places[nodes[order, 0]] = np.arange(1, table.rows + 1)
    number = np.bincount(depth, minlength=1)[1:]
    first = number.cumsum() - number
    wide = np.maximum(np.maximum.reduceat(count[order], first), 1) if len(first) else first
    area = number * wide
    starts = area.cumsum() - area
    head, level = np.repeat(np.arange(table.rows), count), depth - 1
    row = places[nodes[head, 0]] - 1 - first[level[head]]
    at = starts[level[head]] + row * wide[level[head]] + np.arange(len(head)) - begin[head]
    each = np.zeros((3, area.sum()), np.int64)
    each[2] = P + 1
    each[:, at] = places[left], places[right], np.where(part < 0, P, part)
    own = nodes[order, kernels.engine.OWN]
    sizes = np.stack([first + 1, number, wide, starts], 1)
    every, own_scores = _on_device(each, device), _on_device(np.where(own < 0, P, own), device)
    levels = [
        Level(own_scores[first - 1 : first - 1 + n], *every[:, at : at + n * wide].view(3, n, wide))
        for first, n, wide, at in sizes.tolist()
    ]
    return DepthSchedule(levels, places, _on_device(sizes, device), own_scores, every, int(wide.max(initial=1)))


def _depths(
    numbers: Integers, left: Integers, right: Integers, begin: Integers, inner: Integers, most: int
) -> Integers:
    """Return the depth of each node, 1 more than that of its deepest tail. begin: first edges of the inner nodes, which have some."""
    depth, deepest = np.ones(len(numbers), np.int64), np.zeros(most, np.int64)
    while len(begin):
        deepest[numbers] = depth
        above = 1 + np.maximum.reduceat(np.maximum(deepest[left], deepest[right]), begin)
        if (depth[inner] == above).all():
            break
        depth[inner] = above
    return depth


def _on_device(x: Integers, device: torch.device) -> Tensor:
    """Return numbers on a device; a GPU copies them without being waited for."""
    found = torch.from_numpy(x)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found.to(device)


def _edges(runs: Integers) -> tuple[Integers, Integers, Integers]:
    """Return left and right tails and scores, NONE for none, of the edges of some runs."""
    counts = runs[:, kernels.engine.COUNT]
    each: Any = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    left, to_left, right, to_right, part, to_part = (np.repeat(runs[:, i], counts) for i in range(6))
    return left + each * to_left, right + each * to_right, np.where(part < 0, NONE, part + each * to_part)


def _flat(structure: Structure, scores: Scores) -> tuple[Tensor, ScoreLayout]:
    """Return scores (B, P + Q + 2), with the scores of weights 1 and 0 at the end."""
    flat = torch.cat([s.flatten(1) for s in scores], 1)
    ends = flat.new_tensor([0.0, -torch.inf]).expand(len(flat), 2)
    return torch.cat([flat, ends], 1), numbered(structure, tuple(s.shape for s in scores))


def _goals(scores: ScoreLayout, levels: DepthSchedule, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places and scores (B, E) of the goals of all sentences."""
    goals = scores.structure.goals(scores.sizes, scores, untracked(lengths).cpu().numpy())
    each = [_edges(goal[None]) for goal in goals]
    P, widest = sum(scores.lengths), max([1, *(len(left) for left, _, _ in each)])
    place, part = np.zeros((len(each), widest), np.int64), np.full((len(each), widest), P + 1)
    for b, (left, _, scored) in enumerate(each):
        place[b, : len(left)], part[b, : len(left)] = levels.places[left], np.where(scored < 0, P, scored)
    return _on_device(place, lengths.device), _on_device(part, lengths.device)


def _by_levels(structure: Structure, scores: Scores, lengths: Tensor) -> tuple[Tensor, DepthSchedule, Tensor, Tensor]:
    """Return the scores of `_flat`, the steps of any rule, and the goals of `_goals`."""
    masked = tuple(torch.where(m, s, 0) for m, s in zip(structure.valid(scores, lengths), scores, strict=True))
    flat, by_number = _flat(structure, masked)
    steps = _levels(structure, tuple(s.shape for s in scores), flat.device)
    return flat, steps, *_goals(by_number, steps, lengths)


def _inside_by_levels(structure: Structure, semiring: Log, scores: Scores, lengths: Tensor) -> Tensor:
    """The inside pass of any rule, one step for all nodes of the same depth."""
    flat, steps, place, part = _by_levels(structure, scores, lengths)
    lifted = semiring.lift(flat[:, :-2])
    one, none = (f(semiring.lift(flat[:, -2:-1])) for f in (semiring.one_like, semiring.zero_like))
    lifted, nodes = torch.cat([lifted, one, none], -1), one
    for own, left, right, scored in steps.levels:
        terms = nodes[..., left] + nodes[..., right] + lifted[..., scored]
        nodes = torch.cat([nodes, semiring.sum(terms, -1) + lifted[..., own]], -1)
    sentence = torch.arange(len(place), device=place.device)[:, None]
    return semiring.sum(nodes[:, sentence, place] + lifted[:, sentence, part], -1)
