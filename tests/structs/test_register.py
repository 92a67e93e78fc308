"""Properties of every structure of the register, however torch calls it."""

import math
from contextlib import nullcontext

import pytest
import torch
from register import STRUCTURES
from torch import Tensor
from torch.distributions import kl_divergence
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from phrasemodels.structs import structure
from phrasemodels.structs.dispatch import FORBIDS
from phrasemodels.structs.kernels import reference_only

F64 = torch.float64


@pytest.fixture(params=STRUCTURES)
def kind(request):
    return STRUCTURES[request.param]


def functions(kind):
    """Return the functions with derivatives, each to one tensor, by name."""
    f, lengths = kind.functions, kind.lengths
    value = kind.distribution(*kind.scores(seed=5), lengths).mode

    def marginals(*s: Tensor) -> Tensor:
        return f.expected_parts(*s, lengths=lengths)[0]

    return {
        "log Z": lambda *s: f.log_partition(*s, lengths=lengths),
        "marginals": marginals,
        "entropy": lambda *s: f.entropy(*s, lengths=lengths),
        "best": lambda *s: f.argmax(*s, lengths=lengths)[0],
        "k best": lambda *s: f.topk(*s, k=2, lengths=lengths)[0],
        "log probability": lambda *s: kind.distribution(*s, lengths).log_prob(value),
    }


@pytest.mark.parametrize("name", ["log Z", "marginals", "entropy", "best", "k best", "log probability"])
def test_transforms_of_torch_func_equal_autograd(kind, name):
    f, fixed = functions(kind)[name], kind.scores()
    leaves = [s.clone().requires_grad_() for s in fixed]
    tangents, everything = kind.scores(seed=1), tuple(range(len(fixed)))
    value = f(*leaves)
    weight = torch.randn_like(value)
    expected = torch.autograd.grad((value * weight).sum(), leaves)
    found = grad(lambda *s: (f(*s) * weight).sum(), everything)(*fixed)
    torch.testing.assert_close(found, expected)
    for jacobian in (jacrev, jacfwd):
        rows = jacobian(f)(*fixed)
        torch.testing.assert_close(torch.tensordot(weight, rows, weight.dim()), expected[0])
    batched = torch.autograd.functional.jacobian(f, tuple(fixed), vectorize=True)
    for rows, slope in zip(batched, expected, strict=True):
        torch.testing.assert_close(torch.tensordot(weight, rows, weight.dim()), slope)
    with pytest.raises(RuntimeError, match=r"no strategy='forward-mode' for them; use torch\.func\.jacfwd$"):
        torch.autograd.functional.jacobian(f, tuple(fixed), vectorize=True, strategy="forward-mode")
    primal, tangent = jvp(f, tuple(fixed), tuple(tangents))
    torch.testing.assert_close(primal, value.detach())
    directional = sum((g * t).sum() for g, t in zip(expected, tangents, strict=True))
    torch.testing.assert_close((tangent * weight).sum(), directional)


@pytest.mark.parametrize("name", ["log Z", "marginals", "entropy", "best", "k best", "log probability"])
def test_vmap_and_gradients_of_each_example_equal_a_loop(kind, name):
    f, many = functions(kind)[name], [torch.stack(x) for x in zip(kind.scores(), kind.scores(seed=2), strict=True)]
    each = [[s[i] for s in many] for i in range(2)]
    torch.testing.assert_close(vmap(f)(*many), torch.stack([f(*s) for s in each]))
    slope = grad(lambda *s: f(*s).square().sum(), tuple(range(len(many))))
    for i, one in enumerate(slope(*each[1])):
        torch.testing.assert_close(vmap(slope)(*many)[i][1], one)
    shared = (0, *(None for _ in many[1:]))  # only the first scores differ
    torch.testing.assert_close(
        vmap(f, in_dims=shared)(many[0], *each[0][1:]), torch.stack([f(s, *each[0][1:]) for s in many[0]])
    )


def test_second_derivatives_are_covariances(kind):
    f, fixed = functions(kind), kind.scores()
    rows = jacrev(lambda s: f["marginals"](s, *fixed[1:]))(fixed[0])
    for name in ("log Z", "log probability"):
        total = lambda s, name=name: f[name](s, *fixed[1:]).sum()  # noqa: E731
        for second in (hessian(total), jacfwd(jacfwd(total)), jacrev(jacfwd(total))):
            torch.testing.assert_close(second(fixed[0]), rows if name == "log Z" else -rows)
    batched = torch.autograd.functional.hessian(lambda s: f["log Z"](s, *fixed[1:]).sum(), fixed[0], vectorize=True)
    torch.testing.assert_close(batched, rows)
    leaves = [s.requires_grad_() for s in fixed]
    for name in ("log Z", "marginals", "entropy"):
        torch.autograd.gradgradcheck(f[name], leaves, fast_mode=True)


