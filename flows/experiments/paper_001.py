"""Paper 001, Phrase-level Self-Attention Networks: Tables 2 to 4, and where the phrases come from."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from data.fetch import Sources
from data.grammar.records import Entailment as EntailmentRecords
from data.grammar.records import Polarity
from data.manifest import load
from data.supplied import digests
from flows.experiment import Answer, Cell, Experiment
from flows.recipes.entailment import EntailmentRecipe, Task
from phrasemodels.encoders.adasent import AdaSentConfig
from phrasemodels.encoders.bilstm import BiLstmConfig
from phrasemodels.encoders.disan import DisanConfig
from phrasemodels.encoders.hconvnet import HConvNetConfig
from phrasemodels.encoders.multihead import MultiHeadConfig
from phrasemodels.encoders.psan import Concatenated, PsanConfig, Stacked
from phrasemodels.encoders.tbcnn import TbcnnConfig
from phrasemodels.models.sentence_pair import LinearClassifier, SentencePairConfig, difference
from tasks.constituents import equal_blocks, syntactic_binarised
from tasks.corpora import Corpus, SampleCorpus
from tasks.levels import AtRandom, Dependencies, Levels, Structure, given, none, right_branching
from tasks.logistic import PROTOTYPING, PUBLISHED, Setting
from tasks.optimisers import adadelta, constant
from tasks.problems.transfer import FOLDS, NESTED, OFFICIAL, RELATEDNESS, SIMILARITY
from tasks.sentences import Text, VectorFile
from tasks.significance import Statistic, accuracy_of
from tasks.tokenise import moses_lower
from tasks.train import TrainConfig

PAPER = "001"
GLOVE = "glove/glove.42B.300d.txt"
RIGHT = Statistic("right", accuracy_of)
ONE = Text(("text",))  # MR, CR, SUBJ, MPQA, SST and TREC are tokenised already
TWO = Text(tokeniser=moses_lower)


@dataclass(frozen=True)
class Size:
    """Widths shared by all systems: of word vectors and PSAN, of an LSTM, of AdaSent, of convolutions, and dropout."""

    d: int = 300
    lstm: int = 2048
    adasent: int = 4096
    channels: int = 1024
    hidden: int = 300
    dropout: float = 0.5
    heads: int = 6


def pair(encoder: Callable[[Size], object]) -> Callable[[Size], SentencePairConfig]:
    """The classifier of paper 001 over an encoder."""
    return lambda size: SentencePairConfig(encoder(size), hidden=size.hidden, dropout=size.dropout)  # type: ignore[arg-type]


def psan(size: Size) -> PsanConfig:
    return PsanConfig(size.d, dropout=size.dropout)


def bilstm_max(size: Size) -> SentencePairConfig:
    return SentencePairConfig(
        BiLstmConfig(size.d, size.lstm), hidden=min(512, 2 * size.lstm), dropout=0.0, classifier=LinearClassifier
    )


def disan(size: Size) -> SentencePairConfig:
    dropout = size.dropout / 2  # its authors keep 0.75
    return SentencePairConfig(DisanConfig(size.d, dropout), hidden=size.hidden, dropout=dropout, compare=difference)


@dataclass(frozen=True)
class System:
    """A system of the paper: its name there and its variant, its model, and what it is told of each token."""

    slug: str
    name: str
    variant: str
    model: Callable[[Size], SentencePairConfig]
    structure: Structure


DIVISION = Levels()
PSAN = System("psan", "PSAN", "", pair(psan), DIVISION)
SYSTEMS = (
    System("bilstm-max", "BiLSTM-Max", "", bilstm_max, Levels(trees=none)),
    System("adasent", "AdaSent", "", pair(lambda s: AdaSentConfig(s.d, s.adasent)), Levels(trees=none)),
    System("hconvnet", "HConvNet", "", pair(lambda s: HConvNetConfig(s.d, s.channels)), Levels(trees=none)),
    System("tbcnn", "TBCNN", "", pair(lambda s: TbcnnConfig(s.d, dropout=s.dropout)), Dependencies()),
    System("disan", "DiSAN", "", disan, Levels(trees=none)),
    PSAN,
)
MULTI_HEAD = System(
    "multi-head", "Multi-head", "", pair(lambda s: MultiHeadConfig(s.d, s.heads, s.dropout)), Levels(trees=none)
)


def one_level(level: int) -> tuple[Callable[[Size], SentencePairConfig], Structure]:
    """Attention on one level alone."""
    return pair(lambda size: replace(psan(size), levels=1)), Levels(levels=(level,))


ABLATIONS = (
    System("psa-1", "PSAN", "(1) PSA on the first layer only", *one_level(1)),
    System("psa-2", "PSAN", "(2) PSA on the second layer only", *one_level(2)),
    System("psa-3", "PSAN", "(3) PSA on the third layer only", *one_level(3)),
    System("no-psa", "PSAN", "(4) w/o PSA", pair(psan), Levels(trees=none)),
    System("no-syntax", "PSAN", "(5) w/o syntactic division", pair(psan), Levels(equal_blocks)),
    System("no-gate", "PSAN", "(6) w/o gated memory updating", pair(lambda s: replace(psan(s), memory=Concatenated)), DIVISION),
    System(
        "neither",
        "PSAN",
        "(7) w/o both",
        pair(lambda s: replace(psan(s), levels=1, memory=Stacked)),
        Levels(levels=(1,), trees=none),
    ),
    replace(PSAN, slug="full", variant="(8) Full Model"),
)  # fmt: skip

# The same encoder with phrases from elsewhere; the first is what the others are tested against.
SOURCES = (
    replace(PSAN, slug="given", variant="trees of the corpus"),
    replace(PSAN, slug="binarised", variant="trees of the corpus, binarised", structure=Levels(syntactic_binarised)),
    replace(PSAN, slug="blocks", variant="equal blocks", structure=Levels(equal_blocks)),
    replace(PSAN, slug="random", variant="random trees", structure=Levels(trees=AtRandom())),
    replace(PSAN, slug="right-branching", variant="right-branching trees", structure=Levels(trees=right_branching)),
    replace(PSAN, slug="whole", variant="the sentence as one phrase", structure=Levels(trees=none)),
)


SENTEVAL = Corpus("senteval")
SST2, SST5, TREC, SICK, MRPC = (Corpus("senteval", part) for part in ("SST2", "SST5", "TREC", "SICK", "MRPC"))
DIVIDED = ("train", "dev", "test")
SUITE = (
    *(Task(name, NESTED, SENTEVAL, (name,), ONE) for name in ("MR", "CR", "SUBJ", "MPQA")),
    Task("SST2", OFFICIAL, SST2, DIVIDED, ONE),
    Task("SST5", OFFICIAL, SST5, DIVIDED, ONE),
    Task("TREC", FOLDS, TREC, ("train", "test"), ONE),
    Task("MRPC", FOLDS, MRPC, ("train", "test"), TWO),
    Task("SICK-E", OFFICIAL, SICK, DIVIDED, TWO),
    Task("SICK-R", RELATEDNESS, SICK, DIVIDED, TWO),
    Task("STS14", SIMILARITY, SENTEVAL, ("STS14",), TWO),
)
CLASSES = SampleCorpus(600, 100, 200, records=Polarity())
PAIRS = SampleCorpus(4000, 400, 600, records=EntailmentRecords())
SAMPLE_SUITE = (
    Task("polarity", NESTED, CLASSES, ("train",), ONE),
    Task("entailment", OFFICIAL, PAIRS, DIVIDED, Text()),
)


@dataclass(frozen=True)
class Profile:
    """A size at which the tables are run; only the paper's own corpus, vectors and size are comparable with it.

    instead: the structure to take where one reads trees that the corpus does not have.
    """

    corpus: Corpus | SampleCorpus
    size: Size
    train: TrainConfig
    text: Text
    suite: tuple[Task, ...]
    setting: Setting
    instead: Structure | None = None
    comparable: bool = False
    max_tokens: int = 0
    glove: bool = False


ADADELTA = TrainConfig(
    schedule=constant, optimiser=adadelta, clip=math.inf, smoothing=0.0, learning_rate=0.75, batch_rows=16
)
PROFILES = {
    # Generated pairs and sentences with their trees, for two cores and a few minutes a table.
    "sample": Profile(
        corpus=PAIRS,
        size=Size(d=64, lstm=64, adasent=64, channels=32, hidden=64, dropout=0.0, heads=4),
        train=replace(
            ADADELTA, steps=600, batch_rows=32, batch_tokens=4096, learning_rate=1.0, evaluate_every=100,
            checkpoint_every=500,
        ),
        text=Text(),
        suite=SAMPLE_SUITE,
        setting=replace(PROTOTYPING, folds=5),
    ),
    # SNLI divided by premise, whose training set is 62 times smaller than the paper's, without trees: blocks of words.
    "laptop": Profile(
        corpus=Corpus("snli"),
        size=Size(d=100, lstm=128, adasent=256, channels=64, hidden=100, dropout=0.2, heads=4),
        train=replace(
            ADADELTA, steps=3000, batch_rows=32, batch_tokens=4096, learning_rate=1.0, evaluate_every=250,
            checkpoint_every=500,
        ),
        text=Text(),
        suite=SUITE,
        setting=PROTOTYPING,
        instead=Levels(equal_blocks, trees=AtRandom()),
    ),
    # What the paper gives. SNLI's own parses; the official files are put in by hand, and so is GloVe.
    "paper": Profile(
        corpus=Corpus("snli_official"),
        size=Size(),
        train=replace(
            ADADELTA, steps=600_000, batch_tokens=1 << 20, evaluate_every=5000, checkpoint_every=5000, patience=20
        ),
        text=Text(),
        suite=SUITE,
        setting=PUBLISHED,
        comparable=True,
        glove=True,
    ),
}  # fmt: skip


def experiment(table: str, profile: str, system: System, answers: tuple[Answer, ...], suite: bool) -> Experiment:
    """One row at one size."""
    chosen = PROFILES[profile]
    return Experiment(
        name=f"{PAPER}/{table}/{profile}/{system.slug}",
        paper=PAPER,
        system=system.name,
        variant=system.variant,
        answers=answers,
        profile=profile,
        comparable=chosen.comparable,
        recipe=EntailmentRecipe(
            _snli() if chosen.comparable else chosen.corpus,
            _available(system.structure, chosen),
            chosen.text,
            max_tokens=chosen.max_tokens,
            vectors=VectorFile.find(_mirror(), GLOVE, chosen.size.d) if chosen.glove else None,
            suite=chosen.suite if suite else (),
            setting=chosen.setting,
        ),
        model=system.model(chosen.size),
        train=chosen.train,
        ray_train=(0,) if system.slug == PSAN.slug else (),
    )


def _mirror() -> Path | None:
    """The folder that users put files into, if they named one."""
    return Path(os.environ["PHRASEMODELS_MIRROR"]).expanduser() if "PHRASEMODELS_MIRROR" in os.environ else None


@cache
def _snli() -> Corpus:
    """The official SNLI, known by the digests of what a user put in."""
    mirror = _mirror()
    sources = Sources((mirror,) if mirror else (), True)
    return Corpus("snli_official", supplied=digests(load("snli_official"), sources))


def _available(structure: Structure, profile: Profile) -> Structure:
    """The structure, or one like it that does without the trees of the corpus."""
    if profile.instead is None or not structure.reads_trees:
        return structure
    if isinstance(structure, Levels) and isinstance(profile.instead, Levels):
        return replace(profile.instead, levels=structure.levels)
    return structure


def table_2(profile: str) -> list[Experiment]:
    """Accuracy on SNLI, and micro and macro accuracy over the other tasks, of all systems."""

    def answers(system: System) -> tuple[Answer, ...]:
        if system.name == "HConvNet":  # the paper prints its numbers as AdaSent's
            return Answer("accuracy", None, RIGHT), Answer("micro"), Answer("macro")
        return (
            Answer("accuracy", Cell(PAPER, "Table 2", system.name, "", "accuracy", "SNLI", "test"), RIGHT),
            Answer("micro", Cell(PAPER, "Table 2", system.name, "", "micro_accuracy")),
            Answer("macro", Cell(PAPER, "Table 2", system.name, "", "macro_accuracy")),
        )

    return [experiment("table2", profile, system, answers(system), True) for system in _systems(profile)]


def table_3(profile: str) -> list[Experiment]:
    """Every task by itself, of all systems."""
    names = [task.name for task in PROFILES[profile].suite]
    return [experiment("table3", profile, system, _each(names, system.name), True) for system in _systems(profile)]


def _each(tasks: list[str], system: str) -> tuple[Answer, ...]:
    wanted = {
        **{task: ("accuracy", task) for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC", "SICK-E")},
        "MRPC/F1": ("F1", "MRPC"),
        "SICK-R/pearson": ("pearson", "SICK-R"),
        "STS14/pearson": ("pearson", "STS14"),
        "STS14/spearman": ("spearman", "STS14"),
    }
    found = [
        Answer(ours, Cell(PAPER, "Table 3", system, "", metric, dataset) if system != "HConvNet" else None)
        for ours, (metric, dataset) in wanted.items()
        if dataset in tasks
    ]
    return (*found, *(Answer(task) for task in tasks if task not in {dataset for _, dataset in wanted.values()}))


def _systems(profile: str) -> list[System]:
    """TBCNN needs a tree; where there are none, it is left out."""
    return [s for s in SYSTEMS if not (isinstance(s.structure, Dependencies) and PROFILES[profile].instead)]


def table_4(profile: str) -> list[Experiment]:
    """What each part of PSAN is worth on SNLI; rows that differ in trees alone are one where there are none."""
    return [
        experiment(
            "table4",
            profile,
            system,
            (Answer("accuracy", Cell(PAPER, "Table 4", system.name, system.variant, "accuracy"), RIGHT),),
            False,
        )
        for system in ABLATIONS
    ]


def phrase_sources(profile: str) -> list[Experiment]:
    """Does syntax matter? The same encoder with phrases from elsewhere, each tested against the first."""
    known = SOURCES if PROFILES[profile].instead is None else [s for s in SOURCES if not _reads(s.structure)]
    return [experiment("phrases", profile, system, (Answer("accuracy", None, RIGHT),), False) for system in known]


def _reads(structure: Structure) -> bool:
    return isinstance(structure, Levels) and structure.trees is given


TABLES = {"2": table_2, "3": table_3, "4": table_4, "phrases": phrase_sources}
