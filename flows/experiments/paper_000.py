"""Paper 000, Attention over Phrases: Table 1, translation of Multi30k; the question behind it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, published_results
from phrasemodels.layers.attention import identity, sigma_on_projection, softmax_hadamard, softmax_within
from phrasemodels.layers.blocks import Replace
from phrasemodels.layers.phrases import LengthEmbedding, MeanInit
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.metrics.bleu import CORPUS_BLEU
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Direction, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, adjacent, no_phrases
from phrasemodels.tasks.prepare.tokenise import join, spaces
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe, TranslationText
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import linear_decay

PAPER = "000"


@dataclass(frozen=True)
class Size:
    """Widths and depths shared by all rows, so that rows differ in attention alone."""

    d: int
    heads: int
    layers: int
    d_ff: int
    dropout: float


def transformer(size: Size) -> EncoderConfig:
    """The baseline."""
    return TransformerEncoderConfig(**dataclasses.asdict(size))


def phrase_transformer(longest: int) -> Callable[[Size], EncoderConfig]:
    """Hypernodes for spans of 2 to `longest` tokens, σ in phase 2."""
    return lambda size: HypernodeEncoderConfig(**dataclasses.asdict(size), longest=longest)


def linear(longest: int) -> Callable[[Size], EncoderConfig]:
    """The same without σ."""
    return lambda size: HypernodeEncoderConfig(**dataclasses.asdict(size), longest=longest, sigma=identity)


@dataclass(frozen=True)
class Row:
    """A system of the paper: what it is called there, its encoder, its phrases."""

    slug: str
    system: str
    variant: str
    encoder: Callable[[Size], EncoderConfig]
    phrases: Phrases


TRANSFORMER = Row("transformer", "Transformer", "baseline", transformer, Phrases(no_phrases))
ADJACENT = (
    Row("linear-k2", "Linear PhraseTransformer", "k=2", linear(2), Phrases(adjacent, 2)),
    Row("linear-k3", "Linear PhraseTransformer", "k=3", linear(3), Phrases(adjacent, 3)),
    Row("phrase-k2", "PhraseTransformer", "k=2", phrase_transformer(2), Phrases(adjacent, 2)),
    Row("phrase-k3", "PhraseTransformer", "k=3", phrase_transformer(3), Phrases(adjacent, 3)),
)


@dataclass(frozen=True)
class Profile:
    """A size at which the table is run. Only the paper's own corpus and size are comparable with the paper."""

    corpus: BitextCorpus | SampleCorpus
    size: Size
    train: TrainConfig
    text: TranslationText
    comparable: bool = False
    ray_train: str | None = None  # the row whose first seed goes through Ray Train; None: every training


PROFILES = {
    # The generated corpus, for two cores and a few minutes. Starting Ray Train costs more than such a training, so one
    # of them shows that way and the others are plain Ray tasks; the loop is the same.
    "sample": Profile(
        corpus=SampleCorpus(),
        size=Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.0),
        train=TrainConfig(
            steps=600,
            batch_tokens=1500,
            learning_rate=4e-3,
            warmup=120,
            schedule=linear_decay,
            evaluate_every=100,
            checkpoint_every=100,
        ),
        text=TranslationText(tokeniser=spaces, detokenise=join),
        ray_train="phrase-k2",
    ),
    # Real Multi30k at a size that two cores can train.
    "laptop": Profile(
        corpus=BitextCorpus("multi30k"),
        size=Size(d=128, heads=4, layers=2, d_ff=256, dropout=0.1),
        train=TrainConfig(
            steps=1000,
            batch_tokens=2048,
            learning_rate=2.5e-3,
            warmup=200,
            schedule=linear_decay,
            evaluate_every=100,
            checkpoint_every=100,
        ),
        text=TranslationText(min_count=3, max_tokens=50),
    ),
    # What the paper gives, and for the rest the defaults of the code that it was probably built on: 64 sentences a
    # batch are about 2,000 padded tokens of both sides, 10 epochs about 4,600 updates.
    "paper": Profile(
        corpus=BitextCorpus("multi30k"),
        size=Size(d=512, heads=8, layers=6, d_ff=2048, dropout=0.1),
        train=TrainConfig(
            steps=20_000, batch_tokens=4096, learning_rate=7e-4, warmup=4000, evaluate_every=500, checkpoint_every=500
        ),
        text=TranslationText(min_count=6, max_tokens=50),
        comparable=True,
    ),
}


