"""Classes of sentences: a line is a sentence and its label, an encoder reads the sentence's words and phrases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Levels, Structure, moses_lower
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Classification as SentencePredictor
from phrasemodels.inference.problems import Predictor, described
from phrasemodels.models.pretrained_words import PieceVectors
from phrasemodels.models.sentence_pair import ClassifierConfig
from phrasemodels.tasks.metrics.scores import Score, accuracies, accuracy_of, write_scores
from phrasemodels.tasks.parsers.shipped import ByShippedParser
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus, as_they_are
from phrasemodels.tasks.prepare.sharded import SHARD, read_shards
from phrasemodels.tasks.prepare.vocabulary import read_ids, read_words, write_words
from phrasemodels.tasks.problems.entailment import identity_of, predict_classes, sentence_attention
from phrasemodels.tasks.problems.recipe import Outcome, Recipe, Section, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import (
    NumberSettings,
    SentenceBatch,
    SentenceExamples,
    SentenceText,
    VectorFile,
    WordListSettings,
    hashed,
    number_shard,
    numbered_shards,
    vectors_of,
    word_list,
)
from phrasemodels.tasks.train.batches import Rows
from phrasemodels.tasks.train.checkpoints import PredictSettings
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective
from phrasemodels.verdicts.significance import Statistic

MOST_CLASSES = 1000
RIGHT = Statistic("right", accuracy_of)  # tests the accuracy of a row against its baseline's
WORDS = SentenceText(("text",), moses_lower)


def classes_and_words(job: Job, settings: WordListSettings) -> dict[str, Any]:
    """Write words.txt and perhaps vectors as `word_list` does, and the classes of ["train"] in alphabetical order as labels.txt.

    ValueError: there are fewer than two classes, or more than MOST_CLASSES.
    """
    labels = sorted(set(read_shards(job.inputs["train"])["label"].to_pylist()) - {""})
    if not 1 < len(labels) <= MOST_CLASSES:
        told = f"{len(labels)} classes, such as {labels[0][:40]!r}" if labels else "no classes"
        raise ValueError(f"train has {told}: a line is a sentence, a tab and its class, of which there are two or more")
    return {**word_list(job, settings), "labels": write_words(job.out, "labels", labels)}


def number_classes(job: Job, settings: NumberSettings) -> dict[str, Any]:
    """Write shards of ids, structures and classes of the SENTENCES job.inputs["rows"].

    It also reads ["vocabulary"].
    """
    return numbered_shards(job, number_classes_shard, settings)


def number_classes_shard(job: Job, settings: NumberSettings) -> dict[str, Any]:
    """Write one shard with the column `class`: the place of the label, -1 for none. ValueError: train has no such label."""
    numbered = number_shard(job, settings)
    # a copy, as a file that is mapped must not be written
    table = pa.ipc.open_file(pa.BufferReader((job.out / SHARD).read_bytes())).read_all()
    classes = read_ids(job.inputs["vocabulary"], "labels")
    labels = table["label"].to_pylist()
    if unknown := sorted({label for label in labels if label and label not in classes}):
        raise ValueError(
            f"no sentence of train has the label {unknown[0]!r}; put such sentences into train, or leave it out"
        )
    column = pa.array([classes.get(label, -1) for label in labels], pa.int64())
    return {"dropped": numbered["dropped"], **write_shard(job.out / SHARD, table.append_column("class", column))}


@dataclass(frozen=True)
class ClassBatch(SentenceBatch):
    """B sentences, and their classes (B)."""

    classes: Tensor


class ClassExamples(SentenceExamples):
    """Rows of numbered sentences, with their classes (rows)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, WORDS.sides)
        self.classes: NDArray[np.int64] = np.concatenate([read_shard(path)["class"].to_numpy() for path in paths])

    def batch(self, rows: Rows) -> ClassBatch:
        return ClassBatch(**vars(super().batch(rows)), classes=torch.from_numpy(self.classes[rows]))


