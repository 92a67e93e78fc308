"""Paper 004, the Label Attention Layer parser: Tables 1 to 3, constituency and dependency parsing of the Penn Treebank."""

from dataclasses import dataclass, field, replace

from phrasemodels.data.samples.records import Treebank
from phrasemodels.encoders.inputs import CharactersConfig, InputConfig, PretrainedConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.layers.labels import LabelAttentionConfig, released_query
from phrasemodels.models.parser import Jointly, ParserConfig
from phrasemodels.tasks.metrics.accuracy import accuracy_of
from phrasemodels.tasks.metrics.parseval import f1_of
from phrasemodels.tasks.metrics.significance import Statistic
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.pieces import Divide, Pieces, no_pieces
from phrasemodels.tasks.problems.parsing.data import TreebankVocabulary
from phrasemodels.tasks.problems.parsing.objective import ParsingObjective
from phrasemodels.tasks.problems.parsing.recipe import ParsingRecipe
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import halved_on_plateau, linear_decay, linear_warmup

PAPER = "004"
LAL = "LAL parser + XLNet"
HPSG = "HPSG parser (Zhou & Zhao, 2019)"
METRICS = {"F1": "f1", "precision": "precision", "recall": "recall", "UAS": "uas", "LAS": "las"}
# of precision and recall by themselves nothing is tested
STATISTICS = {
    "F1": Statistic("brackets", f1_of),
    "UAS": Statistic("heads", accuracy_of),
    "LAS": Statistic("arcs", accuracy_of),
}
XLNET, BERT = "xlnet-large-cased", "bert-large-cased"


@dataclass(frozen=True)
class Size:
    """Widths shared by all rows."""

    d: int = 1024
    heads: int = 8
    d_kv: int = 64
    d_ff: int = 1024
    hidden: int = 250
    arc_hidden: int = 1024


@dataclass(frozen=True)
class Row:
    """A system of the paper: `variant` is what it is called there; residual: whether the label layer has dropout before
    its residual; label: whether there is a label layer at all. A row without a variant is ours."""

    slug: str
    system: str
    variant: str
    layers: int = 3
    feed_forward: bool = True
    residual: bool = True
    label: bool = True
    released: bool = False
    pretrained: str = XLNET
    weight: float = 0.5


def _lal(slug: str, layers: int, feed_forward: bool, residual: bool) -> Row:
    answer = {True: "yes", False: "no"}
    variant = f"{layers} self-attention layers; PWFF {answer[feed_forward]}; residual dropout {answer[residual]}"
    return Row(slug, LAL, variant, layers, feed_forward, residual)


TWO_YES_YES = _lal("2-ff-drop", 2, True, True)
THREE_YES_YES = _lal("3-ff-drop", 3, True, True)
TABLE_1 = (TWO_YES_YES, _lal("2-drop", 2, False, True), _lal("2", 2, False, False))
TABLE_2 = (TWO_YES_YES, THREE_YES_YES, _lal("3", 3, False, False), _lal("12-ff-drop", 12, True, True))
# the printed 12 layers of the baseline are 2 in its own scripts, which weigh labels by 0.8: both are run, and one that
# differs from the row above it in nothing but the label layer
TABLE_3 = (
    Row("hpsg-bert", HPSG, "12 self-attention + BERT", 12, label=False, pretrained=BERT),
    Row("hpsg-xlnet", HPSG, "12 self-attention + XLNet", 12, label=False),
    THREE_YES_YES,
    Row("hpsg-3", HPSG, "", label=False),
    Row("hpsg-2", HPSG, "", 2, label=False, weight=0.8),
    replace(THREE_YES_YES, slug="3-ff-drop-released", variant="", released=True),
)
COMPLETE, SUMMARY = ("F1", "precision", "recall", "UAS", "LAS"), ("F1", "UAS", "LAS")