def translation(table: str, profile: str, chosen: Profile, row: Row, cell: Cell | None = None) -> Experiment:
    """A system that translates English to German."""
    return Experiment(
        name=f"{PAPER}/{table}/{profile}/{row.slug}",
        paper=PAPER,
        system=row.system,
        variant=row.variant,
        answers=(Answer("bleu", cell, CORPUS_BLEU),),
        profile=profile,
        comparable=chosen.comparable,
        recipe=TranslationRecipe(chosen.corpus, row.phrases, chosen.text),
        model=TranslationConfig(row.encoder(chosen.size), 0, 0, chosen.size.layers, chosen.size.d_ff),
        train=chosen.train,
        ray_train=None if chosen.ray_train is None else (0,) if chosen.ray_train == row.slug else (),
    )


def printed(row: Row, table: str, metric: str) -> Cell | None:
    """The paper's number for a row; None for a row of one's own."""
    known = {(number["paper"], number["table"], number["system"], number["variant"]) for number in published_results()}
    theirs = (PAPER, table, row.system, row.variant) in known
    return Cell(PAPER, table, row.system, row.variant, metric) if theirs else None


def table_1(profile: str) -> list[Experiment]:
    """Table 1 at one size: BLEU of five systems, English to German."""
    return [
        translation("table1", profile, PROFILES[profile], row, printed(row, "Table 1", "BLEU"))
        for row in (TRANSFORMER, *ADJACENT)
    ]


SHORT = 2  # a short schedule has this fraction of the updates
READINGS = {"neg_inf": softmax_within, "hadamard": softmax_hadamard}  # of Eq 5


def sigmoid_grid(profile: str) -> list[Experiment]:
    """What σ is worth: {Transformer, Linear, σ} × readings of Eq 5 × {short, converged} schedule, k=2. Every system has
    the sizes, the learning rate and the updates of Table 1; none was tuned by itself. Each is tested against the row
    `without` what it adds."""
    long = PROFILES[profile].train
    short = dataclasses.replace(long, steps=long.steps // SHORT, warmup=long.warmup // SHORT)
    rows = []
    for schedule, train in (("short", short), ("converged", long)):
        chosen = dataclasses.replace(PROFILES[profile], train=train, ray_train="", comparable=False)
        rows.append((chosen, dataclasses.replace(TRANSFORMER, slug=f"transformer-{schedule}", variant=schedule)))
        for row in (one for one in ADJACENT if one.slug in ("linear-k2", "phrase-k2")):
            for reading, attend in READINGS.items():
                encoder = varied(row.encoder, attend=attend)
                name = f"{row.slug.removesuffix('-k2')}-{reading}-{schedule}"
                chosen_row = Row(name, row.system, f"{reading}, {schedule}", encoder, row.phrases)
                rows.append((chosen, chosen_row))
    table = "table1-sigmoid"
    found = {row.slug: translation(table, profile, chosen, row) for chosen, row in rows}
    return [dataclasses.replace(e, baseline=found[without(slug)].name) for slug, e in found.items()]


def without(slug: str) -> str:
    """The row of the grid that lacks one thing: σ; then hypernodes; then updates."""
    system, *rest = slug.split("-")
    if system == "transformer":
        return "transformer-short"
    return f"transformer-{rest[-1]}" if system == "linear" else "-".join(["linear", *rest])


def varied(encoder: Callable[[Size], EncoderConfig], **switches: Any) -> Callable[[Size], EncoderConfig]:
    """An encoder with other switches of the specification."""
    return lambda size: dataclasses.replace(encoder(size), **switches)  # type: ignore[type-var]


SWITCHES: dict[str, dict[str, Any]] = {
    "as printed": {},
    "σ after the projection": {"readout": sigma_on_projection},
    "hypernodes begin as means": {"initialise": MeanInit},
    "hypernodes begin by length": {"initialise": LengthEmbedding},
    "neither residual, norm nor feed-forward": {"residual": Replace, "d_ff": 0},
}


def switches(profile: str) -> list[Experiment]:
    """PhraseTransformer k=2 with each switch of the specification turned by itself, and in the other direction."""
    chosen = dataclasses.replace(PROFILES[profile], ray_train="", comparable=False)
    base = next(row for row in ADJACENT if row.slug == "phrase-k2")
    rows = [
        translation(
            "table1-switches",
            profile,
            chosen,
            Row(f"switch-{index}", base.system, name, varied(base.encoder, **parts), base.phrases),
        )
        for index, (name, parts) in enumerate(SWITCHES.items())
    ]
    if isinstance(chosen.corpus, BitextCorpus):
        text = dataclasses.replace(chosen.text, source_language="de", target_language="en")
        turned = BitextCorpus(chosen.corpus.name, Direction("de", "en"))
        recipe = TranslationRecipe(turned, base.phrases, text)
        rows.append(
            dataclasses.replace(
                rows[0], name=f"{PAPER}/table1-switches/{profile}/de-en", variant="German to English", recipe=recipe
            )
        )
    return rows


TABLES: dict[str, Callable[[str], list[Experiment]]] = {
    "1": table_1,
    "1-sigmoid": sigmoid_grid,
    "1-switches": switches,
}
