"""Natural language inference by sentence vectors, and their transfer to other tasks (SentEval)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.config import at_least, not_negative
from phrasemodels.data.corpora.releases import LABELS
from phrasemodels.data.formats.shards import content_digest, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.encoders.psan import Psan
from phrasemodels.encoders.transformer import PooledEncoder, adjacent_spans
from phrasemodels.inference.inputs import Structure, left_out
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import OWN, Predictor, described
from phrasemodels.inference.problems import Classification as SentencePredictor
from phrasemodels.inference.problems import Entailment as PairPredictor
from phrasemodels.layers.attention import attention_probe
from phrasemodels.models.pretrained_words import PieceVectors
from phrasemodels.models.sentence_pair import SentencePairClassifier, SentencePairConfig
from phrasemodels.tasks.metrics.scores import Score, accuracies, accuracy, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus, as_they_are
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.recipe import Recipe, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import (
    NumberSettings,
    SentenceBatch,
    SentenceExamples,
    SentenceText,
    Unknown,
    VectorFile,
    WordListSettings,
    attention_row,
    attention_rows,
    hashed,
    number,
    vectors_of,
    word_list,
)
from phrasemodels.tasks.problems.transfer import (
    PUBLISHED,
    LogisticConfig,
    TransferProtocol,
    TransferSettings,
    VectorSettings,
    sentence_vectors,
    transfer,
)
from phrasemodels.tasks.train.batches import Rows, in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective

PAIR = ("premise", "hypothesis")


@dataclass(frozen=True)
class PairBatch(SentenceBatch):
    """2B sentences, all premises first, and the labels (B) of the pairs."""

    labels: Tensor


class PairExamples(SentenceExamples):
    """Rows of numbered pairs, with their labels (rows). ValueError: a label is not one of LABELS."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, PAIR)
        table = pa.concat_tables([read_shard(path).select(["label"]) for path in paths])
        found = pc.index_in(table["label"], value_set=pa.array(("", *LABELS)))
        if found.null_count:
            raise ValueError(f"{paths[0]}: a label is none of {', '.join(LABELS)}; read the corpus again")
        self.labels: NDArray[np.int64] = found.to_numpy().astype(np.int64) - 1  # -1: a pair that a user asks about

    def batch(self, rows: Rows) -> PairBatch:
        sentences = super().batch(rows)
        return PairBatch(**vars(sentences), labels=torch.from_numpy(self.labels[rows]))


Penalised = Callable[[nn.Module], list[nn.Linear]]
SCORES = ("own", "other")  # names of the maps whose sum is the attention of one token to another


def every_map(model: nn.Module) -> list[nn.Linear]:
    """Return all linear maps."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def all_but_scores(model: nn.Module) -> list[nn.Linear]:
    """Return all linear maps but the two for the attention of one word to another. The released program of DiSAN has no penalty
    on these two.
    """
    named = ((name.rpartition(".")[2], module) for name, module in model.named_modules())
    return [module for name, module in named if isinstance(module, nn.Linear) and name not in SCORES]


@dataclass(frozen=True)
class EntailmentObjective(Objective):
    """Pairs of sentences to a label: mean loss a pair.

    The best weights have the fewest wrong labels on dev. penalty: λ of ½λ‖W‖² on the matrices of linear maps, without
    biases and word vectors. penalised: the maps (every_map or all_but_scores).
    """

    curve: ClassVar = "wrong labels on dev (share of pairs)"

    penalty: float = 5e-5
    penalised: Penalised = every_map

    def configure(self, model: SentencePairConfig, vocabulary: Artifact) -> SentencePairConfig:
        return replace(model, words=vocabulary.meta["words"], vectors=vectors_of(vocabulary), classes=len(LABELS))

    def examples(self, paths: Sequence[Path]) -> PairExamples:
        return PairExamples(paths)

    def loss(self, model: SentencePairClassifier, batch: PairBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the labels, plus the penalty for each pair."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        error = F.cross_entropy(scores.float(), batch.labels, reduction="sum", label_smoothing=smoothing)
        squares = sum(module.weight.square().sum() for module in self.penalised(model))
        return error + self.penalty / 2 * len(batch.labels) * squares

    def criterion(self, model: SentencePairClassifier, batch: PairBatch) -> Tensor:
        """Return the number of wrong labels."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        return (scores.argmax(-1) != batch.labels).sum().float()


