"""Paper 003: syntactic attention, for natural language inference (SNLI) and, as in the full version, formulas."""

from collections.abc import Callable, Mapping
from typing import Any

from phrasemodels.data.samples.records import Entailment, Formulas
from phrasemodels.encoders.parents import HardParentsConfig, NoParentsConfig, ParentsConfig, SoftParentsConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.flows.experiments.paper_003 import PAPER, rows_of
from phrasemodels.flows.experiments.table import Profile, Row, Size, experiments
from phrasemodels.layers.attention_weights import SoftmaxWeights, TreeWeights
from phrasemodels.models.decomposable import DecomposableConfig, LearnedEmbedding
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.metrics.accuracy import accuracy_of
from phrasemodels.tasks.parsers.stanza_models import by_stanza
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases
from phrasemodels.tasks.prepare.tokenise import join, spaces
from phrasemodels.tasks.problems.decomposition.data import as_written
from phrasemodels.tasks.problems.decomposition.recipe import DecompositionRecipe
from phrasemodels.tasks.problems.entailment.data import VectorFile
from phrasemodels.tasks.problems.transduction.recipe import TransductionRecipe
from phrasemodels.tasks.problems.translation.objective import SentenceTranslationObjective
from phrasemodels.tasks.problems.translation.recipe import TranslationText
from phrasemodels.tasks.train.optimisers import adagrad, constant, halved_after_rise, linear_decay, sgd
from phrasemodels.verdicts.significance import Statistic

RIGHT = Statistic("right", accuracy_of)
DECOMPOSABLE = "Decomposable attention"
WIDER = 0.1

PARENTS: dict[str, tuple[str, Callable[[Size], ParentsConfig]]] = {
    "none": ("No Attention", lambda size: NoParentsConfig(size.d)),
    "hard": ("Hard parent", lambda size: HardParentsConfig(size.d)),
    "simple": ("Simple Attention", lambda size: SoftParentsConfig(size.d, size.parents, SoftmaxWeights)),
    "structured": ("Structured Attention", lambda size: SoftParentsConfig(size.d, size.parents, TreeWeights)),
}

GLOVE = "glove/glove.840B.300d.txt"
INITIAL = {"sample": 0.1, "laptop": 0.01, "paper": 0.01}  # deviation of the weights at the start
ENTAILMENT = {
    "sample": Profile(
        Size(d=32, parents=16),
        rows_of(200, 32, 3e-3, schedule=linear_decay, evaluate_every=50, checkpoint_every=200),
        DecompositionRecipe(SampleCorpus(1500, 150, 300, records=Entailment())),
    ),
    # In place of SNLI's training set a part of its development set. It has no parses, so hard parents are Stanza's.
    "laptop": Profile(
        Size(d=100, parents=50),
        rows_of(
            10 * 277, 32, 0.05, schedule=constant, optimiser=adagrad, clip=5.0, evaluate_every=277, checkpoint_every=277
        ),
        DecompositionRecipe(Corpus("snli")),
    ),
    # 17,200 batches an epoch, and some more, since the sentences of a batch are of equal length.
    "paper": Profile(
        Size(d=300, parents=100),
        rows_of(
            100 * 17_200,
            32,
            0.05,
            schedule=constant,
            optimiser=adagrad,
            clip=5.0,
            evaluate_every=17_200,
            checkpoint_every=17_200,
            equal_sides=2,
        ),
        DecompositionRecipe(Corpus("snli_official"), words=as_written, vectors=VectorFile(GLOVE, 300)),
    ),
}


def table_snli(profile: str) -> list[Experiment]:
    """Accuracy of decomposable attention with no, hard, simple and structured parents."""
    answers = {
        variant: (Answer("accuracy", Cell(PAPER, "Slide: SNLI", DECOMPOSABLE, variant, "accuracy"), RIGHT),)
        for variant, _ in PARENTS.values()
    }
    return _entailment(TableName(PAPER, "snli", "tablesnli"), profile, INITIAL[profile], answers)


def table_snli_start(profile: str) -> list[Experiment]:
    """The same from a wider start than the printed one, which at small widths is so narrow that nothing is learned."""
    answers = {variant: (Answer("accuracy", None, RIGHT),) for variant, _ in PARENTS.values()}
    return _entailment(TableName(PAPER, "snli-start", "tablesnli-start"), profile, WIDER, answers)


def _entailment(
    table: TableName, profile: str, initial: float, answers: Mapping[str, tuple[Answer, ...]]
) -> list[Experiment]:
    """The rows of SNLI from a start of this deviation; answers by variant."""

    def classifier(parents: Callable[[Size], ParentsConfig]) -> Callable[[Size], Any]:
        return lambda size: DecomposableConfig(parents(size), embed=LearnedEmbedding, initial=initial)

    parsed = {"parsed": by_stanza} if profile == "laptop" else {}
    rows = [
        Row(slug, DECOMPOSABLE, variant, classifier(parents), parsed if slug == "hard" else {})
        for slug, (variant, parents) in PARENTS.items()
    ]
    return experiments(table, profile, ENTAILMENT[profile], rows, lambda row: answers[row.variant])


def formulas(corpus: SampleCorpus) -> TransductionRecipe:
    """Prefix to infix formulas, answered greedily."""
    text = TranslationText(spaces, join)
    return TransductionRecipe(corpus, Phrases(no_phrases), text, BeamSearch(1), SentenceTranslationObjective())


START = {"sample": 0.3, "laptop": 0.1, "paper": 0.1}
TRANSDUCTION = {
    "sample": Profile(
        Size(d=32, parents=16),
        rows_of(1200, 32, 4e-3, schedule=linear_decay, evaluate_every=200, checkpoint_every=1200),
        formulas(SampleCorpus(2000, 100, 200, records=Formulas(3))),
    ),
    "laptop": Profile(
        Size(d=50, parents=25),
        rows_of(4000, 20, 5e-3, schedule=linear_decay, evaluate_every=500, checkpoint_every=1000),
        formulas(SampleCorpus(15_000, 1000, 1000, records=Formulas(6))),
    ),
    # 15,000 formulas, 13 epochs; the rest as in translation, since the full paper says nothing else.
    "paper": Profile(
        Size(d=50, parents=50),
        rows_of(
            13 * 750,
            20,
            1.0,
            schedule=constant,
            decay=halved_after_rise,
            optimiser=sgd,
            evaluate_every=750,
            checkpoint_every=750,
        ),
        formulas(SampleCorpus(15_000, 1000, 1000, records=Formulas(6))),
    ),
}


def table_trees(profile: str) -> list[Experiment]:
    """Average length to failure by depth, with no, simple and structured parents."""
    initial = START[profile]

    def translator(parents: Callable[[Size], ParentsConfig]) -> Callable[[Size], Any]:
        return lambda size: RecurrentConfig(parents(size), layers=1, initial=initial)

    rows = [
        Row(slug, "Tree transduction", PARENTS[slug][0], translator(PARENTS[slug][1]))
        for slug in ("none", "simple", "structured")
    ]
    answers = (Answer("failure", None, Statistic("failure", accuracy_of)),)
    table = TableName(PAPER, "trees", "tabletrees")
    return experiments(table, profile, TRANSDUCTION[profile], rows, lambda _: answers)


TABLES = {"snli": table_snli, "snli-start": table_snli_start, "trees": table_trees}
