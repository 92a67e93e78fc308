"""Paper 003: syntactic attention, for natural language inference (SNLI) and, as in the full version, formulas."""

from collections.abc import Callable
from dataclasses import dataclass

from phrasemodels.data.samples.records import Entailment, Formulas
from phrasemodels.data.store.step import Step
from phrasemodels.encoders.parents import HardParentsConfig, NoParentsConfig, ParentsConfig, SoftParentsConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.flows.experiments.paper_003 import PAPER, rows_of
from phrasemodels.layers.weights import Softmax, Trees
from phrasemodels.models.decomposable import DecomposableConfig, Learned
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.metrics.accuracy import accuracy_of
from phrasemodels.tasks.metrics.significance import Statistic
from phrasemodels.tasks.parsers.stanza_models import by_stanza
from phrasemodels.tasks.prepare.corpora import AnyCorpus, Corpus, SampleCorpus, as_they_are
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases
from phrasemodels.tasks.prepare.tokenise import join, spaces
from phrasemodels.tasks.problems.decomposition.recipe import DecompositionRecipe
from phrasemodels.tasks.problems.transduction.recipe import TransductionRecipe
from phrasemodels.tasks.problems.translation.objective import SentenceTranslationObjective
from phrasemodels.tasks.problems.translation.recipe import TranslationText
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import adagrad, constant, halved_after_rise, linear_decay, sgd

RIGHT = Statistic("right", accuracy_of)

Parents = Callable[[int, int], ParentsConfig]
PARENTS: dict[str, tuple[str, Parents]] = {
    "none": ("No Attention", lambda d, h: NoParentsConfig(d)),
    "hard": ("Hard parent", lambda d, h: HardParentsConfig(d)),
    "simple": ("Simple Attention", lambda d, h: SoftParentsConfig(d, h, Softmax)),
    "structured": ("Structured Attention", lambda d, h: SoftParentsConfig(d, h, Trees)),
}


@dataclass(frozen=True)
class SyntacticProfile:
    """A corpus, widths of words and of the parser, and a training. Words seen fewer than min_count times are unknown.

    parsed: who plants trees for the hard parents, where the corpus has none.
    """

    corpus: AnyCorpus
    d: int
    h: int
    train: TrainConfig
    min_count: int = 1
    initial: float = 0.01
    parsed: Callable[[Step], Step] = as_they_are


ENTAILMENT = {
    "sample": SyntacticProfile(
        SampleCorpus(1500, 150, 300, records=Entailment()),
        d=32,
        h=16,
        train=rows_of(200, 32, 3e-3, schedule=linear_decay, evaluate_every=50, checkpoint_every=200),
        initial=0.1,
    ),
    # In place of SNLI's training set a part of its development set. It has no parses, so hard parents are Stanza's.
    "laptop": SyntacticProfile(
        Corpus("snli"),
        d=100,
        h=50,
        train=rows_of(
            10 * 277, 32, 0.05, schedule=constant, optimiser=adagrad, clip=5.0, evaluate_every=277, checkpoint_every=277
        ),
        parsed=by_stanza,
    ),
    # 17,200 batches an epoch. With word vectors learned, not GloVe's.
    "paper": SyntacticProfile(
        Corpus("snli_official"),
        d=300,
        h=100,
        train=rows_of(
            100 * 17_200,
            32,
            0.05,
            schedule=constant,
            optimiser=adagrad,
            clip=5.0,
            evaluate_every=17_200,
            checkpoint_every=17_200,
        ),
    ),
}


def table_snli(profile: str) -> list[Experiment]:
    """Accuracy of decomposable attention with no, hard, simple and structured parents."""
    chosen = ENTAILMENT[profile]
    return [
        Experiment(
            name=f"{PAPER}/tablesnli/{profile}/{slug}",
            paper=PAPER,
            system="Decomposable attention",
            variant=variant,
            answers=(
                Answer("accuracy", Cell(PAPER, "Slide: SNLI", "Decomposable attention", variant, "accuracy"), RIGHT),
            ),
            profile=profile,
            comparable=False,
            recipe=DecompositionRecipe(
                chosen.corpus, chosen.min_count, chosen.parsed if slug == "hard" else as_they_are
            ),
            model=DecomposableConfig(parents(chosen.d, chosen.h), embed=Learned, initial=chosen.initial),
            train=chosen.train,
            ray_train=(),
        )
        for slug, (variant, parents) in PARENTS.items()
    ]


TRANSDUCTION = {
    "sample": SyntacticProfile(
        SampleCorpus(2000, 100, 200, records=Formulas(3)),
        d=32,
        h=16,
        train=rows_of(1200, 32, 4e-3, schedule=linear_decay, evaluate_every=200, checkpoint_every=1200),
        initial=0.3,
    ),
    "laptop": SyntacticProfile(
        SampleCorpus(15_000, 1000, 1000, records=Formulas(6)),
        d=50,
        h=25,
        train=rows_of(4000, 20, 5e-3, schedule=linear_decay, evaluate_every=500, checkpoint_every=1000),
        initial=0.1,
    ),
    # 15,000 formulas, 13 epochs; the rest as in translation, which the full paper does not say otherwise.
    "paper": SyntacticProfile(
        SampleCorpus(15_000, 1000, 1000, records=Formulas(6)),
        d=50,
        h=50,
        train=rows_of(
            13 * 750,
            20,
            1.0,
            schedule=constant,
            decay=halved_after_rise,
            optimiser=sgd,
            evaluate_every=750,
            checkpoint_every=750,
        ),
        initial=0.1,
    ),
}


def table_trees(profile: str) -> list[Experiment]:
    """Average length to failure by depth, with no, simple and structured parents. Greedy."""
    chosen = TRANSDUCTION[profile]
    return [
        Experiment(
            name=f"{PAPER}/tabletrees/{profile}/{slug}",
            paper=PAPER,
            system="Tree transduction",
            variant=PARENTS[slug][0],
            answers=(Answer("failure", None, Statistic("failure", accuracy_of)),),
            profile=profile,
            comparable=False,
            recipe=TransductionRecipe(
                chosen.corpus,
                Phrases(no_phrases),
                TranslationText(spaces, join, "prefix", "infix"),
                BeamSearch(1),
                SentenceTranslationObjective(),
            ),
            model=RecurrentConfig(PARENTS[slug][1](chosen.d, chosen.h), layers=1, initial=chosen.initial),
            train=chosen.train,
            ray_train=(),
        )
        for slug in ("none", "simple", "structured")
    ]


TABLES = {"snli": table_snli, "trees": table_trees}