def test_torch_func_refuses_third_derivatives_of_log_z(kind):
    f, fixed = functions(kind), kind.scores()

    def entropy(s):
        return f["entropy"](s, *fixed[1:]).sum()

    squares = hessian(lambda s: f["marginals"](s, *fixed[1:]).square().sum())
    for higher in (hessian(entropy), jacfwd(jacfwd(entropy)), jacrev(jacrev(entropy)), squares):
        with pytest.raises(NotImplementedError, match=r"third derivatives of log Z; torch.autograd.grad has them"):
            higher(fixed[0])


@pytest.mark.parametrize("path", ["kernels", "torch"])
def test_inference_mode_changes_no_result_and_no_later_training(kind, path):
    """As in a validation before the first update: what it keeps, and the lengths that it made, serve training."""
    f = functions(kind) | {name: lambda *s, name=name: getattr(kind.functions, name)(*s, lengths=kind.lengths)[0]
                           for name in ("argmax", "minimum_risk")}  # fmt: skip
    fixed, context = kind.scores(), reference_only if path == "torch" else nullcontext
    expected = {name: function(*fixed) for name, function in f.items()}
    structure._schedules.clear()
    with context():
        with torch.inference_mode():
            found = {name: function(*(s.clone() for s in fixed)) for name, function in f.items()}
            kind.functions.sample(*fixed, k=2, lengths=kind.lengths)
            lengths = torch.tensor(kind.lengths)
        torch.testing.assert_close({name: x.clone() for name, x in found.items()}, expected)
        leaves = [s.requires_grad_() for s in fixed]
        kind.functions.log_partition(*leaves, lengths=lengths).sum().backward()
        sum(function(*leaves).sum() for function in f.values()).backward()


@pytest.mark.parametrize("name", ["log_partition", "argmax"])
def test_lengths_may_change_before_the_backward_pass(kind, name):
    leaves, lengths = [s.requires_grad_() for s in kind.scores()], torch.tensor(kind.lengths)
    values = [getattr(kind.functions, name)(*leaves, lengths=x) for x in (kind.lengths, lengths)]
    lengths -= 1
    sums = [(x[0] if name == "argmax" else x) @ torch.tensor([1, 2], dtype=F64) for x in values]
    for graph in (True, False):
        one, other = (torch.autograd.grad(x, leaves, create_graph=graph, retain_graph=True) for x in sums)
        torch.testing.assert_close(one, other)


def test_samples_say_that_they_cannot_be_vmapped(kind):
    with pytest.raises(ValueError, match="use their batch dimension"):
        vmap(lambda *s: kind.functions.sample(*s, k=2, lengths=kind.lengths))(*(s[None] for s in kind.scores()))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("mask", [-1e9, -1e15, "finfo.min"])