@dataclass(frozen=True)
class Profile:
    """A size at which the tables are run. The paper's corpus is not free, so only a run on it is comparable.

    gold: what table `craft` is run on.
    """

    corpus: Corpus | SampleCorpus
    size: Size
    label: LabelAttentionConfig
    train: TrainConfig
    dropout: float = 0.2
    arc_dropout: float = 0.33
    word_dropout: float = 0.4
    word_std: float = 1.0
    pretrained: bool = False
    comparable: bool = False
    max_words: int = 0
    gold: Corpus | SampleCorpus = field(default_factory=lambda: Corpus("craft"))
    vocabulary: TreebankVocabulary = field(default_factory=TreebankVocabulary)


GENERATED = SampleCorpus(train=1500, dev=150, test=300, records=Treebank())
PROFILES = {
    # the generated treebank, a minute a row on two cores
    "sample": Profile(
        corpus=GENERATED,
        gold=GENERATED,
        size=Size(d=64, heads=4, d_kv=16, d_ff=64, hidden=48, arc_hidden=48),
        label=LabelAttentionConfig(d_kv=16, d_out=16, d_ff=64),
        train=TrainConfig(
            steps=300,
            batch_tokens=600,
            learning_rate=4e-3,
            warmup=40,
            schedule=linear_decay,
            clip=5.0,
            smoothing=0.0,
            evaluate_every=60,
            checkpoint_every=60,
        ),
        dropout=0.1,
    ),
    # GUM in place of the Penn Treebank, without pretrained weights: phrases by a parser, dependencies and tags gold. Five
    # minutes of one core a row, of which there are nine.
    "laptop": Profile(
        corpus=Corpus("gum"),
        size=Size(d=192, heads=6, d_kv=32, d_ff=256, hidden=128, arc_hidden=192),
        # all labels share one projection of the words to d_out features: a narrow one loses what arcs and labels need
        label=LabelAttentionConfig(d_kv=32, d_out=48, d_ff=128),
        train=TrainConfig(
            steps=600,
            batch_tokens=400,
            learning_rate=1.5e-3,
            warmup=60,
            schedule=linear_decay,
            clip=5.0,
            smoothing=0.0,
            evaluate_every=300,
            checkpoint_every=300,
        ),
        dropout=0.1,  # a short training does without much of it
        arc_dropout=0.2,
        word_dropout=0.2,
        max_words=60,
        vocabulary=TreebankVocabulary(min_label=5),
    ),
    # what the paper gives; its batches are 100 sentences, some 2,700 positions, 40 epochs of which are about 16,000
    # updates. The Penn Treebank has to be put in by hand.
    "paper": Profile(
        corpus=Corpus("penn_treebank", "joint"),
        size=Size(),
        label=LabelAttentionConfig(),
        train=TrainConfig(
            steps=40_000,
            batch_tokens=4000,
            batch_rows=100,
            learning_rate=5e-5,
            warmup=160,
            schedule=linear_warmup,
            decay=halved_on_plateau,
            clip=1e9,
            smoothing=0.0,
            evaluate_every=100,
            checkpoint_every=500,
            patience=80,
        ),
        pretrained=True,
        comparable=True,
    ),
}

# Of the parser that is to be used. Chosen on dev in trials of three minutes: batches of 300 words in place of 1,200, less
# dropout, a higher rate and words that begin near 0 are worth 10 points of F1 there; a label layer of 32 features is as good as
# one of 48, and faster.
PARSERS = PROFILES | {
    "laptop": replace(
        PROFILES["laptop"],
        label=LabelAttentionConfig(d_kv=32, d_out=32, d_ff=128),
        dropout=0.05,
        arc_dropout=0.1,
        word_std=0.05,
        train=replace(
            PROFILES["laptop"].train,
            steps=20_000,
            batch_tokens=300,
            learning_rate=2e-3,
            warmup=200,
            evaluate_every=1000,
            checkpoint_every=1000,
        ),
    )
}


def table_1(profile: str) -> list[Experiment]:
    """Table 1: the feed-forward layer and residual dropout of the label attention layer, with 2 layers below it."""
    return [_experiment("table1", "Table 1", row, profile, COMPLETE) for row in TABLE_1]


