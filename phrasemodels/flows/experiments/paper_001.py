"""Paper 001, Phrase-level Self-Attention Networks: Tables 2 to 5 and phrases from other sources.

At the paper's size BiLSTM-Max and HConvNet are trained like InferSent (Conneau et al. 2017 and their released trainer).
DiSAN is trained like its released program. All other rows have the training of PSAN. Table 1 and the sizes of SNLI are
counted. For the sizes and the memory in Tables 2 and 5 models are only built.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from phrasemodels.data.corpora.samples import Entailment, Polarity
from phrasemodels.data.store.store import Step
from phrasemodels.encoders.baselines import (
    AdaSentConfig,
    BiLSTMMaxConfig,
    DisanConfig,
    HConvNetConfig,
    MultiHeadConfig,
    TbcnnConfig,
)
from phrasemodels.encoders.psan import Concatenated, HighwayMemory, PsanConfig, Stacked, SteadyMemory, as_numbered
from phrasemodels.flows.experiments import paper_004
from phrasemodels.flows.experiments.experiment import (
    CORPUS,
    Answer,
    Cell,
    Experiment,
    Profile,
    Row,
    Size,
    TableName,
    counted,
    exact,
    experiments,
)
from phrasemodels.inference.inputs import (
    Dependencies,
    Levels,
    Marked,
    Structure,
    Tokeniser,
    left_out,
    moses,
    moses_lower,
    spaces,
)
from phrasemodels.layers.blocks import max_with_padding
from phrasemodels.layers.multidim import itself
from phrasemodels.models.sentence_pair import (
    LinearClassifier,
    SentencePairConfig,
    glorot_uniform,
    signed_difference,
    torch_default,
)
from phrasemodels.tasks.metrics.scores import accuracy_of
from phrasemodels.tasks.parsers.shipped import ByShippedParser
from phrasemodels.tasks.parsers.stanford import ByStanford
from phrasemodels.tasks.parsers.stanza import ByStanza, by_stanza
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus, as_they_are
from phrasemodels.tasks.problems.counting import ActivationsRecipe, CorpusSizeRecipe, DivisionRecipe, ModelSizeRecipe
from phrasemodels.tasks.problems.entailment import (
    EntailmentRecipe,
    TransferTask,
    all_but_scores,
)
from phrasemodels.tasks.problems.our_parser import ByOurParser
from phrasemodels.tasks.problems.sentence_data import SentenceText, VectorFile
from phrasemodels.tasks.problems.transfer import (
    FOLDS,
    NESTED,
    OFFICIAL,
    PROTOTYPING,
    PUBLISHED,
    RELATEDNESS,
    SIMILARITY,
)
from phrasemodels.tasks.train.batches import at_random
from phrasemodels.tasks.train.config import TrainConfig, adadelta, constant, linear_decay, sgd, shrunk_without_gain
from phrasemodels.verdicts.significance import Statistic

DIVISION = Levels()


def system(slug: str, name: str, variant: str, model: Callable[[Size], Any], structure: Structure) -> Row:
    """A row with a model and its encoder's structure of each token."""
    return Row(slug, name, variant, model, {"structure": structure})


def pair(encoder: Callable[[Size], Any]) -> Callable[[Size], SentencePairConfig]:
    """The classifier of paper 001 on an encoder."""
    return lambda size: SentencePairConfig(encoder(size), hidden=size.hidden, dropout=size.dropout)


def psan(size: Size) -> PsanConfig:
    return PsanConfig(size.d, dropout=size.dropout)


def bilstm_max(size: Size) -> SentencePairConfig:
    encoder = BiLSTMMaxConfig(size.d, size.lstm)
    return SentencePairConfig(encoder, hidden=min(512, 2 * size.lstm), dropout=0.0, classifier=LinearClassifier)


def disan(size: Size) -> SentencePairConfig:
    dropout = size.dropout / 2  # its authors keep 0.75
    return SentencePairConfig(
        DisanConfig(size.d, dropout), hidden=size.hidden, dropout=dropout, compare=signed_difference
    )


