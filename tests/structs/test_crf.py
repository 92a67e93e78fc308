"""CRF modules: as pytorch-crf computes, by enumeration, and with tags or heads that are unknown."""

import re
from copy import deepcopy
from itertools import product

import pytest
import torch
import torch._dynamo.testing
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from phrasemodels.layers.attention_weights import SegmentWeights
from phrasemodels.structs import chain, crf, eisner, nonprojective

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)


def scores_of_all(model, emissions, n):
    """Return all sequences of n tags, and their scores from the definition."""
    every = torch.tensor(list(product(range(model.num_tags), repeat=n)))
    total = model.start_transitions[every[:, 0]] + model.end_transitions[every[:, -1]]
    total = total + emissions[torch.arange(n), every].sum(1)
    return every, total + model.transitions[every[:, :-1], every[:, 1:]].sum(1)


@pytest.mark.parametrize("batch_first", [True, False])
def test_likelihood_and_best_tags_are_those_of_enumeration(batch_first):
    model = crf.CRF(3, batch_first).double()
    emissions, tags = torch.randn(2, 4, 3, dtype=torch.float64), torch.randint(3, (2, 4))
    given = (emissions, tags, MASK) if batch_first else (emissions.transpose(0, 1), tags.T, MASK.T)
    value, best = model(*given, reduction="none"), model.decode(given[0], given[2])
    for b, n in enumerate((4, 2)):
        every, total = scores_of_all(model, emissions[b], n)
        chosen = (every == tags[b, :n]).all(1)
        torch.testing.assert_close(value[b], (total - total.logsumexp(0))[chosen][0])
        assert best[b] == every[total.argmax()].tolist()
    torch.testing.assert_close(model(*given), value.sum())
    torch.testing.assert_close(model(*given, reduction="token_mean"), value.sum() / 6)
    for kind in (torch.uint8, torch.int16):
        assert torch.equal(model(given[0], given[1].to(kind), *given[2:]), model(*given))


@pytest.mark.parametrize("unknown", [-1, -100])
def test_tags_that_are_unknown_are_summed_over(unknown):
    model, emissions = crf.CRF(3, batch_first=True).double(), torch.randn(1, 4, 3, dtype=torch.float64)
    tags = torch.tensor([[2, unknown, 0, unknown]])
    value = model(emissions, tags)
    every, total = scores_of_all(model, emissions[0], 4)
    fits = (every[:, 0] == 2) & (every[:, 2] == 0)
    torch.testing.assert_close(value, total[fits].logsumexp(0) - total.logsumexp(0))
    assert all(g.isfinite().all() for g in torch.autograd.grad(value, model.parameters()))


@pytest.mark.parametrize("trees", [eisner.single_root, nonprojective.multi_root])
def test_heads_that_are_unknown_are_summed_over(trees):
    model, arcs = crf.TreeCRF(trees), torch.randn(1, 4, 4, dtype=torch.float64)
    support = model.distribution(arcs).enumerate_support()[:, 0]
    log_p = model.distribution(arcs).log_prob(support[:, None])[:, 0]
    torch.testing.assert_close(model(arcs, support[:1]), log_p[0])
    fits = support[:, 2] == support[0, 2]
    partial = torch.tensor([[-1, -100, support[0, 2], -1]])
    torch.testing.assert_close(model(arcs, partial), log_p[fits].logsumexp(0))
    assert torch.equal(model.decode(arcs)[0], support[log_p.argmax()])


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_constraints_allow_what_the_scheme_allows_and_parameters_stay_finite(scheme):
    names = ["O", *(f"{x}-{label}" for label in ("PER", "LOC") for x in scheme if x != "O")]
    model = crf.CRF(len(names), batch_first=True, constraints=crf.tag_constraints(names, scheme))
    pattern = {"BIO": r"(O |B-(\w+) (I-\2 )*)*", "BIOES": r"(O |S-\w+ |B-(\w+) (I-\2 )*E-\2 )*"}[scheme]
    emissions = torch.randn(1, 3, len(names))
    support = model.distribution(emissions).enumerate_support()[:, 0]
    spelled = {tuple(tags) for tags in product(range(len(names)), repeat=3)}
    right = {tags for tags in spelled if re.fullmatch(pattern, "".join(f"{names[t]} " for t in tags))}
    assert {tuple(row.tolist()) for row in support} == right
    gold, optimiser = support[:1], torch.optim.Adam(model.parameters(), weight_decay=0.1)
    for _ in range(3):
        (-model(emissions, gold)).backward()
        optimiser.step()
    assert all(p.isfinite().all() for p in model.parameters()) and model(emissions, gold).isfinite()
    again = crf.CRF(len(names), batch_first=True, constraints=torch.ones_like(model.constraints))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(emissions, gold), model(emissions, gold))
    wrong = torch.tensor([[names.index("I-PER"), 0, 0]])
    with pytest.raises(ValueError, match="tags of sentence 1 have no probability"):
        model(emissions.expand(2, -1, -1), torch.cat([gold, wrong]))
    model.validate_args = False
    assert model(emissions, wrong).item() == -torch.inf
    with pytest.raises(ValueError, match="tag 'X-PER'"):
        crf.tag_constraints(["O", "X-PER"], scheme)
    with pytest.raises(ValueError, match="scheme 'BILOU': BIO or BIOES"):
        crf.tag_constraints(["O", "B-PER"], "BILOU")


