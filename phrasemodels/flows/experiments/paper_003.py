"""Paper 003, Structured Attention Networks.

The tables of the slides are called nmt (segmental attention for translation), babi (sequential attention for question
answering) and snli (syntactic attention for natural language inference); `trees` (formulas) is only in the full version.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from phrasemodels.data.corpora.samples import Entailment, Formulas, Stories
from phrasemodels.encoders.parents import HardParentsConfig, NoParentsConfig, ParentsConfig, SoftParentsConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.experiments.experiment import (
    Answer,
    Cell,
    Experiment,
    Profile,
    Row,
    Size,
    TableName,
    experiments,
)
from phrasemodels.inference.inputs import as_written, characters, join, letters, no_phrases, spaces
from phrasemodels.layers.attention_weights import ReleasedSegmentWeights, SigmoidWeights, SoftmaxWeights, TreeWeights
from phrasemodels.models.memory import (
    BinaryPotentials,
    BinaryPotentialsOnce,
    ChainConfig,
    EmbedSentence,
    HopsConfig,
    ReleasedPotentials,
    RowNormalisedPotentials,
    UnaryPotentials,
    bag_of_words,
    by_position,
)
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import DecomposableConfig, LearnedEmbedding
from phrasemodels.models.translation import BeamSearch
from phrasemodels.tasks.metrics.scores import CORPUS_BLEU, accuracy_of
from phrasemodels.tasks.parsers.stanza import by_stanza
from phrasemodels.tasks.prepare.corpora import AnyCorpus, BitextCorpus, Corpus, HeldOut, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases
from phrasemodels.tasks.problems.answering import AnsweringRecipe
from phrasemodels.tasks.problems.compiled_answering import train_compiled
from phrasemodels.tasks.problems.decomposition import DecompositionRecipe
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.problems.translation import (
    SentenceTranslationObjective,
    TransductionRecipe,
    TranslationRecipe,
    TranslationText,
)
from phrasemodels.tasks.train.config import (
    TrainConfig,
    adagrad,
    adam,
    constant,
    halved_after_rise,
    halved_thrice,
    linear_decay,
    sgd,
)
from phrasemodels.tasks.train.trainer import train
from phrasemodels.verdicts.significance import Statistic

PAPER = "003"
ANY_TOKENS = 10**9  # batches are counted in rows


def rows_of(steps: int, rows: int, learning_rate: float, every: int, saved: int = 0, **others: Any) -> TrainConfig:
    """A training in batches of so many rows, without warm-up or smoothing.

    every: updates from one evaluation to the next. saved: from one checkpoint to the next. 0: as often.
    """
    return TrainConfig(
        steps=steps, batch_rows=rows, batch_tokens=ANY_TOKENS, learning_rate=learning_rate, warmup=1, smoothing=0.0,
        evaluate_every=every, checkpoint_every=saved or every, **others,
    )  # fmt: skip


def sentences(corpus: Any, min_count: int = 1, max_tokens: int = 0, **parts: Any) -> TranslationRecipe:
    """Translation with a loss of whole sentences.

    Rows say how the source is tokenised. parts: others of the recipe.
    """
    text = TranslationText(spaces, join, min_count, max_tokens)
    return TranslationRecipe(
        corpus, **{"phrases": Phrases(no_phrases), "text": text, "problem": SentenceTranslationObjective(), **parts}
    )


HALVED: dict[str, Any] = {"schedule": constant, "decay": halved_after_rise, "optimiser": sgd}
TRANSLATION = {
    # English to German-like sentences; letters in place of Japanese characters.
    "sample": Profile(
        Size(d=48, layers=1),
        rows_of(250, 32, 1e-2, 50, 250, schedule=linear_decay),
        sentences(SampleCorpus(train=1500, dev=100, test=200)),
    ),
    # In place of ASPEC: 50,000 pairs of everyday sentences, seen one and a half times. Batches of 32: in 80 s dev loss came
    # to 28 nats a sentence with them, to 31 with 64; with 128, at a rate of 2e-3, to 39.
    "laptop": Profile(
        Size(d=128, layers=1),
        rows_of(2400, 32, 5e-3, 300, 600, schedule=linear_decay),
        sentences(BitextCorpus("small_parallel_enja"), 3, 50),
    ),
    # As published: 500,000 pairs, 3907 batches an epoch, 30 epochs, halved each epoch from the first rise on. As released:
    # no <s> and </s> on the source; beams without a penalty for length, which may hold <unk>,
    # and have four tokens more than the source at most.
    "paper": Profile(
        Size(d=500, layers=2),
        rows_of(30 * 3907, 128, 1.0, 3907, **HALVED, equal_sides=1),
        sentences(
            Corpus("aspec_segmented"),
            11,
            50,
            phrases=Phrases(no_phrases, marks=False),
            search=BeamSearch(5, length_penalty=0.0, growth=1.0, extra=4, unknown=True),
        ),
    ),
}
WEIGHTS = {
    "simple": ("Simple attention", SoftmaxWeights),
    "sigmoid": ("Sigmoid attention", SigmoidWeights),
    "structured": ("Structured attention", ReleasedSegmentWeights),
}


def table_nmt(profile: str) -> list[Experiment]:
    """BLEU of three kinds of weights, from characters and from words."""
    chosen, table = TRANSLATION[profile], "Slide: Segmental Attention for NMT"
    sources = {
        "char": ("CHAR to WORD", letters if profile == "sample" else characters),
        "word": ("WORD to WORD", spaces),
    }
    rows: list[Row] = []
    answers: dict[str, tuple[Answer, ...]] = {}
    for source, (direction, tokeniser) in sources.items():
        recipe = {"text": replace(chosen.recipe.text, tokeniser=tokeniser)}
        for name, (variant, weights) in WEIGHTS.items():
            baseline = "" if name == "simple" else f"{source}-simple"
            row = Row(f"{source}-{name}", "NMT", f"{variant}, {direction}", translator(weights), recipe, baseline)
            cell = Cell(PAPER, table, "NMT", variant, "BLEU", f"WAT 2015 Japanese-English, {direction}")
            rows.append(row)
            answers[row.slug] = (Answer("bleu", cell, CORPUS_BLEU),)
    return experiments(TableName(PAPER, "nmt", "tablenmt"), profile, chosen, rows, lambda row: answers[row.slug])


def translator(weights: Callable[[], Any]) -> Callable[[Size], RecurrentConfig]:
    """The LSTM translator with these attention weights."""
    return lambda size: RecurrentConfig(LSTMEncoderConfig(size.d, size.layers), layers=size.layers, weights=weights)


TASKS = ("02", "03", "07", "08", "11", "13", "14", "15", "16", "17", "18", "19")
THREE_FACTS = ("03", "07", "08", "16")
ANSWERS_ALONE = ("07", "08")  # their questions rest on one fact to eight; printed in the full paper, not on the slides
QUESTIONS = 900  # in training, after 100 are held out


@dataclass(frozen=True)
class Starts:
    """How a system is trained: `restarts` starts of so many epochs in batches of `rows` questions, and the start of models.

    Published are 20 starts and 100 epochs of one question an update by SGD with gradients clipped at 40. The paper
    doesn't say how words make a sentence. deviation: of the parameters at the start. Published is 1/√10. linear: epochs
    of a linear start.
    """

    restarts: int
    epochs: int
    rows: int
    learning_rate: float
    optimiser: Any = adam
    encode: EmbedSentence = bag_of_words
    deviation: float = 0.1
    linear: int = 0
    clip: float = 40
    trainer: Any = train

    @property
    def updates(self) -> int:
        """Updates of an epoch."""
        return -(-QUESTIONS // self.rows)

    @property
    def train(self) -> TrainConfig:
        """Halved after every quarter of the updates, with the sum of a batch's gradients clipped."""
        updates = self.epochs * self.updates
        own = {"schedule": halved_thrice, "optimiser": self.optimiser, "clip": self.clip / self.rows}
        return rows_of(updates, self.rows, self.learning_rate, self.updates, updates, **own)


