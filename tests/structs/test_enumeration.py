"""Inference over every kind of structure equals sums over the list of all structures."""

from functools import cache
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import chisquare

from phrasemodels.structs import chain, eisner, joint, spans
from phrasemodels.structs.kernels import reference_only

F64 = torch.float64


@pytest.fixture(autouse=True, params=["kernels", "reference"])
def path(request):
    if request.param == "kernels":
        yield
    else:
        with reference_only():
            yield


def bracketings(i, j):
    """Return all binary trees over words i..j as tuples of spans (i, k, j), with k = None for a word."""
    if i == j:
        return [((i, None, j),)]
    return [((i, k, j), *a, *b) for k in range(i, j) for a in bracketings(i, k) for b in bracketings(k + 1, j)]


def projective_heads(n, roots):
    for heads in product(range(n + 1), repeat=n):
        arcs = [(h, m) for m, h in enumerate(heads, 1)]
        if roots == 1 and heads.count(0) != 1:
            continue
        if all(reaches_root(heads, m) for m in range(1, n + 1)) and not any(cross(a, b) for a in arcs for b in arcs):
            yield arcs


def reaches_root(heads, m):
    seen = set()
    while m:
        if m in seen:
            return False
        seen.add(m)
        m = heads[m - 1]
    return True


def cross(a, b):
    (i, j), (k, m) = sorted(a), sorted(b)
    return i < k < j < m


def joint_trees(n):
    """Yield, for every bracketing and choice of heads, spans (i, j, whether the empty label is forbidden) and arcs."""
    for tree in bracketings(0, n - 1):
        merges = [s for s in tree if s[1] is not None]
        for sides in product((0, 1), repeat=len(merges)):
            real, arcs = {(0, n - 1)} if n > 1 else set(), []
            choices = {(i, j): (k, side) for (i, k, j), side in zip(merges, sides, strict=True)}
            top = attach(0, n - 1, choices, real, arcs)
            yield [(i, j, (i, j) in real) for i, _, j in tree], [*arcs, (0, top + 1)]


def attach(i, j, merges, real, arcs):
    """Return the head of words i..j; add the arcs between them, and the spans that must not have the empty label."""
    if i == j:
        return i
    k, side = merges[i, j]
    heads = attach(i, k, merges, real, arcs), attach(k + 1, j, merges, real, arcs)
    loser = (i, k) if side else (k + 1, j)
    if loser[0] < loser[1]:
        real.add(loser)
    arcs.append((heads[side] + 1, heads[1 - side] + 1))
    return heads[side]


@cache
def members(name, n):
    """Return the parts of all structures of n words as 0 or 1, one tensor (M, ...) for each score tensor."""
    if name == "chain":
        tags = torch.tensor(list(product(range(3), repeat=n)))
        one = torch.nn.functional.one_hot(tags, 3).to(F64)
        return one, one[:, :-1, :, None] * one[:, 1:, None, :]
    if name in ("multi_root", "single_root"):
        trees = list(projective_heads(n, 1 if name == "single_root" else None))
        out = torch.zeros(len(trees), n + 1, n + 1, dtype=F64)
        for row, arcs in zip(out, trees, strict=True):
            row[tuple(torch.tensor(arcs).T)] = 1
        return (out,)
    L = 2 if n < 6 else 1
    if name == "spans":
        trees = [
            [(i, j, c) for (i, _, j), c in zip(t, ls, strict=True)]
            for t in bracketings(0, n - 1)
            for ls in product(range(L), repeat=2 * n - 1)
        ]
        return (indicators(trees, (n, n, L)),)
    L = 3 if n < 4 else 2
    empty = 0 if n < 6 else 1  # six words have 10⁶ trees with empty labels, which `problem` forbids
    trees = [
        ([(i, j, c) for (i, j, _), c in zip(cells, ls, strict=True)], arcs)
        for cells, arcs in joint_trees(n)
        for ls in product(*(range(1 if real else empty, L) for *_, real in cells))
    ]
    return indicators([t for t, _ in trees], (n, n, L)), indicators([a for _, a in trees], (n + 1, n + 1))


def indicators(trees, shape):
    out = torch.zeros(len(trees), *shape, dtype=F64)
    rows = torch.tensor([[m, *part] for m, tree in enumerate(trees) for part in tree])
    out[tuple(rows.T)] = 1
    return out


