"""The attention weights and models of paper 003 equal a plain transcription, ignore padding, and learn."""

import dataclasses
from functools import partial

import plain_003 as plain
import pytest
import torch

from phrasemodels.encoders.parents import HardParentsConfig, NoParentsConfig, SoftParentsConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.encoders.transformer import NgramEncoderConfig, PooledEncoderConfig, TransformerEncoderConfig
from phrasemodels.layers.attention_weights import (
    EdgeSegmentWeights,
    HardWeights,
    MarginalSegmentWeights,
    ReleasedSegmentWeights,
    SegmentWeights,
    SigmoidWeights,
    SingleRootTreeWeights,
    SoftmaxWeights,
    TreeWeights,
    scores_of_heads,
)
from phrasemodels.layers.labels import LabelAttentionConfig
from phrasemodels.layers.scorers import tanh_twice
from phrasemodels.models.memory import (
    BinaryPotentialsOnce,
    ChainConfig,
    HopsConfig,
    ReleasedPotentials,
    RowNormalisedPotentials,
    UnaryPotentials,
    bag_of_words,
)
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import DecomposableConfig, LearnedEmbedding
from phrasemodels.models.translation import BeamSearch, beam_search, token_loss

LENGTHS = torch.tensor([5, 3, 2])
HEADS = torch.tensor([[-1, 2, 0, 2, 3], [-1, 0, 1, -1, -1], [-1, 0, -1, -1, -1]])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def spread(model):
    """Return the model in float64, in eval mode, with parameters from N(0, 0.25)."""
    model = model.double().eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def weights_of(model):
    return {name: value.detach() for name, value in model.state_dict().items()}


def tensor(rows):
    return torch.stack([torch.stack(list(row)) if isinstance(row, list) else row for row in rows])


# --- weights -------------------------------------------------------------------------------------------------------

PLAIN_SEGMENTS = [
    (SegmentWeights, lambda *given: [p / 2 for p in plain.segments(*given)]),
    (ReleasedSegmentWeights, plain.segments),
    (EdgeSegmentWeights, partial(plain.segments, by_edge=True)),
    (MarginalSegmentWeights, partial(plain.segments, normalise=False)),
]


@pytest.mark.parametrize(("part", "expected"), PLAIN_SEGMENTS)
def test_weights_of_segments_equal_sums_over_all_sequences(part, expected):
    scores, weights = normal(3, 2, 5), spread(part())
    p = weights(scores, LENGTHS)
    for b, n in enumerate(LENGTHS.tolist()):
        for q in range(2):
            want = torch.stack(expected(list(scores[b, q, :n]), weights.transitions.detach()))
            torch.testing.assert_close(p[b, q, :n], want, rtol=1e-10, atol=1e-12)
            assert not p[b, q, n:].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [None, 2])
def test_weights_of_segments_sum_to_1_where_all_marginals_underflow(dtype, heads):
    weights, scores, found = SegmentWeights(heads), torch.randint(-3, 3, (3, 2, 4, 5)) - 115.0, []
    weights.transitions.data += torch.tensor([[0.0, 1.0], [2.0, -1.0]])  # exact in every type
    chosen = torch.randint(-2, 3, scores.shape).double()
    for kind in (dtype, torch.float64):
        leaves = [scores.to(kind).requires_grad_(), weights.to(kind).transitions]
        p = weights(leaves[0], LENGTHS)
        found.append([x.double() for x in (p, *torch.autograd.grad((p * chosen).sum(), leaves))])
    digits = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(*found, rtol=digits, atol=digits)
    many = torch.stack([scores - 1000, scores])
    torch.testing.assert_close(
        torch.func.vmap(lambda s: weights.float()(s, LENGTHS).sum(-1))(many), torch.ones(2, 3, 2, 4)
    )


