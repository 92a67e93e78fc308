"""Phrases of sentences and words of phrases, on each level of a division (paper 001, Table 1)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from phrasemodels.data.download.manifest import load
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.metrics.score import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.levels import Levels
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.problems.counting.parameters import NO_SENTENCES
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe
from phrasemodels.tasks.problems.entailment.data import SentenceText
from phrasemodels.tasks.problems.entailment.recipe import TransferTask
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class Division:
    """The columns of text with their tokeniser, and the levels of phrases.

    stand_in: whether the corpus is one; what its trees are by is another matter.
    """

    text: SentenceText
    levels: Levels
    stand_in: bool = False


def count_phrases(job: Job, settings: Division) -> dict[str, Any]:
    """Count the phrases of the PAIRS or SENTENCES of all inputs: `phrases LEVEL` of a sentence, `words LEVEL` of a phrase.

    Each sentence counts as often as it stands there; both are means.
    """
    sentences, words, phrases = 0, 0, np.zeros(settings.levels.k)
    for rows in job.inputs.values():
        table = read_shards(rows)
        for side in settings.text.sides:
            tokens = [settings.text.words(text) for text in table[side].to_pylist()]
            trees = table["tree" if side == "text" else f"{side}_tree"]
            lengths = np.array([len(row) for row in tokens], np.int64)
            numbers = settings.levels(tokens, trees, lengths)
            sentences, words = sentences + len(tokens), words + int(lengths.sum())
            phrases += _phrases(numbers, lengths)
    scores = {}
    for level, count in zip(settings.levels.levels, phrases, strict=True):
        scores[f"phrases {level}"] = Score(float(count) / sentences, "phrases of a sentence, mean", sentences)
        scores[f"words {level}"] = Score(words / float(count), "words of a phrase, mean", sentences)
    test_set = [shard for a in job.inputs.values() for shard in a.meta["shards"]]
    return {**write_scores(job, scores, NO_SENTENCES, test_set), "stand_in": settings.stand_in}


def _phrases(numbers: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of phrases of all sentences on each level: phrases are numbered from 0 in each sentence."""
    return np.asarray((numbers[np.cumsum(lengths) - 1] + 1).sum(0, dtype=np.int64))


def of_stand_in(corpus: Corpus | SampleCorpus, task: TransferTask) -> bool:
    """Return whether a task's corpus is a stand-in; trees by a parser of ours do not make it one."""
    if isinstance(corpus, SampleCorpus):
        return True
    manifest, part = load(corpus.name), f"{corpus.part}." if corpus.part else ""
    return any(manifest.terms(part + split).stand_in for split in task.splits)


@dataclass(frozen=True)
class DivisionRecipe(CountingRecipe):
    """The division of a transfer task's sentences. corpus: the task's."""

    corpus: Corpus
    task: TransferTask
    levels: Levels

    slug: ClassVar = "phrases"

    def data(self) -> dict[str, Step]:
        return {split: self.task.parsed(self.corpus.split(split)) for split in self.task.splits}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {split: split for split in self.task.splits}
        stand_in = of_stand_in(self.corpus, self.task)
        return {"scores": Stage(count_phrases, Division(self.task.text, self.levels, stand_in), inputs)}
