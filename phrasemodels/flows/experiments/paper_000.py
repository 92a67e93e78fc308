"""Paper 000, Attention over Phrases.

Table 1 is translation of Multi30k with grids of the paper's switches. Table 2 is part-of-speech tagging with the same
systems and with hypernodes from dependency trees. The sizes of Multi30k in section 4.1 are counted.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from phrasemodels.data.corpora.samples import Treebank
from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig, softmax_hadamard, softmax_within
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.experiment import (
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
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.inference.inputs import adjacent, join, no_phrases, spaces, subtrees
from phrasemodels.layers.attention import identity, sigma_on_projection
from phrasemodels.layers.blocks import Replace, standard_normal
from phrasemodels.layers.phrases import LengthEmbedding, MeanInit
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import BeamSearch, TranslationConfig, as_attention_is_all_you_need_pytorch
from phrasemodels.tasks.metrics.scores import CORPUS_BLEU
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases
from phrasemodels.tasks.problems.counting import CorpusSizeRecipe
from phrasemodels.tasks.problems.sentence_data import VectorFile
from phrasemodels.tasks.problems.tagging import ACCURACY, TagColumn, TaggingRecipe
from phrasemodels.tasks.problems.translation import (
    TokenAccuracyObjective,
    TranslationObjective,
    TranslationRecipe,
    TranslationText,
)
from phrasemodels.tasks.train.batches import at_random
from phrasemodels.tasks.train.config import TrainConfig, adam_with_decay, constant, linear_decay

PAPER = "000"
Encoder = Callable[[Size], EncoderConfig]


def transformer(size: Size) -> EncoderConfig:
    """The baseline."""
    return TransformerEncoderConfig(**size.encoder)


def phrase_transformer(longest: int, **switches: Any) -> Encoder:
    """Hypernodes for spans of 2 to `longest` tokens, with σ in phase 2 unless a switch replaces it."""
    return lambda size: HypernodeEncoderConfig(**size.encoder, longest=longest, **switches)


def adjacent_row(system: str, k: int, **switches: Any) -> Row:
    """A row with hypernodes over adjacent tokens. Its model is the encoder alone. Each table completes it."""
    slug = f"{'linear' if switches else 'phrase'}-k{k}"
    return Row(slug, system, f"k={k}", phrase_transformer(k, **switches), {"phrases": Phrases(adjacent, k)})


TRANSFORMER = Row("transformer", "Transformer", "baseline", transformer, {"phrases": Phrases(no_phrases)})
LINEAR_2 = adjacent_row("Linear PhraseTransformer", 2, sigma=identity)
LINEAR_3 = adjacent_row("Linear PhraseTransformer", 3, sigma=identity)
PHRASE_2 = adjacent_row("PhraseTransformer", 2)
PHRASE_3 = adjacent_row("PhraseTransformer", 3)
ADJACENT = (LINEAR_2, LINEAR_3, PHRASE_2, PHRASE_3)

EPOCH = 454  # batches of 64 of the 29,000 sentences
TEN_EPOCHS: dict[str, Any] = {"steps": 10 * EPOCH}
EARLIER = 10, 30  # epochs of Table 1's rows that end before the last one
PROFILES = {
    # The generated corpus, for two cores and a few minutes.
    "sample": Profile(
        Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.0),
        TrainConfig(steps=600, batch_tokens=1500, learning_rate=4e-3, warmup=120, schedule=linear_decay,
                    evaluate_every=100, checkpoint_every=100),
        TranslationRecipe(SampleCorpus(), Phrases(no_phrases), TranslationText(tokeniser=spaces, detokenise=join)),
    ),
    # Real Multi30k at a size that two cores can train.
    "laptop": Profile(
        Size(d=128, heads=4, layers=2, d_ff=256, dropout=0.1),
        TrainConfig(steps=1000, batch_tokens=2048, learning_rate=2.5e-3, warmup=200, schedule=linear_decay,
                    evaluate_every=100, checkpoint_every=100),
        TranslationRecipe(BitextCorpus("multi30k"), Phrases(no_phrases), TranslationText(min_count=3, max_tokens=50)),
    ),
    # The paper's sizes; for what it leaves out, the defaults of the code that it was probably built on. It says nothing of how
    # long is trained: this is the converged reading, 80 epochs; that code trains 10, which is the other (TEN_EPOCHS).
    "paper": Profile(
        Size(d=512, heads=8, layers=6, d_ff=2048, dropout=0.1),
        # 7e-4 = (512 · 4000)^-½, the peak of the schedule of Vaswani et al. (2017, Eq 3); rows alone limit a batch
        TrainConfig(steps=80 * EPOCH, batch_tokens=1 << 20, batch_rows=64, arrange=at_random, learning_rate=7e-4, warmup=4000,
                    clip=math.inf, precision="bfloat16", evaluate_every=EPOCH, checkpoint_every=EPOCH),
        TranslationRecipe(
            BitextCorpus("multi30k"), Phrases(no_phrases), TranslationText(min_count=6, max_tokens=50),
            problem=TranslationObjective(greedy_bleu=True),
        ),
    ),
}  # fmt: skip


def translator(row: Row) -> Row:
    """The row with a decoder on its encoder."""
    # vocabularies have 0 words until the data sets their sizes (`TranslationObjective.configure`)
    return replace(row, model=lambda size: TranslationConfig(row.model(size), 0, 0, size.layers, size.d_ff))


def printed(row: Row, table: str, metric: str) -> Cell | None:
    """The paper's number for a row. None if it prints none."""
    known = {(number["paper"], number["table"], number["system"], number["variant"]) for number in published_results()}
    theirs = (PAPER, table, row.system, row.variant) in known
    return Cell(PAPER, table, row.system, row.variant, metric) if theirs else None


