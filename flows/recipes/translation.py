"""Translation: from two files of sentences to BLEU."""

import dataclasses
from dataclasses import dataclass, field
from typing import Self

from data.store import Step
from flows.experiment import Stage
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.translation import TranslationConfig
from tasks.corpora import BitextCorpus, SampleCorpus
from tasks.metrics import Detokenise, ScoreSettings, score_translations
from tasks.phrases import Phrases, phrases
from tasks.problems.translation import TranslateSettings, Translation, translate
from tasks.tokenise import Tokenise, Tokeniser, detokenise_moses, moses_lower, tokenise
from tasks.train import TrainConfig, TrainSettings, train
from tasks.vocabulary import VocabularySettings, vocabulary


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
    """A parallel corpus, its phrases, its text, and how to search."""

    corpus: BitextCorpus | SampleCorpus
    phrases: Phrases
    text: Text = field(default_factory=Text)
    search: BeamSearch = field(default_factory=BeamSearch)

    @property
    def name(self) -> str:
        return f"translation-{self.corpus.name}"

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

    def stages(self, model: TranslationConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = Translation()
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
