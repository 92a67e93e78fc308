"""Parsing: from a treebank to brackets and attachments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.models.parser import ParserConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.penn import penn
from phrasemodels.tasks.prepare.pieces import Divide, no_pieces
from phrasemodels.tasks.prepare.running_text import WordRows, word_rows
from phrasemodels.tasks.prepare.tokenise import Tokeniser
from phrasemodels.tasks.problems.parsing.data import TreebankVocabulary, TreeNumbers, tree_numbers, treebank_vocabulary
from phrasemodels.tasks.problems.parsing.label_attention import LabelSettings, label_attention
from phrasemodels.tasks.problems.parsing.objective import Parsing
from phrasemodels.tasks.problems.parsing.predict import ParseSettings, TreeParser, parse_sentences
from phrasemodels.tasks.problems.parsing.score import ParseScoring, score_parses
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train


@dataclass(frozen=True)
class ParsingRecipe:
    """A treebank with phrase structure and dependencies. max_words drops longer sentences from training alone (0: none);
    divide makes pieces for a pretrained encoder; tokeniser divides text that is given."""

    corpus: Corpus | SampleCorpus
    problem: Parsing = field(default_factory=Parsing)
    vocabulary: TreebankVocabulary = field(default_factory=TreebankVocabulary)
    scoring: ParseScoring = field(default_factory=ParseScoring)
    max_words: int = 0
    divide: Divide = no_pieces
    tokeniser: Tokeniser = penn

    @property
    def name(self) -> str:
        return f"parsing-{self.corpus.name}"

    @property
    def curve(self) -> str:
        return "(1 − F1) + (1 − LAS) on dev"

    def bare(self) -> Self:
        return self

    def data(self) -> dict[str, Step]:
        name = self.corpus.name
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(treebank_vocabulary, f"vocabulary {name}", self.vocabulary, {"rows": raw["train"]})
        settings = {
            "train": TreeNumbers(True, self.max_words, self.divide),
            "dev": TreeNumbers(True, 0, self.divide),
            "test": TreeNumbers(False, 0, self.divide),
        }
        numbers = {
            split: Step(
                tree_numbers, f"numbers {name} {split}", settings[split], {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "raw": raw["test"]}

    def stages(self, model: ParserConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {"train": "train", "dev": "dev", "vocabulary": "vocabulary"}
        answered = {"model": "model", "numbers": "test", "rows": "raw", "vocabulary": "vocabulary"}
        return {
            "model": Stage(train, TrainSettings(self.problem, model, config, seed), inputs),
            "predictions": Stage(parse_sentences, ParseSettings(self.problem, model), answered),
            "scores": Stage(score_parses, self.scoring, {"predictions": "predictions", "rows": "raw"}),
        }

    def answering(self, model: ParserConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        """Parses of given sentences, by known["model"] and known["vocabulary"]."""
        words, numbers = self._numbered(texts, known["vocabulary"])
        settings = ParseSettings(self.problem, model)
        return Step(parse_sentences, "parse given sentences", settings, {**known, "numbers": numbers, "rows": words})

    def attending(self, model: ParserConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int) -> Step:
        """What each label of known["model"] attends to in the first sentences of each group of the texts."""
        words, numbers = self._numbered(texts, known["vocabulary"])
        settings = LabelSettings(self.problem, model, sentences)
        return Step(label_attention, "labels' attention", settings, {**known, "numbers": numbers, "rows": words})

    def _numbered(self, texts: HasKey, vocabulary: HasKey) -> tuple[Step, Step]:
        """Words of sentences, and their numbers."""
        words = Step(word_rows, "words of given sentences", WordRows(self.tokeniser), {"rows": texts})
        inputs = {"rows": words, "vocabulary": vocabulary}
        return words, Step(tree_numbers, "numbers of given sentences", TreeNumbers(False, 0, self.divide), inputs)

    def spoken(self, row: Mapping[str, Any]) -> str:
        """A row of predictions as one object of JSON: tokens, tags, tree, heads, relations."""
        told = {name: value for name, value in row.items() if name not in ("id", "group")}
        return json.dumps(told, ensure_ascii=False)

    def parser(self, model: ParserConfig, weights: Artifact, vocabulary: Artifact) -> TreeParser:
        """A trained parser that stays in memory."""
        return TreeParser(self.problem, model, weights, vocabulary)
