"""The vocabulary of a corpus: how many different words it has, and how many of them are rare."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.counting.parameters import NO_SENTENCES
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class Rare:
    """Words are rare that stand fewer than `below` times."""

    below: int


def count_words(job: Job, settings: Rare) -> dict[str, Any]:
    """Count the words between spaces of the SENTENCES job.inputs["train"]: `thousand words` that differ, and `rare`, the
    percentage of them that is rare."""
    texts = read_shards(job.inputs["train"])["text"].to_pylist()
    counts = Counter(word for text in texts for word in text.split())
    rare = sum(count < settings.below for count in counts.values())
    scores = {
        "thousand words": Score(len(counts) / 1000, "different words of train, thousands", len(texts)),
        "rare": Score(100 * rare / len(counts), f"of them seen fewer than {settings.below} times, %", len(texts)),
    }
    return write_scores(job, scores, NO_SENTENCES, job.inputs["train"].meta["shards"])


@dataclass(frozen=True)
class VocabularyRecipe(CountingRecipe):
    """The vocabulary of the training set of a corpus of SENTENCES. below: as in Rare."""

    corpus: Corpus | SampleCorpus
    below: int

    slug: ClassVar = "vocabulary"

    def data(self) -> dict[str, Step]:
        return {"train": self.corpus.split("train")}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {"scores": Stage(count_words, Rare(self.below), {"train": "train"})}
