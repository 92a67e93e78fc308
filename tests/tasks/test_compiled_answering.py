"""Compiled updates of memory networks do what torch's updates do, and their gradients are those of the loss."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from running import small_corpus
from safetensors.torch import load_file
from torch.nn import functional as F

from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment
from phrasemodels.models.memory import (
    BinaryPotentials,
    BinaryPotentialsOnce,
    ChainConfig,
    HopsConfig,
    ReleasedPotentials,
    RowNormalisedPotentials,
    UnaryPotentials,
    bag_of_words,
    by_position,
)
from phrasemodels.tasks.problems import answering, memory_kernels
from phrasemodels.tasks.problems.compiled_answering import compiled, train_compiled
from phrasemodels.tasks.problems.memory_kernels import Schedule, Stories
from phrasemodels.tasks.train.config import sgd
from phrasemodels.tasks.train.trainer import history, train

SLOTS, V, D = 7, 12, 5
POTENTIALS = {
    "binary": BinaryPotentials,
    "once": BinaryPotentialsOnce,
    "rows": RowNormalisedPotentials,
    "released": partial(ReleasedPotentials, linear_updates=1),
    "unary": UnaryPotentials,
}
MODELS = {name: partial(ChainConfig, potentials=part, deviation=0.5) for name, part in POTENTIALS.items()} | {
    "hops": partial(HopsConfig, deviation=0.5),
    "linear": partial(HopsConfig, deviation=0.5, linear_updates=1),
}


def a_story(n):
    """Return a story of n facts and its question and answer: tensors (1, SLOTS, 4), (1, 3) and (1)."""
    facts, question = torch.zeros(1, SLOTS, 4, dtype=torch.long), torch.randint(1, V, (1, 3))
    for slot in range(SLOTS - n, SLOTS):
        words = int(torch.randint(1, 5, ()))
        facts[0, slot, :words] = torch.randint(1, V, (words,))
    return facts, question, torch.randint(1, V, (1,))


def for_kernels(facts, question, answer):
    words = (facts > 0).sum(-1)
    parts = (facts, words, SLOTS - (words > 0).sum(-1), question, (question > 0).sum(-1), answer)
    return Stories(*(part.numpy() for part in parts))


@pytest.mark.parametrize("encode", [bag_of_words, by_position])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("kind", MODELS)
def test_compiled_updates_equal_those_of_torch(kind, K, encode):
    torch.manual_seed(K)
    model = MODELS[kind](hops=K, d=D, slots=SLOTS, vocabulary=V, encode=encode).build().double().train()
    fast = compiled(model, longest=4)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for step, n in enumerate((SLOTS, 2, 4)):
        facts, question, answer = a_story(n)
        loss = F.cross_entropy(model(facts, question), answer)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        with torch.no_grad():
            for parameter in trained:
                parameter -= 0.3 * parameter.grad
        schedule = Schedule(np.zeros(1, np.int64), np.full(1, 0.3), fast.phases(step, 1), 1.0)
        assert fast.updates(fast.parameters, fast.reading, for_kernels(facts, question, answer), schedule) == (
            pytest.approx(loss.item(), abs=1e-9)
        )
    ours = {name: value.clone() for name, value in model.named_parameters()}
    fast.write_back(fast.parameters.vector.copy(), 3)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, ours[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("kind", MODELS)
def test_compiled_gradients_are_finite_differences_of_the_loss(kind):
    torch.manual_seed(0)
    model = MODELS[kind](hops=3, d=D, slots=SLOTS, vocabulary=V).build().double()
    fast, story = compiled(model, longest=4), for_kernels(*a_story(5))
    vector, gradient, weights, gradients = fast.parameters
    step = memory_kernels.hops_gradient if kind in ("hops", "linear") else memory_kernels.chain_gradient
    for phase in (0, 1):

        def loss(phase=phase):
            last = phase == 0 if step is memory_kernels.hops_gradient else phase
            return step(weights, gradients, fast.reading, story, 0, last)

        gradient[:] = 0
        loss()
        found = gradient.copy()
        for place in torch.randperm(len(vector))[:40].tolist():
            kept, h = vector[place], 1e-5
            vector[place] = kept + h
            above = loss()
            vector[place] = kept - h
            below = loss()
            vector[place] = kept
            assert found[place] == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-8)


ROW = "003/tablebabi/sample/binary-facts2"
SMALL = ("train.steps=150", "train.evaluate_every=50", "train.batch_rows=1", "train.learning_rate=0.05", "train.clip=40",
         *small_corpus(60, 20, 20), "recipe.restarts=2")  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["rows", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("released", "linear"))]
)
def test_a_compiled_training_makes_what_a_torch_training_makes(kind, tmp_path):
    chosen = experiment(ROW, SMALL)
    config = MODELS[kind](deviation=0.3)
    store, made = Store(tmp_path).open(), []
    for trainer in (train, train_compiled):
        recipe = dataclasses.replace(chosen.recipe, trainer=trainer)
        optimiser = dataclasses.replace(chosen.train, optimiser=sgd)
        pipeline = dataclasses.replace(chosen, recipe=recipe, train=optimiser, model=config).steps(0)
        made.append((store.run(pipeline.trained), store.run(pipeline.scored)))
    (slow, slow_scores), (fast, fast_scores) = made
    assert slow.meta.keys() == fast.meta.keys() and slow.meta["restarts"] == fast.meta["restarts"]
    assert slow_scores.meta["scores"] == fast_scores.meta["scores"]
    for a, b in zip(history(slow), history(fast), strict=True):
        assert a.keys() == b.keys() and a["dev_loss"] == b["dev_loss"]
        assert (a["step"], a["epoch"], a["learning_rate"]) == (b["step"], b["epoch"], b["learning_rate"])
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
    for name in ("model", "restart-0", "restart-1"):
        one, other = (load_file(artifact.file(f"{name}.safetensors")) for artifact in (slow, fast))
        assert one.keys() == other.keys()
        for key in one:
            torch.testing.assert_close(one[key], other[key], rtol=0, atol=1e-5, msg=key)


def test_compiled_training_refuses_what_it_does_not_do(tmp_path):
    chosen = experiment(ROW, SMALL)
    recipe = dataclasses.replace(chosen.recipe, trainer=train_compiled)
    with pytest.raises(ValueError, match="optimiser: compiled training has sgd alone"):
        Store(tmp_path).open().run(dataclasses.replace(chosen, recipe=recipe).steps(0).trained)


@pytest.mark.parametrize(("trainer", "rate"), [(train, 1e38), (train_compiled, 1e200)])
def test_a_start_that_diverged_comes_last_and_answers_nothing_right(trainer, rate, tmp_path, monkeypatch):
    chosen = experiment(ROW, (*SMALL, "train.steps=12", "train.evaluate_every=6"))
    recipe, slow = (
        dataclasses.replace(of, **new)
        for of, new in ((chosen.recipe, {"trainer": trainer}), (chosen.train, {"optimiser": sgd}))
    )
    pipeline = dataclasses.replace(chosen, recipe=recipe, train=slow, model=MODELS["rows"](deviation=0.3)).steps(0)
    run, fast = answering.run_step, dataclasses.replace(slow, learning_rate=rate)

    def first_diverges(store, step):
        own = dataclasses.replace(step.settings, config=fast if step.settings.seed == 0 else slow)
        return run(store, dataclasses.replace(step, settings=own))

    monkeypatch.setattr(answering, "run_step", first_diverges)
    store = Store(tmp_path).open()
    scores = {name: one["value"] for name, one in store.run(pipeline.scored).meta["scores"].items()}
    starts = store.run(pipeline.trained).meta["restarts"]
    assert [start["seed"] for start in starts] == [1, 0] and starts[1]["dev_loss"] is None
    assert scores["answer/mean"] == pytest.approx(scores["answer"] / 2) and scores["answer"] > 0
