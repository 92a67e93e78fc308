"""Natural language inference, and what the sentence vectors that it teaches are good for elsewhere."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.models.sentence_pair import SentencePairConfig
from phrasemodels.tasks.prepare.asked import Asked, read_asked
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.levels import Structure
from phrasemodels.tasks.problems.entailment.data import Number, Text, VectorFile, WordList, number, word_list
from phrasemodels.tasks.problems.entailment.logistic import PUBLISHED, Setting
from phrasemodels.tasks.problems.entailment.objective import (
    Entailment,
    LookSettings,
    RelateSettings,
    look,
    relate,
    score_labels,
)
from phrasemodels.tasks.problems.entailment.transfer import (
    Protocol,
    Transfer,
    VectorSettings,
    sentence_vectors,
    transfer,
)
from phrasemodels.tasks.problems.recipe import Stage
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.loop import TrainSettings, train


def as_they_are(rows: Step) -> Step:
    """Records with the trees of their corpus, if it has any."""
    return rows


@dataclass(frozen=True)
class Task:
    """A task that sentence vectors are tried on: its rows, how they are read, how they are scored; and who plants their
    trees for an encoder that reads trees."""

    name: str
    protocol: Protocol
    corpus: Corpus | SampleCorpus
    splits: tuple[str, ...]
    text: Text
    parsed: Callable[[Step], Step] = as_they_are

    def inputs(self) -> tuple[str, ...]:
        """Its splits among all data of a recipe."""
        return tuple(f"{self.name}.{split}" for split in self.splits)


@dataclass(frozen=True)
class EntailmentRecipe:
    """A corpus of sentence pairs, what an encoder is told of each token, and the tasks that it is tried on.

    parsed: from pairs to the same pairs with trees. max_tokens drops longer pairs from training alone (0: none).
    vectors: a file of word vectors; without one they are learned. setting: how classifiers of the tasks are trained.
    """

    corpus: Corpus | SampleCorpus
    structure: Structure
    text: Text = field(default_factory=Text)
    penalty: float = 5e-5
    min_count: int = 1
    max_tokens: int = 0
    vectors: VectorFile | None = None
    suite: tuple[Task, ...] = ()
    setting: Setting = PUBLISHED
    parsed: Callable[[Step], Step] = as_they_are

    @property
    def name(self) -> str:
        part = getattr(self.corpus, "part", "")
        return f"entailment-{self.corpus.name}{'-' if part else ''}{part}"

    @property
    def curve(self) -> str:
        return "wrong labels on dev (share of pairs)"

    def bare(self) -> Self:
        """Without the tasks, whose scores need scipy."""
        return dataclasses.replace(self, suite=())

    def data(self) -> dict[str, Step]:
        raw = {split: self.parsed(self.corpus.split(split)) for split in ("train", "dev", "test")}
        others = {
            name: ((task.parsed if self.structure.reads_trees else as_they_are)(task.corpus.split(split)), task)
            for task in self.suite
            for name, split in zip(task.inputs(), task.splits, strict=True)
        }
        texts, rows = {"train": self.text}, {"train": raw["train"]}
        if self.vectors:  # nothing of them is trained, so words of all texts may have theirs
            texts |= {"dev": self.text, "test": self.text} | {name: task.text for name, (_, task) in others.items()}
            rows = raw | {name: step for name, (step, _) in others.items()}
        words = Step(word_list, f"words {self.name}", WordList(texts, self.min_count, self.vectors), rows)

        def numbers(label: str, step: Step, text: Text, most: int, labelled: bool) -> Step:
            settings = Number(text, self.structure, most, labelled)
            return Step(number, f"number {label}", settings, {"rows": step, "vocabulary": words})

        most = {"train": self.max_tokens, "dev": 0, "test": 0}
        return {
            **{s: numbers(f"{self.name} {s}", raw[s], self.text, most[s], True) for s in raw},
            **{n: numbers(n, step, task.text, 0, task.protocol.classes) for n, (step, task) in others.items()},
            "vocabulary": words,
        }

    def stages(self, model: SentencePairConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        problem = Entailment(self.penalty)
        asked = RelateSettings(problem, model)
        stages = {
            "model": Stage(
                train,
                TrainSettings(problem, model, config, seed),
                {"train": "train", "dev": "dev", "vocabulary": "vocabulary"},
            ),
            "predictions": Stage(relate, asked, {"model": "model", "vocabulary": "vocabulary", "rows": "test"}),
        }
        if not self.suite:
            return {**stages, "scores": Stage(score_labels, None, {"predictions": "predictions", "rows": "test"})}
        splits = {name: name for task in self.suite for name in task.inputs()}
        sides = {name: task.text.sides for task in self.suite for name in task.inputs()}
        tasks = {task.name: (task.protocol, task.inputs()) for task in self.suite}
        return {
            **stages,
            "vectors": Stage(
                sentence_vectors,
                VectorSettings(asked, sides),
                {"model": "model", "vocabulary": "vocabulary", **splits},
            ),
            "transfer": Stage(transfer, Transfer(tasks, self.setting), {"vectors": "vectors", **splits}, spread=True),
            "scores": Stage(score_labels, None, {"predictions": "predictions", "rows": "test", "transfer": "transfer"}),
        }

    def answering(self, model: SentencePairConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        """Labels of given pairs, premise and hypothesis between a tab, by known["model"] and known["vocabulary"]."""
        rows = Step(read_asked, "read given pairs", Asked(pairs=True), {"rows": texts})
        numbers = self._numbered(rows, self.text, known["vocabulary"])
        return Step(relate, "relate given pairs", RelateSettings(Entailment(), model), {**known, "rows": numbers})

    def attending(self, model: SentencePairConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int) -> Step:
        """What known["model"] attends to in the given sentences, on each level of phrases and in the summary."""
        rows, one = Step(read_asked, "read given sentences", Asked(), {"rows": texts}), Text(("text",))
        numbers = self._numbered(rows, one, known["vocabulary"])
        settings = LookSettings(RelateSettings(Entailment(), model), one)
        return Step(look, "look at sentences", settings, {**known, "rows": rows, "numbers": numbers})

    def _numbered(self, rows: HasKey, text: Text, words: HasKey) -> Step:
        settings = Number(text, self.structure, labelled=False)
        return Step(number, "number what was given", settings, {"rows": rows, "vocabulary": words})

    def spoken(self, row: Mapping[str, Any]) -> str:
        """A row of predictions as text."""
        return str(row["label"])
