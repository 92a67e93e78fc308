"""Derivatives, forbidden parts, padding, types and errors of every kind of structure."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from phrasemodels.structs import chain, eisner, joint, spans

F64 = torch.float64
MODULES = {
    "chain": chain,
    "multi_root": eisner.multi_root,
    "single_root": eisner.single_root,
    "spans": spans,
    "joint": joint,
}


def scores_of(name, B=2, n=4, std=1.0, seed=0, dtype=F64, pairwise="each"):
    shapes = {
        "chain": [(B, n, 3), (B, n - 1, 3, 3) if pairwise == "each" else (3, 3)],
        "spans": [(B, n, n, 2)],
        "joint": [(B, n, n, 2), (B, n + 1, n + 1)],
    }
    gen = torch.Generator().manual_seed(seed)
    draw = [torch.randn(*s, generator=gen, dtype=F64) for s in shapes.get(name, [(B, n + 1, n + 1)])]
    return [(x * std).to(dtype).requires_grad_() for x in draw]


def flat(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("pairwise", ["each", "shared"])
@pytest.mark.parametrize("name", MODULES)
def test_first_and_second_derivatives_equal_finite_differences(name, pairwise):
    if pairwise == "shared" and name != "chain":
        pytest.skip("only chains have pairwise scores")
    module, scores = MODULES[name], scores_of(name, n=3, pairwise=pairwise)
    lengths = torch.tensor([3, 2])
    for f in (module.log_partition, module.marginals, module.entropy):
        gradcheck(lambda *s, f=f: f(*s, lengths=lengths), scores)
        gradgradcheck(lambda *s, f=f: f(*s, lengths=lengths), scores, fast_mode=True)


def test_second_derivatives_of_pair_marginals_equal_finite_differences():
    gradgradcheck(chain.pair_marginals, scores_of("chain", n=3))


@pytest.mark.parametrize("name", MODULES)
def test_gradient_of_the_argmax_score_marks_the_chosen_parts(name):
    scores = scores_of(name)
    score = MODULES[name].argmax(*scores)[0]
    grads = torch.autograd.grad(score.sum(), scores)
    assert all(((g == 0) | (g == 1)).all() for g in grads)
    recovered = sum((g * s).sum() for g, s in zip(grads, scores, strict=True))
    torch.testing.assert_close(recovered, score.sum())


def forbid(name, scores):
    """Return scores that forbid some parts, and all structures of the first sentence."""
    out = [s.detach().clone() for s in scores]
    if name == "chain":
        out[1][:, 0, 0, 1] = out[0][1, 2, 2] = -torch.inf
        out[0][0, 1] = -torch.inf
    elif "root" in name:
        out[0][:, 2, 1] = -torch.inf
        out[0][0, :, 3] = -torch.inf
    else:
        out[0][:, 1, 2, 0] = -torch.inf
        out[0][0, 1, 1] = -torch.inf
    return [s.requires_grad_() for s in out]


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", MODULES)
def test_forbidden_parts_have_probability_0_and_finite_gradients(name, dtype):
    module, scores = MODULES[name], forbid(name, scores_of(name, dtype=dtype))
    log_z = module.log_partition(*scores)
    assert log_z[0] == -torch.inf
    assert log_z[1].isfinite()
    p = flat(module.marginals(*scores))
    for m, s in zip(p, scores, strict=False):
        assert (m[0] == 0).all()
        assert (m[s == -torch.inf] == 0).all()
    weights = [torch.randn_like(m) for m in p]
    loss = sum((w * m).sum() for w, m in zip(weights, p, strict=True)) + log_z[1] + module.entropy(*scores).sum()
    first = torch.autograd.grad(loss, scores, create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), scores)
    alone = torch.autograd.grad(module.entropy(*scores).sum(), scores)
    assert all(g.isfinite().all() for g in (*first, *second, *alone))
    assert module.argmax(*scores)[0].isfinite().tolist() == [False, True]
    assert module.entropy(*scores)[0] == 0
    assert all(x.shape[0] == 3 for x in flat(module.sample(*scores, k=3)))


@pytest.mark.parametrize("name", MODULES)
def test_a_padded_batch_equals_its_sentences_one_by_one(name):
    module, n, lengths = MODULES[name], 6, torch.tensor([4, 1, 6, 3])
    scores = scores_of(name, B=4, n=n)
    extra = 1 if "root" in name else 0

    def one(b, m):
        cut = []
        for i, s in enumerate(scores):
            size = m + extra
            if name == "joint" and i == 1:
                size = m + 1
            x = s[b : b + 1].detach()
            cut.append(
                x[:, : m - 1] if name == "chain" and i == 1 else x[:, :size] if name == "chain" else x[:, :size, :size]
            )
        return [x.clone().requires_grad_() for x in cut]

    padded = [s.detach().clone() for s in scores]
    for b, m in enumerate(lengths):  # padding must not be read
        for i, s in enumerate(padded):
            size = int(m) + (extra or (name == "joint" and i == 1)) - (name == "chain" and i == 1)
            s[b, size:] = torch.nan
            if name != "chain":
                s[b, :, size:] = torch.nan
    padded = [s.requires_grad_() for s in padded]
    results = run(module, padded, lengths)
    for b, m in enumerate(lengths):
        for got, want in zip(results, run(module, one(b, int(m)), None), strict=True):
            inside = tuple(slice(0, size) for size in want.shape[1:])
            torch.testing.assert_close(got[b][inside], want[0])
            rest = got[b].clone()
            rest[inside] = 0
            assert ((rest == 0) | (rest == -1)).all()


def run(module, scores, lengths):
    log_z, p = module.log_partition(*scores, lengths=lengths), flat(module.marginals(*scores, lengths=lengths))
    loss = log_z.sum() + sum((m * m).sum() for m in p)
    grads = torch.autograd.grad(loss, scores, materialize_grads=True)
    return log_z, *p, module.entropy(*scores, lengths=lengths), *module.argmax(*scores, lengths=lengths), *grads


@pytest.mark.parametrize("std", [1.0, 1000.0])
@pytest.mark.parametrize("name", MODULES)
def test_samples_of_a_padded_batch_are_structures_of_their_sentences(name, std):
    """A sample has the form of the best structure; if scores spread widely, it is the best structure."""
    module, lengths = MODULES[name], torch.tensor([4, 1, 6, 3])
    scores = [s.detach() for s in scores_of(name, B=4, n=6, std=std, dtype=torch.float32)]
    draw = [torch.Generator().manual_seed(3) for _ in range(2)]
    drawn, again = (flat(module.sample(*scores, k=50, lengths=lengths, generator=g)) for g in draw)
    best = module.argmax(*scores, lengths=lengths)[1:]
    for one, same, chosen in zip(drawn, again, best, strict=True):
        assert one.shape == (50, *chosen.shape) and torch.equal(one, same)
        assert torch.equal(one == -1, (chosen == -1).expand_as(one))
        alike = (one == chosen).flatten(2).all(2).double().mean(0)
        assert (alike > 0.9).all() if std > 1 else alike[lengths > 1].max() < 1


@pytest.mark.parametrize("name", MODULES)
def test_float32_stays_float32(name):
    module, scores = MODULES[name], scores_of(name, dtype=torch.float32)
    outcome = [module.log_partition(*scores), *flat(module.marginals(*scores)), module.argmax(*scores)[0]]
    assert {x.dtype for x in outcome} == {torch.float32}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chain.marginals(torch.zeros(3), torch.zeros(3, 3)), "unary must be"),
        (lambda: chain.marginals(torch.zeros(2, 3, 4), torch.zeros(3, 3)), "pairwise must be"),
        (lambda: chain.marginals(torch.zeros(2, 3, 4), torch.zeros(4, 4), torch.tensor([1, 4])), "must be in 0..3"),
        (lambda: chain.marginals(torch.zeros(2, 3, 4), torch.zeros(4, 4), torch.tensor([1])), "2 integers"),
        (lambda: eisner.multi_root.marginals(torch.zeros(2, 3, 4)), "root at 0"),
        (lambda: spans.marginals(torch.zeros(2, 3, 4, 1)), "labels must be"),
        (lambda: joint.marginals(torch.zeros(2, 3, 3, 1), torch.zeros(2, 4, 4)), "empty label"),
        (lambda: joint.marginals(torch.zeros(2, 3, 3, 2), torch.zeros(2, 3, 3)), "arcs must be"),
    ],
)
def test_wrong_shapes_and_lengths_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
