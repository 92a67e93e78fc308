"""Paper 004, the Label Attention Layer parser: Tables 1 to 3, and the English parser.

The tables are constituency and dependency parsing of the Penn Treebank. The English parser of this package is trained
on treebanks with texts that may be passed on.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.encoders.inputs import CharactersConfig, InputConfig, PretrainedConfig, TagsConfig, WordsConfig
from phrasemodels.encoders.partitioned import PartitionedEncoderConfig
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
from phrasemodels.layers.labels import Align, LabelAttentionConfig, own_query, released_query
from phrasemodels.layers.partitioned import Scale, by_head_width, by_model_width
from phrasemodels.layers.scorers import Look, from_head, from_itself
from phrasemodels.models.parser import (
    PLAIN_SUM,
    RELEASED_WEIGHT,
    Jointly,
    LearnedPositions,
    ParserConfig,
    arcs_alone,
    as_released,
    phrases_alone,
)
from phrasemodels.parsing.ids import Pieces, no_pieces
from phrasemodels.parsing.words import universal_sentences
from phrasemodels.tasks.metrics.parseval import f1_of
from phrasemodels.tasks.metrics.scores import accuracy_of
from phrasemodels.tasks.prepare.corpora import Corpus, JoinedTreebanks, SampleCorpus, Take
from phrasemodels.tasks.problems.our_parser import ByOurParser, WithPhrases
from phrasemodels.tasks.problems.parse_data import (
    ParsingObjective,
    TreebankVocabulary,
    heads_by_rules,
    with_either,
    with_heads,
    with_tree,
)
from phrasemodels.tasks.problems.parsing import ParsingRecipe
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.train.batches import at_random
from phrasemodels.tasks.train.config import TrainConfig, averaged_adam, halved_on_plateau, linear_decay, linear_warmup
from phrasemodels.verdicts.significance import Statistic

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
XLNET, BERT = "xlnet-large-cased", "bert-large-uncased"  # of Zhou and Zhao's script


@dataclass(frozen=True)
class Reading:
    """Contradictions of paper and released code.

    They are the query of a label and the scale of its attention (Eq 1). They are also the input of a relation (Eq 11)
    and the weight of the losses of arcs and relations (Eq 12).
    """

    align: Align = own_query
    scale: Scale = by_head_width
    look: Look = from_head
    weight: float = PLAIN_SUM


AS_PRINTED = Reading()
AS_RELEASED = Reading(released_query, by_model_width, from_itself, RELEASED_WEIGHT)


@dataclass(frozen=True)
class Parts:
    """Parts of the parser that a profile decides and readings of the paper.

    The parts are the label layer, dropouts, the start of words and pretrained weights. One reading is of most rows, one
    of the row as released. whole: all of the released code beside pretrained weights. It has tags of another program in
    the input and no loss of tags. It also has learned positions, its start and its dropout. baseline_weight: of labels
    against arcs in decoding by a parser without tags.
    """

    label: LabelAttentionConfig = field(default_factory=LabelAttentionConfig)
    arc_dropout: float = 0.33
    word_dropout: float = 0.4
    word_std: float = 1.0
    pretrained: bool = False
    printed: Reading = Reading(weight=RELEASED_WEIGHT)
    released: Reading = Reading(released_query, weight=RELEASED_WEIGHT)
    whole: bool = False
    baseline_weight: float = 0.5

    @property
    def options(self) -> dict[str, Any]:
        """The fields of a ParserConfig that make it whole."""
        if not self.whole:
            return {}
        return {"tag_weight": 0.0, "positions": LearnedPositions, "shared_dropout": True, "start": as_released}


@dataclass(frozen=True)
class Parser:
    """The model of a row.

    residual: the label layer has dropout before its residual. label: there is a label layer. released: as the released
    code and not as printed where they differ. weight: of labels against arcs in joint decoding. None: the profile's.
    loss: weight of the losses of arcs and relations. None: the reading's. tags: the whole parser reads tags. The
    scripts of Zhou and Zhao (2019) for BERT and XLNet have none.
    """

    layers: int = 3
    feed_forward: bool = True
    residual: bool = True
    label: bool = True
    released: bool = False
    encoder: str = XLNET
    weight: float | None = None
    loss: float | None = None
    tags: bool = True
    parts: Parts = field(default_factory=Parts)

    @property
    def reading(self) -> Reading:
        """The choice of this row where paper and released code differ."""
        return self.parts.released if self.released else self.parts.printed

    def __call__(self, size: Size) -> ParserConfig:
        label = replace(
            self.parts.label,
            dropout=size.dropout,
            d_ff=self.parts.label.d_ff if self.feed_forward else 0,
            residual_dropout=size.dropout if self.residual else 0.0,
            align=self.reading.align,
            scale=self.reading.scale,
        )
        top = label if self.label else None
        encoder = PartitionedEncoderConfig(size.d, size.heads, self.layers, size.d_ff, size.dropout, size.d_kv, top=top)
        parts: dict[str, Any] = {
            "hidden": size.hidden,
            "arc_hidden": size.arc_hidden,
            "arc_dropout": self.parts.arc_dropout,
        }
        parts |= {"look": self.reading.look, **self.parts.options}
        weight = self.reading.weight if self.loss is None else self.loss
        return ParserConfig(encoder, self.inputs, dependency_weight=weight, **parts)

    @property
    def inputs(self) -> tuple[InputConfig, ...]:
        """Words and their characters, or a pretrained encoder.

        The whole parser reads tags of another program. All others predict tags: nothing gold is read, and raw text can be parsed.
        """
        if self.parts.pretrained:  # the released script has no word embeddings beside these, whatever the text says
            encoder = PretrainedConfig(self.encoder)
            return (encoder, TagsConfig(vector_dropout=0.2)) if self.reads_tags else (encoder,)
        return WordsConfig(dropout=self.parts.word_dropout, std=self.parts.word_std), CharactersConfig()

    @property
    def reads_tags(self) -> bool:
        """Whether tags of another program are read."""
        return self.parts.whole and self.tags

    @property
    def recipe(self) -> dict[str, Any]:
        """The fields of the recipe by the model."""
        weight = self.weight if self.weight is not None else 0.5 if self.tags else self.parts.baseline_weight
        own: dict[str, Any] = {"problem": ParsingObjective(Jointly(weight), tagged=self.reads_tags)}
        own["divide"] = Pieces(self.encoder) if self.parts.pretrained else no_pieces
        if self.reads_tags:
            own |= {"corpus": TAGGED, "vocabulary": TreebankVocabulary(tags="predicted")}
        return own


def _lal(slug: str, layers: int, feed_forward: bool, residual: bool) -> Row:
    answer = {True: "yes", False: "no"}
    variant = f"{layers} self-attention layers; PWFF {answer[feed_forward]}; residual dropout {answer[residual]}"
    return Row(slug, LAL, variant, Parser(layers, feed_forward, residual))


TWO_YES_YES = _lal("2-ff-drop", 2, True, True)
THREE_YES_YES = _lal("3-ff-drop", 3, True, True)
TABLE_1 = (TWO_YES_YES, _lal("2-drop", 2, False, True), _lal("2", 2, False, False))
TABLE_2 = (TWO_YES_YES, THREE_YES_YES, _lal("3", 3, False, False), _lal("12-ff-drop", 12, True, True))
# The printed 12 layers of the baseline are 2 in its own scripts, which weigh labels by 0.8: there are rows of 12 and of 2, and
# one that differs from the best parser in nothing but the label layer. Of BERT there is a row at the paper's size alone, and
# no run of it is kept. Rows without a variant are ours.
HPSG_BERT = Row(
    "hpsg-bert",
    HPSG,
    "12 self-attention + BERT",
    Parser(12, label=False, encoder=BERT, tags=False),
    train={"batch_rows": 50, "steps": 79_700, "evaluate_every": 200},
)
TABLE_3 = (
    HPSG_BERT,
    Row("hpsg-xlnet", HPSG, "12 self-attention + XLNet", Parser(12, label=False, tags=False)),
    THREE_YES_YES,
    Row("hpsg-3", HPSG, "", Parser(label=False)),
    Row("hpsg-2", HPSG, "", Parser(2, label=False, weight=0.8, tags=False)),
    Row("3-ff-drop-released", LAL, "", Parser(released=True)),
)
# At the paper's size alone: the best row that was released, which is in no table, and the headline with its loss as released.
AS_PUBLISHED = (
    Row("3-ff-released", LAL, "", Parser(residual=False, released=True)),
    Row("3-ff-drop-half", LAL, "", Parser(loss=RELEASED_WEIGHT)),
)
COMPLETE, SUMMARY = ("F1", "precision", "recall", "UAS", "LAS"), ("F1", "UAS", "LAS")

# TAGGED: the Penn Treebank with tags of another program beside the gold ones.
GENERATED, PENN, TAGGED, GOLD = (
    SampleCorpus(train=1500, dev=150, test=300, records=Treebank()),
    Corpus("penn_treebank", "joint"),
    Corpus("penn_treebank", "predicted_tags"),
    Corpus("craft"),
)
PARTS = {
    "sample": Parts(LabelAttentionConfig(d_kv=16, d_out=16, d_ff=64)),
    # all labels share one projection of the words to d_out features: a narrow one loses what arcs and labels need
    "laptop": Parts(LabelAttentionConfig(d_kv=32, d_out=48, d_ff=128), 0.2, 0.2),
    "paper": Parts(pretrained=True),
}
# The printed tables at the paper's size: all of the paper's parser. The other tables there parse raw text, too.
WHOLE = Parts(
    LabelAttentionConfig(labels=112), pretrained=True, printed=AS_PRINTED, released=AS_RELEASED, whole=True,
    baseline_weight=0.8,
)  # fmt: skip
PROFILES = {
    # the generated treebank, a minute a row on two cores
    "sample": Profile(
        Size(d=64, heads=4, d_kv=16, d_ff=64, hidden=48, arc_hidden=48, dropout=0.1),
        TrainConfig(steps=300, batch_tokens=600, learning_rate=4e-3, warmup=40, schedule=linear_decay, clip=5.0,
                    smoothing=0.0, evaluate_every=60, checkpoint_every=60),
        ParsingRecipe(GENERATED),
    ),
    # GUM in place of the Penn Treebank, without pretrained weights: phrases by a parser, dependencies and tags gold. Five
    # minutes of one core a row, of which there are nine. A short training does without much dropout.
    "laptop": Profile(
        Size(d=192, heads=6, d_kv=32, d_ff=256, hidden=128, arc_hidden=192, dropout=0.1),
        TrainConfig(steps=600, batch_tokens=400, learning_rate=1.5e-3, warmup=60, schedule=linear_decay, clip=5.0,
                    smoothing=0.0, evaluate_every=300, checkpoint_every=300),
        ParsingRecipe(Corpus("gum"), max_words=60, vocabulary=TreebankVocabulary(min_label=5)),
    ),
    # The paper's setting; what it leaves out is as in the released script: 100 epochs of 399 batches of 100 sentences, of any
    # lengths, with four evaluations an epoch. Users supply the Penn Treebank.
    "paper": Profile(
        Size(d=1024, heads=8, d_kv=64, d_ff=1024, hidden=250, arc_hidden=1024, dropout=0.2),
        TrainConfig(steps=39_900, batch_tokens=1 << 20, batch_rows=100, arrange=at_random, learning_rate=5e-5, warmup=160,
                    schedule=linear_warmup, decay=halved_on_plateau, clip=math.inf, smoothing=0.0, evaluate_every=100,
                    checkpoint_every=500),
        ParsingRecipe(PENN),
    ),
}  # fmt: skip

# The parser for use. Chosen on dev in trials of three minutes: batches of 300 words in place of 1,200, less dropout, a higher
# rate and words that begin near 0 are worth 10 points of F1 there; a label layer of 32 features is as good as one of 48, and
# faster.
LONG = replace(
    PROFILES["laptop"].train,
    steps=20_000, batch_tokens=300, learning_rate=2e-3, warmup=200, evaluate_every=1000, checkpoint_every=1000,
)  # fmt: skip
ENGLISH_PARTS = Parts(LabelAttentionConfig(d_kv=32, d_out=32, d_ff=128), 0.1, 0.2, 0.05)


def _rows(
    table: TableName,
    printed: str,
    profile: str,
    rows: Iterable[Row],
    metrics: tuple[str, ...],
    chosen: Profile,
    parts: Parts,
) -> list[Experiment]:
    """The rows of a table. printed: the paper's name of the table (empty for a table of ours)."""

    def answers(row: Row) -> tuple[Answer, ...]:
        cells = {
            m: Cell(PAPER, printed, row.system, row.variant, m) if printed and named[row.slug] else None
            for m in metrics
        }
        return tuple(Answer(METRICS[metric], cell, STATISTICS.get(metric)) for metric, cell in cells.items())

    own = [replace(row, model=replace(row.model, parts=parts)) for row in rows]  # type: ignore[type-var]
    named = {row.slug: row.variant for row in own}
    full = [replace(row, variant=row.variant or row.slug, recipe=row.model.recipe) for row in own]  # type: ignore[attr-defined]
    return experiments(table, profile, chosen, full, answers)


