"""Structured inference beside enumeration: `python tests/structs/grid.py [values] [derivatives] [structure ...]`.

Every structure × length × kind of input × type of numbers × operation is compared with the list of all structures, which the tests of
structs enumerate, in float64. A batch has a full sentence, a shorter one with NaN in its padding, and an empty one. Errors are printed in
units of the rounding of the type, relative to the largest score of a structure if it is above 1, the largest of each structure and
operation; beyond LIMIT they are named, and the exit status is 1.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path[:0] = [str(Path(__file__).parents[1])]

import test_enumeration as enumeration  # noqa: E402
import test_graphs as graphs  # noqa: E402
import test_nonprojective as crossing  # noqa: E402

from phrasemodels.structs import alignment, chain, eisner, joint, nonprojective, pcfg, spans  # noqa: E402
from phrasemodels.structs.semimarkov import segmentations  # noqa: E402

Parts = list[Tensor]  # of all M structures: how often each has each score, (M, ...) for each tensor of scores
LIMIT = {"values": 20.0, "derivatives": 1e4}  # roundings; 20 are 4e-15 in float64, 2e-6 in float32
KINDS = ("plain", "small", "wide", "forbidden", "mixed types")
TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def by_members(name: str, n: int) -> Parts:
    return list(enumeration.members(name, n))


def by_heads(rule: str, n: int) -> Parts:
    return [
        torch.stack(
            [torch.nn.functional.one_hot(h.clamp(min=0), n + 1).double().T * (h >= 0) for h in crossing.trees(n, rule)]
        )
    ]


def by_uses(enumerate_all: Callable[..., Any], shapes: Callable[[int], list[tuple[int, ...]]], n: int) -> Parts:
    found, given = [], [torch.empty(1, *s) for s in shapes(n)]
    for _, used in enumerate_all(n, given):
        one = [torch.zeros(s, dtype=torch.float64) for s in shapes(n)]
        for i, at in used:
            one[int(i)][at] += 1
        found.append(one)
    return (
        [torch.stack(x) for x in zip(*found, strict=True)]
        if found
        else [torch.zeros(0, *s).double() for s in shapes(n)]
    )


def by_rules(n: int) -> Parts:
    """Grammars share their rules and roots, which `all_parses` reads with a batch dimension."""
    shapes = lambda n: [(n, 2), (2, 4, 4), (2,)]  # noqa: E731
    return by_uses(lambda n, given: graphs.all_parses(n, [given[0], given[1][0], given[2][0]]), shapes, n)


class Case:
    """A structure: functions, all structures of n, which scores all sentences share, lengths for n, and the longest n."""

    def __init__(self, functions: Any, parts: Callable[[int], Parts], longest: int, shared: tuple[int, ...] = (),
                 length: Callable[[int], Any] = lambda n: n):  # fmt: skip
        self.functions, self.parts, self.longest, self.shared, self.length = (
            functions,
            cache(parts),
            longest,
            shared,
            length,
        )


def aligned(kind: alignment.Alignment, columns: Callable[[int], int]) -> Case:
    shapes = lambda n: [(n, columns(n)), (columns(n), len(kind.moves))]  # noqa: E731
    return Case(kind, partial(by_uses, graphs.all_paths(kind), shapes), 4, (), lambda n: (n, columns(n) if n else 0))


CASES = {
    "chain": Case(chain.linear_chain, partial(by_members, "chain"), 5),
    "segmentations": Case(
        segmentations, partial(by_uses, graphs.all_segmentations, lambda n: [(n, 2, 2), (2, 2)]), 5, (1,)
    ),
    "warping": aligned(alignment.warping, lambda n: n),
    "frames": aligned(alignment.frames, lambda n: max(n - 1, 1)),
    "ctc": aligned(alignment.ctc, lambda n: n),
    "grammar": Case(pcfg.trees, by_rules, 4, (1, 2)),
    "eisner, many roots": Case(eisner.multi_root, partial(by_members, "multi_root"), 4),
    "eisner, one root": Case(eisner.single_root, partial(by_members, "single_root"), 4),
    "crossing, many roots": Case(nonprojective.multi_root, partial(by_heads, "multi"), 4),
    "crossing, one root": Case(nonprojective.single_root, partial(by_heads, "single"), 4),
    "spans": Case(spans.labelled_spans, partial(by_members, "spans"), 4),
    "joint": Case(joint.joint_trees, partial(by_members, "joint"), 3),
}


def padded(x: Tensor, shape: torch.Size) -> Tensor:
    """Return x (M, ...) in the corner of zeros (M, *shape)."""
    out = x.new_zeros(len(x), *shape)
    out[(slice(None), *(slice(0, size) for size in x.shape[1:]))] = x
    return out


def batches(case: Case, kind: str, dtype: torch.dtype) -> Iterator[tuple[int, list[Tensor], Any, list[Parts]]]:
    """Yield n, scores, lengths, and the structures of each sentence."""
    for n in range(2, case.longest + 1):
        full = case.parts(n)
        sizes = [x.shape[1:] for x in full]
        sentences = [full, [padded(x, s) for x, s in zip(case.parts(n - 1), sizes, strict=True)]]
        sentences.append([x.new_zeros(1, *s) for x, s in zip(full, sizes, strict=True)])
        generator = torch.Generator().manual_seed(n)
        scores = []
        for i, size in enumerate(sizes):
            x = torch.randn(*([] if i in case.shared else [3]), *size, generator=generator, dtype=torch.float64)
            x *= {"small": 1e-3, "wide": 100.0}.get(kind, 1.0)
            if kind == "forbidden":
                x[torch.rand(x.shape, generator=generator) < 0.25] = -torch.inf
            if i not in case.shared:
                x[2] = torch.nan
                inside = padded(torch.ones(1, *case.parts(n - 1)[i].shape[1:]), size)[0] > 0
                x[1][~inside] = torch.nan
            mixed = kind == "mixed types" and i > 0
            scores.append(x.to(torch.float32 if mixed else dtype))
        yield n, scores, torch.tensor([case.length(m) for m in (n, n - 1, 0)]), sentences


def totals(case: Case, scores: list[Tensor], sentences: list[Parts]) -> list[Tensor]:
    """Return the scores (M,) of all structures of each sentence, differentiable."""
    found = []
    for b, parts in enumerate(sentences):
        each = [s if i in case.shared else s[b] for i, s in enumerate(scores)]
        used = [torch.where(p > 0, p * torch.where((p > 0).any(0), s, 0), 0) for p, s in zip(parts, each, strict=True)]
        found.append(sum(x.flatten(1).sum(1) for x in used))
    return found


def log_z(total: Tensor) -> Tensor:
    return total.logsumexp(0) if (total > -torch.inf).any() else total.new_full((), -torch.inf)


def entropy(total: Tensor) -> Tensor:
    possible = total[total > -torch.inf]
    return -(possible.softmax(0) * possible.log_softmax(0)).sum() if len(possible) else total.new_zeros(())


def best(total: Tensor) -> Tensor:
    return total.max() if len(total) else total.new_full((), -torch.inf)


OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[[Tensor], Tensor]]] = {
    "log_partition": (lambda f, s, n: f.log_partition(*s, lengths=n), log_z),
    "entropy": (lambda f, s, n: f.entropy(*s, lengths=n), entropy),
    "argmax": (lambda f, s, n: f.argmax(*s, lengths=n)[0], best),
    "topk": (lambda f, s, n: f.topk(*s, k=1, lengths=n)[0][0], best),
    "best, scored": (lambda f, s, n: f.score(*s, rows=f.argmax(*s, lengths=n)[1], lengths=n), best),
}


class Errors:
    """The largest errors by structure and operation."""

    def __init__(self, section: str):
        self.section, self.count, self.largest, self.failed = section, 0, {}, 0

    def add(self, name: str, operation: str, where: str, got: Tensor, want: Tensor, dtype: torch.dtype,
            scale: float = 1.0) -> None:  # fmt: skip
        self.count += 1
        rounding = torch.finfo(dtype).eps
        same = got.double() == want
        error = torch.where(same, 0, (got.double() - want).abs() / want.abs().clamp(min=max(1.0, scale))).nan_to_num(
            nan=torch.inf
        )
        units = error.max().item() / rounding if error.numel() else 0.0
        at = name, operation
        self.largest[at] = max(self.largest.get(at, 0.0), units)
        if not units <= LIMIT[self.section]:
            self.failed += 1
            print(f"beyond the limit: {name}, {operation}, {where}: {units:.3g} roundings", flush=True)

    def table(self) -> None:
        operations = list(dict.fromkeys(operation for _, operation in self.largest))
        print("| | " + " | ".join(operations) + " |\n|---" * 1 + "|---" * len(operations) + "|")
        for name in dict.fromkeys(name for name, _ in self.largest):
            print(
                f"| {name} | "
                + " | ".join(f"{self.largest.get((name, o), float('nan')):.2g}" for o in operations)
                + " |"
            )
        print(
            f"{self.section}: {self.count} comparisons, {self.failed} beyond {LIMIT[self.section]:g} roundings",
            flush=True,
        )


def compare_values(name: str, case: Case, errors: Errors) -> None:
    for dtype in TYPES:
        for kind in KINDS:
            for n, scores, lengths, sentences in batches(case, kind, dtype):
                exact = totals(case, [s.double() for s in scores], sentences)
                results = scores[0].dtype if len(scores) == 1 else torch.promote_types(scores[0].dtype, scores[1].dtype)
                scale = max(x.abs().max().item() for t in exact if (x := t[t.abs() < torch.inf]).numel())
                where = f"{kind}, {str(dtype).removeprefix('torch.')}, n={n}"
                for operation, (run, define) in OPERATIONS.items():
                    want = torch.stack([define(t) for t in exact])
                    errors.add(name, operation, where, run(case.functions, scores, lengths), want, results, scale)
                p = case.functions.expected_parts(*scores, lengths=lengths)
                for b, (parts, total) in enumerate(zip(sentences, exact, strict=True)):
                    weights = torch.where(total > -torch.inf, (total - log_z(total)).exp(), 0)
                    for got, part in zip(p, parts, strict=True):
                        want = torch.einsum("m,m...->...", weights, part)
                        errors.add(name, "marginals", where, got[b], want, results, scale)


def compare_derivatives(name: str, case: Case, errors: Errors) -> None:
    """Compare first and second derivatives of log Z and entropy, and those of marginals, which are second ones of log Z."""
    for kind in ("plain", "small", "wide"):
        for n, scores, lengths, sentences in batches(case, kind, torch.float64):
            generator = torch.Generator().manual_seed(n)
            leaves = [s.nan_to_num(nan=0.0).requires_grad_() for s in scores]
            direction = [torch.randn(s.shape, generator=generator, dtype=torch.float64) for s in scores]
            weight = torch.randn(3, generator=generator, dtype=torch.float64)
            for operation in ("log_partition", "entropy"):
                run, define = OPERATIONS[operation]
                pair = []
                for value in (
                    run(case.functions, leaves, lengths),
                    torch.stack([define(t) for t in totals(case, leaves, sentences)]),
                ):
                    first = torch.autograd.grad((value * weight).sum(), leaves, create_graph=True)
                    along = sum((g * d).sum() for g, d in zip(first, direction, strict=True))
                    pair.append((first, torch.autograd.grad(along, leaves, materialize_grads=True)))
                for order, (got, want) in zip(("first", "second"), zip(*pair, strict=True), strict=True):
                    for one, other in zip(got, want, strict=True):
                        errors.add(
                            name, f"{order} of {operation}", f"{kind}, n={n}", one, other.detach(), torch.float64
                        )
            p = case.functions.expected_parts(*leaves, lengths=lengths)
            loss = sum(
                (x * d * weight.view(3, *(1 for _ in x.shape[1:]))).sum() for x, d in zip(p, direction, strict=True)
            )
            got = torch.autograd.grad(loss, leaves)
            value = torch.stack([log_z(t) for t in totals(case, leaves, sentences)])
            first = torch.autograd.grad((value * weight).sum(), leaves, create_graph=True)
            along = sum((g * d).sum() for g, d in zip(first, direction, strict=True))
            for one, other in zip(got, torch.autograd.grad(along, leaves, materialize_grads=True), strict=True):
                errors.add(name, "first of marginals", f"{kind}, n={n}", one, other, torch.float64)


def main() -> None:
    asked = sys.argv[1:]
    sections = [s for s in ("values", "derivatives") if s in asked] or ["values", "derivatives"]
    names = [n for n in CASES if n in asked] or list(CASES)
    failed = 0
    for section in sections:
        errors = Errors(section)
        for name in names:
            (compare_values if section == "values" else compare_derivatives)(name, CASES[name], errors)
        errors.table()
        failed += errors.failed
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