def no_number(row: Row) -> tuple[Answer, ...]:
    """BLEU, without a printed number."""
    return (Answer("bleu", None, CORPUS_BLEU),)


def ended_early(row: Row, epochs: int) -> Row:
    """The row trained for fewer epochs, tested against the baseline of as many."""
    slug, variant = f"{row.slug}-{epochs}-epochs", f"{row.variant}, {epochs} epochs"
    baseline = f"{TRANSFORMER.slug}-{epochs}-epochs"
    return replace(row, slug=slug, variant=variant, baseline=baseline, train={"steps": epochs * EPOCH})


def table_1(profile: str) -> list[Experiment]:
    """Table 1: BLEU of five systems, English to German.

    At the paper's size each system is trained thrice. The converged reading answers the printed numbers. Rows that end
    after 10 and 30 epochs are other readings. Two rows as the base code does it are other readings, too.
    """
    rows = [translator(row) for row in (TRANSFORMER, *ADJACENT)]
    if profile == "paper":
        rows += [
            *(ended_early(row, epochs) for epochs in EARLIER for row in rows),
            *(as_base_code(translator(row)) for row in (TRANSFORMER, PHRASE_2)),
        ]
    return experiments(
        TableName(PAPER, "1", "table1"), profile, PROFILES[profile], rows,
        lambda row: (Answer("bleu", printed(row, "Table 1", "BLEU"), CORPUS_BLEU, reading=(read := read_otherwise(row)),
                            named=row.variant.rpartition(", ")[2] if read else ""),),
    )  # fmt: skip


def read_otherwise(row: Row) -> Cell | None:
    """The number of Table 1 under another reading by a row's variant. None if there is none."""
    variant = row.variant.rpartition(", ")[0]
    return printed(replace(row, variant=variant), "Table 1", "BLEU") if variant else None


def as_base_code(row: Row) -> Row:
    """The translator of a row as in attention-is-all-you-need-pytorch of August 2018.

    That code trained, decoded and scored it so. The paper was probably built on this code. It trains ten epochs with
    tables that learn slowly. The weights have the best accuracy on dev. The beam is without length normalisation. </s>
    and unknown words stay in the scored text.
    """

    def model(size: Size) -> TranslationConfig:
        made = row.model(size)
        return replace(
            made, encoder=replace(made.encoder, attention_dropout=size.dropout), attention_dropout=size.dropout,
            embedding_dropout=0.0, start=standard_normal, scaled=False, draw=as_attention_is_all_you_need_pytorch,
        )  # fmt: skip

    recipe = {
        **row.recipe,
        "problem": TokenAccuracyObjective(greedy_bleu=True),
        # 52: the code's longest sequences, 50 words between <s> and </s>
        "search": BeamSearch(beam=5, length_penalty=0.0, growth=0.0, extra=52, unknown=True),
        "copy_unknown": False,
        "count_end": True,
    }
    slug, variant = f"{row.slug}-base-code", f"{row.variant}, as the base code"
    baseline = f"{TRANSFORMER.slug}-base-code"
    return replace(row, slug=slug, variant=variant, model=model, recipe=recipe, baseline=baseline, train=TEN_EPOCHS)