def table_2(profile: str) -> list[Experiment]:
    """Table 2: the number of self-attention layers."""
    return [_experiment("table2", "Table 2", row, profile, COMPLETE) for row in TABLE_2]


def table_3(profile: str) -> list[Experiment]:
    """Table 3: against the parser without the layer; beside it, as released: each label with another label's query."""
    rows = [row for row in TABLE_3 if row.pretrained == XLNET or PROFILES[profile].pretrained]  # else two are the same
    return [_experiment("table3", "Table 3", row, profile, SUMMARY) for row in rows]


def craft(profile: str) -> list[Experiment]:
    """The rows of Tables 1 to 3, but for one that differs in pretrained weights only, on the free treebank with gold trees."""
    rows = {row.slug: row for row in (*TABLE_1, *TABLE_2, *TABLE_3) if row.pretrained == XLNET}
    chosen = replace(PROFILES[profile], corpus=PROFILES[profile].gold, comparable=False)
    return [_experiment("craft", "", row, profile, SUMMARY, chosen) for row in rows.values()]


def parser(profile: str) -> list[Experiment]:
    """The parser for other work, such as phrases for paper 001, trained until it is good."""
    return [_experiment("parser", "", replace(TWO_YES_YES, slug="lal"), profile, SUMMARY, PARSERS[profile])]


def _experiment(
    slug: str, table: str, row: Row, profile: str, metrics: tuple[str, ...], chosen: Profile | None = None
) -> Experiment:
    """A row of a table, or of one of ours that has no printed numbers; chosen: other sizes than the profile's."""
    chosen = chosen or PROFILES[profile]
    inputs, divide = _inputs(chosen, row)
    printed = table and row.variant
    cells = {metric: Cell(PAPER, table, row.system, row.variant, metric) if printed else None for metric in metrics}
    return Experiment(
        name=f"{PAPER}/{slug}/{profile}/{row.slug}",
        paper=PAPER,
        system=row.system,
        variant=row.variant or row.slug,
        answers=tuple(Answer(METRICS[metric], cell, STATISTICS.get(metric)) for metric, cell in cells.items()),
        profile=profile,
        comparable=chosen.comparable,
        recipe=ParsingRecipe(
            chosen.corpus,
            ParsingObjective(Jointly(row.weight), tagged=False),
            vocabulary=chosen.vocabulary,
            max_words=chosen.max_words,
            divide=divide,
        ),
        model=_model(chosen, row, inputs),
        train=chosen.train,
        ray_train=None if chosen.comparable else (0,) if row.slug == "3-ff-drop" else (),
    )


def _inputs(chosen: Profile, row: Row) -> tuple[tuple[InputConfig, ...], Divide]:
    # The paper reads the tags of another program. Here tags are found, so that nothing gold is read, and raw text can be.
    if chosen.pretrained:  # the released script has no word embeddings beside these, whatever the text says
        return (PretrainedConfig(row.pretrained),), Pieces(row.pretrained)
    return (WordsConfig(dropout=chosen.word_dropout, std=chosen.word_std), CharactersConfig()), no_pieces


def _model(chosen: Profile, row: Row, inputs: tuple[InputConfig, ...]) -> ParserConfig:
    size, dropout = chosen.size, chosen.dropout
    label = replace(
        chosen.label,
        dropout=dropout,
        d_ff=chosen.label.d_ff if row.feed_forward else 0,
        residual_dropout=dropout if row.residual else 0.0,
    )
    if row.released:
        label = replace(label, align=released_query)
    encoder = PartitionedEncoderConfig(
        size.d, size.heads, row.layers, size.d_kv, size.d_ff, dropout, top=label if row.label else None
    )
    return ParserConfig(
        encoder,
        inputs,
        hidden=size.hidden,
        arc_hidden=size.arc_hidden,
        arc_dropout=chosen.arc_dropout,
    )


TABLES = {"1": table_1, "2": table_2, "3": table_3, "craft": craft, "parser": parser}
