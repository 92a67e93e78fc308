"""Everything for a study of your own: the parts of tables, corpora and problems, encoders, and their training.

Each name of `from phrasemodels.study import ...` also stands in its own module. Keys, exported models and the reference name
it there. Only `table` is defined here; it makes a table in ten lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from phrasemodels.data.download.manifest import find_corpus
from phrasemodels.data.store.store import Job, Step
from phrasemodels.encoders import EncoderConfig
from phrasemodels.encoders.baselines import AdaSentConfig, BiLSTMMaxConfig, DisanConfig, HConvNetConfig, MultiHeadConfig
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.psan import HighwayMemory, PsanConfig
from phrasemodels.encoders.recurrent import LSTMEncoderConfig
from phrasemodels.encoders.transformer import (
    NgramEncoderConfig,
    PooledEncoderConfig,
    PsanTokenEncoderConfig,
    TransformerEncoderConfig,
)
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
from phrasemodels.inference.inputs import (
    Dependencies,
    Levels,
    adjacent,
    join,
    moses,
    moses_lower,
    no_phrases,
    spaces,
    subtrees,
)
from phrasemodels.layers.phrases import MeanInit, phrase_graph
from phrasemodels.models.pretrained_words import PretrainedWordsConfig
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.sentence_pair import ClassifierConfig
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.project import StudyFile
from phrasemodels.tasks.metrics.scores import CORPUS_BLEU
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases
from phrasemodels.tasks.problems.classification import RIGHT, ClassificationRecipe
from phrasemodels.tasks.problems.recipe import Recipe, Stage, training_stage
from phrasemodels.tasks.problems.tagging import ACCURACY, TaggingRecipe
from phrasemodels.tasks.problems.translation import TranslationRecipe, TranslationText
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective

__all__ = [
    "ACCURACY",
    "CORPUS_BLEU",
    "RIGHT",
    "AdaSentConfig",
    "Answer",
    "BiLSTMMaxConfig",
    "BitextCorpus",
    "Cell",
    "ClassificationRecipe",
    "ClassifierConfig",
    "Corpus",
    "Dependencies",
    "DisanConfig",
    "EncoderConfig",
    "Experiment",
    "HConvNetConfig",
    "HighwayMemory",
    "HypernodeEncoderConfig",
    "Job",
    "LSTMEncoderConfig",
    "Levels",
    "MeanInit",
    "MultiHeadConfig",
    "NgramEncoderConfig",
    "Objective",
    "Phrases",
    "PooledEncoderConfig",
    "PretrainedWordsConfig",
    "Profile",
    "PsanConfig",
    "PsanTokenEncoderConfig",
    "Recipe",
    "RecurrentConfig",
    "Row",
    "SampleCorpus",
    "Size",
    "Stage",
    "Step",
    "StudyFile",
    "TableName",
    "TaggerConfig",
    "TaggingRecipe",
    "TrainConfig",
    "TransformerEncoderConfig",
    "TranslationConfig",
    "TranslationRecipe",
    "TranslationText",
    "adjacent",
    "experiments",
    "join",
    "moses",
    "moses_lower",
    "no_phrases",
    "none",
    "phrase_graph",
    "spaces",
    "subtrees",
    "table",
    "training_stage",
]

SIZE = Size(d=64, heads=2, layers=2, d_ff=128, dropout=0.1, hidden=64)  # of a table that says nothing else
TRAIN = TrainConfig(steps=300, batch_tokens=1500, learning_rate=3e-3, evaluate_every=100, checkpoint_every=100)
PRINTED = "printed.csv"
none = "none"  # of trees: `Levels(trees=none)`


@dataclass(frozen=True)
class StudyTable:
    """A table whose rows differ in their encoder alone. The first row is the baseline.

    Args:
        rows: Encoders by the names of their rows: a class of configurations, or a configuration. A class gets the table's sizes.
            A pair has fields of `TrainConfig` for its row alone, too: `(MineConfig, {"learning_rate": 1e-3})`.
        corpus: Name of a corpus of pairs of texts (translation) or of sentences with labels (classification).
        printed: "printed.csv", if the rows are compared with its numbers. A row missing there has no printed number.
        metrics: Functions of references and answers, for translation.
        phrases: Number of words of the longest run of words that encoders see as a phrase.
        size: Fields of `Size` with other values, for example {"d": 128}.
        train: Fields of `TrainConfig` with other values, for example {"steps": 1000}.
    """

    rows: Mapping[str, Any]
    corpus: str
    printed: str = ""
    metrics: Sequence[Callable[..., float]] = ()
    phrases: int = 2
    size: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.printed not in ("", PRINTED):
            raise ValueError(f"printed={self.printed!r}: printed numbers stand in {PRINTED} beside the module")

    def experiments(self, paper: str, number: str, profile: str) -> list[Experiment]:
        """Return the rows of the table `number` of a paper. There is one profile, sample."""
        if profile != "sample":
            return []
        schema = find_corpus(self.corpus).schema_
        if schema not in PROBLEMS:
            raise ValueError(
                f"table(corpus={self.corpus!r}): its records are {schema}; make its recipe and rows yourself"
            )
        recipe, model, main = PROBLEMS[schema]
        chosen = Profile(replace(SIZE, **self.size), replace(TRAIN, **self.train), recipe(self))

        def row(system: str, value: Any) -> Row:
            encoder, train = value if isinstance(value, tuple) else (value, {})
            slug = "-".join("".join(c if c.isalnum() else " " for c in system.lower()).split())
            own: dict[str, Any] = {"vectors": encoder.vectors} if isinstance(encoder, PretrainedWordsConfig) else {}
            if isinstance(encoder.over if own else encoder, PsanConfig):
                own["structure"] = Levels()

            def built(size: Size) -> Any:
                return model(encoder(**size.encoder) if isinstance(encoder, type) else encoder, size, self.phrases)

            return Row(slug, system, "", built, own, train=train)

        def answers(row: Row) -> tuple[Answer, ...]:
            name, printed, statistic = main

            def cell(metric: str) -> Cell | None:
                return Cell(paper, f"Table {number}", row.system, "", metric) if self.printed else None

            own = [metric.__name__ for metric in self.metrics]
            return (
                Answer(name, cell(printed), statistic),
                *(Answer(one, None if one == printed else cell(one)) for one in own),
            )

        rows = [row(system, value) for system, value in self.rows.items()]
        return experiments(TableName(paper, number, f"table{number}"), profile, chosen, rows, answers)


table = StudyTable


def _translation(of: StudyTable) -> TranslationRecipe:
    languages = find_corpus(of.corpus).languages
    divided = languages is not None and languages.tokeniser == "spaces"
    text = TranslationText(tokeniser=spaces, detokenise=join) if divided else TranslationText()
    return TranslationRecipe(BitextCorpus(of.corpus), Phrases(adjacent, of.phrases), text, metrics=tuple(of.metrics))


def _classification(of: StudyTable) -> ClassificationRecipe:
    if of.metrics:
        raise ValueError("table(metrics=...): labels are no texts; leave metrics out")
    return ClassificationRecipe(Corpus(of.corpus), Levels(trees=none))


def _classifier(encoder: Any, size: Size, phrases: int) -> ClassifierConfig:
    pooled = PooledEncoderConfig(encoder, phrases, size.dropout) if isinstance(encoder, EncoderConfig) else encoder
    return ClassifierConfig(pooled, hidden=size.hidden, dropout=size.dropout)


# by the kind of a corpus's records: the recipe, the model around an encoder, and the metric with its printed name and its test
PROBLEMS: Mapping[str, tuple[Any, Any, tuple[str, str, Any]]] = {
    "bitext": (
        _translation,
        lambda encoder, size, phrases: TranslationConfig(encoder, 0, 0, encoder.layers, encoder.d_ff),
        ("bleu", "BLEU", CORPUS_BLEU),
    ),
    "sentences": (_classification, _classifier, ("accuracy", "accuracy", RIGHT)),
}
