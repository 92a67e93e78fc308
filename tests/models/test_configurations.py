"""Settings classes refuse values that the steps cannot work with, in one line that begins with the field."""

import functools
import math
import re

import pytest

from phrasemodels.flows.experiments.catalogue import experiment as find
from phrasemodels.flows.experiments.catalogue import experiments
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.inference.inputs import Levels
from phrasemodels.tasks.prepare.corpora import Corpus, HeldOut, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases
from phrasemodels.tasks.prepare.vocabulary import LearnBpe, VocabularySettings
from phrasemodels.tasks.problems.answering import AnsweringRecipe, StoryLimits
from phrasemodels.tasks.problems.decomposition import DecompositionRecipe
from phrasemodels.tasks.problems.entailment import EntailmentRecipe
from phrasemodels.tasks.problems.parse_data import TreebankVocabulary
from phrasemodels.tasks.problems.parsing import ParsingRecipe
from phrasemodels.tasks.problems.semantic_parsing import Forms
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.problems.tagging import TaggingRecipe
from phrasemodels.tasks.problems.transfer import LogisticConfig
from phrasemodels.tasks.problems.translation import TranslationText
from phrasemodels.tasks.train.config import TrainConfig

CORPUS = SampleCorpus()
NEEDED = {  # values of fields without a default
    HeldOut: {"corpus": Corpus("babi"), "dev": 100, "by": "story"},
    VectorFile: {"name": "vectors.txt", "d": 2},
    **{recipe: {"corpus": CORPUS} for recipe in (AnsweringRecipe, DecompositionRecipe, ParsingRecipe, TaggingRecipe)},
    EntailmentRecipe: {"corpus": CORPUS, "structure": Levels()},
}
WRONG = [
    *((TrainConfig, name, value) for name in ("steps", "batch_tokens", "warmup", "threads") for value in (0, -1)),
    *((TrainConfig, name, 0) for name in ("evaluate_every", "checkpoint_every")),
    *((TrainConfig, name, -1) for name in ("batch_rows", "patience", "workers", "gpus")),
    *((TrainConfig, "learning_rate", value) for value in (0.0, -1.0, math.inf, math.nan)),
    *((TrainConfig, "epsilon", value) for value in (0.0, math.inf, math.nan)),
    *((TrainConfig, "smoothing", value) for value in (-0.1, 1.0, 7.0, math.nan)),
    *((TrainConfig, "clip", value) for value in (0.0, -1.0, math.nan)),
    *((TrainConfig, "betas", value) for value in ((0.9,), (3.0, 4.0), (0.9, 1.0), (0.9, math.nan))),
    *((TrainConfig, "gpus", value) for value in (1.5, math.nan, math.inf)),
    *((TrainConfig, "precision", value) for value in ("foo", "Tensor", "float16", "float64")),
    *((TrainConfig, name, "cosine") for name in ("schedule", "decay", "optimiser")),
    *((SampleCorpus, name, 0) for name in ("train", "dev", "test")),
    (Levels, "seed", -1),
    *((Levels, name, "other") for name in ("partition", "trees", "stop")),
    (HeldOut, "dev", 0),
    *((Levels, "levels", value) for value in ((), (0, 1))),
    (Phrases, "longest", 1),
    *((config, "max_tokens", -1) for config in (Phrases, TranslationText, EntailmentRecipe)),
    *(
        (config, "min_count", 0)
        for config in (VocabularySettings, TranslationText, Forms, LearnBpe, TreebankVocabulary)
    ),
    *((config, "min_count", 0) for config in (TaggingRecipe, DecompositionRecipe, EntailmentRecipe)),
    *((config, "merges", -1) for config in (Forms, LearnBpe)),
    (Forms, "longest", -1),
    *((StoryLimits, name, 0) for name in ("slots", "words")),
    (AnsweringRecipe, "restarts", 0),
    *((EntailmentRecipe, "penalty", value) for value in (-1.0, math.nan)),
    (VectorFile, "d", 0),
    (LogisticConfig, "folds", 1),
    *((LogisticConfig, name, 0) for name in ("batch", "passes")),
    *((LogisticConfig, name, -1) for name in ("patience", "most_passes")),
    (TreebankVocabulary, "min_label", 0),
    (ParsingRecipe, "max_words", -1),
]


@pytest.mark.parametrize(("config", "name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(config, name, value):
    with pytest.raises(ValueError, match=rf"^{name}={re.escape(str(value))}: must be [^\n]+$"):
        config(**{**NEEDED.get(config, {}), name: value})


@pytest.mark.parametrize(("name", "value"), [("clip", math.inf), ("gpus", 0.25), ("gpus", 2), ("smoothing", 0.0)])
def test_a_value_at_the_edge_is_taken(name, value):
    assert getattr(TrainConfig(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.smoothing=7", "train.smoothing=7.0: must be at least 0"),
        ("train.betas=3,4", "train.betas=(3.0, 4.0): must be two numbers"),
        ("train.clip=0", "train.clip=0.0: must be above 0"),
        ("recipe.text.min_count=0", "recipe.text.min_count=0: "),
    ],
)
def test_an_override_is_checked_by_the_configuration(assignment, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        overridden(experiments()[0], assignment)


@pytest.mark.parametrize(
    ("row", "assignment"),
    [
        ("000/table1/sample/phrase-k2", "train.schedule=constant"),
        ("000/table1/sample/phrase-k2", "train.optimiser=sgd"),
        ("000/table1/sample/phrase-k2", "train.arrange=at_random"),
        ("000/table1/sample/phrase-k2", "model.encoder.attend=softmax_hadamard"),
        ("000/table1/sample/phrase-k2", "model.encoder.sigma=identity"),
        ("000/table1/sample/phrase-k2", "model.encoder.initialise=LengthEmbedding"),
        ("000/table1/sample/phrase-k2", "model.start=xavier_uniform_"),
        ("000/table1/sample/phrase-k2", "recipe.phrases.enumerate=subtrees"),
        ("001/table2/sample/psan", "model.encoder.memory=Stacked"),
        ("002/table2/sample/atis-model-4", "model.encoder.residual=PreNorm"),
        ("003/tablenmt/sample/char-simple", "model.weights=TreeWeights"),
        ("004/parser/sample/lal", "model.start=as_released"),
    ],
)
def test_a_function_or_class_is_set_by_its_name_which_is_part_of_the_name_of_the_row(row, assignment):
    path, name = assignment.split("=")
    made = overridden(find(row), assignment)
    assert functools.reduce(getattr, path.split("."), made).__name__ == name
    assert made.changed == (assignment,) and made.name == f"{row}+{assignment}" and find(made.name) == made


def test_an_optional_setting_is_not_set_by_none():
    made = overridden(find("000/table1/paper/phrase-k2"), "train.batch_rows=none")
    assert made.train.batch_rows is None and made.changed == ("train.batch_rows=none",)
