"""Tagging: from a treebank to the accuracy of tags."""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

from phrasemodels.data.store.step import Step
from phrasemodels.layers.checks import at_least
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases, phrases, subtrees
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.entailment.data import VectorFile
from phrasemodels.tasks.problems.recipe import Recipe, Stage, training_stage
from phrasemodels.tasks.problems.tagging.objective import TagColumn, TaggingObjective, tag_tokens
from phrasemodels.tasks.problems.tagging.predict import score_tags, tag
from phrasemodels.tasks.problems.tagging.vectors import VectorVocabulary, vector_vocabulary
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class TaggingRecipe(Recipe):
    """A treebank, one of its columns of tags, and phrases. Words that occur fewer than min_count times are unknown. vectors: a
    file of word vectors, which are not trained, so no word is unknown that it has; without one they are learned."""

    corpus: Corpus | SampleCorpus
    tags: TagColumn = field(default_factory=TagColumn)
    phrases: Phrases = field(default_factory=lambda: Phrases(no_phrases))
    min_count: int = 2
    vectors: VectorFile | None = None

    answer_columns: ClassVar = ("reference", "hypothesis")

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")

    @property
    def name(self) -> str:
        return f"tagging-{self.corpus.name}-{self.tags.column}"

    def data(self) -> dict[str, Step]:
        name = f"{self.corpus.name} {self.tags.column}"
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        tokens = {split: Step(tag_tokens, f"tags {name} {split}", self.tags, {"rows": raw[split]}) for split in raw}
        rows, label = {"rows": tokens["train"]}, f"vocabulary {name}"
        if self.vectors:
            others = {split: tokens[split] for split in ("dev", "test")}
            words = Step(vector_vocabulary, label, VectorVocabulary(self.vectors, self.min_count), rows | others)
        else:
            words = Step(vocabulary, label, VocabularySettings(self.min_count), rows)
        numbers = {
            split: Step(
                phrases,
                f"phrases {name} {split} ({self.phrases.enumerate.__name__} {self.phrases.longest})",
                dataclasses.replace(self.phrases, max_tokens=self.phrases.max_tokens if split == "train" else 0),
                {"rows": tokens[split], "vocabulary": words}
                | ({"trees": raw[split]} if self.phrases.enumerate is subtrees else {}),
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "tokens": tokens["test"], "raw": raw["test"]}

    def stages(self, model: TaggerConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = TaggingObjective()
        return {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(
                tag,
                PredictSettings(objective, model, 8192),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_tags, self.tags, {"predictions": "predictions", "rows": "raw", "vocabulary": "vocabulary"}
            ),
        }
