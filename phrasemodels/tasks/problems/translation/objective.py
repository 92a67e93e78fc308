"""The objective of translation: cross entropy of target tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.models.recurrent import RecurrentConfig, RecurrentTranslator
from phrasemodels.models.token_loss import token_loss
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.tasks.problems.sequences import PhraseBatch, PhraseExamples
from phrasemodels.tasks.train.batches import Rows
from phrasemodels.tasks.train.objective import Objective

TranslatorConfig = TranslationConfig | RecurrentConfig
AnyTranslator = Translator | RecurrentTranslator


@dataclass(frozen=True)
class TranslationObjective(Objective):
    """Mean loss a target token."""

    curve: ClassVar = "dev loss (nats a token)"

    def configure(self, model: TranslatorConfig, vocabulary: Artifact) -> TranslatorConfig:
        return replace(model, source_vocabulary=vocabulary.meta["source"], target_vocabulary=vocabulary.meta["target"])

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        return PhraseExamples(paths)

    def loss(self, model: AnyTranslator, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the target tokens after BEGIN."""
        return token_loss(model, batch.source, batch.lengths, batch.members, batch.target, smoothing)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of target tokens, with END and without BEGIN."""
        return int((data.lengths[rows, 1] - 1).sum())


@dataclass(frozen=True)
class SentenceTranslationObjective(TranslationObjective):
    """Mean loss a sentence, which learning rates of 1 presuppose (paper 003)."""

    curve: ClassVar = "dev loss (nats a sentence)"

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of sentences."""
        return len(rows)
