"""Paper 001: how its baselines were trained by the authors whose numbers it repeats, at the paper's size.

BiLSTM-Max and HConvNet follow InferSent (Conneau et al. 2017 and their released trainer), DiSAN its released program. All other
rows have the training of PSAN.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from phrasemodels.flows.experiments.experiment import Experiment
from phrasemodels.layers.pooling import max_with_padding
from phrasemodels.models.sentence_pair import LinearClassifier, SentencePairConfig, glorot_uniform, torch_default
from phrasemodels.tasks.problems.entailment.data import VectorFile, left_out
from phrasemodels.tasks.problems.entailment.objective import all_but_scores
from phrasemodels.tasks.problems.entailment.recipe import EntailmentRecipe
from phrasemodels.tasks.problems.entailment.suites import CASED, in_marks
from phrasemodels.tasks.train.batches import at_random
from phrasemodels.tasks.train.optimisers import constant, sgd, shrunk_without_gain

PAIRS = 549_367  # of SNLI's training set that have a label (section 3.2)
EPOCH = -(-PAIRS // 64)  # updates of a pass in batches of 64


@dataclass(frozen=True)
class Own:
    """What replaces the model, the recipe and fields of the training of PSAN."""

    model: Callable[[SentencePairConfig], SentencePairConfig]
    recipe: Callable[[EntailmentRecipe], EntailmentRecipe]
    train: Mapping[str, Any] = field(default_factory=dict)


def _bilstm_max(model: SentencePairConfig) -> SentencePairConfig:
    return replace(model, encoder=replace(model.encoder, pool=max_with_padding), start=torch_default)  # type: ignore


def _hconvnet(model: SentencePairConfig) -> SentencePairConfig:
    return replace(model, hidden=512, dropout=0.0, classifier=LinearClassifier, start=torch_default)


def _disan(model: SentencePairConfig) -> SentencePairConfig:
    return replace(model, tuned=True, start=glorot_uniform)


def _infersent_text(recipe: EntailmentRecipe) -> EntailmentRecipe:
    """Read words with capitals between <s> and </s>; leave out those without a vector of GloVe 840B."""
    vectors = VectorFile("glove/glove.840B.300d.txt", 300)
    return replace(recipe, text=CASED, unknown=left_out, vectors=vectors, suite=in_marks(recipe.suite), penalty=0.0)


def _disan_text(recipe: EntailmentRecipe) -> EntailmentRecipe:
    return replace(recipe, vectors=VectorFile("glove/glove.6B.300d.txt", 300), penalised=all_but_scores)


INFERSENT = {
    "optimiser": sgd, "learning_rate": 0.1, "schedule": constant, "decay": shrunk_without_gain, "batch_rows": 64, "clip": 5.0,
    "steps": 20 * EPOCH, "evaluate_every": EPOCH, "checkpoint_every": EPOCH, "patience": 0, "arrange": at_random,
}  # fmt: skip
OWN = {
    "bilstm-max": Own(_bilstm_max, _infersent_text, INFERSENT),
    "hconvnet": Own(_hconvnet, _infersent_text, INFERSENT),
    "disan": Own(
        _disan,
        _disan_text,
        {"learning_rate": 0.5, "batch_rows": 64, "steps": 400_000, "evaluate_every": 500, "patience": 0},
    ),
}


def as_published(experiment: Experiment) -> Experiment:
    """Return an experiment of the profile `paper` with the training of its own authors, if they had one."""
    own = OWN.get(experiment.row)
    if own is None:
        return experiment
    return replace(
        experiment,
        model=own.model(experiment.model),
        recipe=own.recipe(experiment.recipe),  # type: ignore[arg-type]
        train=replace(experiment.train, **own.train),
    )