@pytest.mark.parametrize("heads", [[0, 2, 1, 0], [0, 0, 0, 2], [0, 3, 0, 2], [0, 0, 4, 1], [0, 1, 0, 2]])
def test_heads_that_are_no_tree_are_refused_and_name_the_sentence(heads):
    """Cycles, two roots, arcs that cross, heads in the padding, heads of themselves."""
    model, arcs = crf.TreeCRF(), torch.randn(2, 5, 5)
    gold, mask = torch.tensor([[0, 0, 1, 2, 3], [*heads, 9]]), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]) > 0
    with pytest.raises(ValueError, match="single_root, of sentence 1"):
        model(arcs, gold, mask)
    assert crf.TreeCRF(validate_args=False)(arcs, gold, mask, reduction="none")[1].item() == -torch.inf


@pytest.mark.parametrize("module", ["CRF", "TreeCRF"])
def test_gradients_of_each_example_equal_a_loop(module):
    model = crf.CRF(3, batch_first=True) if module == "CRF" else crf.TreeCRF()
    scores = torch.randn(4, 2, 4, 3) if module == "CRF" else torch.randn(4, 2, 4, 4)
    gold = torch.randint(3, (4, 2, 4)) if module == "CRF" else torch.tensor([0, 0, 1, 2]).expand(4, 2, 4)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, scores, gold):
        return torch.func.functional_call(model, weights, (scores, gold))

    slope = torch.func.grad(loss, (0, 1))
    found = torch.func.vmap(slope, in_dims=(None, 0, 0))(weights, scores, gold)
    for i in range(4):
        one = slope(weights, scores[i], gold[i])
        torch.testing.assert_close(found[1][i], one[1])
        for name in weights:
            torch.testing.assert_close(found[0][name][i], one[0][name])


def test_what_is_no_tag_is_refused():
    model = crf.CRF(3, batch_first=True)
    for wrong in (3, -2):
        with pytest.raises(ValueError, match=r"integers in 0..2"):
            model(torch.zeros(1, 2, 3), torch.tensor([[0, wrong]]))
    with pytest.raises(ValueError, match="mask must be true from the first"):
        model.decode(torch.zeros(1, 3, 3), torch.tensor([[True, False, True]]))
    assert model(torch.zeros(1, 2, 3), torch.tensor([[0, 77]]), torch.tensor([[True, False]])).isfinite()


def test_word_pieces_without_a_tag_are_left_out():
    emissions, tags = torch.randn(2, 4, 3), torch.tensor([[0, -100, 2, 1], [-100, 1, -100, -100]])
    words, gold, mask = crf.first_pieces(emissions, tags)
    assert gold[mask].tolist() == [0, 2, 1, 1] and mask.sum(1).tolist() == [3, 1]
    assert torch.equal(words[0], emissions[0, [0, 2, 3]]) and torch.equal(words[1, 0], emissions[1, 1])
    model = crf.CRF(3, batch_first=True)
    alone = model(emissions[:1, [0, 2, 3]], tags[:1, [0, 2, 3]]) + model(emissions[1:, 1:2], tags[1:, 1:2])
    torch.testing.assert_close(model(words, gold, mask), alone)
    assert [x.shape[:2] for x in crf.first_pieces(emissions[:0], tags[:0])] == 3 * [(0, 0)]


def test_a_state_dict_without_constraints_loads_into_a_model_that_has_some():
    free, bound = (
        torch.nn.Sequential(crf.CRF(3, constraints=x)) for x in (None, crf.tag_constraints(["O", "B-A", "I-A"]))
    )
    bound.load_state_dict(free.state_dict())
    assert torch.equal(bound[0].transitions, free[0].transitions) and len(free.state_dict()) == 3
    assert torch.equal(bound[0].constraints, crf.tag_constraints(["O", "B-A", "I-A"]))


def test_a_compiled_model_calls_its_crf_between_two_graphs():
    layer, model = torch.nn.Linear(5, 3), crf.CRF(3, batch_first=True)

    def loss(x, tags):
        return -model(layer(x), tags, MASK) / 2

    x, tags = torch.randn(2, 4, 5), torch.randint(3, (2, 4))
    counter = torch._dynamo.testing.CompileCounter()
    value = torch.compile(loss, backend=counter)(x, tags)
    assert counter.frame_count == 2
    torch.testing.assert_close(value, loss(x, tags))