def test_a_large_finite_mask_forbids_as_minus_infinity_does(kind, mask, dtype):
    number = torch.finfo(dtype).min if mask == "finfo.min" else mask
    scores = kind.scores(dtype)
    support = kind.distribution(*scores, kind.lengths).enumerate_support()
    hidden = torch.rand(scores[0].shape, generator=torch.Generator().manual_seed(3)) < 0.2
    # the structure that is sampled first stays possible
    kept = torch.autograd.grad(
        kind.functions.score(*(s.requires_grad_() for s in scores), rows=support[0], lengths=kind.lengths).sum(),
        scores[0],
    )[0]
    hidden &= kept == 0
    scores = [s.detach() for s in scores]
    p, q = (
        kind.distribution(scores[0].masked_fill(hidden, x), *scores[1:], kind.lengths) for x in (number, -torch.inf)
    )
    for one, other in zip(p.parts(), q.parts(), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(p.entropy(), q.entropy(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(p.log_partition, q.log_partition)
    torch.testing.assert_close(p.log_prob(p.mode), q.log_prob(q.mode), rtol=1e-5, atol=1e-5)
    assert number > FORBIDS or torch.equal(p.enumerate_support(), q.enumerate_support())
    other = kind.distribution(*kind.scores(dtype, seed=5), kind.lengths)
    for divergence in (kl_divergence, type(p).cross_entropy) if number < FORBIDS else ():
        torch.testing.assert_close(divergence(other, p), divergence(other, q), rtol=1e-4, atol=1e-4)
    found, wanted = (torch.autograd.functional.jacobian(
        lambda s, x=x: kind.distribution(s.masked_fill(hidden, x), *scores[1:], kind.lengths).entropy(), scores[0]
    ) for x in (number, -torch.inf))  # fmt: skip
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_everything_below_the_mask_is_no_structure(kind):
    scores = [s.fill_(-1e15) if i == 0 else s for i, s in enumerate(kind.scores())]
    p = kind.distribution(*scores, kind.lengths)
    assert p.log_partition.tolist() == [-math.inf] * 2 and p.entropy().tolist() == [0, 0]
    assert (p.mode == -1).all() and not any(x[:2].any() for x in p.parts())


def test_what_is_no_structure_has_no_probability(kind):
    p = kind.distribution(*kind.scores(), kind.lengths)
    support, gen = p.enumerate_support(), torch.Generator().manual_seed(0)
    log_p = p.log_prob(support)
    members = [
        {tuple(x.flatten().tolist()): q for x, q in zip(support[:, b], log_p[:, b], strict=True)} for b in (0, 1)
    ]
    members = [{x: q for x, q in one.items() if q > -math.inf} for one in members]
    torch.testing.assert_close(
        torch.stack([torch.stack([*m.values()]).exp().sum() for m in members]), torch.ones(2, dtype=F64)
    )
    which = torch.randint(len(support), (400,), generator=gen)
    changed = support[which]
    hit = torch.rand(changed.shape, generator=gen) < 1.5 / changed[0, 0].numel()
    other = torch.randint(-3, 7, changed.shape, generator=gen)
    changed = torch.where(hit, other, changed)
    found = p.log_prob(changed)
    for b, size in enumerate(torch.as_tensor(kind.lengths).reshape(2, -1)[:, 0].tolist()):
        for row, got in zip(changed[:, b], found[:, b].tolist(), strict=True):
            wanted = members[b].get(canonical(kind, row, size))
            assert got == (-math.inf if wanted is None else pytest.approx(wanted.item())), row.tolist()


def canonical(kind, row, size):
    """Return a structure of so many words as its support has it: what is in the padding, or at the root, is not looked at."""
    row, name = row.clamp(min=-1), kind.functions.module
    if kind.functions.event_dims == 1:
        root = int(name in ("eisner", "nonprojective"))
        row[size + root :], row[:root] = -1, -1
    else:
        places = row if name == "joint" else row[:, :2]
        row[(places < 0).all(1)] = -1
        if name in ("spans", "pcfg", "joint"):  # cells may be in any order, and arcs after or before them
            row = torch.tensor(sorted(row.tolist(), key=lambda x: (max(x) < 0, x[0] < 0, x[0], -x[1], *x[2:])))
    return tuple(row.flatten().tolist())


@pytest.mark.parametrize("std", [10, 1000])
def test_no_log_probability_is_above_0_and_none_loses_its_gradient(kind, std):
    for seed in range(10):
        leaves = [s.requires_grad_() for s in kind.scores(torch.float32, std, seed)]
        p = kind.distribution(*leaves, kind.lengths)
        log_p = p.log_prob(p.mode)
        assert (log_p <= 0).all() and (p.topk(2)[0] <= 0).all()
        found = torch.autograd.grad(log_p.sum(), leaves, retain_graph=True)
        total = (p.score(p.mode) - p.log_partition).sum()
        assert all(map(torch.equal, found, torch.autograd.grad(total, leaves)))


def test_lengths_and_scores_may_be_given_in_every_form(kind):
    f, scores, lengths = kind.functions, kind.scores(), torch.tensor(kind.lengths)
    expected = f.log_partition(*scores, lengths=lengths)
    assert torch.equal(f.log_partition(*scores, kind.lengths), expected)
    assert torch.equal(f.log_partition(lengths=lengths, **dict(zip(f.names, scores, strict=False))), expected)
    with pytest.raises(TypeError, match="nothing: the scores of"):
        f.log_partition(*scores, nothing=scores[0])
    heads = [s if f.shared_dims[i] == s.dim() else s[:, None].expand(2, 3, *s.shape[1:]) for i, s in enumerate(scores)]
    torch.testing.assert_close(f.log_partition(*heads, lengths), expected[:, None].expand(2, 3))
    if f.length_axes == 1:
        longest = scores[0].shape[1] - int("root" in repr(f))
        mask = torch.arange(longest) < lengths[:, None]
        assert torch.equal(f.log_partition(*scores, mask), expected)
        torch.testing.assert_close(f.log_partition(*heads, mask), expected[:, None].expand(2, 3))
