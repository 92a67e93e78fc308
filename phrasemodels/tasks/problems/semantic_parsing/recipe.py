"""Semantic parsing: from pairs of a question and its logical form to exact, logic and structure match."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import PAD
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.translation import TranslationConfig
from phrasemodels.tasks.prepare.bpe import LearnBpe, apply_bpe, joined, learn_bpe, without_bpe
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases, phrases
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, Tokeniser, spaces, tokenise
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Recipe, Stage, lacking, one_model, training_stage
from phrasemodels.tasks.problems.report import Figure, Outcome, Section, TrainedModel
from phrasemodels.tasks.problems.semantic_parsing.gram_vectors import GramSettings, gram_vectors
from phrasemodels.tasks.problems.semantic_parsing.report import (
    accuracy_on_test,
    gram_neighbours,
    improvements,
    merges,
    neighbours,
)
from phrasemodels.tasks.problems.semantic_parsing.score import AsText, FormScoring, score_forms
from phrasemodels.tasks.problems.sequences import PhraseBatch
from phrasemodels.tasks.problems.translation.objective import AnyTranslator, TranslationObjective
from phrasemodels.tasks.problems.translation.predict import AttendSettings, TranslateSettings, attend, translate
from phrasemodels.tasks.train.config import TrainConfig

SAME = {"train": "train", "dev": "dev", "test": "test"}


@dataclass(frozen=True)
class Forms:
    """From questions and forms to tokens and ids. merges: of the byte-pair encoding (0: whole words). Words that occur
    fewer than min_count times in train are unknown. joint: one vocabulary for both sides. longest: longer sentences are
    dropped from training (0: none). marks: questions stand between <s> and </s>."""

    tokeniser: Tokeniser = spaces
    merges: int = 0
    min_count: int = 1
    joint: bool = True
    longest: int = 0
    marks: bool = True

    def __post_init__(self) -> None:
        at_least(self, 0, "merges", "longest")
        at_least(self, 1, "min_count")


@dataclass(frozen=True)
class SemanticParsingObjective(TranslationObjective):
    """Questions to logical forms. As in the paper, the best weights have the fewest wrong words on dev."""

    curve: ClassVar = "wrong words on dev (share)"

    def criterion(self, model: AnyTranslator, batch: PhraseBatch) -> Tensor:
        """Return the number of words that are not the likeliest one, given the gold words before them."""
        gold = batch.target[:, 1:]
        likeliest = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1]).argmax(-1)
        return ((likeliest != gold) & (gold != PAD)).sum()


@dataclass(frozen=True)
class WatchedOnTest(SemanticParsingObjective):
    """The same, where dev is the test set, as in Figure 4: the last weights are the model, so that nothing is chosen there."""

    curve: ClassVar = "wrong words on test (share)"
    keeps_last: ClassVar = True


@dataclass(frozen=True)
class SemanticParsingRecipe(Recipe):
    """A corpus of logical forms, its text, a beam search, and the splits of the corpus that are train, dev and test.

    score_dev: whether dev is scored beside test; it is not if it is a part of train, or test itself.
    """

    corpus: Corpus | SampleCorpus
    forms: Forms = field(default_factory=Forms)
    search: BeamSearch = field(default_factory=BeamSearch)
    splits: Mapping[str, str] = field(default_factory=lambda: dict(SAME))
    score_dev: bool = True
    objective: SemanticParsingObjective = SemanticParsingObjective()

    slug: ClassVar = "semantic-parsing"
    answer_columns: ClassVar = ("reference", "hypothesis")
    answers_inputs: ClassVar = True

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
            numbers = Phrases(no_phrases, 2, limits[split], self.forms.marks)
            known[split] = Step(phrases, f"numbers {name} {split}", numbers, inputs)
        tokens = {f"{split}_tokens": step for split, step in tokens.items()}
        return {**known, **tokens, **{f"{split}_raw": step for split, step in raw.items()}}

    def _tokens(self, rows: HasKey, label: str) -> Step:
        return Step(tokenise, f"tokenise {label}", Tokenise(self.forms.tokeniser, "en", "lf"), {"rows": rows})

    def _pieces(self, tokens: Step, known: Mapping[str, HasKey], label: str) -> Step:
        if "bpe" not in known:
            return tokens
        return Step(apply_bpe, f"pieces of {label}", None, {"rows": tokens, "bpe": known["bpe"]})

    def stages(self, model: TranslationConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        searching = TranslateSettings(self.objective, model, self.search)
        stages = {"model": training_stage(self.objective, model, config, seed)}
        inputs = {"rows": "test_raw", "train": "train_raw", "model": "model"}
        for split, name in (("test", "predictions"), ("dev", "dev_predictions")):
            if split == "test" or self.score_dev:
                own = {"model": "model", "phrases": split, "rows": f"{split}_tokens", "vocabulary": "vocabulary"}
                stages[name] = Stage(translate, searching, own)
                inputs[name] = name
        stages["scores"] = Stage(score_forms, FormScoring(self.form), inputs)
        return stages

    @property
    def form(self) -> AsText:
        """How the tokens of a model become a logical form."""
        return without_bpe if self.forms.merges else joined

    def test_rows(self) -> Step:
        return self.corpus.split(self.splits["test"])

    def predict_step(self, model: TranslationConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        tokens, numbers = self._numbered(texts, known)
        settings = TranslateSettings(self.objective, model, self.search)
        return Step(translate, "parse given questions", settings, {**known, "phrases": numbers, "rows": tokens})

    def attention_step(
        self, model: TranslationConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int
    ) -> Step:
        tokens, numbers = self._numbered(texts, known)
        settings = AttendSettings(self.objective, model, sentences, self.search)
        return Step(attend, "attend to questions", settings, {**known, "phrases": numbers, "rows": tokens})

    def _numbered(self, texts: HasKey, known: Mapping[str, HasKey]) -> tuple[Step, Step]:
        """Return the tokens of texts, and their ids."""
        tokens = self._pieces(self._tokens(texts, "given questions"), known, "given questions")
        inputs = {"rows": tokens, "vocabulary": known["vocabulary"]}
        return tokens, Step(phrases, "numbers of given questions", Phrases(no_phrases, 2, 0, self.forms.marks), inputs)

    def unknown_words(self, texts: HasKey, known: Mapping[str, HasKey], run: Callable[[Step], Artifact]) -> list[str]:
        tokens, _ = self._numbered(texts, known)
        rows = read_shards(run(tokens))["source"].to_pylist()
        return lacking((token for row in rows for token in row), known["vocabulary"], "source")

    def as_text(self, row: Mapping[str, Any]) -> str:
        return without_bpe(row["hypothesis"])

    def grams_step(self, model: TranslationConfig, known: Mapping[str, HasKey]) -> Step:
        """Return the step that yields vectors of the test set's n-grams; known: `model`, `vocabulary`, `phrases`, `rows`."""
        inputs = {name: known[name] for name in ("model", "vocabulary", "phrases", "rows")}
        return Step(gram_vectors, "vectors of phrases", GramSettings(self.objective, model), inputs)

    def draw(self, models: Sequence[TrainedModel], text: str, target: str) -> Figure:
        """Return the neighbours of phrases of the test set, which are separated by semicolons in `text`."""
        model = one_model(models)
        grams = model.run(self.grams_step(model.config, {**model.artifacts, **model.test_inputs()}), "grams.arrow")
        wanted = [phrase.strip() for phrase in text.split(";") if phrase.strip()]
        return gram_neighbours(grams, wanted)

    def sections(self, outcomes: Sequence[Outcome], run: Callable[[Step], Artifact]) -> list[Section]:
        """Return merges or accuracy on test, improvements by kind of error, and neighbours of phrases or words."""

        def grams(outcome: Outcome) -> Step:
            data = outcome.recipe.data()
            known = {"vocabulary": data["vocabulary"], "phrases": data["test"], "rows": data["test_tokens"]}
            return self.grams_step(outcome.model, {"model": outcome.trained, **known})

        first = [outcome for outcome in outcomes if outcome.seed == outcomes[0].seed]
        forms = improvements(first, lambda outcome: outcome.recipe.form)  # type: ignore[attr-defined]
        watched = accuracy_on_test(outcomes) if isinstance(self.objective, WatchedOnTest) else merges(outcomes)
        return [*watched, *forms, *neighbours(first, grams, run)]