PSAN = system("psan", "PSAN", "", pair(psan), DIVISION)
DISAN = system("disan", "DiSAN", "", disan, Levels(trees="none"))
SYSTEMS = (
    system("bilstm-max", "BiLSTM-Max", "", bilstm_max, Levels(trees="none")),
    system("adasent", "AdaSent", "", pair(lambda s: AdaSentConfig(s.d, s.adasent)), Levels(trees="none")),
    system("hconvnet", "HConvNet", "", pair(lambda s: HConvNetConfig(s.d, s.channels)), Levels(trees="none")),
    system("tbcnn", "TBCNN", "", pair(lambda s: TbcnnConfig(s.d, dropout=s.dropout)), Dependencies()),
    DISAN,
    PSAN,
)
# Table 5 has sentence vectors of d numbers: half of them for each direction of DiSAN.
NARROW_DISAN = system(
    "disan",
    "DiSAN",
    "",
    lambda size: replace(disan(size), encoder=DisanConfig(size.d, size.dropout / 2, size.d // 2)),
    Levels(trees="none"),
)
MULTI_HEAD = system(
    "multi-head", "Multi-head", "", pair(lambda s: MultiHeadConfig(s.d, s.heads, s.dropout)), Levels(trees="none")
)


def varied(slug: str, variant: str, structure: Structure = DIVISION, **parts: Any) -> Row:
    """PSAN with other parts, or with phrases from another source."""
    return system(slug, "PSAN", variant, pair(lambda size: replace(psan(size), **parts)), structure)


ABLATIONS = (
    varied("psa-1", "(1) PSA on the first layer only", Levels(levels=(1,)), levels=1),
    varied("psa-2", "(2) PSA on the second layer only", Levels(levels=(2,)), levels=1),
    varied("psa-3", "(3) PSA on the third layer only", Levels(levels=(3,)), levels=1),
    varied("no-psa", "(4) w/o PSA", Levels(trees="none")),
    varied("no-syntax", "(5) w/o syntactic division", Levels("equal_blocks")),
    varied("no-gate", "(6) w/o gated memory updating", memory=Concatenated),
    varied("neither", "(7) w/o both", Levels(levels=(1,), trees="none"), levels=1, memory=Stacked),
    replace(PSAN, slug="full", variant="(8) Full Model"),
)

# The other reading of the gate, by the prose of section 2.3 ("highway"), and Eq 4 with a start that keeps variance.
CARRIED, LARGER = "what the gate keeps out stays as it was", "as printed, from a start that keeps variance"
HIGHWAY = varied("highway", CARRIED, memory=HighwayMemory)
STEADY = varied("steady", LARGER, memory=SteadyMemory)
READINGS = (HIGHWAY, STEADY)
GATED_ABLATIONS = (
    varied("psa-1-highway", f"(1), {CARRIED}", Levels(levels=(1,)), levels=1, memory=HighwayMemory),
    varied("psa-2-highway", f"(2), {CARRIED}", Levels(levels=(2,)), levels=1, memory=HighwayMemory),
    varied("psa-3-highway", f"(3), {CARRIED}", Levels(levels=(3,)), levels=1, memory=HighwayMemory),
    varied("no-psa-highway", f"(4), {CARRIED}", Levels(trees="none"), memory=HighwayMemory),
    varied("no-syntax-highway", f"(5), {CARRIED}", Levels("equal_blocks"), memory=HighwayMemory),
    varied("full-highway", f"(8), {CARRIED}", memory=HighwayMemory),
    varied("full-steady", f"(8), {LARGER}", memory=SteadyMemory),
)
SWITCHES = (
    varied("as-printed", "as printed"),
    *READINGS,
    varied("alone", "a phrase of one word attends to itself", alone=itself),
    varied("coarse-first", "large phrases first", order=as_numbered),
)

# The same encoder with phrases from elsewhere; the first is what the others are tested against.
SOURCES = (
    varied("given", "trees of the corpus"),
    varied("binarised", "trees of the corpus, binarised", Levels("syntactic_binarised")),
    varied("blocks", "equal blocks", Levels("equal_blocks")),
    varied("random", "random trees", Levels(trees="AtRandom")),
    varied("right-branching", "right-branching trees", Levels(trees="right_branching")),
    varied("whole", "the sentence as one phrase", Levels(trees="none")),
)
OF_CORPUS = ("given", "binarised")


SNLI_PAIRS = 549_367  # of SNLI's training set that have a label (section 3.2)
EPOCH = -(-SNLI_PAIRS // 64)  # updates of a pass in batches of 64


@dataclass(frozen=True)
class AuthorsTraining:
    """The model, recipe and training fields in place of PSAN's."""

    model: Callable[[SentencePairConfig], SentencePairConfig]
    recipe: Callable[[EntailmentRecipe], EntailmentRecipe]
    train: Mapping[str, Any] = field(default_factory=dict)


def _infersent_text(recipe: EntailmentRecipe) -> EntailmentRecipe:
    """Read words with capitals between <s> and </s>. Leave out words without a vector of GloVe 840B."""
    vectors = VectorFile("glove/glove.840B.300d.txt", 300)
    return replace(recipe, text=CASED, unknown=left_out, vectors=vectors, suite=in_marks(recipe.suite), penalty=0.0)


INFERSENT = {
    "optimiser": sgd, "learning_rate": 0.1, "schedule": constant, "decay": shrunk_without_gain, "batch_rows": 64, "clip": 5.0,
    "steps": 20 * EPOCH, "evaluate_every": EPOCH, "checkpoint_every": EPOCH, "patience": None, "arrange": at_random,
}  # fmt: skip
TRAINED_BY_AUTHORS = {
    "bilstm-max": AuthorsTraining(
        lambda model: replace(model, encoder=replace(model.encoder, pool=max_with_padding), start=torch_default),  # type: ignore
        _infersent_text,
        INFERSENT,
    ),
    "hconvnet": AuthorsTraining(
        lambda model: replace(model, hidden=512, dropout=0.0, classifier=LinearClassifier, start=torch_default),
        _infersent_text,
        INFERSENT,
    ),
    "disan": AuthorsTraining(
        lambda model: replace(model, tuned=True, start=glorot_uniform),
        lambda recipe: replace(recipe, vectors=VectorFile("glove/glove.6B.300d.txt", 300), penalised=all_but_scores),
        {"learning_rate": 0.5, "batch_rows": 64, "steps": 400_000, "evaluate_every": 500, "patience": None},
    ),
}


def as_published(experiment: Experiment) -> Experiment:
    """Return an experiment of the profile `paper` with the training of its own authors, if they had one."""
    own = TRAINED_BY_AUTHORS.get(experiment.row)
    if own is None:
        return experiment
    return replace(
        experiment,
        model=own.model(experiment.model),
        recipe=own.recipe(experiment.recipe),  # type: ignore[arg-type]
        train=replace(experiment.train, **own.train),
    )


PAPER = "001"
ONE = SentenceText(("text",))  # MR, CR, SUBJ, MPQA, SST and TREC are tokenised already
TWO = SentenceText(tokeniser=moses_lower)
SENTEVAL = Corpus("senteval")
SST2, SST5, TREC, SICK, MRPC = (Corpus("senteval", part) for part in ("SST2", "SST5", "TREC", "SICK", "MRPC"))
DIVIDED = ("train", "dev", "test")
SPACED, MOSES = by_stanza, ByStanza(moses_lower)  # SentEval has no trees
SUITE = (
    *(TransferTask(name, NESTED, SENTEVAL, (name,), ONE, SPACED) for name in ("MR", "CR", "SUBJ", "MPQA")),
    TransferTask("SST2", OFFICIAL, SST2, DIVIDED, ONE, SPACED),
    TransferTask("SST5", OFFICIAL, SST5, DIVIDED, ONE, SPACED, averaged=False),  # in no printed average, nor a column
    TransferTask("TREC", FOLDS, TREC, ("train", "test"), ONE, SPACED),
    TransferTask("MRPC", FOLDS, MRPC, ("train", "test"), TWO, MOSES),
    TransferTask("SICK-E", OFFICIAL, SICK, DIVIDED, TWO, MOSES),
    TransferTask("SICK-R", RELATEDNESS, SICK, DIVIDED, TWO, MOSES),
    TransferTask("STS14", SIMILARITY, SENTEVAL, ("STS14",), TWO, MOSES),
)
CLASSES = SampleCorpus(600, 100, 200, records=Polarity())
PAIRS = SampleCorpus(4000, 400, 600, records=Entailment())
SAMPLE_SUITE = (
    TransferTask("polarity", NESTED, CLASSES, ("train",), ONE),
    TransferTask("entailment", OFFICIAL, PAIRS, DIVIDED, SentenceText()),
)

CASED = SentenceText(tokeniser=Marked(spaces))  # as InferSent reads SNLI, which is tokenised already


def in_marks(suite: Sequence[TransferTask]) -> tuple[TransferTask, ...]:
    """Return the tasks as InferSent reads them: capitals are kept, and sentences stand between <s> and </s>."""
    cased = {ONE: Marked(spaces), TWO: Marked(moses)}
    return tuple(
        replace(task, text=replace(task.text, tokeniser=cased.get(task.text, task.text.tokeniser))) for task in suite
    )


GLOVE = "glove/glove.42B.300d.txt"
RIGHT = Statistic("right", accuracy_of)
OTHER_PARSER = (
    "trees of the transfer tasks by Stanza's models `gum`; the paper's are by the Stanford parser 3.5.2 (PCFG)"
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


def trees_of(parser: Experiment) -> ByOurParser:
    """Trees by the trained parser of an experiment of paper 004."""
    return ByOurParser(parser.name, parser.recipe, parser.model, parser.train)  # type: ignore[arg-type]


# Parsers whose trees replace the corpus's own: slug, name, and the step that parses.
STANZA = ("stanza", "Stanza", by_stanza)
OWN_PARSER, SMALL_PARSER = (
    ("own-parser", "the parser of paper 004", trees_of(paper_004.parser(size)[0])) for size in ("laptop", "sample")
)
PARSERS: dict[str, tuple[tuple[str, str, Callable[[Step], Step]], ...]] = {
    "sample": (SMALL_PARSER,),
    "laptop": (STANZA, OWN_PARSER),
    "paper": (STANZA, OWN_PARSER),
}


def table(
    name: TableName, profile: str, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]], suite: bool
) -> list[Experiment]:
    """The rows of a table. suite: they are also tried on the transfer tasks.

    At the paper's size baselines have their own training. Otherwise all rows have the same.
    """
    made = alike(name, profile, rows, answers, suite)
    return [as_published(e) for e in made] if profile == "paper" else made


def alike(
    name: TableName, profile: str, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]], suite: bool
) -> list[Experiment]:
    """The rows of a table, all with the same training. Only rows with trees wait for a parser."""
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
    """Table 2: accuracy of all systems on SNLI, and micro and macro accuracy over the transfer tasks."""

    def answers(row: Row) -> tuple[Answer, ...]:
        if not (name := _printed_as(row)):
            return (*accuracy(row), Answer("micro"), Answer("macro"))
        why = _data_difference(row) if profile != "sample" else ""
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
    """Return the system whose name a row's numbers have in Table 2. The numbers of HConvNet (Conneau et al. 2017, Table 3) stand
    there as AdaSent's, and none of our readings of the gate.
    """
    return "" if row.variant else {"HConvNet": "AdaSent", "AdaSent": ""}.get(row.system, row.system)