def _printed(number: str, profile: str, rows: Iterable[Row], metrics: tuple[str, ...]) -> list[Experiment]:
    table, parts = TableName(PAPER, number, f"table{number}"), WHOLE if profile == "paper" else PARTS[profile]
    return _rows(table, f"Table {number}", profile, rows, metrics, PROFILES[profile], parts)


def table_1(profile: str) -> list[Experiment]:
    """Table 1: the feed-forward layer and residual dropout of the label attention layer, with 2 layers below it."""
    return _printed("1", profile, TABLE_1, COMPLETE)


def table_2(profile: str) -> list[Experiment]:
    """Table 2: the number of self-attention layers."""
    return _printed("2", profile, TABLE_2, COMPLETE)


def table_3(profile: str) -> list[Experiment]:
    """Table 3: against the parser without the layer and the layer as released.

    As released each label has another label's query.
    """
    rows = (*TABLE_3, *AS_PUBLISHED) if profile == "paper" else [row for row in TABLE_3 if row is not HPSG_BERT]
    return _printed("3", profile, rows, SUMMARY)  # without pretrained weights, two rows are the same


def craft(profile: str) -> list[Experiment]:
    """The rows of Tables 1 to 3 but for one on the free treebank with gold trees.

    The missing row differs in pretrained weights only.
    """
    rows = {row.slug: row for row in (*TABLE_1, *TABLE_2, *TABLE_3) if row is not HPSG_BERT}
    corpus = GENERATED if profile == "sample" else GOLD
    chosen = PROFILES[profile]
    own = replace(chosen, recipe=replace(chosen.recipe, corpus=corpus))
    return _rows(TableName(PAPER, "craft", "craft"), "", profile, rows.values(), SUMMARY, own, PARTS[profile])


