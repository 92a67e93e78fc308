"""The problem of translation: its loss, its decoding, its scores."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file
from torch import Tensor

from phrasemodels.data.formats.shards import write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import BEGIN
from phrasemodels.layers.record import recorded
from phrasemodels.models.recurrent import RecurrentConfig, RecurrentTranslator
from phrasemodels.models.search import BeamSearch
from phrasemodels.models.search import translate as search_batch
from phrasemodels.models.translation import TranslationConfig, Translator
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.prepare.vocabulary import read_words
from phrasemodels.tasks.problems.attention import ATTENTION, attention_rows
from phrasemodels.tasks.train.batches import Batch, Columns, Rows, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors


@dataclass(frozen=True)
class PhraseBatch(Batch):
    """Padded ids: source (B, n) and target (B, t), lengths (B) of the source, phrases (B, m, k) filled up with -1."""

    source: Tensor
    lengths: Tensor
    members: Tensor
    target: Tensor


class PhraseExamples:
    """Rows of phrase shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.columns = Columns(paths, ("source", "target", "phrases"))
        self.lengths = np.stack([self.columns.lengths(side) for side in ("source", "target")], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> PhraseBatch:
        """The given rows, padded to the longest of them."""
        lengths = torch.from_numpy(self.lengths[rows, 0])
        source, target = (self.columns.padded(side, rows) for side in ("source", "target"))
        return PhraseBatch(source, lengths, self.columns.padded("phrases", rows, -1), target)


Config = TranslationConfig | RecurrentConfig
Model = Translator | RecurrentTranslator


@dataclass(frozen=True)
class Translation:
    """Sentences to sentences."""

    def configure(self, model: Config, vocabulary: Artifact) -> Config:
        """The model with the sizes of the vocabularies."""
        return replace(model, source_vocabulary=vocabulary.meta["source"], target_vocabulary=vocabulary.meta["target"])

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        """Rows of phrase shards."""
        return PhraseExamples(paths)

    def loss(self, model: Model, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of each target token after BEGIN."""
        scores = model(batch.source, batch.lengths, batch.members, batch.target[:, :-1])
        return model.loss(scores, batch.target[:, 1:], smoothing)

    def criterion(self, model: Model, batch: PhraseBatch) -> Tensor:
        """The same without smoothing."""
        return self.loss(model, batch, 0.0)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Target tokens, END counted, BEGIN not."""
        return int((data.lengths[rows, 1] - 1).sum())


@dataclass(frozen=True)
class TranslationBySentence(Translation):
    """The same, but losses are means over sentences, as learning rates of 1 presume (paper 003)."""

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Sentences."""
        return len(rows)


PREDICTIONS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("source", pa.list_(pa.string()), nullable=False),
        pa.field("reference", pa.list_(pa.string()), nullable=False),
        pa.field("hypothesis", pa.list_(pa.string()), nullable=False),
        pa.field("score", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class TranslateSettings:
    """A model's configuration and how to search; batch_tokens bounds memory and does not change the result."""

    problem: Translation
    model: Config
    search: BeamSearch
    batch_tokens: int = 4096


def translate(job: Job, settings: TranslateSettings) -> dict[str, Any]:
    """predictions.arrow: the translation of every row of job.inputs["phrases"], beside the tokens of ["rows"]."""
    vocabulary = job.inputs["vocabulary"]
    model = settings.problem.configure(settings.model, vocabulary).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.eval().to(device)
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["phrases"])])
    words = np.array(read_words(vocabulary, "target"), dtype=object)
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        answers = search_batch(model, batch.source, batch.lengths, batch.members, settings.search)
        found |= {int(row): (list(words[ids]), score) for row, (ids, score) in zip(rows, answers, strict=True)}
    return {"predictions": write_shard(job.out / "predictions.arrow", _predictions(job.inputs["rows"], found))}


@dataclass(frozen=True)
class AttendSettings:
    """A model's configuration, the attention of how many sentences of each group is kept, and how to search."""

    problem: Translation
    model: Config
    sentences: int = 1
    search: BeamSearch = field(default_factory=BeamSearch)


def attend(job: Job, settings: AttendSettings) -> dict[str, Any]:
    """attention.arrow: what was attended to in the first sentences of each group, inputs as of `translate`.

    Tokens have their <s> and </s>. Where `written` is not null, it is the model's answer.
    """
    vocabulary = job.inputs["vocabulary"]
    model = settings.problem.configure(settings.model, vocabulary).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    model.eval()
    data = settings.problem.examples([shard.path for shard in shards(job.inputs["phrases"])])
    table = read_shards(job.inputs["rows"])
    groups = np.array(table["group"].to_pylist(), dtype=object)
    chosen = [row for group in sorted(set(groups)) for row in np.flatnonzero(groups == group)[: settings.sentences]]
    words = read_words(vocabulary, "target")
    rows = []
    for index in map(int, chosen):
        batch = data.batch(np.array([index]))
        found, written = _attended(model, batch, settings.search)
        rows += _told(model, found, batch, table, index, [words[i] for i in written])
    made = pa.Table.from_pylist(rows, schema=ATTENTION)
    return {"attention": write_shard(job.out / "attention.arrow", made)}


@torch.inference_mode()
def _attended(model: Model, batch: PhraseBatch, search: BeamSearch) -> tuple[dict[str, Tensor], list[int]]:
    """Weights by module, and the answer: of the encoder, and of the decoder to it."""
    inputs = (batch.source, batch.lengths, batch.members)
    ((written, _),) = search_batch(model, *inputs, search)
    target = torch.tensor([[BEGIN, *written]], device=batch.source.device)
    with recorded(model) as found:
        model(*inputs, target)
    if isinstance(model, RecurrentTranslator):
        found["decoder.weights"] = model.attention(*inputs, target)[:, None]
    return {name: weights for name, weights in found.items() if not name.endswith(".itself")}, written


def _told(
    model: Model, found: dict[str, Tensor], batch: PhraseBatch, table: pa.Table, row: int, written: list[str]
) -> list[dict[str, Any]]:
    """Rows of ATTENTION: of the encoder over words and phrases, of the decoder over the words."""
    tokens = ["<s>", *table["source"][row].as_py(), "</s>"]
    phrases = [[int(i) for i in members if i >= 0] for members in batch.members[0].tolist()]
    known = {"id": table["id"][row].as_py(), "group": table["group"][row].as_py()}
    rows = [{**known, **one} for one in attention_rows(model, found, tokens, phrases)]
    decoding = {"phrases": phrases, "written": [*written, "</s>"]}
    return [row | decoding if row["module"].startswith("decoder.") else row for row in rows]


def _predictions(rows: Artifact, found: dict[int, tuple[list[str], float]]) -> pa.Table:
    table = read_shards(rows)
    order = range(table.num_rows)
    columns = {
        "id": table["id"],
        "group": table["group"],
        "source": table["source"],
        "reference": table["target"],
        "hypothesis": [found[row][0] for row in order],
        "score": [found[row][1] for row in order],
    }
    return pa.table(columns, schema=PREDICTIONS)
