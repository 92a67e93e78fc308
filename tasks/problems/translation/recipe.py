"""Translation: from two files of sentences to BLEU."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.prepare.corpora import AnyCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.tokenise import Detokenise, Tokenise, Tokeniser, detokenise_moses, moses_lower, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Recipe, Stage, training_stage
from phrasemodels.tasks.problems.report import Figure, TrainedModel
from phrasemodels.tasks.problems.translation.objective import TranslationObjective, TranslatorConfig
from phrasemodels.tasks.problems.translation.predict import AttendSettings, TranslateSettings, attend, translate
from phrasemodels.tasks.problems.translation.report import attention_figure
from phrasemodels.tasks.problems.translation.score import TranslationScoring, score_translations
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class TranslationText:
    """From text to tokens, ids and back. max_tokens drops longer sentences from training alone (0: none)."""

    tokeniser: Tokeniser = moses_lower
    detokenise: Detokenise | None = detokenise_moses
    source_language: str = "en"
    target_language: str = "de"
    min_count: int = 1
    max_tokens: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")
        at_least(self, 0, "max_tokens")


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """A parallel corpus, its phrases, its text, a beam search, and what the loss is averaged over (`problem`)."""

    corpus: AnyCorpus
    phrases: Phrases
    text: TranslationText = field(default_factory=TranslationText)
    search: BeamSearch = field(default_factory=BeamSearch)
    problem: TranslationObjective = field(default_factory=TranslationObjective)

    slug: ClassVar = "translation"
    answer_columns: ClassVar = ("reference", "hypothesis")
    answers_inputs: ClassVar = True

    def bare(self) -> Self:
        return dataclasses.replace(self, text=dataclasses.replace(self.text, detokenise=None))

    def data(self) -> dict[str, Step]:
        name, text = self.corpus.name, self.text
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        tokens = {split: self._tokens(raw[split], f"{name} {split}") for split in raw}
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

    def _tokens(self, rows: HasKey, label: str) -> Step:
        settings = Tokenise(self.text.tokeniser, self.text.source_language, self.text.target_language)
        return Step(tokenise, f"tokenise {label}", settings, {"rows": rows})

    def stages(self, model: TranslatorConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {
            "model": training_stage(self.problem, model, config, seed),
            "predictions": Stage(
                translate,
                TranslateSettings(self.problem, model, self.search),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_translations,
                TranslationScoring(self.text.detokenise, self.text.target_language),
                {"predictions": "predictions", "rows": "raw"},
            ),
        }

    def predict_step(self, model: TranslatorConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        tokens, numbers = self._numbered(texts, known["vocabulary"])
        settings = TranslateSettings(self.problem, model, self.search)
        return Step(translate, "translate given sentences", settings, {**known, "phrases": numbers, "rows": tokens})

    def attention_step(
        self, model: TranslatorConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int
    ) -> Step:
        tokens, numbers = self._numbered(texts, known["vocabulary"])
        settings = AttendSettings(self.problem, model, sentences, self.search)
        return Step(attend, "attend to sentences", settings, {**known, "phrases": numbers, "rows": tokens})

    def _numbered(self, texts: HasKey, words: HasKey) -> tuple[Step, Step]:
        """Return the tokens of texts, and their ids and phrases."""
        tokens = self._tokens(texts, "given sentences")
        inputs = {"rows": tokens, "vocabulary": words}
        return tokens, Step(phrases, "phrases of given sentences", self.phrases, inputs)

    def as_text(self, row: Mapping[str, Any]) -> str:
        tokens = row["hypothesis"]
        return self.text.detokenise(tokens, self.text.target_language) if self.text.detokenise else " ".join(tokens)

    def draw(self, models: Sequence[TrainedModel], text: str, target: str) -> Figure:
        """Return the attention of recurrent translators, side by side."""
        if not isinstance(models[0].config, RecurrentConfig):
            return super().draw(models, text, target)
        languages = (self.text.source_language, self.text.target_language)
        return attention_figure(models, self.problem, self.text.tokeniser, languages, text, target, self.phrases.marks)
