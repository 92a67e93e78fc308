"""Natural language inference, and the transfer of the sentence vectors that it teaches to other tasks."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import HasKey, Step
from phrasemodels.layers.checks import at_least, not_negative
from phrasemodels.models.sentence_pair import SentencePairConfig
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus, as_they_are
from phrasemodels.tasks.prepare.levels import Structure
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.user_text import SentencesOrPairs, first_texts, read_asked
from phrasemodels.tasks.problems.entailment.data import (
    NumberSettings,
    SentenceText,
    Unknown,
    VectorFile,
    WordListSettings,
    hashed,
    number,
    word_list,
)
from phrasemodels.tasks.problems.entailment.logistic import PUBLISHED, LogisticConfig
from phrasemodels.tasks.problems.entailment.objective import EntailmentObjective, Penalised, every_map
from phrasemodels.tasks.problems.entailment.predict import LookSettings, look, relate, score_labels
from phrasemodels.tasks.problems.entailment.transfer import (
    TransferProtocol,
    TransferSettings,
    VectorSettings,
    sentence_vectors,
    transfer,
)
from phrasemodels.tasks.problems.recipe import Recipe, Stage, lacking, training_stage
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig

BATCH_TOKENS = 8192  # predicted at a time


@dataclass(frozen=True)
class TransferTask:
    """A task that sentence vectors are tried on: its protocol, its corpus and splits, and the text of its sentences.

    parsed: from records to the same records with trees, for encoders that read trees. averaged: whether it is one of the
    tasks that micro and macro are averages of.
    """

    name: str
    protocol: TransferProtocol
    corpus: Corpus | SampleCorpus
    splits: tuple[str, ...]
    text: SentenceText
    parsed: Callable[[Step], Step] = as_they_are
    averaged: bool = True

    def inputs(self) -> tuple[str, ...]:
        """Return the names of its splits among all data of a recipe."""
        return tuple(f"{self.name}.{split}" for split in self.splits)


@dataclass(frozen=True)
class EntailmentRecipe(Recipe):
    """A corpus of sentence pairs, the structure of each token, and the tasks that sentence vectors are tried on (`suite`).

    penalty: of the objective. Words that occur fewer than min_count times are unknown. max_tokens drops longer pairs from
    training alone (0: none). vectors: a file of word vectors; without one they are learned. setting: how classifiers of
    the tasks are trained. parsed: from pairs to the same pairs with trees. unknown: what becomes of unknown words.
    penalised: the linear maps that the penalty is on.
    """

    corpus: Corpus | SampleCorpus
    structure: Structure
    text: SentenceText = field(default_factory=SentenceText)
    penalty: float = 5e-5
    min_count: int = 1
    max_tokens: int = 0
    vectors: VectorFile | None = None
    suite: tuple[TransferTask, ...] = ()
    setting: LogisticConfig = PUBLISHED
    parsed: Callable[[Step], Step] = as_they_are
    unknown: Unknown = hashed
    penalised: Penalised = every_map

    answer_columns: ClassVar = ("gold", "label")
    answers_inputs: ClassVar = True

    def __post_init__(self) -> None:
        at_least(self, 0, "max_tokens")
        not_negative(self, "penalty")
        at_least(self, 1, "min_count")

    @property
    def name(self) -> str:
        part = getattr(self.corpus, "part", "")
        return f"entailment-{self.corpus.name}{'-' if part else ''}{part}"

    def bare(self) -> Self:
        """Return the recipe without the tasks, whose scores need scipy."""
        return dataclasses.replace(self, suite=())

    def data(self) -> dict[str, Step]:
        raw = {split: self.parsed(self.corpus.split(split)) for split in ("train", "dev", "test")}
        others = {
            name: ((task.parsed if self.structure.reads_trees else as_they_are)(task.corpus.split(split)), task)
            for task in self.suite
            for name, split in zip(task.inputs(), task.splits, strict=True)
        }
        texts, rows = {"train": self.text}, {"train": raw["train"]}
        if self.vectors:  # word vectors are not trained, so words of dev, test and tasks may have theirs
            texts |= {"dev": self.text, "test": self.text} | {name: task.text for name, (_, task) in others.items()}
            rows = raw | {name: step for name, (step, _) in others.items()}
        words = Step(word_list, f"words {self.name}", WordListSettings(texts, self.min_count, self.vectors), rows)

        def numbers(label: str, step: Step, text: SentenceText, most: int, labelled: bool) -> Step:
            settings = NumberSettings(text, self.structure, most, labelled, self.unknown)
            return Step(number, f"number {label}", settings, {"rows": step, "vocabulary": words})

        most = {"train": self.max_tokens, "dev": 0, "test": 0}
        return {
            **{s: numbers(f"{self.name} {s}", raw[s], self.text, most[s], True) for s in raw},
            **{n: numbers(n, step, task.text, 0, task.protocol.classes) for n, (step, task) in others.items()},
            "vocabulary": words,
        }

    def stages(self, model: SentencePairConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = EntailmentObjective(self.penalty, self.penalised)
        relating = PredictSettings(objective, model, BATCH_TOKENS)
        stages = {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(relate, relating, {"model": "model", "vocabulary": "vocabulary", "rows": "test"}),
        }
        if not self.suite:
            return {**stages, "scores": Stage(score_labels, None, {"predictions": "predictions", "rows": "test"})}
        splits = {name: name for task in self.suite for name in task.inputs()}
        sides = {name: task.text.sides for task in self.suite for name in task.inputs()}
        tasks = {task.name: (task.protocol, task.inputs()) for task in self.suite}
        apart = tuple(task.name for task in self.suite if not task.averaged)
        return {
            **stages,
            "vectors": Stage(
                sentence_vectors,
                VectorSettings(relating, sides),
                {"model": "model", "vocabulary": "vocabulary", **splits},
            ),
            "transfer": Stage(
                transfer,
                TransferSettings(tasks, self.setting, apart=apart),
                {"vectors": "vectors", **splits},
                fans_out=True,
            ),
            "scores": Stage(score_labels, None, {"predictions": "predictions", "rows": "test", "transfer": "transfer"}),
        }

    def test_rows(self) -> Step:
        return self.parsed(super().test_rows())

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return " / ".join(filter(None, (record["premise"], record["hypothesis"])))

    def attended_texts(self, records: Artifact) -> HasKey:
        return first_texts(records, lambda record: record["premise_tree"] or record["premise"])

    def predict_step(self, model: SentencePairConfig, texts: HasKey, known: Mapping[str, HasKey]) -> Step:
        """Texts are pairs, with a tab between premise and hypothesis."""
        rows = Step(read_asked, "read given pairs", SentencesOrPairs(pairs=True), {"rows": texts})
        numbers = self._numbered(rows, self.text, known["vocabulary"])
        settings = PredictSettings(EntailmentObjective(), model, BATCH_TOKENS)
        return Step(relate, "relate given pairs", settings, {**known, "rows": numbers})

    def attention_step(
        self, model: SentencePairConfig, texts: HasKey, known: Mapping[str, HasKey], sentences: int
    ) -> Step:
        rows = Step(read_asked, "read given sentences", SentencesOrPairs(), {"rows": texts})
        text = SentenceText(("text",))
        numbers = self._numbered(rows, text, known["vocabulary"])
        settings = LookSettings(PredictSettings(EntailmentObjective(), model, BATCH_TOKENS), text)
        return Step(look, "look at sentences", settings, {**known, "rows": rows, "numbers": numbers})

    def _numbered(self, rows: HasKey, text: SentenceText, words: HasKey) -> Step:
        settings = NumberSettings(text, self.structure, labelled=False, unknown=self.unknown)
        return Step(number, "number given sentences", settings, {"rows": rows, "vocabulary": words})

    def unknown_words(self, texts: HasKey, known: Mapping[str, HasKey], run: Callable[[Step], Artifact]) -> list[str]:
        rows = read_shards(run(Step(read_asked, "read given pairs", SentencesOrPairs(pairs=True), {"rows": texts})))
        sides = (value for side in self.text.sides for value in rows[side].to_pylist())
        return lacking((word for side in sides for word in self.text.words(side)), known["vocabulary"], "words")

    def as_text(self, row: Mapping[str, Any]) -> str:
        return str(row["label"])