@torch.inference_mode()
def predict_classes(
    job: Job, settings: PredictSettings, labels: Sequence[str]
) -> tuple[Any, NDArray[np.float32], dict[str, Any]]:
    """Return the examples of job.inputs["rows"] and the probabilities of their labels (rows, labels).

    Return also the columns id, group, gold and label of their predictions.
    """
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    paths = [shard.path for shard in shards(job.inputs["rows"])]
    data = settings.objective.examples(paths)
    probabilities = np.zeros((len(data), len(labels)), np.float32)
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        probabilities[rows] = model(batch.tokens, batch.lengths, batch.structure).float().softmax(-1).cpu().numpy()
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    label = pa.array(labels).take(pa.array(probabilities.argmax(1)))
    return data, probabilities, {"id": table["id"], "group": table["group"], "gold": table["label"], "label": label}


def relate(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Label the numbered pairs job.inputs["rows"].

    It also reads ["model"] and ["vocabulary"]. It writes predictions.arrow: gold and predicted label and the
    probabilities of LABELS. The mean length of the pair is there, too.
    """
    data, probabilities, predicted = predict_classes(job, settings, LABELS)
    made = pa.table(
        {
            **predicted,
            "probabilities": pa.array(list(probabilities)),
            "length": pa.array(data.lengths.mean(1)),
        }
    )
    return {"predictions": write_shard(job.out / "predictions.arrow", made)}


@torch.inference_mode()
def sentence_attention(loaded: LoadedModel, text: str) -> list[dict[str, Any]]:
    """Return rows of ATTENTION to a sentence.

    Of PSAN: the alignment on each level (1, n, n) in the order of computation and the weights of the summary (1, 1, n).
    See paper 001, Figure 3. Of other encoders: the weights of every attention. ValueError: the encoder has no
    attention.
    """
    how = loaded.predictor
    assert isinstance(how, PairPredictor | SentencePredictor)
    (ids,), (structure,), (tokens,) = how.sentences(loaded, [text])
    read = torch.tensor([ids]), torch.tensor([len(ids)]), torch.from_numpy(structure.T.astype(np.int64))[None]
    model = cast(SentencePairClassifier, loaded.module)
    rows = _attention(model, SentenceBatch(*(part.to(loaded.device) for part in read)), tokens)
    if not rows:
        raise ValueError("this encoder has no attention to look at: name an experiment whose encoder has")
    return rows


def _attention(model: SentencePairClassifier, batch: SentenceBatch, tokens: list[str]) -> list[dict[str, Any]]:
    """Return rows of ATTENTION without id and group, of one sentence."""
    embedded, encoder = model.embed(batch.tokens), model.encoder
    if not isinstance(encoder, Psan):
        with attention_probe(model) as weights:
            encoder(embedded, batch.lengths, batch.structure)
        longest = encoder.longest if isinstance(encoder, PooledEncoder) else 1
        spans = adjacent_spans(batch.lengths, len(tokens), longest)
        phrases = [[int(i) for i in span if i >= 0] for members in spans for span in members]
        return list(attention_rows(model, weights, tokens, phrases))
    explained = encoder.explain(embedded[0], batch.structure[0])
    phrases = _phrases(batch.structure[0])
    levels = {f"attention {place}": weights[None] for place, weights in enumerate(explained.levels, 1)}
    rows = [attention_row(name, tokens, weights, phrases) for name, weights in levels.items()]
    summary = attention_row("summary", tokens, explained.summary[None, None], phrases)
    return [*rows, summary | {"written": ["sentence"]}]


def _phrases(levels: Tensor) -> list[list[int]]:
    """Return each phrase of several words of all levels (L, n) once as positions of its words."""
    found = {tuple((level == number).nonzero()[:, 0].tolist()) for level in levels for number in level.unique()}
    return [list(phrase) for phrase in sorted(found, key=lambda p: (len(p), p)) if len(phrase) > 1]


LENGTHS = range(4, 21)  # bins of paper 001's Figure 2: mean words of the two sentences
SIGNATURE = "accuracy of three labels, %"


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%) of all, by group and by length.

    With ["transfer"] its scores are among the scores. ["rows"] are the test set.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = pc.equal(table["gold"], table["label"]).to_numpy()
    length = np.floor(table["length"].to_numpy() + 0.5)  # halves up: bins of equal width
    scores = accuracies(right, table["group"].to_pylist(), SIGNATURE)
    scores |= {f"accuracy/length {n}": accuracy(right[length == n], SIGNATURE) for n in LENGTHS if (length == n).any()}
    if "transfer" in job.inputs:
        scores |= {name: Score(**score) for name, score in job.inputs["transfer"].meta["scores"].items()}
    statistics = pa.array(list(np.stack([right, np.ones_like(right)], 1).astype(np.int64)))
    sentences = pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    return write_scores(job, scores, sentences, identity_of(job.inputs["rows"]))


def identity_of(rows: Artifact) -> list[dict[str, Any]]:
    """Return the identity of numbered rows. Words and structures are left out, since they depend on a system's reader."""
    table = read_shards(rows).select(["id", "label", "group"])
    return [{"rows": table.num_rows, "content": content_digest(table)}]


@dataclass(frozen=True)
class TransferTask:
    """A task to try sentence vectors on.

    Args:
        name: The name of the task.
        splits: Splits of the corpus.
        parsed: Gives records trees, for encoders that read them.
        averaged: Whether micro and macro averages have the task.
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


BATCH_TOKENS = 8192  # predicted at a time


@dataclass(frozen=True)
class EntailmentRecipe(Recipe):
    """A corpus of sentence pairs, and the tasks to try sentence vectors on.

    Args:
        structure: The structure of each token.
        penalty: Weight λ of the penalty ½λ‖W‖² in the loss.
        min_count: Words with fewer occurrences in train are unknown.
        max_tokens: Drop longer pairs from train. 0: drop none.
        vectors: A file of word vectors. None: vectors are learned.
        suite: Tasks to try sentence vectors on.
        setting: Training of the tasks' classifiers.
        parsed: Gives pairs their trees.
        unknown: Treatment of unknown words.
        penalised: The linear maps under the penalty.
    """

    corpus: Corpus | SampleCorpus
    structure: Structure
    text: SentenceText = field(default_factory=SentenceText)
    penalty: float = 5e-5
    min_count: int = 1
    max_tokens: int = 0
    vectors: VectorFile | PieceVectors | None = None
    suite: tuple[TransferTask, ...] = ()
    setting: LogisticConfig = PUBLISHED
    parsed: Callable[[Step], Step] = as_they_are
    unknown: Unknown = hashed
    penalised: Penalised = every_map

    slug: ClassVar = "entailment"
    answer_columns: ClassVar = ("gold", "label")
    takes_text: ClassVar = True

    def __post_init__(self) -> None:
        at_least(self, 0, "max_tokens")
        not_negative(self, "penalty")
        at_least(self, 1, "min_count")

    @property
    def name(self) -> str:
        part = getattr(self.corpus, "part", "")
        return f"{self.slug}-{self.corpus.name}{'-' if part else ''}{part}"

    def without_optional_libraries(self) -> Self:
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

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return sentence_attention(model, text)

    def predictor(self, vocabulary: Artifact) -> Predictor:
        unknown = self.unknown.__name__ if self.unknown in (hashed, left_out) else OWN
        structure = described(self.structure)
        return PairPredictor(LABELS, text_name(self.text.tokeniser), structure, unknown)

    def own_parts(self) -> Mapping[str, Any]:
        own = {"structure": self.structure, "unknown": self.unknown}
        return {text_name(self.text.tokeniser): self.text.tokeniser, **own}