@pytest.mark.parametrize("checked", [True, False])
def test_tracers_are_refused_in_one_line(checked):
    tagger, tree = crf.CRF(3, batch_first=True, validate_args=checked), crf.TreeCRF(validate_args=checked)
    gold = {
        tagger: (torch.randn(2, 4, 3), torch.ones(2, 4).long()),
        tree: (torch.randn(2, 3, 3), torch.zeros(2, 3).long()),
    }
    for model, given in gold.items():
        for refused in (
            lambda model=model, given=given: torch.export.export(model, given, strict=False),
            lambda model=model: torch.jit.script(torch.nn.Sequential(model)),
        ):
            with pytest.raises(
                RuntimeError, match=r"^structs: torch.jit and torch.export cannot follow .* the scores$"
            ):
                refused()


def test_the_mean_of_nothing_is_0_with_a_gradient_of_0():
    model = crf.CRF(3, batch_first=True)
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    for given, reduction in (
        ((torch.randn(2, 4, 3), torch.zeros(2, 4).long(), nothing), "token_mean"),
        ((torch.randn(0, 4, 3), torch.zeros(0, 4).long()), "mean"),
        ((torch.randn(0, 4, 3), torch.zeros(0, 4).long()), "token_mean"),
    ):
        model.zero_grad()
        loss = model(*given, reduction=reduction)
        loss.backward()
        assert loss == 0 and not any(p.grad.any() for p in model.parameters())


def test_a_mask_may_be_a_list_of_any_numbers():
    model, emissions, tags = crf.CRF(3, batch_first=True), torch.randn(2, 3, 3), torch.zeros(2, 3).long()
    expected = model(emissions, tags, torch.tensor([[True, True, True], [True, False, False]]))
    assert model(emissions, tags, [[1, 1, 1], [1, 0, 0]]) == expected
    for mask in ([3, 1], "words"):
        with pytest.raises(ValueError, match=r"mask must have 2 dimensions|lengths must be integers"):
            model(emissions, tags, mask)
    with pytest.raises(ValueError, match=r"a mask must be bool: mask.bool\(\)$"):
        chain.log_partition(emissions, torch.zeros(3, 3), torch.ones(2, 3).long())


def test_a_sentence_without_tags_is_named():
    model, trees = crf.CRF(2, batch_first=True, constraints=[[False] * 3] * 3), crf.TreeCRF()
    free, nan = crf.CRF(2, batch_first=True), torch.tensor([0.0, torch.nan])[:, None, None]
    for call in (
        lambda: model.decode(torch.zeros(1, 2, 2)),
        lambda: free.decode(nan.expand(2, 2, 2)),
        lambda: free(nan.expand(2, 2, 2), torch.zeros(2, 2).long()),
        lambda: trees.decode(nan.expand(2, 3, 3)),
    ):
        with pytest.raises(ValueError, match=r"of sentence [01] have no probability"):
            call()
    assert crf.CRF(2, True, [[False] * 3] * 3, validate_args=False).decode(torch.zeros(1, 2, 2)) == [[-1, -1]]


def test_constraints_outlive_the_meta_device_and_do_not_change_in_silence():
    allowed = torch.tensor([[True, False, True]] * 3)
    with torch.device("meta"):
        model = crf.CRF(2, constraints=allowed)
    model.to_empty(device="cpu").reset_parameters()
    assert torch.equal(model.constraints, allowed)
    with pytest.warns(UserWarning, match="replace"):
        model.load_state_dict(crf.CRF(2, constraints=~allowed).state_dict())


def test_fsdp_divides_and_frees_the_parameters_of_structs():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        emissions, tags, mesh = torch.randn(2, 4, 3), torch.ones(2, 4).long(), init_device_mesh("cpu", (1,))
        inputs = {crf.CRF(3, batch_first=True): (emissions, tags, MASK), SegmentWeights(): (emissions, [3, 2])}
        for plain, given in inputs.items():
            divided = fully_shard(deepcopy(plain), mesh=mesh)
            grads = [torch.autograd.grad(plain(*given).square().sum(), [*plain.parameters()])]
            divided(*given).square().sum().backward()
            grads.append(tuple(p.grad.full_tensor() for p in divided.parameters()))
            torch.testing.assert_close(*grads)
            if isinstance(plain, crf.CRF):
                assert divided.decode(emissions, MASK) == plain.decode(emissions, MASK)
                with pytest.raises(RuntimeError, match="FSDP gathers its parameters in `forward` alone"):
                    divided.distribution(emissions, MASK)
    finally:
        distributed.destroy_process_group()