def memn2n(K: int, starts: Starts) -> HopsConfig:
    """Hops of simple attention. The softmax of hops begins after the linear start."""
    return HopsConfig(
        K, encode=starts.encode, linear_updates=starts.updates * starts.linear, deviation=starts.deviation
    )


def chain(potentials: Any, K: int, starts: Starts) -> ChainConfig:
    """A chain of facts with these potentials."""
    return ChainConfig(K, encode=starts.encode, deviation=starts.deviation, potentials=potentials)


def released(K: int, starts: Starts) -> ChainConfig:
    """A chain of facts with the potentials of the released code.

    The potentials lose their pairs at the end of the linear start.
    """
    return chain(partial(ReleasedPotentials, linear_updates=starts.updates * starts.linear), K, starts)


SLIDES, FULL_PAPER = "Slide: bAbI", "ICLR Table 4"  # tables


@dataclass(frozen=True)
class System:
    """A row of each task: its name in the paper, its model of (K, starts) and its training.

    printed: the table of its printed numbers. Empty: none.
    """

    slug: str
    system: str
    variant: str
    model: Callable[[int, Starts], Any]
    starts: Starts
    printed: str = ""
    reading: str = ""
    """Table whose numbers it reads in another way than the row with `printed`."""


SAMPLE = Starts(restarts=2, epochs=40, rows=32, learning_rate=0.01, linear=8)
# Adam in larger batches: an eightieth of the updates, and a start in half a minute.
LAPTOP = replace(SAMPLE, restarts=4)
RELEASED = Starts(20, 100, 1, 0.01, sgd, by_position, 10**-0.5, linear=20, trainer=train_compiled)