def _data_difference(row: Row) -> str:
    """Return how a row's data of transfer tasks differs from the paper's. It is empty if it does not."""
    return OTHER_PARSER if row.recipe["structure"].reads_trees else ""


def table_3(profile: str) -> list[Experiment]:
    """Table 3: accuracy of all systems on each transfer task."""
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
            why_not=_data_difference(row) if profile != "sample" else "",
        )
        for ours, (metric, dataset) in wanted.items()
        if dataset in tasks
    ]
    return (*answered, *(Answer(task) for task in tasks if task not in {dataset for _, dataset in wanted.values()}))


def table_4(profile: str) -> list[Experiment]:
    """The worth of each part of PSAN on SNLI, with both readings of the gate: each row is tested against the full model."""
    printed = [replace(row, baseline="full") for row in ABLATIONS]
    others = [replace(row, baseline="full-highway") for row in GATED_ABLATIONS]

    def answers(row: Row) -> tuple[Answer, ...]:
        if row in others:
            return accuracy(row)
        return (Answer("accuracy", Cell(PAPER, "Table 4", row.system, row.variant, "accuracy"), RIGHT),)

    return table(TableName(PAPER, "4", "table4"), profile, (*printed, *others), answers, False)


def switches(profile: str) -> list[Experiment]:
    """The worth of each choice of the specification on SNLI."""
    return table(TableName(PAPER, "4-switches", "table4-switches"), profile, SWITCHES, accuracy, False)