@dataclass(frozen=True)
class ClassificationObjective(Objective):
    """Sentences to a class: mean loss a sentence. The best weights have the fewest wrong classes on dev."""

    curve: ClassVar = "wrong classes on dev (share of sentences)"

    def configure(self, model: ClassifierConfig, vocabulary: Artifact) -> ClassifierConfig:
        meta = vocabulary.meta
        return replace(model, words=meta["words"], vectors=vectors_of(vocabulary), classes=meta["labels"])

    def examples(self, paths: Sequence[Path]) -> ClassExamples:
        return ClassExamples(paths)

    def loss(self, model: nn.Module, batch: ClassBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the classes."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        return F.cross_entropy(scores.float(), batch.classes, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: nn.Module, batch: ClassBatch) -> Tensor:
        """Return the number of wrong classes."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        return (scores.argmax(-1) != batch.classes).sum().float()


def classify(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Classify the numbered sentences job.inputs["rows"].

    It also reads ["model"] and ["vocabulary"]. It writes predictions.arrow: gold label, predicted label and its
    probability.
    """
    labels = read_words(job.inputs["vocabulary"], "labels")
    _, probabilities, predicted = predict_classes(job, settings, labels)
    made = pa.table({**predicted, "probability": pa.array(probabilities.max(1))})
    return {"predictions": write_shard(job.out / "predictions.arrow", made)}


def score_classes(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%) of all and by group.

    macro_f1 is the mean F1 (%) over classes. ["rows"] are the test set.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    gold, answers = (table[name].to_numpy(zero_copy_only=False) for name in ("gold", "label"))
    right = gold == answers
    f1 = [
        2 * (right & (gold == name)).sum() / ((gold == name).sum() + (answers == name).sum())
        for name in np.unique(gold)
    ]
    scores = accuracies(right, table["group"].to_pylist(), "accuracy of classes, %")
    scores["macro_f1"] = Score(100 * float(np.mean(f1)), f"mean F1 of {len(f1)} classes, %", len(right))
    statistic = pa.array(list(np.stack([right, np.ones_like(right)], 1).astype(np.int64)))
    sentences = pa.table({"id": table["id"], "group": table["group"], RIGHT.column: statistic})
    return write_scores(job, scores, sentences, identity_of(job.inputs["rows"]))


BATCH_TOKENS = 8192  # predicted at a time


@dataclass(frozen=True)
class ClassificationRecipe(Recipe):
    """A corpus of sentences with labels, and the structure of each token.

    structure: the input of an encoder beside each token. The default is the levels of phrases of PSAN, `Levels()`.
    Encoders without phrases take `Levels(trees="none")` and need no parser. parsed: gives sentences their trees. The
    default is the English parser of this package. It runs only if the structure reads trees. text: the tokeniser. Words
    with fewer than min_count occurrences are unknown. max_tokens: longer sentences are dropped from training alone (0:
    none). vectors: a file of word vectors. Without a file the vectors are learned.
    """

    corpus: Corpus | SampleCorpus
    structure: Structure = Levels()  # noqa: RUF009  frozen
    parsed: Callable[[Step], Step] = ByShippedParser(moses_lower)  # noqa: RUF009  frozen
    text: SentenceText = WORDS
    min_count: int = 2
    max_tokens: int = 0
    vectors: VectorFile | PieceVectors | None = None

    slug: ClassVar = "classification"
    answer_columns: ClassVar = ("gold", "label")
    takes_text: ClassVar = True

    def __post_init__(self) -> None:
        at_least(self, 0, "max_tokens")
        at_least(self, 1, "min_count")

    def _rows(self, split: str) -> Step:
        return (self.parsed if self.structure.reads_trees else as_they_are)(self.corpus.split(split))

    def data(self) -> dict[str, Step]:
        rows = {split: self._rows(split) for split in ("train", "dev", "test")}
        read = tuple(rows) if self.vectors else ("train",)  # words of dev and test may have vectors
        texts = WordListSettings(dict.fromkeys(read, self.text), self.min_count, self.vectors)
        words = Step(classes_and_words, f"words {self.name}", texts, {split: rows[split] for split in read})

        def numbers(split: str) -> Step:
            settings = NumberSettings(self.text, self.structure, self.max_tokens if split == "train" else 0)
            return Step(
                number_classes, f"number {self.name} {split}", settings, {"rows": rows[split], "vocabulary": words}
            )

        return {**{split: numbers(split) for split in rows}, "vocabulary": words}

    def stages(self, model: ClassifierConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = ClassificationObjective()
        settings = PredictSettings(objective, model, BATCH_TOKENS)
        return {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(classify, settings, {"model": "model", "vocabulary": "vocabulary", "rows": "test"}),
            "scores": Stage(score_classes, None, {"predictions": "predictions", "rows": "test"}),
        }

    def test_rows(self) -> Step:
        return self._rows("test")

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return str(record["text"])

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return sentence_attention(model, text)

    def predictor(self, vocabulary: Artifact) -> Predictor:
        labels = tuple(read_words(vocabulary, "labels"))
        parser = "english" if isinstance(self.parsed, ByShippedParser) else ""
        structure = described(self.structure)
        return SentencePredictor(labels, text_name(self.text.tokeniser), structure, hashed.__name__, parser)

    def own_parts(self) -> Mapping[str, Any]:
        return {text_name(self.text.tokeniser): self.text.tokeniser, "structure": self.structure}

    def sections(self, outcomes: Sequence[Outcome], run: Callable[[Step], Artifact]) -> list[Section]:
        """Return the confusions of classes of each row, over all seeds."""
        made = []
        for row in dict.fromkeys(outcome.row for outcome in outcomes):
            own = [outcome for outcome in outcomes if outcome.row == row]
            files = [read_shard(one.predicted.file("predictions.arrow")).select(["gold", "label"]) for one in own]
            counts = pa.concat_tables(files).group_by(["gold", "label"]).aggregate([([], "count_all")]).to_pylist()
            found = {(line["gold"], line["label"]): line["count_all"] for line in counts}
            names = sorted({name for pair in found for name in pair})
            if len(names) <= MOST_SHOWN:
                lines = [
                    {"class": gold, **{f"as {name}": str(found.get((gold, name), 0)) for name in names}}
                    for gold in names
                ]
                title = " ".join(filter(None, ("Classes and answers:", own[0].system, own[0].variant)))
                made.append(
                    Section(title, f"Sentences of the test set, over {len(own)} seed{'s' * (len(own) > 1)}.", lines)
                )
        return made


MOST_SHOWN = 12  # classes of a table of errors