def _systems(binary: Any, *starts: Starts) -> list[System]:
    """Return the three systems with potentials of the binary one, and the training of each."""
    return [
        System("memn2n", "MemN2N", "Simple attention", memn2n, starts[0], SLIDES),
        System("binary", "Binary CRF", "Structured attention", partial(chain, binary), starts[1], SLIDES),
        System("unary", "Unary CRF", "Structured attention", partial(chain, UnaryPotentials), starts[2], FULL_PAPER),
    ]


# Each system with the settings that answered most held-out questions in a search of the same kind for all three
# (docs/papers/003.md); epochs, starts, halving and one question an update are as published.
CHOSEN = _systems(
    RowNormalisedPotentials,
    replace(RELEASED, learning_rate=0.05, deviation=0.2, linear=60),
    replace(RELEASED, learning_rate=0.1, deviation=0.2, clip=5),
    replace(RELEASED, learning_rate=0.05, deviation=0.1, encode=bag_of_words),
)
READINGS = [
    System("memn2n-published", "MemN2N", "as published", memn2n, replace(RELEASED, deviation=0.1)),
    System("binary-printed", "Binary CRF", "as printed", partial(chain, BinaryPotentialsOnce), RELEASED),
    System("binary-released", "Binary CRF", "as released, θ_12 = 0 after the linear start", released, RELEASED),
    System(
        "binary-rows",
        "Binary CRF",
        "θ_12 normalised by rows, rate 0.03",
        partial(chain, RowNormalisedPotentials),
        replace(RELEASED, learning_rate=0.03, deviation=0.1),
    ),
    System("unary-released", "Unary CRF", "as released", partial(chain, UnaryPotentials), RELEASED),
]
SYSTEMS = {
    "sample": _systems(BinaryPotentials, *[SAMPLE] * 3)[:2],
    "laptop": _systems(BinaryPotentials, *[LAPTOP] * 3),
    "paper": CHOSEN,
}
SMALL = Starts(2, 10, 1, 0.05, sgd, by_position, 0.2, linear=6, trainer=train_compiled)


def table_babi(profile: str) -> list[Experiment]:
    """Answers of twelve tasks and facts of ten for K = 2 or 3. The sample has stories with two facts."""
    return _table(profile, "babi", SYSTEMS[profile])


def table_babi_readings(profile: str) -> list[Experiment]:
    """The same tasks with other settings (the slides' and the code's).

    At the paper's size they are readings of its numbers. The sample has the compiled training with fewer epochs. The
    laptop's rows have four starts.
    """
    if profile == "sample":
        return _table(profile, "babi-readings", [replace(system, starts=SMALL, printed="") for system in CHOSEN])
    restarts = 4 if profile == "laptop" else RELEASED.restarts
    rows = [replace(system, starts=replace(system.starts, restarts=restarts)) for system in READINGS]
    if profile == "paper":
        rows = [replace(row, reading=FULL_PAPER if row.slug.startswith("unary") else SLIDES) for row in rows]
    return _table(profile, "babi-readings", rows)


