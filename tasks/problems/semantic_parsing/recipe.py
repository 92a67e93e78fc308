"""Semantic parsing: from pairs of a question and its logical form to exact, logic and structural match."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.prepare.bpe import ApplyBpe, LearnBpe, apply_bpe, joined, learn_bpe, without_bpe
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases, phrases
from phrasemodels.tasks.prepare.tokenise import Tokenise, Tokeniser, spaces, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.semantic_parsing.grams import GramSettings, gram_vectors
from phrasemodels.tasks.problems.semantic_parsing.score import FormScoreSettings, SemanticParsing, score_forms
from phrasemodels.tasks.problems.translation.objective import AttendSettings, TranslateSettings, attend, translate
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train

SAME = {"train": "train", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Forms:
    """From questions and forms to tokens and ids. merges: of the byte-pair encoding (0: whole words); min_count: words
    seen less often in train are unknown; joint: one vocabulary; longest: words of what is trained on (0: any)."""

    tokeniser: Tokeniser = spaces
    merges: int = 0
    min_count: int = 1
    joint: bool = True
    longest: int = 0


@dataclass(frozen=True)
class SemanticParsingRecipe:
    """A corpus of logical forms, its text, how to search, and which of its splits are taken for train, dev and test.

    score_dev: dev is scored beside test, where it is not a part of train.
    """

    corpus: Corpus | SampleCorpus
    forms: Forms = field(default_factory=Forms)
    search: BeamSearch = field(default_factory=BeamSearch)
    splits: Mapping[str, str] = field(default_factory=lambda: dict(SAME))
    score_dev: bool = True

    @property
    def name(self) -> str:
        return f"semantic-parsing-{self.corpus.name}"

    @property
    def curve(self) -> str:
        return "wrong words on dev (share)"

    def bare(self) -> Self:
        return self

    def data(self) -> dict[str, Step]:
        name = self.corpus.name
        raw = {ours: self.corpus.split(theirs) for ours, theirs in self.splits.items()}
        whole = {split: self._tokens(raw[split], f"{name} {split}") for split in raw}
        known: dict[str, Step] = {}
        if self.forms.merges:
            label = f"learn {self.forms.merges} merges of {name}"
            known["bpe"] = Step(learn_bpe, label, LearnBpe(self.forms.merges), {"rows": whole["train"]})
        tokens = {split: self._pieces(whole[split], known, f"{name} {split}") for split in raw}
        counting = VocabularySettings(self.forms.min_count, self.forms.joint)
        known["vocabulary"] = Step(vocabulary, f"vocabulary {name}", counting, {"rows": tokens["train"]})
        limits = {"train": self.forms.longest, "dev": 0, "test": 0}
        for split in raw:
            inputs = {"rows": tokens[split], "vocabulary": known["vocabulary"]}
            known[split] = Step(phrases, f"numbers {name} {split}", Phrases(no_phrases, 2, limits[split]), inputs)
        tokens = {f"{split}_tokens": step for split, step in tokens.items()}
        return {**known, **tokens, **{f"{split}_raw": step for split, step in raw.items()}}

    def _tokens(self, rows: HasKey, label: str) -> Step:
        return Step(tokenise, f"tokenise {label}", Tokenise(self.forms.tokeniser, "en", "lf"), {"rows": rows})

    def _pieces(self, tokens: Step, known: Mapping[str, HasKey], label: str) -> Step:
        if "bpe" not in known:
            return tokens
        return Step(apply_bpe, f"pieces of {label}", ApplyBpe(), {"rows": tokens, "bpe": known["bpe"]})

    def stages(self, model: TranslationConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = SemanticParsing()
        searching = TranslateSettings(problem, model, self.search)
        given = {"train": "train", "dev": "dev", "vocabulary": "vocabulary"}
        stages = {"model": Stage(train, TrainSettings(problem, model, config, seed), given)}
        inputs = {"rows": "test_raw", "train": "train_raw", "model": "model"}
        for split, name in (("test", "predictions"), ("dev", "dev_predictions")):
            if split == "test" or self.score_dev:
                own = {"model": "model", "phrases": split, "rows": f"{split}_tokens", "vocabulary": "vocabulary"}
                stages[name] = Stage(translate, searching, own)
                inputs[name] = name
        stages["scores"] = Stage(score_forms, FormScoreSettings(without_bpe if self.forms.merges else joined), inputs)
        return stages

    def answering(self, model: TranslationConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        """Logical forms of given questions, by known["model"] and known["vocabulary"]."""
        tokens, numbers = self._numbered(texts, known)
        settings = TranslateSettings(SemanticParsing(), model, self.search)
        return Step(translate, "parse given questions", settings, {**known, "phrases": numbers, "rows": tokens})

    def attending(self, model: TranslationConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int) -> Step:
        """What known["model"] attends to in the first questions of each group of the texts."""
        tokens, numbers = self._numbered(texts, known)
        settings = AttendSettings(SemanticParsing(), model, sentences, self.search)
        return Step(attend, "attend to questions", settings, {**known, "phrases": numbers, "rows": tokens})

    def grams(self, model: TranslationConfig, known: Mapping[str, HasKey]) -> Step:
        """What known["model"] makes of the phrases of the test set; known also has the data."""
        inputs = {"phrases": known["test"], "rows": known["test_tokens"]}
        inputs |= {name: known[name] for name in ("model", "vocabulary")}
        return Step(gram_vectors, "vectors of phrases", GramSettings(SemanticParsing(), model), inputs)

    def _numbered(self, texts: HasKey, known: Mapping[str, HasKey]) -> tuple[Step, Step]:
        tokens = self._pieces(self._tokens(texts, "given questions"), known, "given questions")
        inputs = {"rows": tokens, "vocabulary": known["vocabulary"]}
        return tokens, Step(phrases, "numbers of given questions", Phrases(no_phrases, 2), inputs)

    def spoken(self, row: Mapping[str, Any]) -> str:
        """A row of predictions as text; whole words have no mark that they go on."""
        return without_bpe(row["hypothesis"])
