"""torch.compile, autocast, inference mode, and lengths that are lists or 0."""

import pytest
import torch
import torch._dynamo.testing
from test_gradients import flat, scores_of

from phrasemodels.structs import chain, eisner, joint, nonprojective, spans

F64 = torch.float64
MODULES = {
    "chain": chain,
    "multi_root": eisner.multi_root,
    "single_root": eisner.single_root,
    "any_root": nonprojective.multi_root,
    "one_root": nonprojective.single_root,
    "spans": spans,
    "joint": joint,
}
LENGTHS = [3, 1]


def functions(module):
    """Return the functions with a derivative, each to one tensor."""
    return (
        lambda *s: module.log_partition(*s, lengths=LENGTHS),
        lambda *s: flat(module.marginals(*s, lengths=LENGTHS))[0],
        lambda *s: module.entropy(*s, lengths=LENGTHS),
        lambda *s: module.argmax(*s, lengths=LENGTHS)[0],
    )


def test_a_compiled_function_calls_the_kernels_between_its_graphs():
    def loss(unary, pairwise):
        return (chain.marginals(unary * 2, pairwise, [3, 1]).square()).sum() + chain.log_partition(
            unary, pairwise
        ).sum()

    scores = scores_of("chain", n=3, pairwise="shared")
    counter = torch._dynamo.testing.CompileCounter()
    value = torch.compile(loss, backend=counter)(*scores)
    assert counter.frame_count == 3  # before, between and after the two
    torch.testing.assert_close(value, loss(*scores))
    torch.testing.assert_close(torch.autograd.grad(value, scores), torch.autograd.grad(loss(*scores), scores))


@pytest.mark.parametrize("name", MODULES)
def test_autocast_and_inference_mode_change_no_result(name):
    scores = [s.detach().float() for s in scores_of(name)]
    for f in (*functions(MODULES[name]), lambda *s: MODULES[name].sample(*s, k=2, lengths=LENGTHS)):
        torch.manual_seed(0)
        expected = f(*scores)
        for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode()):
            torch.manual_seed(0)
            with mode:
                found = f(*scores)
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("empty", [torch.tensor([0, 2]), None])
def test_an_empty_sentence_has_one_structure_with_the_score_0(name, empty):
    """`empty`: lengths, one of them 0; None: tensors without any position."""
    module, scores = MODULES[name], scores_of(name, n=2)
    if empty is None:
        cut = [slice(0, 1) if "root" in name or i else slice(0, 0) for i in range(2)]
        scores = [s[:, c] if name == "chain" else s[:, c, c] for s, c in zip(scores, cut, strict=False)]
        scores = [s.detach().requires_grad_() for s in (scores if name != "chain" else (scores[0], torch.zeros(3, 3)))]
    outcome = [module.log_partition(*scores, lengths=empty), module.entropy(*scores, lengths=empty)]
    score, *best = module.argmax(*scores, lengths=empty)
    drawn = [d[0] for d in flat(module.sample(*scores, k=2, lengths=empty))]
    assert [x[0].item() for x in (*outcome, score)] == [0, 0, 0]
    assert all((x[0] == -1).all() for x in (*best, *drawn))
    grads = torch.autograd.grad(outcome[0].sum(), scores, materialize_grads=True)
    assert all((g[0] == 0).all() for g in grads if g.dim() > 2)
    p = flat(module.marginals(*scores, lengths=empty))
    assert all((x[0] == 0).all() for x in p) and (empty is None or p[0][1].sum() > 0)
    if hasattr(module, "topk"):
        assert module.topk(*scores, 2, empty)[0][:, 0].tolist() == [0, -torch.inf]


def test_lengths_may_be_a_list():
    unary, pairwise = scores_of("chain", n=4)
    both = [chain.marginals(unary, pairwise, lengths) for lengths in ([2, 4], torch.tensor([2, 4]))]
    assert torch.equal(*both)