MODULES = {
    "chain": chain,
    "multi_root": eisner.multi_root,
    "single_root": eisner.single_root,
    "spans": spans,
    "joint": joint,
}
SIZES = [(name, n) for name in MODULES for n in range(1, 7)]


def problem(name, n, std=1.0, seed=0, B=2):
    """Return random scores, and the score and probability of every structure."""
    parts = members(name, n)
    gen = torch.Generator().manual_seed(seed)
    scores = [torch.randn(B, *p.shape[1:], generator=gen, dtype=F64) * std for p in parts]
    total = sum(torch.einsum("b...,m...->bm", s, p) for s, p in zip(scores, parts, strict=True))
    if name == "joint" and n == 6:
        scores[0][..., 0] = -torch.inf
    return SimpleNamespace(
        module=MODULES[name], parts=parts, scores=scores, total=total, log_z=total.logsumexp(1), p=total.softmax(1)
    )


def all_marginals(name, module, *args, **kw):
    if name == "chain":
        return module.marginals(*args, **kw), module.pair_marginals(*args, **kw)
    out = module.marginals(*args, **kw)
    return out if isinstance(out, tuple) else (out,)


def member_scores(name, q, result):
    """Return the scores of structures in the form that `argmax` and `sample` return."""
    if name == "chain":
        onehot = torch.nn.functional.one_hot(result, 3).to(F64)
        pairs = onehot[..., :-1, :, None] * onehot[..., 1:, None, :]
        return (onehot * q.scores[0]).sum((-1, -2)) + (pairs * q.scores[1]).sum((-1, -2, -3))
    if name == "joint":
        return spans.score_cells(q.scores[0], result[0]) + eisner.score_heads(q.scores[1], result[1])
    return spans.score_cells(q.scores[0], result) if name == "spans" else eisner.score_heads(q.scores[0], result)


@pytest.mark.parametrize("std", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("name", "n"), SIZES)
def test_inference_equals_enumeration(name, n, std):
    q = problem(name, n, std)
    torch.testing.assert_close(q.module.log_partition(*q.scores), q.log_z)
    for got, part in zip(all_marginals(name, q.module, *q.scores), q.parts, strict=True):
        torch.testing.assert_close(got, torch.einsum("bm,m...->b...", q.p, part), rtol=1e-7, atol=1e-10)
    expected = -(q.p * q.total.log_softmax(1)).sum(1)
    torch.testing.assert_close(q.module.entropy(*q.scores), expected, rtol=1e-7, atol=1e-10)
    score, *best = q.module.argmax(*q.scores)
    torch.testing.assert_close(score, q.total.amax(1))
    torch.testing.assert_close(member_scores(name, q, best[0] if len(best) == 1 else best), q.total.amax(1))


@pytest.mark.parametrize("name", MODULES)
def test_samples_follow_the_distribution(name):
    q = problem(name, 3, seed=1, B=1)
    k = 4000
    drawn = q.module.sample(*q.scores, k=k, generator=torch.Generator().manual_seed(0))
    drawn = (drawn,) if isinstance(drawn, torch.Tensor) else drawn
    scores = torch.stack([member_scores(name, q, d[0] if len(d) == 1 else d) for d in zip(*drawn, strict=True)])
    distance = (scores - q.total).abs()  # no two structures have the same random score
    assert distance.amin(1).max() < 1e-9
    counts = torch.bincount(distance.argmin(1), minlength=q.total.shape[1])
    expected = q.p[0] * k
    rare = expected < 5
    observed = [*counts[~rare].tolist(), counts[rare].sum().item()]
    wanted = [*expected[~rare].tolist(), max(expected[rare].sum().item(), 1e-9)]
    assert chisquare(observed, wanted).pvalue > 1e-3


@pytest.mark.parametrize(
    ("roots", "counts"),
    [
        ("multi_root", [1, 3, 12, 55, 273, 1428]),  # C(3n, n) / (2n+1)
        ("single_root", [1, 2, 7, 30, 143, 728]),  # C(3n-2, n-1) / n
    ],
)
def test_numbers_of_projective_trees_are_the_known_ones(roots, counts):
    for n, count in enumerate(counts, 1):
        log_z = MODULES[roots].log_partition(torch.zeros(1, n + 1, n + 1, dtype=F64))
        assert log_z.exp().item() == pytest.approx(count)