@pytest.mark.parametrize(("part", "single"), [(TreeWeights, False), (SingleRootTreeWeights, True)])
def test_weights_of_trees_equal_sums_over_all_projective_trees(part, single):
    scores = normal(3, 5, 5)
    p, best = part()(scores, LENGTHS), part().best(scores, LENGTHS)
    for b, n in enumerate(LENGTHS.tolist()):
        want = tensor(plain.tree_weights([list(row[:n]) for row in scores[b, :n]], single))
        torch.testing.assert_close(p[b, :n, :n], want, rtol=1e-10, atol=1e-12)
        assert not p[b, n:].any() and not p[b, :, n:].any()
        trees = plain.projective_trees(n - 1, single)
        top = max(trees, key=lambda heads, b=b: sum(float(scores[b, m, h]) for m, h in enumerate(heads, 1)))
        assert best[b, 1:n].tolist() == list(top)


ENCODERS = {
    "n-grams": lambda: NgramEncoderConfig(d=5, heads=1, layers=1, d_ff=5, gram_sizes=(2,), phrase_layers=(1,)).build(),
    "sentences": lambda: PooledEncoderConfig(TransformerEncoderConfig(d=5, heads=1, layers=1, d_ff=5), 2).build(),
    "LSTM": lambda: LSTMEncoderConfig(5, 1).build(),
}
WEIGHERS = SoftmaxWeights, SigmoidWeights, SegmentWeights, TreeWeights, HardWeights


@pytest.mark.parametrize("make", [*WEIGHERS, *ENCODERS.values()])
def test_lengths_are_a_tensor_a_list_or_a_mask(make):
    part, x = make().eval(), torch.randn(3, 5, 5)
    expected, mask = part(x, LENGTHS), torch.arange(5) < LENGTHS[:, None]
    for lengths in (LENGTHS.tolist(), mask, mask.tolist(), LENGTHS.int()):
        assert torch.equal(part(x, lengths), expected)
    assert part(x[:0], []).shape == expected[:0].shape
    wrong = {
        "3 integers": [5],
        "bool: mask": mask.long(),
        r"\(3, 5\)$": mask[:, :4],
        "not a str": "5",
        "3 integers, ": LENGTHS + 0.5,
    }
    for said, lengths in wrong.items():
        with pytest.raises(ValueError, match=f"^lengths must be .*{said}"):
            part(x, lengths)


def test_a_head_for_each_label_takes_a_mask_alone():
    layer, x, mask = LabelAttentionConfig(2, 4, 4, 4).build(4).eval(), torch.randn(3, 5, 4), torch.arange(5) < LENGTHS[:, None]
    for valid, said in ((None, "a NoneType"), (mask.float()[:, None, None], r"\(3, 1, 1, 5\) of torch.float32"), (mask, r"\(3, 5\)")):
        for function in (layer, layer.weights):
            with pytest.raises(ValueError, match=rf"^valid must be a mask \(B, 1, 1, N\) of booleans, .* not {said}"):
                function(x, valid)


def test_softmax_sigmoid_and_hard_weights_ignore_padding():
    scores = normal(3, 2, 5)
    for part, want in ((SoftmaxWeights(), lambda s: s.softmax(-1)), (SigmoidWeights(), torch.sigmoid)):
        p = part(scores, LENGTHS)
        for b, n in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(p[b, :, :n], want(scores[b, :, :n]))
            assert not p[b, :, n:].any()
    chosen = HardWeights()(scores_of_heads(HEADS), LENGTHS)
    assert torch.equal(chosen.sum(-1) > 0, HEADS >= 0) and (chosen.argmax(-1)[HEADS >= 0] == HEADS[HEADS >= 0]).all()
    assert torch.equal(HardWeights()(scores, LENGTHS)[1, 0, :3].argmax(), scores[1, 0, :3].argmax())


@pytest.mark.parametrize(
    "part", [SoftmaxWeights, SigmoidWeights, SegmentWeights, EdgeSegmentWeights, TreeWeights, SingleRootTreeWeights]
)
def test_gradients_of_weights_equal_finite_differences(part):
    weights = part().double()
    parameters = [torch.nn.init.normal_(p) for p in weights.parameters()]
    scores = normal(2, 4, 4).requires_grad_()
    lengths = torch.tensor([4, 3])
    assert torch.autograd.gradcheck(lambda s, *_: weights(s, lengths), (scores, *parameters))


