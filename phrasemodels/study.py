"""Everything that a study of one's own imports: the parts of tables, corpora and problems, encoders, and how they are trained.

`from phrasemodels.study import ...` names nothing that is not also in the module where it is defined, by which keys, exported models
and the reference name it.
"""

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
from phrasemodels.layers.phrases import MeanInit, phrase_graph
from phrasemodels.models.classifier import ClassifierConfig
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.metrics.scores import CORPUS_BLEU
from phrasemodels.tasks.prepare.constituents import Dependencies, Levels, none
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, adjacent, no_phrases, subtrees
from phrasemodels.tasks.prepare.tokenise import join, moses, moses_lower, spaces
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
    "training_stage",
]
