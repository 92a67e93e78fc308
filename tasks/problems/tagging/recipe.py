"""Tagging: from a treebank to the accuracy of tags."""

import dataclasses
from dataclasses import dataclass, field
from typing import Self

from phrasemodels.data.store.step import Step
from phrasemodels.models.tagger import TaggerConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, no_phrases, phrases
from phrasemodels.tasks.prepare.subtrees import subtrees
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, vocabulary
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.problems.tagging.objective import TagColumn, Tagging, TagSettings, score_tags, tag, tag_tokens
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train


@dataclass(frozen=True)
class TaggingRecipe:
    """A treebank, which of its tags, its phrases, and from how many occurrences on a word is known."""

    corpus: Corpus | SampleCorpus
    tags: TagColumn = field(default_factory=TagColumn)
    phrases: Phrases = field(default_factory=lambda: Phrases(no_phrases))
    min_count: int = 2

    @property
    def name(self) -> str:
        return f"tagging-{self.corpus.name}-{self.tags.column}"

    @property
    def curve(self) -> str:
        return "dev loss (nats a word)"

    def bare(self) -> Self:
        return self

    def data(self) -> dict[str, Step]:
        name = f"{self.corpus.name} {self.tags.column}"
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        tokens = {split: Step(tag_tokens, f"tags {name} {split}", self.tags, {"rows": raw[split]}) for split in raw}
        words = Step(vocabulary, f"vocabulary {name}", VocabularySettings(self.min_count), {"rows": tokens["train"]})
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
        problem = Tagging()
        return {
            "model": Stage(
                train,
                TrainSettings(problem, model, config, seed),
                {"train": "train", "dev": "dev", "vocabulary": "vocabulary"},
            ),
            "predictions": Stage(
                tag,
                TagSettings(problem, model),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_tags, self.tags, {"predictions": "predictions", "rows": "raw", "vocabulary": "vocabulary"}
            ),
        }