@pytest.mark.parametrize(
    "part", [SegmentWeights, partial(SegmentWeights, 2), TreeWeights, SoftmaxWeights, SigmoidWeights]
)
def test_heads_of_attention_are_weighed_one_by_one(part):
    weights, scores = spread(part()), normal(3, 2, 5, 5)
    together = weights(scores, LENGTHS)
    for h in range(2):
        one = weights
        if getattr(weights, "transitions", normal(1)).dim() == 3:
            one = SegmentWeights().double()
            one.transitions.data = weights.transitions[h].detach()
        torch.testing.assert_close(together[:, h], one(scores[:, h], LENGTHS))
        if hasattr(weights, "best"):
            assert torch.equal(weights.best(scores, LENGTHS)[:, h], one.best(scores[:, h], LENGTHS))


def test_the_decay_of_the_released_code_is_added_when_it_is_asked_for():
    weights = spread(ReleasedSegmentWeights())
    for _ in range(2):
        weights(normal(1, 1, 3), torch.tensor([3])).mul(0).sum().backward()
    assert not weights.transitions.grad.any()
    weights.decay_gradient()
    torch.testing.assert_close(weights.transitions.grad, 0.005 * weights.transitions.detach())


def test_extreme_scores_give_finite_weights_and_gradients():
    for part in (SoftmaxWeights, SigmoidWeights, SegmentWeights, TreeWeights):
        scores = (1000 * torch.randn(3, 5, 5)).requires_grad_()
        p = part()(scores, LENGTHS)
        p.square().sum().backward()
        assert p.isfinite().all() and scores.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("part", [*WEIGHERS, *(part for part, _ in PLAIN_SEGMENTS[1:]), SingleRootTreeWeights])
def test_a_query_that_may_select_nothing_has_weights_and_gradients_of_zero(part, dtype):
    whole, lengths = torch.randn(3, 5, 5).to(dtype), torch.tensor([5, 3, 5])
    row = torch.tensor([2, 1, 4])[:, None, None] == torch.arange(5)[:, None]
    forbidden = row if "Tree" not in part.__name__ else row | (torch.arange(3) < 2)[:, None, None]
    scores = whole.masked_fill(forbidden, -torch.inf).requires_grad_()
    p = part()(scores, lengths)
    assert not p[forbidden.expand_as(p)].any() and p.isfinite().all()
    if p.requires_grad:
        p.square().sum().backward()
        assert scores.grad.isfinite().all() and not scores.grad[row.expand_as(p)].any()


# --- translation and transduction ----------------------------------------------------------------------------------

D, SOURCE, TARGET = 6, 11, 13
KINDS = {
    "none": NoParentsConfig(D),
    "softmax": SoftParentsConfig(D, 3, SoftmaxWeights),
    "tree": SoftParentsConfig(D, 3, TreeWeights),
}
WEIGHTS = {
    "softmax": (SoftmaxWeights, lambda w: plain.softmax),
    "sigmoid": (SigmoidWeights, lambda w: lambda s: list(map(torch.sigmoid, s))),
}
WEIGHTS["segments"] = (ReleasedSegmentWeights, lambda w: lambda s: plain.segments(s, w["weights.transitions"]))
DECODERS = [
    *(("lstm", LSTMEncoderConfig(D, 2), kind) for kind in WEIGHTS),
    *((name, encoder, "softmax") for name, encoder in KINDS.items()),
]
NO_PHRASES = torch.zeros(3, 0, 2, dtype=torch.long)


def translator(encoder, kind, **fields):
    return RecurrentConfig(encoder, SOURCE, TARGET, weights=WEIGHTS[kind][0], **fields)


@pytest.mark.parametrize(("name", "encoder", "kind"), DECODERS)
def test_decoder_equals_the_transcription(name, encoder, kind):
    model = spread(translator(encoder, kind).build())
    source, target, w = torch.randint(4, SOURCE, (3, 5)), torch.randint(4, TARGET, (3, 4)), weights_of(model)
    outputs = model(source, LENGTHS, NO_PHRASES, target)
    for row, n in enumerate(LENGTHS.tolist()):
        x = [w["embed_source.weight"][i] for i in source[row, :n]]
        memory = (
            plain.with_parents(x, x, w, "encoder", name)
            if name in KINDS
            else plain.stacked_lstm(x, w, "encoder.lstm", 2)
        )
        want = plain.decode(memory, target[row].tolist(), w, 2, WEIGHTS[kind][1](w))
        torch.testing.assert_close(outputs[row], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "encoder", "kind"), DECODERS)