def table_5(profile: str) -> list[Experiment]:
    """Table 5: accuracy on TREC. Memory is in Table 5-memory, and time in benchmarks/layers.py."""
    has = "TREC" in [task.name for task in PROFILES[profile].recipe.suite]

    def answers(row: Row) -> tuple[Answer, ...]:
        cell = None if row.variant else Cell(PAPER, "Table 5", row.system, "", "accuracy")
        why = _data_difference(row) if profile != "sample" else ""
        return (Answer("TREC", cell, why_not=why) if has else Answer("micro"),)

    rows = (MULTI_HEAD, NARROW_DISAN if profile == "paper" else DISAN, PSAN, *READINGS)
    made = table(TableName(PAPER, "5", "table5"), profile, rows, answers, True)
    return [_on_trec(e) for e in made] if profile == "paper" else made


def _on_trec(experiment: Experiment) -> Experiment:
    """Return an experiment without the other transfer tasks."""
    suite = tuple(task for task in experiment.recipe.suite if task.name == "TREC")  # type: ignore[attr-defined]
    return replace(experiment, recipe=replace(experiment.recipe, suite=suite))  # type: ignore[call-arg]


def phrase_sources(profile: str) -> list[Experiment]:
    """Does syntax matter? Test the same encoder with phrases from other sources against the first row.

    The trees of each parser replace the corpus's own. Where the corpus has none the first parser's are the baseline.
    """
    name = TableName(PAPER, "phrases", "phrases")
    rows = table(name, profile, SOURCES, accuracy, False)
    added = []
    for slug, parser, parsed in PARSERS[profile]:
        (row,) = table(name, profile, [replace(PSAN, slug=slug, variant=f"trees by {parser}")], accuracy, False)
        added.append(replace(row, recipe=replace(row.recipe, parsed=parsed)))  # type: ignore[call-arg]
    of_corpus = PROFILES[profile].recipe.parsed is as_they_are
    return rows + added if of_corpus else added + [row for row in rows if row.row not in OF_CORPUS]


