"""Paper 003, Structured Attention Networks: segmental attention for translation. Its other tables stand beside this.

The tables of the slides are called nmt, babi and snli; trees is one that only the full version has.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.flows.experiments.table import Profile, Row, Size, experiments
from phrasemodels.layers.attention_weights import SegmentWeights, SigmoidWeights, SoftmaxWeights
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.metrics.bleu import CORPUS_BLEU
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases
from phrasemodels.tasks.prepare.tokenise import characters, join, letters, spaces
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


def sentences(corpus: Any, min_count: int = 1, max_tokens: int = 0, **parts: Any) -> TranslationRecipe:
    """Translation with a loss of whole sentences; rows say how the source is tokenised. parts: others of the recipe."""
    text = TranslationText(spaces, join, min_count, max_tokens)
    return TranslationRecipe(
        corpus, **{"phrases": Phrases(no_phrases), "text": text, "problem": SentenceTranslationObjective(), **parts}
    )


TRANSLATION = {
    # English to German-like sentences; letters in place of Japanese characters.
    "sample": Profile(
        Size(d=48, layers=1),
        rows_of(250, 32, 1e-2, schedule=linear_decay, evaluate_every=50, checkpoint_every=250),
        sentences(SampleCorpus(train=1500, dev=100, test=200)),
    ),
    # In place of ASPEC: 50,000 pairs of everyday sentences, seen one and a half times. Batches of 32: in 80 s dev loss came
    # to 28 nats a sentence with them, to 31 with 64; with 128, at a rate of 2e-3, to 39.
    "laptop": Profile(
        Size(d=128, layers=1),
        rows_of(2400, 32, 5e-3, schedule=linear_decay, evaluate_every=300, checkpoint_every=600),
        sentences(BitextCorpus("small_parallel_enja"), 3, 50),
    ),
    # As published: 500,000 pairs, 3907 batches an epoch, 30 epochs, halved each epoch from the first rise on. As released:
    # no <s> and </s> on the source; beams without a penalty for length, which may hold <unk>,
    # and have four tokens more than the source at most.
    "paper": Profile(
        Size(d=500, layers=2),
        rows_of(
            30 * 3907,
            128,
            1.0,
            schedule=constant,
            decay=halved_after_rise,
            optimiser=sgd,
            evaluate_every=3907,
            checkpoint_every=3907,
            equal_sides=1,
        ),
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
    "structured": ("Structured attention", SegmentWeights),
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


TABLES = {"nmt": table_nmt}
