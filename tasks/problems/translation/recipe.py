"""Translation: from two files of sentences to BLEU."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.metrics.bleu import Detokenise, ScoreSettings, score_translations
from phrasemodels.tasks.prepare.held_out import Divided
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.tokenise import Tokenise, Tokeniser, detokenise_moses, moses_lower, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.translation.objective import (
    AttendSettings,
    TranslateSettings,
    Translation,
    TranslationBySentence,
    attend,
    translate,
)
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train


@dataclass(frozen=True)
class Text:
    """From text to tokens, ids and back. max_tokens drops longer sentences from training alone (0: none)."""

    tokeniser: Tokeniser = moses_lower
    detokenise: Detokenise | None = detokenise_moses
    source_language: str = "en"
    target_language: str = "de"
    min_count: int = 1
    max_tokens: int = 0


@dataclass(frozen=True)
class TranslationRecipe:
    """A parallel corpus, its phrases, its text, how to search, and what the loss is a mean of."""

    corpus: Divided
    phrases: Phrases
    text: Text = field(default_factory=Text)
    search: BeamSearch = field(default_factory=BeamSearch)
    problem: Translation = field(default_factory=Translation)

    @property
    def name(self) -> str:
        return f"translation-{self.corpus.name}"

    @property
    def curve(self) -> str:
        return f"dev loss (nats a {'sentence' if isinstance(self.problem, TranslationBySentence) else 'token'})"

    def bare(self) -> Self:
        return dataclasses.replace(self, text=dataclasses.replace(self.text, detokenise=None))

    def data(self) -> dict[str, Step]:
        name, text = self.corpus.name, self.text
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        division = Tokenise(text.tokeniser, text.source_language, text.target_language)
        tokens = {split: Step(tokenise, f"tokenise {name} {split}", division, {"rows": raw[split]}) for split in raw}
        words = Step(vocabulary, f"vocabulary {name}", VocabularySettings(text.min_count), {"rows": tokens["train"]})
        limits = {"train": text.max_tokens, "dev": 0, "test": 0}
        numbers = {
            split: Step(
                phrases,
                f"phrases {name} {split} ({self.phrases.enumerate.__name__} {self.phrases.longest})",
                dataclasses.replace(self.phrases, max_tokens=limits[split]),
                {"rows": tokens[split], "vocabulary": words},
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "tokens": tokens["test"], "raw": raw["test"]}

    def stages(self, model: TranslationConfig | RecurrentConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = self.problem
        return {
            "model": Stage(
                train,
                TrainSettings(problem, model, config, seed),
                {"train": "train", "dev": "dev", "vocabulary": "vocabulary"},
            ),
            "predictions": Stage(
                translate,
                TranslateSettings(problem, model, self.search),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_translations,
                ScoreSettings(self.text.detokenise, self.text.target_language),
                {"predictions": "predictions", "rows": "raw"},
            ),
        }

    def answering(self, model: TranslationConfig | RecurrentConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        """Translations of given sentences, by known["model"] and known["vocabulary"]."""
        tokens, numbers = self._numbered(texts, known["vocabulary"])
        settings = TranslateSettings(self.problem, model, self.search)
        return Step(translate, "translate given sentences", settings, {**known, "phrases": numbers, "rows": tokens})

    def attending(
        self, model: TranslationConfig | RecurrentConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int
    ) -> Step:
        """What known["model"] attends to in the first sentences of each group of the texts."""
        tokens, numbers = self._numbered(texts, known["vocabulary"])
        settings = AttendSettings(self.problem, model, sentences, self.search)
        return Step(attend, "attend to sentences", settings, {**known, "phrases": numbers, "rows": tokens})

    def _numbered(self, texts: HasKey, words: HasKey) -> tuple[Step, Step]:
        """Tokens of sentences, and their numbers and phrases."""
        division = Tokenise(self.text.tokeniser, self.text.source_language, self.text.target_language)
        tokens = Step(tokenise, "tokenise given sentences", division, {"rows": texts})
        inputs = {"rows": tokens, "vocabulary": words}
        return tokens, Step(phrases, "phrases of given sentences", self.phrases, inputs)

    def spoken(self, row: Mapping[str, Any]) -> str:
        """A row of predictions as text."""
        tokens = row["hypothesis"]
        return self.text.detokenise(tokens, self.text.target_language) if self.text.detokenise else " ".join(tokens)