def parser(profile: str) -> list[Experiment]:
    """The parser for other work (for example phrases for paper 001), trained until it is good."""
    row, table = replace(TWO_YES_YES, slug="lal"), TableName(PAPER, "parser", "parser")
    chosen, parts = PROFILES[profile], PARTS[profile]
    if profile == "laptop":
        chosen, parts = replace(chosen, train=LONG, size=replace(chosen.size, dropout=0.05)), ENGLISH_PARTS
    return _rows(table, "", profile, [row], SUMMARY, chosen, parts)


# Genres of GUM whose texts may be passed on, changed and sold: LICENSE.txt of the corpus, and for conversation, speech,
# textbook and vlog the page of the corpus on licences. Left out as non-commercial: essay, fiction, letter, podcast, whow.
FREE_GENRES = (
    "academic", "bio", "conversation", "court", "interview", "news", "speech", "textbook", "vlog", "voyage",
)  # fmt: skip
FREE_GUM = Take(
    tuple(f"GUM_{genre}_" for genre in FREE_GENRES),
    ("CC-BY-2.5", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-SA-3.0", "public domain"),
    times=2,
)
GUM, EWT = Corpus("gum"), Corpus("ud_english_ewt")
ENGLISH = JoinedTreebanks("english", (GUM, EWT), GUM, {GUM.name: FREE_GUM, EWT.name: Take()})
# Some 40 minutes of one core. Averages of the weights are evaluated, so that an early end costs little.
TRAIN = replace(LONG, steps=20_000, evaluate_every=2500, checkpoint_every=250, optimiser=averaged_adam)
HALF = replace(TRAIN, steps=9_000, evaluate_every=1500)
GLOVE = VectorFile("glove/glove.6B.100d.txt", 100)


def english(profile: str) -> list[Experiment]:
    """The parser of the package, `self-trained` on EWT with phrases of a first parser `lal`.

    EWT has dependencies alone. So `lal` learns its phrases from GUM. It finds the phrases that go with EWT's arcs. Only
    the profile `sample` on generated sentences is smaller.
    """
    chosen, parts = PROFILES["laptop"], ENGLISH_PARTS
    corpus: JoinedTreebanks | SampleCorpus = ENGLISH
    chosen = replace(chosen, train=TRAIN, size=replace(chosen.size, dropout=0.05))
    if profile == "sample":
        chosen, parts = PROFILES["sample"], PARTS["sample"]
        corpus = GENERATED
        chosen = replace(chosen, train=replace(chosen.train, optimiser=averaged_adam))
    given = None if profile == "sample" else GLOVE
    words = replace(chosen.recipe.vocabulary, min_count=3, vectors=given)  # GUM is in it twice
    changed: dict[str, Any] = {
        "corpus": corpus,
        "learned": with_either,
        "vocabulary": words,
        "split": universal_sentences,
    }
    chosen = replace(chosen, recipe=replace(chosen.recipe, **changed))
    table = TableName(PAPER, "english", "english")
    (first,) = _rows(table, "", profile, [Row("lal", LAL, "", Parser(3))], SUMMARY, chosen, parts)
    by = ByOurParser(first.name, first.recipe, first.model, first.train)  # type: ignore[arg-type]
    both: JoinedTreebanks | WithPhrases = (
        WithPhrases(GENERATED, by) if profile == "sample" else replace(ENGLISH, parts=(GUM, WithPhrases(EWT, by)))
    )
    longer = replace(chosen.train, steps=chosen.train.steps * 3 // 2)
    again = replace(chosen, train=longer, recipe=replace(chosen.recipe, corpus=both))
    row = Row("self-trained", LAL, "", Parser(3, weight=0.6))  # chosen on dev
    return [first, *_rows(table, "", profile, [row], SUMMARY, again, parts)]


# Rows for treebanks that have phrases or dependencies alone. Label attention without labels of phrases has as many as there are
# relations in English.
ALONE: dict[str, tuple[Corpus, dict[str, Any], int]] = {
    "phrases": (Corpus("craft"), {"learned": with_tree, "problem": ParsingObjective(phrases_alone, tagged=False)}, 0),
    "arcs": (
        Corpus("ud_english_ewt"),
        {"learned": with_heads, "problem": ParsingObjective(arcs_alone, tagged=False)},
        40,
    ),
    "head-rules": (Corpus("nltk_treebank"), {"learned": with_tree, "heads": heads_by_rules}, 0),
}


def alone(profile: str) -> list[Experiment]:
    """Parsers of phrases alone, of dependencies alone and of phrases with heads by head rules.

    Choose the treebank by --set recipe.corpus.name=NAME.
    """
    chosen, parts = PROFILES[profile], PARTS[profile]
    if profile != "sample":
        chosen, parts = replace(PROFILES["laptop"], train=HALF), ENGLISH_PARTS
    table = TableName(PAPER, "alone", "alone")
    made: list[Experiment] = []
    for slug, (corpus, fields, labels) in ALONE.items():
        own = GENERATED if profile == "sample" else corpus
        one = replace(chosen, recipe=replace(chosen.recipe, corpus=own))
        row = Row(slug, LAL, "", Parser(2))
        (experiment,) = _rows(
            table, "", profile, [row], SUMMARY, one, replace(parts, label=replace(parts.label, labels=labels))
        )
        made.append(replace(experiment, recipe=replace(experiment.recipe, **fields)))
    return made


TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "1": table_1,
    "2": table_2,
    "3": table_3,
    "craft": craft,
    "parser": parser,
    "english": english,
    "alone": alone,
}