SHORT = 2  # below the paper's size, a short schedule has this fraction of the updates
READINGS = {"neg_inf": softmax_within, "hadamard": softmax_hadamard}  # of Eq 5
GRID = {"linear": ("Linear PhraseTransformer", {"sigma": identity}), "phrase": ("PhraseTransformer", {})}


def sigmoid_grid(profile: str) -> list[Experiment]:
    """The worth of σ: {Transformer, Linear, σ} × readings of Eq 5 × {short, converged} schedule, k=2.

    All systems have the sizes, the rate and the updates of Table 1. None was tuned by itself. Each row is tested
    against the row that lacks one thing: σ, then hypernodes, then updates.
    """
    table, chosen = TableName(PAPER, "1-sigmoid", "table1-sigmoid"), PROFILES[profile]
    long = chosen.train
    less: dict[str, Any] = (
        {"steps": long.steps // SHORT, "warmup": long.warmup // SHORT} if profile != "paper" else TEN_EPOCHS
    )
    short = replace(long, **less)
    made = []
    for schedule, train in (("short", short), ("converged", long)):
        rows = [replace(TRANSFORMER, slug=f"transformer-{schedule}", variant=schedule, baseline="transformer-short")]
        for name, (system, switches) in GRID.items():
            for reading, attend in READINGS.items():
                model = phrase_transformer(2, attend=attend, **switches)
                without = f"transformer-{schedule}" if name == "linear" else f"linear-{reading}-{schedule}"
                slug, variant = f"{name}-{reading}-{schedule}", f"{reading}, {schedule}"
                rows.append(Row(slug, system, variant, model, PHRASE_2.recipe, without))
        own = replace(chosen, train=train)
        made += experiments(table, profile, own, map(translator, rows), no_number)
    return made


SWITCHES: dict[str, dict[str, Any]] = {
    "as printed": {},
    "σ after the projection": {"readout": sigma_on_projection},
    "hypernodes begin as means": {"initialise": MeanInit},
    "hypernodes begin by length": {"initialise": LengthEmbedding},
    "neither residual, norm nor feed-forward": {"residual": Replace, "d_ff": 0},
}


def switches(profile: str) -> list[Experiment]:
    """PhraseTransformer k=2 with each switch of the specification turned by itself, and in the other direction."""
    chosen = PROFILES[profile]

    def turned(parts: dict[str, Any]) -> Encoder:
        return lambda size: replace(PHRASE_2.model(size), **parts)

    rows = [
        replace(PHRASE_2, slug=f"switch-{index}", variant=name, model=turned(parts))
        for index, (name, parts) in enumerate(SWITCHES.items())
    ]
    recipe = chosen.recipe
    if isinstance(recipe.corpus, BitextCorpus):
        own = {**PHRASE_2.recipe, "corpus": BitextCorpus(recipe.corpus.name, reverse=True)}
        rows.append(replace(PHRASE_2, slug="de-en", variant="German to English", recipe=own))
    table = TableName(PAPER, "1-switches", "table1-switches")
    return experiments(table, profile, chosen, map(translator, rows), no_number)


# PARSED: with trees by spaCy
PENN, PARSED = Corpus("penn_treebank", "tagging"), Corpus("penn_treebank", "tagging_arcs")
GLOVE = VectorFile("glove/glove.840B.300d.txt", 300)
# The model is phrase_transformer's; its hypernodes are parts of dependency trees.
SEMANTIC = tuple(
    replace(row, slug=f"semantic-{row.variant.replace('=', '')}", system="Semantic PhraseTransformer",
            recipe={"phrases": Phrases(subtrees, k)})
    for k, row in ((2, PHRASE_2), (3, PHRASE_3))
)  # fmt: skip

TAGGING_PROFILES = {
    "sample": Profile(
        Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.1, hidden=200),
        TrainConfig(steps=120, batch_tokens=1500, learning_rate=3e-3, warmup=30, schedule=linear_decay,
                    evaluate_every=40, checkpoint_every=40),
        TaggingRecipe(SampleCorpus(train=2000, dev=200, test=400, records=Treebank())),
    ),
    # Ten epochs or so of a treebank of 180,000 words.
    "laptop": Profile(
        Size(d=120, heads=6, layers=2, d_ff=240, dropout=0.3, hidden=200),
        TrainConfig(steps=600, batch_tokens=3000, learning_rate=3e-3, warmup=100, schedule=linear_decay,
                    evaluate_every=100, checkpoint_every=100, smoothing=0.0),
        TaggingRecipe(Corpus("gum")),
    ),
    # The paper's widths; for the rest "we follow the parameters in Guo et al. 2019": 25 epochs of 598 batches of 64 sentences,
    # and GloVe, which is not trained. Users supply it and the Penn Treebank.
    "paper": Profile(
        Size(d=300, heads=6, layers=2, d_ff=2048, dropout=0.3, hidden=200),
        TrainConfig(steps=14_950, batch_tokens=1_000_000, batch_rows=64, learning_rate=3e-4, warmup=1, clip=5.0,
                    betas=(0.9, 0.999), epsilon=1e-8, schedule=constant, optimiser=adam_with_decay, smoothing=0.0,
                    evaluate_every=1000, checkpoint_every=1000),
        TaggingRecipe(PENN, vectors=GLOVE),
    ),
}  # fmt: skip