RANGE = {"lowest": "output_range_min", "highest": "output_range_max"}
WITH_CORPUS = "true by construction: classes, and the ends of a scale, are given with the corpus"
REGRESSION = ("SICK-R", "STS14")
WORDS = "embed"  # word vectors, which are given and not counted


def _cell(dataset: str, metric: str, variant: str = "") -> Cell:
    return Cell(PAPER, "Table 1", CORPUS, variant, metric, dataset)


def _sizes(task: TransferTask) -> tuple[Answer, ...]:
    """Records of a task, and its classes or the range of its scores."""
    kinds = RANGE if task.name in REGRESSION else {"classes": "n_classes"}
    given = [exact(ours, _cell(task.name, theirs), WITH_CORPUS) for ours, theirs in kinds.items()]
    return exact("rows", _cell(task.name, "size")), *given


def sizes(profile: str) -> list[Experiment]:
    """Table 1: sizes and outputs of the transfer tasks and the pairs of SNLI at hand for all.

    The paper gives the pairs of SNLI in section 3.2.
    """
    table = TableName(PAPER, "1-sizes", "table1-sizes")
    rows = [
        counted(
            table,
            task.name.lower(),
            (CORPUS, task.name),
            CorpusSizeRecipe(task.corpus, {split: split for split in task.splits}),
            _sizes(task),
        )
        for task in SUITE
    ]
    pairs = tuple(
        exact(f"rows {split}", Cell(PAPER, "text 3.2", "dataset", "", "n_pairs", "SNLI", split))
        for split in ("dev", "test")
    )
    snli = CorpusSizeRecipe(Corpus("snli", "official"), {"dev": "dev", "test": "test"})
    return [*rows, counted(table, "snli", ("dataset", "SNLI"), snli, pairs)]


