"""Parsing: from a treebank to brackets and attachments."""

from dataclasses import dataclass, field
from typing import Self

from data.store import Step
from flows.experiment import Stage
from phrasemodels.models.parser import ParserConfig
from tasks.corpora import Corpus, SampleCorpus
from tasks.joint_trees import TreebankVocabulary, TreeNumbers, tree_numbers, treebank_vocabulary
from tasks.pieces import Divide, no_pieces
from tasks.problems.parses import ParseScoring, ParseSettings, parse_sentences, score_parses
from tasks.problems.parsing import Parsing
from tasks.train import TrainConfig, TrainSettings, train


@dataclass(frozen=True)
class ParsingRecipe:
    """A treebank with phrase structure and dependencies. max_words drops longer sentences from training alone (0: none);
    divide makes pieces for a pretrained encoder."""

    corpus: Corpus | SampleCorpus
    problem: Parsing = field(default_factory=Parsing)
    vocabulary: TreebankVocabulary = field(default_factory=TreebankVocabulary)
    scoring: ParseScoring = field(default_factory=ParseScoring)
    max_words: int = 0
    divide: Divide = no_pieces

    @property
    def name(self) -> str:
        return f"parsing-{self.corpus.name}"

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
