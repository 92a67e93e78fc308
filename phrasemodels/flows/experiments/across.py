"""Across papers: every suitable encoder of a problem on the same data, with equal widths and updates.

No paper printed these numbers. `phrasemodels report` has them in one table a problem with cost beside quality.
"""

import dataclasses

from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.encoders.transformer import (
    NgramEncoderConfig,
    PooledEncoderConfig,
    PsanTokenEncoderConfig,
    TransformerEncoderConfig,
)
from phrasemodels.flows.experiments import paper_000, paper_001
from phrasemodels.flows.experiments.experiment import Answer, Experiment, TableName
from phrasemodels.inference.inputs import Levels
from phrasemodels.layers.attention_weights import ReleasedSegmentWeights, SoftmaxWeights
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import SentencePairConfig
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.metrics.scores import CORPUS_BLEU

PAPER = "across"
SIZES = (0, 2, 3, 4)  # words of the n-gram of a quarter of the heads
LAYERS = 2


def _grams(heads: int) -> tuple[int, ...]:
    """The n-gram of each head."""
    return tuple(SIZES[head * len(SIZES) // heads] for head in range(heads))


def _row(base: Experiment, table: str, slug: str, origin: str, system: str, variant: str, model: object) -> Experiment:
    """Return a row with a model of its own and the corpus, the recipe and the training of `base`.

    origin: the paper that the system is from.
    """
    return dataclasses.replace(
        base,
        table=TableName(PAPER, table, table),
        row=slug,
        origin=origin,
        system=system,
        variant=variant,
        model=model,
    )


def entailment(profile: str) -> list[Experiment]:
    """Natural language inference: sentence encoders of paper 001, summed encoders of papers 000 and 002."""
    answers = (Answer("accuracy", None, paper_001.RIGHT),)
    known = paper_001.systems(profile)
    rows = [_row(e, "entailment", e.row, e.paper, e.system, e.variant, e.model) for e in known]
    size, first = paper_001.PROFILES[profile].size, known[0]
    recipe = dataclasses.replace(first.recipe, structure=Levels(trees="none"))  # type: ignore[call-arg]
    base = dataclasses.replace(first, recipe=recipe)
    widths = {"d": size.d, "heads": size.heads, "layers": LAYERS, "d_ff": 2 * size.d, "dropout": size.dropout / 2}
    encoders: tuple[tuple[str, str, str, str, EncoderConfig, int], ...] = (
        ("transformer", "000", "Transformer", "summed up", TransformerEncoderConfig(**widths), 1),  # type: ignore[arg-type]
        ("hypernodes-k2", "000", "PhraseTransformer", "k=2, summed up", HypernodeEncoderConfig(**widths), 2),  # type: ignore[arg-type]
        (
            "ngrams",
            "002",
            "PhraseTransformer of n-grams",
            "summed up",
            NgramEncoderConfig(**widths, gram_sizes=_grams(size.heads), phrase_layers=(1, 2)),  # type: ignore[arg-type]
            1,
        ),
    )
    for slug, paper, system, variant, encoder, longest in encoders:
        summarised = PooledEncoderConfig(encoder, longest, size.dropout)
        model = SentencePairConfig(summarised, hidden=size.hidden, dropout=size.dropout)
        rows.append(_row(base, "entailment", slug, paper, system, variant, model))
    return [
        dataclasses.replace(row, answers=answers, recipe=dataclasses.replace(row.recipe, suite=()))  # type: ignore[call-arg]
        for row in rows
    ]


def translation(profile: str) -> list[Experiment]:
    """Translation: paper 000's systems, n-grams, levels of phrases, and two kinds of weights of paper 003."""
    known = paper_000.table_1(profile)
    base = dataclasses.replace(known[0], train=paper_000.PROFILES[profile].train)
    rows = [
        _row(dataclasses.replace(base, recipe=e.recipe), "translation", e.row, e.paper, e.system, e.variant, e.model)
        for e in known
    ]
    size = paper_000.PROFILES[profile].size
    widths = size.encoder
    grams = NgramEncoderConfig(**widths, gram_sizes=_grams(size.heads), phrase_layers=tuple(range(1, size.layers + 1)))
    encoders = (
        ("ngrams", "002", "PhraseTransformer of n-grams", "", grams),
        ("levels", "001", "PSAN's levels", "blocks of 3, 6 and all words", PsanTokenEncoderConfig(**widths)),
    )
    for slug, paper, system, variant, encoder in encoders:
        model = TranslationConfig(encoder, 0, 0, size.layers, size.d_ff)
        rows.append(_row(base, "translation", slug, paper, system, variant, model))
    for slug, variant, weights in (
        ("simple", "simple attention", SoftmaxWeights),
        ("segments", "structured attention", ReleasedSegmentWeights),
    ):
        recurrent = RecurrentConfig(
            LSTMEncoderConfig(size.d, size.layers), layers=size.layers, dropout=size.dropout, weights=weights
        )
        rows.append(_row(base, "translation", slug, "003", "NMT", variant, recurrent))
    return [dataclasses.replace(row, answers=(Answer("bleu", None, CORPUS_BLEU),)) for row in rows]


TABLES = {"entailment": entailment, "translation": translation}