@dataclass(frozen=True)
class CountedParser:
    """A parser for counts of phrases: its rows, its step for a tokeniser, its difference from the paper's.

    note: if its counts are judged all the same. other: whether its counts stand beside the verdicts on counts by Stanza.
    """

    table: TableName
    parsed: Callable[[Tokeniser], Callable[[Step], Step]]
    why_not: str = ""
    note: str = ""
    other: bool = False


THEIR_PARSER = "the paper's are by the Stanford parser 3.5.2 (PCFG)"
PHRASES_BY = {
    "1-phrases": CountedParser(
        TableName(PAPER, "1-phrases", "table1-phrases"), ByStanza, f"trees by Stanza's models `gum`; {THEIR_PARSER}"
    ),
    "1-phrases-english": CountedParser(
        TableName(PAPER, "1-phrases-english", "table1-phrases-english"),
        ByShippedParser,
        f"trees by the English parser of this package; {THEIR_PARSER}",
        other=True,
    ),
    "1-phrases-stanford": CountedParser(
        TableName(PAPER, "1-phrases-stanford", "table1-phrases-stanford"),
        ByStanford,
        note="divided as in Figure 1, since the paper names no other division; the parser is the one that was put in by hand",
    ),
}


def phrases_by(parser: CountedParser) -> Callable[[str], list[Experiment]]:
    """Return the table of one parser."""
    make = partial(phrases, parser)
    make.__doc__ = f"Table 1: phrases and words on each level; {parser.why_not or parser.note}."
    return make


def phrases(parser: CountedParser, profile: str) -> list[Experiment]:
    """Table 1: phrases and words on each level, of trees by a parser."""
    rows = []
    for task in SUITE:
        answers = []
        for ours, theirs in (("phrases", "phrases_per_sentence"), ("words", "words_per_phrase")):
            for level in DIVISION.levels:
                cell = _cell(task.name, theirs, f"layer {level} of phrase division")
                own, reading = (None, cell) if parser.other else (cell, None)
                answers.append(exact(f"{ours} {level}", own, parser.why_not, parser.note, reading))
        assert isinstance(task.corpus, Corpus)
        parsed = parser.parsed(task.parsed.divide)  # type: ignore[attr-defined]
        recipe = DivisionRecipe(task.corpus, replace(task, parsed=parsed), DIVISION)
        rows.append(counted(parser.table, task.name.lower(), (CORPUS, f"{task.name}, phrases"), recipe, tuple(answers)))
    return rows


GIVEN = {  # why the widths of sentence vectors are no measurements
    "bilstm-max": "true by construction: our LSTMs were given the 2,048 units of InferSent's released trainer",
    "disan": "true by construction: our model was given the 300 units of DiSAN's released program",
    "psan": "true by construction: our model was given the d of section 3.1",
}
CHOSEN = "true by construction: its width was chosen because Table 2 prints it"
NOT_COUNTED = "the paper does not say what is counted"
COUNTED_AS = {  # what sizes follow from that neither reproduce the printed ones nor were fitted to them
    "bilstm-max": f"ours has the LSTMs and the classifier of InferSent's released trainer; {NOT_COUNTED}",
    "adasent": f"ours has the classifier of PSAN, with 300 hidden units; {NOT_COUNTED}",
    "disan": f"the released program of DiSAN has 1,200 more, in biases; {NOT_COUNTED}",
}
READ = "the paper does not say how wide the classifier's hidden layer is: 300, the width of all else, gives this size"
SHARE = f"ours is of the 47.2M of our BiLSTM-Max; of the printed 40M it is 4.96; {NOT_COUNTED}"
FITTED = "its 34 relations were chosen because they give the printed size; the paper names no number"


