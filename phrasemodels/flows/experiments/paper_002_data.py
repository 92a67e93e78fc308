"""The corpora of paper 002 (PhraseTransformer with n-gram LSTM), and how it trains on each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from phrasemodels.data.samples.records import LogicalForms
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.tokenise import underscores_as_spaces
from phrasemodels.tasks.problems.semantic_parsing.recipe import SAME, Forms, SemanticParsingRecipe
from phrasemodels.tasks.train.optimisers import inverse_sqrt, linear_decay


@dataclass(frozen=True)
class Data:
    """A corpus by its name in the paper, and how the paper trains on it. tokens: of both sides of a batch, as many as the
    printed number of the longer side. rate: the factor
    of the schedule. summed: batches that the released scripts sum up in an update. checkpoint_every: in updates; 0: as
    often as dev is read."""

    name: str
    recipe: SemanticParsingRecipe
    tokens: int
    rate: float
    warmup: int
    steps: int
    evaluate_every: int = 1000
    patience: int = 10
    dropout: float = 0.1
    schedule: Callable[[int, int, int], float] = inverse_sqrt
    clip: float = math.inf
    summed: int = 8
    checkpoint_every: int = 0


# No length penalty, at most 100 words.
SEARCH = BeamSearch(beam=5, length_penalty=0.0, growth=0.0, extra=100)
SUBWORDS = Forms(underscores_as_spaces, merges=6000)
# Geo has no dev set, its last weights are taken; the hold-out, a part of train, is only there to have a loss. The released
# scripts sum up eight batches for Atis; for Geo there is none, and the paper prints 128 tokens.
GEO_SPLITS = {"train": "train", "dev": "holdout.dev", "test": "test"}
OFFICIAL_SPLITS = {"train": "train", "dev": "dev", "test": "dev"}
GEO = Data(
    "Geo",
    SemanticParsingRecipe(Corpus("geoquery"), Forms(), SEARCH, GEO_SPLITS, score_dev=False),
    tokens=175, rate=0.1, warmup=100, steps=15_000, evaluate_every=15_000, patience=0, summed=1, checkpoint_every=500,
)  # fmt: skip
ATIS = Data(
    "Atis", SemanticParsingRecipe(Corpus("atis"), Forms(), SEARCH), tokens=5500, rate=0.1, warmup=100, steps=250_000
)
MSPARS = Data(
    "MSParS (BPE6k)",
    SemanticParsingRecipe(Corpus("mspars", "official"), SUBWORDS, SEARCH, OFFICIAL_SPLITS, score_dev=False),
    tokens=12_200, rate=1.0, warmup=8000, steps=250_000,
)  # fmt: skip
SAMPLE = Data(
    "Atis",
    SemanticParsingRecipe(
        SampleCorpus(train=2000, dev=200, test=300, records=LogicalForms()),
        Forms(),
        replace(SEARCH, reach=1.5),
        dict(SAME),
    ),
    tokens=1000, rate=0.23, warmup=80, steps=900, evaluate_every=180, patience=0, schedule=linear_decay, clip=1.0,
)  # fmt: skip