def tagger(row: Row) -> Row:
    """The row with a classifier of tags on its encoder."""
    return replace(row, model=lambda size: TaggerConfig(row.model(size), 0, 0, size.hidden))


def table_2(corpus: Corpus | None, tags: str) -> Callable[[str], list[Experiment]]:
    """Table 2 on a treebank (None: the profile's own, which alone answers printed numbers): token accuracy of seven systems."""

    def make(profile: str) -> list[Experiment]:
        chosen, number = TAGGING_PROFILES[profile], "2" if corpus is None else f"2-{corpus.name}-{tags}"
        treebank = corpus if corpus and profile != "sample" else chosen.recipe.corpus
        recipe = replace(chosen.recipe, corpus=treebank, tags=TagColumn(tags))
        own = replace(chosen, recipe=recipe)
        parsed = {"corpus": PARSED} if treebank is PENN else {}
        semantic = (replace(row, recipe={**row.recipe, **parsed}) for row in SEMANTIC)
        rows = map(tagger, (TRANSFORMER, *semantic, *ADJACENT))
        return experiments(
            TableName(PAPER, number, f"table{number}"), profile, own, rows,
            lambda row: (Answer("accuracy", None if corpus else printed(row, "Table 2", "accuracy"), ACCURACY),),
        )  # fmt: skip

    where = f" on {corpus.name}, with its column `{tags}`" if corpus else ""
    make.__doc__ = f"Table 2: accuracy of seven taggers{where}."
    return make


SPLITS = ("train", "dev", "test")


def sizes(profile: str) -> list[Experiment]:
    """Sentences of Multi30k, in thousands."""
    name = "Multi30k (WMT16 multimodal)"
    answers = tuple(
        exact(f"thousands {split}", Cell(PAPER, "text 4.1", "dataset", "", "n_samples_thousand", name, split))
        for split in SPLITS
    )
    recipe = CorpusSizeRecipe(Corpus("multi30k"), {split: split for split in SPLITS})
    return [counted(TableName(PAPER, "sizes", "sizes"), "multi30k", ("dataset", "Multi30k"), recipe, answers)]


COUNTED_TABLES: dict[str, Callable[[str], list[Experiment]]] = {"sizes": sizes}
TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "1": table_1,
    "1-sigmoid": sigmoid_grid,
    "1-switches": switches,
    **COUNTED_TABLES,
    "2": table_2(None, "tags"),
    **{
        f"2-{name}-{tags}": table_2(Corpus(name), tags)
        for name, tags in (("gum", "universal"), ("ud_english_ewt", "tags"), ("ud_english_ewt", "universal"))
    },
}
