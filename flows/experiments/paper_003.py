"""Paper 003, Structured Attention Networks: segmental attention for translation. Its other tables stand beside this.

The tables of the slides are called nmt, babi and snli; trees is one that only the full version has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.layers.weights import Segments, Sigmoid, Softmax
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.tasks.metrics.bleu import CORPUS_BLEU
from phrasemodels.tasks.prepare.corpora import AnyCorpus, BitextCorpus, Corpus, Direction, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases
from phrasemodels.tasks.prepare.tokenise import Tokeniser, characters, join, letters, spaces
from phrasemodels.tasks.problems.translation.objective import SentenceTranslationObjective
from phrasemodels.tasks.problems.translation.recipe import TranslationRecipe, TranslationText
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.optimisers import constant, halved_after_rise, linear_decay, sgd

PAPER = "003"
ANY_TOKENS = 10**9  # batches are counted in rows


def rows_of(steps: int, rows: int, learning_rate: float, **others: Any) -> TrainConfig:
    """A training in batches of so many rows, without warm-up or smoothing."""
    return TrainConfig(
        steps=steps,
        batch_rows=rows,
        batch_tokens=ANY_TOKENS,
        learning_rate=learning_rate,
        warmup=1,
        smoothing=0.0,
        **others,
    )


@dataclass(frozen=True)
class TranslationProfile:
    """A corpus, its two ways of dividing sources, widths, and a training."""

    corpus: AnyCorpus
    languages: tuple[str, str]
    by_character: Tokeniser
    d: int
    layers: int
    min_count: int
    max_tokens: int
    train: TrainConfig
    comparable: bool = False


TRANSLATION = {
    # English to German-like sentences; letters in place of Japanese characters.
    "sample": TranslationProfile(
        SampleCorpus(train=1500, dev=100, test=200),
        ("en", "de"),
        letters,
        d=48,
        layers=1,
        min_count=1,
        max_tokens=0,
        train=rows_of(250, 32, 1e-2, schedule=linear_decay, evaluate_every=50, checkpoint_every=250),
    ),
    # In place of ASPEC: 50,000 pairs of everyday sentences, seen one and a half times. Batches of 32: in 80 s dev loss came
    # to 28 nats a sentence with them, to 31 with 64; with 128, at a rate of 2e-3, to 39.
    "laptop": TranslationProfile(
        BitextCorpus("small_parallel_enja", Direction("ja", "en")),
        ("ja", "en"),
        characters,
        d=128,
        layers=1,
        min_count=3,
        max_tokens=50,
        train=rows_of(2400, 32, 5e-3, schedule=linear_decay, evaluate_every=300, checkpoint_every=600),
    ),
    # As published: 500,000 pairs, 3907 batches an epoch, 30 epochs, halved each epoch from the first rise on.
    "paper": TranslationProfile(
        Corpus("aspec"),
        ("ja", "en"),
        characters,
        d=500,
        layers=2,
        min_count=10,
        max_tokens=50,
        train=rows_of(
            30 * 3907,
            128,
            1.0,
            schedule=constant,
            decay=halved_after_rise,
            optimiser=sgd,
            evaluate_every=3907,
            checkpoint_every=3907,
        ),
        comparable=True,
    ),
}

WEIGHTS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "simple": ("Simple attention", Softmax),
    "sigmoid": ("Sigmoid attention", Sigmoid),
    "structured": ("Structured attention", Segments),
}


def table_nmt(profile: str) -> list[Experiment]:
    """BLEU of three kinds of weights, from characters and from words."""
    chosen = TRANSLATION[profile]
    sources = {"char": ("CHAR to WORD", chosen.by_character), "word": ("WORD to WORD", spaces)}
    return [
        Experiment(
            name=f"{PAPER}/tablenmt/{profile}/{source}-{slug}",
            paper=PAPER,
            system="NMT",
            variant=f"{variant}, {direction}",
            answers=(Answer("bleu", _translation_cell(variant, direction), CORPUS_BLEU),),
            profile=profile,
            comparable=chosen.comparable,
            recipe=TranslationRecipe(
                chosen.corpus,
                Phrases(no_phrases),
                TranslationText(tokeniser, join, *chosen.languages, chosen.min_count, chosen.max_tokens),
                problem=SentenceTranslationObjective(),
            ),
            model=RecurrentConfig(LSTMEncoderConfig(chosen.d, chosen.layers), layers=chosen.layers, weights=weights),
            train=chosen.train,
            ray_train=(),
            baseline="" if slug == "simple" else f"{PAPER}/tablenmt/{profile}/{source}-simple",
        )
        for source, (direction, tokeniser) in sources.items()
        for slug, (variant, weights) in WEIGHTS.items()
    ]


def _translation_cell(variant: str, direction: str) -> Cell:
    table, dataset = "Slide: Segmental Attention for NMT", f"WAT 2015 Japanese-English, {direction}"
    return Cell(PAPER, table, "NMT", variant, "BLEU", dataset)


TABLES = {"nmt": table_nmt}