def _table(profile: str, number: str, systems: Iterable[System]) -> list[Experiment]:
    """Return a row for each system and task."""
    if profile == "sample":
        corpus = SampleCorpus(QUESTIONS, 100, 300, records=Stories())
        return [_answering(profile, number, system, "facts2", corpus) for system in systems]
    return [
        _answering(profile, number, system, f"qa{task}", HeldOut(Corpus("babi", f"qa{task}"), 100, "story"), task)
        for task in TASKS
        for system in systems
    ]


def _answering(profile: str, number: str, row: System, name: str, corpus: AnyCorpus, task: str = "") -> Experiment:
    """A system on one task of bAbI, or on generated stories. These answer no printed number."""
    starts, K = row.starts, 2 + (task in THREE_FACTS)
    variant = row.variant if row.printed else "Simple attention" if row.system == "MemN2N" else "Structured attention"
    cell = Cell(PAPER, row.printed or row.reading, row.system, variant, "answer accuracy", f"bAbI 1k TASK {task}")
    if task in ANSWERS_ALONE:
        cell = replace(cell, table=FULL_PAPER, variant="")
    answers: tuple[Answer, ...] = (Answer("answer", cell, Statistic("answer_right", accuracy_of)),)
    if task not in ANSWERS_ALONE:
        fact = replace(cell, metric="fact sequence accuracy")
        answers += (Answer("fact", fact, Statistic("facts_right", accuracy_of)),)
    if not (task and row.printed):
        read = bool(task and row.reading)
        answers = tuple(
            replace(one, cell=None, reading=one.cell if read else None, named=row.variant if read else "")
            for one in answers
        )
    recipe = AnsweringRecipe(corpus, starts.restarts, trainer=starts.trainer)
    chosen = Profile(Size(0), starts.train, recipe)
    variant = f"{row.variant}, {name}, {starts.restarts} starts"
    made = Row(f"{row.slug}-{name}", row.system, variant, lambda _: row.model(K, starts))
    table = TableName(PAPER, number, f"table{number}")
    return experiments(table, profile, chosen, [made], lambda _: answers)[0]


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
ADAGRAD: dict[str, Any] = {"schedule": constant, "optimiser": adagrad, "clip": 5.0}
ENTAILMENT = {
    "sample": Profile(
        Size(d=32, parents=16),
        rows_of(200, 32, 3e-3, 50, 200, schedule=linear_decay),
        DecompositionRecipe(SampleCorpus(1500, 150, 300, records=Entailment())),
    ),
    # In place of SNLI's training set a part of its development set. It has no parses, so hard parents are Stanza's.
    "laptop": Profile(
        Size(d=100, parents=50),
        rows_of(10 * 277, 32, 0.05, 277, **ADAGRAD),
        DecompositionRecipe(Corpus("snli")),
    ),
    # 17,200 batches an epoch, and some more, since the sentences of a batch are of equal length.
    "paper": Profile(
        Size(d=300, parents=100),
        rows_of(100 * 17_200, 32, 0.05, 17_200, **ADAGRAD, equal_sides=2),
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
    """The rows of SNLI from a start of this deviation with answers by variant."""

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
        rows_of(1200, 32, 4e-3, 200, 1200, schedule=linear_decay),
        formulas(SampleCorpus(2000, 100, 200, records=Formulas(3))),
    ),
    "laptop": Profile(
        Size(d=50, parents=25),
        rows_of(4000, 20, 5e-3, 500, 1000, schedule=linear_decay),
        formulas(SampleCorpus(15_000, 1000, 1000, records=Formulas(6))),
    ),
    # 15,000 formulas, 13 epochs; the rest as in translation, since the full paper says nothing else.
    "paper": Profile(
        Size(d=50, parents=50),
        rows_of(13 * 750, 20, 1.0, 750, **HALVED),
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


TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "nmt": table_nmt,
    "babi": table_babi,
    "babi-readings": table_babi_readings,
    "snli": table_snli,
    "snli-start": table_snli_start,
    "trees": table_trees,
}
