"""Paper 001, Phrase-level Self-Attention Networks: Tables 2 to 5, and where the phrases come from."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from phrasemodels.data.store.step import Step
from phrasemodels.flows.experiments import paper_004
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.flows.experiments.paper_001_baselines import as_published
from phrasemodels.flows.experiments.paper_001_systems import (
    ABLATIONS,
    DISAN,
    DIVISION,
    GATED_ABLATIONS,
    MULTI_HEAD,
    NARROW_DISAN,
    OF_CORPUS,
    PSAN,
    READINGS,
    SOURCES,
    SWITCHES,
    SYSTEMS,
)
from phrasemodels.flows.experiments.table import Profile, Row, Size, experiments
from phrasemodels.tasks.metrics.accuracy import accuracy_of
from phrasemodels.tasks.parsers.stanza_models import by_stanza
from phrasemodels.tasks.prepare.corpora import Corpus, as_they_are
from phrasemodels.tasks.problems.entailment.data import VectorFile
from phrasemodels.tasks.problems.entailment.logistic import PROTOTYPING, PUBLISHED
from phrasemodels.tasks.problems.entailment.recipe import EntailmentRecipe
from phrasemodels.tasks.problems.entailment.suites import PAIRS, SAMPLE_SUITE, SUITE
from phrasemodels.tasks.problems.parsing.our_parser import ByOurParser
from phrasemodels.tasks.train.batches import at_random
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import adadelta, constant, linear_decay
from phrasemodels.verdicts.significance import Statistic

PAPER = "001"
GLOVE = "glove/glove.42B.300d.txt"
RIGHT = Statistic("right", accuracy_of)
OTHER_PARSER = (
    "trees of the transfer tasks by Stanza's models `gum`; the paper's are by the Stanford parser 3.5.2 (PCFG)"
)
PHRASES_OF_SST = (
    "SST-2's classifiers learn from 6,920 whole sentences; SentEval's, and the paper's, from 67,349 phrases"
)
PUBLISHED_SIZE = Size(d=300, heads=6, dropout=0.5, hidden=300, lstm=2048, adasent=4096, channels=1024)

ADADELTA = TrainConfig(
    schedule=constant, optimiser=adadelta, clip=math.inf, smoothing=0.0, learning_rate=0.75, batch_rows=16
)
# Adadelta begins with steps of 1e-4 and has PSAN at 45 % of dev after 1,000 updates, a minute and a half on one core. After
# 800 of Adam's it stands at 49 % with a rate of 0.001, at 55 with 0.003, at 50 with 0.008. The same for all rows.
LAPTOP = TrainConfig(
    schedule=linear_decay, learning_rate=0.003, warmup=50, smoothing=0.0, steps=800, batch_rows=32, batch_tokens=4096,
    evaluate_every=100, checkpoint_every=400,
)  # fmt: skip
PROFILES = {
    # Generated pairs and sentences with their trees, for two cores and a few minutes a table.
    "sample": Profile(
        Size(d=64, heads=4, dropout=0.0, hidden=64, lstm=64, adasent=64, channels=32),
        replace(
            ADADELTA, steps=600, batch_rows=32, batch_tokens=4096, learning_rate=1.0, evaluate_every=100,
            checkpoint_every=500,
        ),
        EntailmentRecipe(PAIRS, DIVISION, suite=SAMPLE_SUITE, setting=replace(PROTOTYPING, folds=5)),
    ),
    # SNLI divided by premise: 62 times fewer pairs to train on than the paper's, and trees by Stanza for want of others.
    "laptop": Profile(
        Size(d=100, heads=4, dropout=0.2, hidden=100, lstm=128, adasent=256, channels=64),
        LAPTOP,
        EntailmentRecipe(Corpus("snli"), DIVISION, suite=SUITE, setting=PROTOTYPING, parsed=by_stanza),
    ),
    # The paper's setting. SNLI's own parses; users supply the official files, and GloVe.
    "paper": Profile(
        PUBLISHED_SIZE,
        replace(
            ADADELTA, steps=600_000, batch_tokens=1 << 20, evaluate_every=5000, checkpoint_every=5000, patience=20,
            arrange=at_random,
        ),
        EntailmentRecipe(
            Corpus("snli_official"), DIVISION, vectors=VectorFile(GLOVE, PUBLISHED_SIZE.d), suite=SUITE, setting=PUBLISHED
        ),
    ),
}  # fmt: skip


def planted_by(parser: Experiment) -> ByOurParser:
    """Trees by the parser that an experiment of paper 004 trains."""
    return ByOurParser(parser.name, parser.recipe, parser.model, parser.train)  # type: ignore[arg-type]


# Parsers that plant trees in place of those of the corpus: slug, name, and the step that plants.
STANZA = ("stanza", "Stanza", by_stanza)
OWN, SMALL = (
    ("own-parser", "the parser of paper 004", planted_by(paper_004.parser(size)[0])) for size in ("laptop", "sample")
)
PARSERS: dict[str, tuple[tuple[str, str, Callable[[Step], Step]], ...]] = {
    "sample": (SMALL,),
    "laptop": (STANZA, OWN),
    "paper": (STANZA, OWN),
}


def table(
    name: TableName, profile: str, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]], suite: bool
) -> list[Experiment]:
    """The rows of a table; suite: they are also tried on the transfer tasks. At the paper's size baselines have their own
    training, else all rows the same."""
    made = alike(name, profile, rows, answers, suite)
    return [as_published(e) for e in made] if profile == "paper" else made


def alike(
    name: TableName, profile: str, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]], suite: bool
) -> list[Experiment]:
    """The rows of a table, all with the same training. Only rows that read trees wait for a parser."""
    chosen = PROFILES[profile]
    recipe = chosen.recipe if suite else replace(chosen.recipe, suite=())
    made = experiments(name, profile, replace(chosen, recipe=recipe), rows, answers)
    return [
        e if e.recipe.structure.reads_trees else replace(e, recipe=replace(e.recipe, parsed=as_they_are))  # type: ignore
        for e in made
    ]


def accuracy(row: Row) -> tuple[Answer, ...]:
    """Accuracy on SNLI, without a printed number."""
    return (Answer("accuracy", None, RIGHT),)


def table_2(profile: str) -> list[Experiment]:
    """Accuracy on SNLI, and micro and macro accuracy over the other tasks, of all systems."""

    def answers(row: Row) -> tuple[Answer, ...]:
        if not (name := _printed_as(row)):
            return (*accuracy(row), Answer("micro"), Answer("macro"))
        why = _unlike(row, "SST2") if profile != "sample" else ""
        return (
            Answer("accuracy", Cell(PAPER, "Table 2", name, "", "accuracy", "SNLI", "test"), RIGHT),
            Answer("micro", Cell(PAPER, "Table 2", name, "", "micro_accuracy"), why_not=why),
            Answer("macro", Cell(PAPER, "Table 2", name, "", "macro_accuracy"), why_not=why),
        )

    return table(TableName(PAPER, "2", "table2"), profile, (*SYSTEMS, *READINGS), answers, True)


def systems(profile: str) -> list[Experiment]:
    """The systems of Table 2, all with the same training."""
    return alike(TableName(PAPER, "2", "table2"), profile, (*SYSTEMS, *READINGS), accuracy, True)


def _printed_as(row: Row) -> str:
    """Return the system that Table 2 prints a row's numbers as: those of HConvNet (Conneau et al. 2017, Table 3) stand
    there as AdaSent's, and none of our readings of the gate."""
    return "" if row.variant else {"HConvNet": "AdaSent", "AdaSent": ""}.get(row.system, row.system)