def test_scores_do_not_depend_on_the_batch_and_gradients_are_finite(name, encoder, kind):
    model = spread(translator(encoder, kind).build())
    source, target = torch.randint(4, SOURCE, (3, 5)), torch.randint(4, TARGET, (3, 4))
    together = model(source, LENGTHS, NO_PHRASES, target)
    for row, n in enumerate(LENGTHS.tolist()):
        alone = model(source[row : row + 1, :n], LENGTHS[row : row + 1], NO_PHRASES[:1], target[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-10, atol=1e-10)
    model.train()
    model(source, LENGTHS, NO_PHRASES, target).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters())


def test_decoding_token_by_token_equals_one_pass():
    model = spread(translator(LSTMEncoderConfig(D, 2), "segments").build())
    source, target = torch.randint(4, SOURCE, (3, 5)), torch.randint(4, TARGET, (3, 4))
    state = model.start(model.encode(source, LENGTHS, NO_PHRASES), LENGTHS)
    steps = torch.cat([model.advance(target[:, t : t + 1], state) for t in range(4)], 1)
    torch.testing.assert_close(model.project(steps), model(source, LENGTHS, NO_PHRASES, target))
    rows = torch.tensor([2, 0])
    state.select(rows)
    longer = torch.cat([target, target[:, :1]], 1)
    want = model(source, LENGTHS, NO_PHRASES, longer)[rows, -1]
    torch.testing.assert_close(model.project(model.advance(target[rows, :1], state))[:, -1], want)


