"""Translation: from two files of sentences to BLEU."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.recurrent import RecurrentConfig
from phrasemodels.models.search import BeamSearch
from phrasemodels.tasks.prepare.corpora import BitextCorpus, Corpus, SampleCorpus
from phrasemodels.tasks.prepare.languages import TOKENISERS, check_language
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Detokenise, Tokenise, Tokeniser, detokenise_moses, moses_lower, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Recipe, Stage, lacking, training_stage
from phrasemodels.tasks.problems.report import Figure, TrainedModel
from phrasemodels.tasks.problems.translation.objective import TranslationObjective, TranslatorConfig
from phrasemodels.tasks.problems.translation.predict import AttendSettings, TranslateSettings, attend, translate
from phrasemodels.tasks.problems.translation.report import attention_figure
from phrasemodels.tasks.problems.translation.score import TranslationScoring, score_translations
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class TranslationText:
    """From text to tokens, ids and back; a tokeniser that the corpus names takes the place of this one.

    max_tokens drops longer sentences from training alone (0: none).
    """

    tokeniser: Tokeniser = moses_lower
    detokenise: Detokenise | None = detokenise_moses
    min_count: int = 1
    max_tokens: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")
        at_least(self, 0, "max_tokens")


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """A parallel corpus, its phrases, its text, a beam search, and what the loss is averaged over (`problem`)."""

    corpus: BitextCorpus | Corpus | SampleCorpus
    phrases: Phrases
    text: TranslationText = field(default_factory=TranslationText)
    search: BeamSearch = field(default_factory=BeamSearch)
    problem: TranslationObjective = field(default_factory=TranslationObjective)

    slug: ClassVar = "translation"
    answer_columns: ClassVar = ("reference", "hypothesis")
    answers_inputs: ClassVar = True

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target, which the corpus knows. ValueError: it does not."""
        known = self.corpus.languages
        return known.source, known.target

    @property
    def tokeniser(self) -> Tokeniser:
        """The tokeniser of the corpus if it names one, or else that of the text."""
        named = self.corpus.languages.tokeniser
        return TOKENISERS[named][0] if named else self.text.tokeniser

    @property
    def detokenise(self) -> Detokenise | None:
        """What makes running text of the tokens; None: no metric and no answer needs running text."""
        named = self.corpus.languages.tokeniser
        return TOKENISERS[named][1] if named and self.text.detokenise else self.text.detokenise

    def bare(self) -> Self:
        return dataclasses.replace(self, text=dataclasses.replace(self.text, detokenise=None))

    def data(self) -> dict[str, Step]:
        name, text = self.corpus.name, self.text
        for language in self.languages:
            check_language(self.tokeniser, language, name)
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
        settings = Tokenise(self.tokeniser, *self.languages)
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
                TranslationScoring(self.detokenise, self.languages[1]),
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

    def unknown_words(self, texts: HasKey, known: Mapping[str, HasKey], run: Callable[[Step], Artifact]) -> list[str]:
        tokens, _ = self._numbered(texts, known["vocabulary"])
        rows = read_shards(run(tokens))["source"].to_pylist()
        return lacking((token for row in rows for token in row), known["vocabulary"], "source")

    def as_text(self, row: Mapping[str, Any]) -> str:
        tokens = row["hypothesis"]
        return self.detokenise(tokens, self.languages[1]) if self.detokenise else " ".join(tokens)

    def draw(self, models: Sequence[TrainedModel], text: str, target: str) -> Figure:
        """Return the attention of recurrent translators, side by side."""
        if not isinstance(models[0].config, RecurrentConfig):
            return super().draw(models, text, target)
        return attention_figure(models, self.problem, self.tokeniser, self.languages, text, target, self.phrases.marks)