def _unlike(row: Row, task: str) -> str:
    """Return how the data of a transfer task differs from the paper's for a row; empty if it does not."""
    reads_trees = row.recipe["structure"].reads_trees
    return "; ".join(filter(None, (PHRASES_OF_SST if task == "SST2" else "", OTHER_PARSER if reads_trees else "")))


def table_3(profile: str) -> list[Experiment]:
    """Every task by itself, of all systems."""
    tasks = [task.name for task in PROFILES[profile].recipe.suite]
    rows = (*SYSTEMS, *READINGS)
    return table(TableName(PAPER, "3", "table3"), profile, rows, lambda row: _each(tasks, row, profile), True)


def _each(tasks: list[str], row: Row, profile: str) -> tuple[Answer, ...]:
    printed = row.system != "HConvNet" and not row.variant
    wanted = {
        **{task: ("accuracy", task) for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E")},
        "MRPC/F1": ("F1", "MRPC"),
        "SICK-R/pearson": ("pearson", "SICK-R"),
        "STS14/pearson": ("pearson", "STS14"),
        "STS14/spearman": ("spearman", "STS14"),
    }
    answered = [
        Answer(
            ours,
            Cell(PAPER, "Table 3", row.system, "", metric, dataset) if printed else None,
            why_not=_unlike(row, dataset) if profile != "sample" else "",
        )
        for ours, (metric, dataset) in wanted.items()
        if dataset in tasks
    ]
    return (*answered, *(Answer(task) for task in tasks if task not in {dataset for _, dataset in wanted.values()}))


def table_4(profile: str) -> list[Experiment]:
    """What each part of PSAN is worth on SNLI, with both readings of the gate: each row is tested against the full model."""
    printed = [replace(row, baseline="full") for row in ABLATIONS]
    others = [replace(row, baseline="full-highway") for row in GATED_ABLATIONS]

    def answers(row: Row) -> tuple[Answer, ...]:
        if row in others:
            return accuracy(row)
        return (Answer("accuracy", Cell(PAPER, "Table 4", row.system, row.variant, "accuracy"), RIGHT),)

    return table(TableName(PAPER, "4", "table4"), profile, (*printed, *others), answers, False)


def switches(profile: str) -> list[Experiment]:
    """What each choice of the specification is worth on SNLI."""
    return table(TableName(PAPER, "4-switches", "table4-switches"), profile, SWITCHES, accuracy, False)


def table_5(profile: str) -> list[Experiment]:
    """Accuracy on TREC; memory is in Table 5-memory, and time in benchmarks/phrase_attention.py."""
    has = "TREC" in [task.name for task in PROFILES[profile].recipe.suite]

    def answers(row: Row) -> tuple[Answer, ...]:
        cell = None if row.variant else Cell(PAPER, "Table 5", row.system, "", "accuracy")
        why = _unlike(row, "TREC") if profile != "sample" else ""
        return (Answer("TREC", cell, why_not=why) if has else Answer("micro"),)

    rows = (MULTI_HEAD, NARROW_DISAN if profile == "paper" else DISAN, PSAN, *READINGS)
    made = table(TableName(PAPER, "5", "table5"), profile, rows, answers, True)
    return [_on_trec(e) for e in made] if profile == "paper" else made


def _on_trec(experiment: Experiment) -> Experiment:
    """Return an experiment without the other transfer tasks."""
    suite = tuple(task for task in experiment.recipe.suite if task.name == "TREC")  # type: ignore[attr-defined]
    return replace(experiment, recipe=replace(experiment.recipe, suite=suite))  # type: ignore[call-arg]


def phrase_sources(profile: str) -> list[Experiment]:
    """Does syntax matter? The same encoder with phrases from other sources, each tested against the first row.

    Parsers plant their trees in place of those of the corpus; where it has none, the first parser's are the baseline.
    """
    name = TableName(PAPER, "phrases", "phrases")
    rows = table(name, profile, SOURCES, accuracy, False)
    planted = []
    for slug, parser, parsed in PARSERS[profile]:
        (row,) = table(name, profile, [replace(PSAN, slug=slug, variant=f"trees by {parser}")], accuracy, False)
        planted.append(replace(row, recipe=replace(row.recipe, parsed=parsed)))  # type: ignore[call-arg]
    of_corpus = PROFILES[profile].recipe.parsed is as_they_are
    return rows + planted if of_corpus else planted + [row for row in rows if row.row not in OF_CORPUS]


TABLES = {"2": table_2, "3": table_3, "4": table_4, "4-switches": switches, "5": table_5, "phrases": phrase_sources}