def parameters(profile: str) -> list[Experiment]:
    """Table 2: width of the sentence vector, |θ| and PSAN's share of the parameters of BiLSTM-Max.

    The share is of section 4.1.
    """
    rows = []
    models = {row.slug: row.model(PUBLISHED_SIZE) for row in SYSTEMS}
    for row in SYSTEMS:
        cell = Cell(PAPER, "Table 2", row.system, row.variant, "sentence_vector_dim", "SNLI")
        answers: tuple[Answer, ...] = (
            exact("width", cell, GIVEN.get(row.slug, CHOSEN)),
            exact(
                "parameters",
                Cell(PAPER, "Table 2", row.system, row.variant, "parameters", "SNLI"),
                FITTED if row.slug == "tbcnn" else "",
                READ if row.slug == "psan" else COUNTED_AS.get(row.slug, ""),
            ),
        )
        if row.system == "HConvNet":  # whose scores the paper prints as AdaSent's, which has rows of its own
            answers = (Answer("width", exact=True), Answer("parameters", exact=True))
        other = models["bilstm-max"] if row.slug == "psan" else None
        if other is not None:
            claimed = Cell(PAPER, "text 4.1", row.system, "vs BiLSTM-Max", "parameter_ratio")
            answers += (exact("share", claimed, note=SHARE),)
        recipe = ModelSizeRecipe(other=other, without=WORDS)
        table = TableName(PAPER, "2-parameters", "table2-parameters")
        rows.append(counted(table, row.slug, (row.system, row.variant), recipe, answers, models[row.slug]))
    return rows


NOT_SAID = "activations that a step saves for its backward pass; the paper does not say what it counts as memory"


def memory(profile: str) -> list[Experiment]:
    """Table 5: memory on TREC, here of the activations of the encoders alone.

    The activations are of a training step in batches of 16 sentences. The last row is PSAN's encoder over whole
    sentences, as in Table 4 (4).
    """
    (trec,) = (task for task in SUITE if task.name == "TREC")
    encoders = {row.slug: row.model(PUBLISHED_SIZE).encoder for row in (MULTI_HEAD, NARROW_DISAN, PSAN)}
    rows = []
    for slug, levels in (*((slug, DIVISION) for slug in encoders), ("whole", Levels(trees="none"))):
        system = {row.slug: row.system for row in (MULTI_HEAD, NARROW_DISAN)}.get(slug, PSAN.system)
        answers: tuple[Answer, ...] = (Answer("memory", exact=True),)
        if slug in encoders:
            answers = (exact("memory", Cell(PAPER, "Table 5", system, "", "memory"), NOT_SAID),)
        others = {name: one for name, one in encoders.items() if name != slug} if slug == PSAN.slug else {}
        if others:
            claimed = Cell(PAPER, "text 4.4", system, "", "memory_reduction_at_least")
            answers += (exact("reduction", claimed, NOT_SAID),)
        recipe = ActivationsRecipe(trec.corpus, trec, levels, others)
        named = (system, "the sentence as one phrase" if slug == "whole" else "")
        model = encoders.get(slug, encoders[PSAN.slug])
        rows.append(counted(TableName(PAPER, "5-memory", "table5-memory"), slug, named, recipe, answers, model))
    return rows


COUNTED_TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "1-sizes": sizes,
    **{number: phrases_by(parser) for number, parser in PHRASES_BY.items()},
    "2-parameters": parameters,
    "5-memory": memory,
}
TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "2": table_2,
    "3": table_3,
    "4": table_4,
    "4-switches": switches,
    "5": table_5,
    "phrases": phrase_sources,
    **COUNTED_TABLES,
}