def test_four_sources_are_memorised_and_beam_search_finds_them():
    model = translator(LSTMEncoderConfig(24, 1), "segments", layers=1, dropout=0.0, initial=0.3).build()
    source, lengths, phrases = torch.randint(4, SOURCE, (4, 5)), torch.tensor([5, 5, 4, 3]), torch.zeros(4, 0, 2).long()
    words = torch.randint(4, TARGET, (4, 4))
    target = torch.cat([torch.full((4, 1), 2), words, torch.full((4, 1), 3)], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        loss = token_loss(model, source, lengths, phrases, target, 0.0) / 20
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.05
    translations = beam_search(model.eval(), source, lengths, phrases, BeamSearch(beam=3))
    assert [ids for ids, _ in translations] == words.tolist()


def test_number_of_parameters_of_translation_equals_the_formula():
    def lstm(d):
        return 4 * d * (d + d + 2)  # with two biases as in torch; the released code has one

    d, source, target = 500, 3000, 2000
    with torch.device("meta"):
        sizes = {
            kind: sum(
                p.numel()
                for p in RecurrentConfig(LSTMEncoderConfig(), source, target, weights=part).build().parameters()
            )
            for kind, part in (
                ("softmax", SoftmaxWeights),
                ("sigmoid", SigmoidWeights),
                ("segments", ReleasedSegmentWeights),
            )
        }
    simple = (source + target) * d + 4 * lstm(d) + d * d + 2 * d * d + target * (d + 1)
    assert sizes == {"softmax": simple, "sigmoid": simple, "segments": simple + 4}


# --- memory networks -----------------------------------------------------------------------------------------------

CHAINS = {
    "binary": lambda K: ChainConfig(K, 4, 6, 9),
    "once": lambda K: ChainConfig(K, 4, 6, 9, potentials=BinaryPotentialsOnce),
    "rows": lambda K: ChainConfig(K, 4, 6, 9, potentials=RowNormalisedPotentials),
    "alone": lambda K: ChainConfig(K, 4, 6, 9, potentials=ReleasedPotentials),
    "unary": lambda K: ChainConfig(K, 4, 6, 9, potentials=UnaryPotentials),
}


def stories():
    """Return the facts (3, 5, 4) of stories of five, three and two facts of different lengths, and questions (3, 4)."""
    facts, questions = torch.randint(1, 9, (3, 5, 4)), torch.randint(1, 9, (3, 4))
    for row, n in enumerate(LENGTHS.tolist()):
        facts[row, : 5 - n] = 0
        facts[row, -1, 2 + row // 2 :] = 0
    questions[1, 3:] = 0
    return facts, questions


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("linear", [0, 1])
def test_hops_equal_the_transcription(K, linear):
    model = spread(HopsConfig(K, 4, 6, 9, linear_updates=linear).build())
    facts, questions = stories()
    scores, best, w = model(facts, questions), model.evidence(facts, questions), weights_of(model)
    for row, n in enumerate(LENGTHS.tolist()):
        want, evidence = plain.hops(facts[row, -n:].tolist(), questions[row].tolist(), w, K, bool(linear))
        torch.testing.assert_close(scores[row], want, rtol=1e-9, atol=1e-9)
        assert linear or (best[row] - (5 - n)).tolist() == evidence


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("kind", CHAINS)
def test_chains_of_facts_equal_sums_over_all_sequences(kind, K):
    model = spread(CHAINS[kind](K).build())
    facts, questions = stories()
    facts[2, -3] = torch.tensor([3, 1, 4, 0])  # a third fact, so that a chain of three can return to its first fact
    scores, best, w = model(facts, questions), model.evidence(facts, questions), weights_of(model)
    for row, n in enumerate([5, 3, 3]):
        story = facts[row, -n:].tolist()
        want, evidence = plain.fact_chain(story, questions[row].tolist(), w, K, kind)
        torch.testing.assert_close(scores[row], want, rtol=1e-9, atol=1e-9)
        assert (best[row] - (5 - n)).tolist() == evidence


MEMORIES = {"hops": lambda K: HopsConfig(K, 4, 6, 9), **CHAINS}


@pytest.mark.parametrize("kind", MEMORIES)
def test_answers_do_not_depend_on_the_batch_and_gradients_are_finite(kind):
    model = spread(MEMORIES[kind](2).build())
    facts, questions = stories()
    together = model(facts, questions)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(together[row], model(facts[row : row + 1, -n:], questions[row : row + 1])[0])
        wider = torch.nn.functional.pad(facts[row : row + 1], (0, 2))
        torch.testing.assert_close(together[row], model(wider, questions[row : row + 1])[0])
    model.train()
    model(facts, questions).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("kind", ["binary", "rows"])
def test_a_story_of_one_fact_gives_finite_scores_and_gradients(kind):
    model = spread(CHAINS[kind](2).build())
    answer = model(torch.tensor([[[0, 0], [3, 4]]]), torch.tensor([[1, 2]]))
    answer.sum().backward()
    assert answer.isfinite().all() and all(p.grad.isfinite().all() for p in model.parameters())


def test_linear_start_ends_and_its_end_is_saved_with_the_weights():
    config = HopsConfig(2, 4, 6, 9, encode=bag_of_words, linear_updates=2)
    model = config.build()
    facts, questions = stories()
    linear = model.eval().weights(facts, questions)
    model.train()
    for _ in range(3):
        model(facts, questions)
    assert (linear.sum(-1) - 1).abs().min() > 1e-3
    again = config.build()
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again.eval().weights(facts, questions).sum(-1), torch.ones(3, 2))


def test_released_potentials_are_those_of_pairs_until_the_linear_start_ends():
    model = spread(ChainConfig(2, 4, 6, 9, potentials=partial(ReleasedPotentials, linear_updates=2)).build()).train()
    facts, questions = stories()
    story, question, w = facts[0].tolist(), questions[0].tolist(), weights_of(model)
    for kind in ("binary", "binary", "alone"):
        torch.testing.assert_close(model(facts, questions)[0], plain.fact_chain(story, question, w, 2, kind)[0])


def test_numbers_of_parameters_of_memory_networks_equal_the_formula():
    V, d, slots = 40, 20, 25
    table = V * d + slots * d

    def size(config):
        return sum(p.numel() for p in config.build().parameters() if p.requires_grad)

    for K in (2, 3):
        assert size(HopsConfig(K, d, slots, V)) == (K + 1) * table
        chain = 2 * K * table + d * V
        assert size(ChainConfig(K, d, slots, V)) == chain + (K - 1) * (d * d + d)
        assert size(ChainConfig(K, d, slots, V, potentials=UnaryPotentials)) == chain + slots * slots


# --- decomposable attention ----------------------------------------------------------------------------------------

PARENTS = {**KINDS, "hard": HardParentsConfig(D)}


def pairs():
    """Return ids of premises and of hypotheses, and the lengths and heads of the hypotheses."""
    return torch.randint(0, SOURCE, (3, 5)), torch.randint(0, SOURCE, (3, 5)), LENGTHS.flip(0), HEADS.flip(0)


@pytest.mark.parametrize("kind", PARENTS)
def test_decomposable_attention_equals_the_transcription(kind):
    model = spread(DecomposableConfig(PARENTS[kind], SOURCE, embed=LearnedEmbedding).build())
    premise, hypothesis, lengths, heads = pairs()
    scores, w = model((premise, LENGTHS, HEADS), (hypothesis, lengths, heads)), weights_of(model)
    for row, (n, m) in enumerate(zip(LENGTHS.tolist(), lengths.tolist(), strict=True)):
        h_p, h_h = HEADS[row, :n].tolist(), heads[row, :m].tolist()
        want = plain.decomposable(premise[row, :n], hypothesis[row, :m], w, kind, h_p, h_h)
        torch.testing.assert_close(scores[row], want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", PARENTS)
def test_scores_of_pairs_do_not_depend_on_the_batch_and_gradients_are_finite(kind):
    model = spread(DecomposableConfig(PARENTS[kind], SOURCE, embed=LearnedEmbedding).build())
    premise, hypothesis, lengths, heads = pairs()
    together = model((premise, LENGTHS, HEADS), (hypothesis, lengths, heads))
    for row, (n, m) in enumerate(zip(LENGTHS.tolist(), lengths.tolist(), strict=True)):
        one = slice(row, row + 1)
        alone = model(
            (premise[one, :n], LENGTHS[one], HEADS[one, :n]), (hypothesis[one, :m], lengths[one], heads[one, :m])
        )
        torch.testing.assert_close(together[row], alone[0], rtol=1e-10, atol=1e-10)
    model.train()
    empty = lengths.index_fill(0, torch.tensor(0), 0), heads.index_fill(0, torch.tensor(0), -1)
    model((premise, LENGTHS, HEADS), (hypothesis, *empty)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.any() for p in model.parameters())


def test_tanh_twice_squashes_the_scores_of_tanh_once():
    one, other = (
        dataclasses.replace(KINDS["tree"], squash=s).build() for s in (SoftParentsConfig().squash, tanh_twice)
    )
    other.load_state_dict(one.state_dict())
    x = 9 * torch.randn(1, 5, D)
    scores = [model.scores(x, torch.tensor([5])) for model in (one, other)]
    torch.testing.assert_close(scores[1], scores[0].tanh())


def test_numbers_of_parameters_of_decomposable_attention_equal_the_formula():
    def size(parents):
        model = DecomposableConfig(parents, 7).build()
        return sum(p.numel() for p in model.parameters() if p.requires_grad)

    def mlp(wide):
        return wide * 300 + 300 + 300 * 300 + 300

    words = 300 * 300 + mlp(300) + mlp(600) + mlp(600) + 300 * 3 + 3
    parents = 300 * 300 + mlp(600) + mlp(1200) + mlp(600) + 300 * 3 + 3
    parser = 2 * 4 * 100 * (300 + 100 + 2) + 2 * 200 * 200 + 200 + 200
    assert size(NoParentsConfig()) == words and size(HardParentsConfig()) == parents
    assert size(SoftParentsConfig()) == size(SoftParentsConfig(weights=SoftmaxWeights)) == parents + parser


def test_six_pairs_are_memorised():
    config = DecomposableConfig(SoftParentsConfig(16, 8), SOURCE, dropout=0.0, embed=LearnedEmbedding, initial=0.1)
    model = config.build()
    premise, hypothesis = torch.randint(0, SOURCE, (6, 5)), torch.randint(0, SOURCE, (6, 4))
    sides = [(x, torch.full((6,), x.shape[1]), torch.full_like(x, -1)) for x in (premise, hypothesis)]
    optimiser, labels = torch.optim.Adam(model.parameters(), lr=0.01), torch.arange(6) % 3
    for _ in range(80):
        loss = torch.nn.functional.cross_entropy(model(*sides), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.05
