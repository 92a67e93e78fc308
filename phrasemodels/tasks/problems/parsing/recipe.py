"""Parsing: from a treebank to brackets and attachments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.parser import ParserConfig
from phrasemodels.parsing.numbers import Divide, no_pieces
from phrasemodels.parsing.words import Sentences, sentences
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.tokenise import Tokeniser, penn_treebank
from phrasemodels.tasks.prepare.user_text import WordRows, first_texts, word_rows
from phrasemodels.tasks.problems.parsing.data import (
    Heads,
    Keep,
    TreebankVocabulary,
    TreeNumbers,
    annotated_heads,
    complete,
    every_row,
    tree_numbers,
    treebank_vocabulary,
    with_either,
)
from phrasemodels.tasks.problems.parsing.labels import LabelAttentionSettings, label_attention
from phrasemodels.tasks.problems.parsing.objective import ParsingObjective
from phrasemodels.tasks.problems.parsing.predict import TreeParser, parse_sentences
from phrasemodels.tasks.problems.parsing.score import ParseScoring, score_parses
from phrasemodels.tasks.problems.recipe import Recipe, Stage, training_stage
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig

DEV: dict[Keep, Keep] = {with_either: complete}  # of a corpus that has both, weights are chosen by both


@dataclass(frozen=True)
class ParsingRecipe(Recipe):
    """A treebank with phrase structure, dependencies or both, and the parser's objective (`problem`). learned: which
    sentences are learned from. heads: where their heads come from.

    max_words drops longer sentences from training alone (0: none). divide: words into pieces of a pretrained encoder.
    tokeniser, split: of text that a user gives: a sentence into words, a text into sentences and words.
    """

    corpus: Corpus | SampleCorpus
    problem: ParsingObjective = field(default_factory=ParsingObjective)
    vocabulary: TreebankVocabulary = field(default_factory=TreebankVocabulary)
    scoring: ParseScoring = field(default_factory=ParseScoring)
    max_words: int = 0
    divide: Divide = no_pieces
    learned: Keep = complete
    heads: Heads = annotated_heads
    tokeniser: Tokeniser = penn_treebank
    split: Sentences = sentences

    slug: ClassVar = "parsing"
    answers_inputs: ClassVar = True

    def __post_init__(self) -> None:
        at_least(self, 0, "max_words")

    def data(self) -> dict[str, Step]:
        name = self.corpus.name
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        words = Step(treebank_vocabulary, f"vocabulary {name}", self.vocabulary, {"rows": raw["train"]})
        settings = {
            "train": TreeNumbers(self.learned, self.max_words, self.divide, self.vocabulary.tags, self.heads),
            "dev": TreeNumbers(DEV.get(self.learned, self.learned), 0, self.divide, self.vocabulary.tags, self.heads),
            "test": TreeNumbers(every_row, 0, self.divide, self.vocabulary.tags),
        }
        numbers = {
            split: Step(
                tree_numbers, f"numbers {name} {split}", settings[split], {"rows": raw[split], "vocabulary": words}
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "raw": raw["test"]}

    def stages(self, model: ParserConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        known = {"model": "model", "numbers": "test", "rows": "raw", "vocabulary": "vocabulary"}
        return {
            "model": training_stage(self.problem, model, config, seed),
            "predictions": Stage(parse_sentences, PredictSettings(self.problem, model, 2000), known),
            "scores": Stage(score_parses, self.scoring, {"predictions": "predictions", "rows": "raw"}),
        }

    def attended_texts(self, records: Artifact) -> HasKey:
        return first_texts(records, lambda record: " ".join(record["tokens"]))

    def predict_step(self, model: ParserConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        words, numbers = self._numbered(texts, known["vocabulary"])
        settings = PredictSettings(self.problem, model, 2000)
        return Step(parse_sentences, "parse given sentences", settings, {**known, "numbers": numbers, "rows": words})

    def attention_step(self, model: ParserConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int) -> Step:
        words, numbers = self._numbered(texts, known["vocabulary"])
        settings = LabelAttentionSettings(self.problem, model, sentences)
        return Step(label_attention, "labels' attention", settings, {**known, "numbers": numbers, "rows": words})

    def _numbered(self, texts: HasKey, vocabulary: HasKey) -> tuple[Step, Step]:
        """Return the words of texts, and their numbers. ValueError: the parser reads tags that texts do not have."""
        if self.vocabulary.tags != "tags":
            raise ValueError(
                f"this parser reads the column {self.vocabulary.tags!r} of its treebank, tags by another program: text has none; "
                "take a parser that predicts tags, such as 004/parser/paper/lal"
            )
        words = Step(word_rows, "words of given sentences", WordRows(self.tokeniser), {"rows": texts})
        inputs = {"rows": words, "vocabulary": vocabulary}
        return words, Step(tree_numbers, "numbers of given sentences", TreeNumbers(every_row, 0, self.divide), inputs)

    def as_text(self, row: Mapping[str, Any]) -> str:
        """Return a row of predictions as a JSON object: tokens, tags, tree, heads, relations."""
        values = {name: value for name, value in row.items() if name not in ("id", "group")}
        return json.dumps(values, ensure_ascii=False)

    def parser(self, model: ParserConfig, weights: Artifact, vocabulary: Artifact) -> TreeParser:
        """Return a trained parser that stays in memory."""
        return TreeParser(self.problem, model, weights, vocabulary)
