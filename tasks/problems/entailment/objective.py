"""The problem of natural language inference: how two sentences are related; and vectors of single sentences."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.data.corpora.snli import LABELS
from phrasemodels.data.formats.shards import content_digest, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.encoders.elsewhere import Summarised, adjacent_spans
from phrasemodels.encoders.psan import Psan
from phrasemodels.layers.record import recorded
from phrasemodels.models.sentence_pair import SentencePair, SentencePairConfig
from phrasemodels.tasks.metrics.bleu import Score
from phrasemodels.tasks.prepare.sharded import read_shards, shards
from phrasemodels.tasks.problems.attention import ATTENTION, attention_row, attention_rows
from phrasemodels.tasks.problems.entailment.data import Text, vectors_of
from phrasemodels.tasks.train.batches import Batch, Columns, Rows, in_order
from phrasemodels.tasks.train.checkpoints import load_tensors

PAIR = ("premise", "hypothesis")
LENGTHS = range(4, 21)  # bins of Figure 2: mean words of the two sentences


@dataclass(frozen=True)
class SentenceBatch(Batch):
    """B sentences: tokens (B, n), lengths (B), structure (B, k, n) with -1 for none."""

    tokens: Tensor
    lengths: Tensor
    structure: Tensor


@dataclass(frozen=True)
class PairBatch(SentenceBatch):
    """2B sentences, all premises first, and the labels (B) of the pairs."""

    labels: Tensor


def side_by_side(columns: Columns, sides: Sequence[str], rows: Rows) -> SentenceBatch:
    """The sentences of some rows, all of one side after all of another."""
    parts = [(columns.padded(f"{s}_ids", rows), columns.padded(f"{s}_structure", rows, -1)) for s in sides]
    n = max(tokens.shape[1] for tokens, _ in parts)
    tokens = torch.cat([F.pad(t, (0, n - t.shape[1])) for t, _ in parts])
    structure = torch.cat([F.pad(s, (0, 0, 0, n - s.shape[1]), value=-1) for _, s in parts]).transpose(1, 2)
    lengths = np.concatenate([[len(columns.row(f"{side}_ids", row)) for row in rows] for side in sides])
    return SentenceBatch(tokens, torch.from_numpy(lengths), structure)


class SentenceExamples:
    """Rows of numbered shards, one side or two."""

    def __init__(self, paths: Sequence[Path], sides: Sequence[str]) -> None:
        self.sides = tuple(sides)
        self.columns = Columns(paths, [f"{side}_{kind}" for side in sides for kind in ("ids", "structure")])
        self.lengths = np.stack([self.columns.lengths(f"{side}_ids") for side in sides], 1)

    def __len__(self) -> int:
        return len(self.columns)

    def batch(self, rows: Rows) -> SentenceBatch:
        """The sentences of all sides."""
        return side_by_side(self.columns, self.sides, rows)


class PairExamples(SentenceExamples):
    """Rows of numbered pairs, with their labels (rows)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, PAIR)
        table = pa.concat_tables([read_shard(path).select(["label"]) for path in paths])
        found = pc.index_in(table["label"], value_set=pa.array(("", *LABELS)))
        if found.null_count:
            raise ValueError(f"{paths[0]}: a label is none of {', '.join(LABELS)}")
        self.labels: NDArray[np.int64] = found.to_numpy().astype(np.int64) - 1  # -1: a pair that a user asks about

    def batch(self, rows: Rows) -> PairBatch:
        sentences = super().batch(rows)
        return PairBatch(**vars(sentences), labels=torch.from_numpy(self.labels[rows]))


@dataclass(frozen=True)
class Entailment:
    """Pairs of sentences to one of three labels. penalty: λ of ½λ‖W‖² on the matrices of linear maps, not on biases or
    word vectors."""

    penalty: float = 5e-5

    def configure(self, model: SentencePairConfig, vocabulary: Artifact) -> SentencePairConfig:
        """The model with the size of the vocabulary, and its vectors."""
        return replace(model, words=vocabulary.meta["words"], vectors=vectors_of(vocabulary), classes=len(LABELS))

    def examples(self, paths: Sequence[Path]) -> PairExamples:
        """Rows of numbered pairs."""
        return PairExamples(paths)

    def loss(self, model: SentencePair, batch: PairBatch, smoothing: float) -> Tensor:
        """Summed cross entropy of the labels, and the penalty once a pair."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        error = F.cross_entropy(scores.float(), batch.labels, reduction="sum", label_smoothing=smoothing)
        matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
        return error + self.penalty / 2 * len(batch.labels) * sum(w.square().sum() for w in matrices)

    def criterion(self, model: SentencePair, batch: PairBatch) -> Tensor:
        """Wrong labels."""
        scores = model(batch.tokens, batch.lengths, batch.structure)
        return (scores.argmax(-1) != batch.labels).sum().float()

    def count(self, data: PairExamples, rows: Rows) -> int:
        """Pairs."""
        return len(rows)


@dataclass(frozen=True)
class RelateSettings:
    """A model's configuration; batch_tokens bounds memory and does not change the result."""

    problem: Entailment
    model: SentencePairConfig
    batch_tokens: int = 8192


def trained(job: Job, settings: RelateSettings) -> tuple[SentencePair, torch.device]:
    """The model of job.inputs["model"], ready to answer."""
    model = settings.problem.configure(settings.model, job.inputs["vocabulary"]).build()
    load_tensors(model, load_file(job.inputs["model"].file("model.safetensors")))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return model.eval().to(device), device


@torch.inference_mode()
def relate(job: Job, settings: RelateSettings) -> dict[str, Any]:
    """predictions.arrow: the label of every pair of job.inputs["rows"] (numbered), with its probabilities."""
    model, device = trained(job, settings)
    paths = [shard.path for shard in shards(job.inputs["rows"])]
    data = settings.problem.examples(paths)
    found = np.zeros((len(data), len(LABELS)), np.float32)
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        found[rows] = model(batch.tokens, batch.lengths, batch.structure).float().softmax(-1).cpu().numpy()
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    answers = pa.array(LABELS).take(pa.array(found.argmax(1)))
    made = pa.table(
        {
            "id": table["id"],
            "group": table["group"],
            "gold": table["label"],
            "label": answers,
            "probabilities": pa.array(list(found)),
            "length": pa.array(data.lengths.mean(1)),
        }
    )
    return {"predictions": write_shard(job.out / "predictions.arrow", made)}


@dataclass(frozen=True)
class LookSettings:
    """A model's configuration, and how text becomes words."""

    model: RelateSettings
    text: Text


@torch.inference_mode()
def look(job: Job, settings: LookSettings) -> dict[str, Any]:
    """attention.arrow: what is attended to in each sentence of job.inputs["numbers"], beside the text of ["rows"].

    Of PSAN the alignment on each level (1, n, n), in the order of attention, and the summary's weights (1, 1, n): Figure
    3 of paper 001; of others the weights of every attention. ValueError: the encoder has none.
    """
    model, _ = trained(job, settings.model)
    data = SentenceExamples([shard.path for shard in shards(job.inputs["numbers"])], settings.text.sides)
    rows = []
    for row, asked in enumerate(read_shards(job.inputs["rows"]).select(["id", "group", "text"]).to_pylist()):
        tokens = settings.text.words(asked.pop("text"))
        rows += [{**asked, **one} for one in _looked(model, data.batch(np.array([row])), tokens)]
    if not rows:
        raise ValueError("this encoder has no attention to look at: name an experiment whose encoder has")
    return {"attention": write_shard(job.out / "attention.arrow", pa.Table.from_pylist(rows, schema=ATTENTION))}


def _looked(model: SentencePair, batch: SentenceBatch, tokens: list[str]) -> list[dict[str, Any]]:
    """Rows of ATTENTION without id and group, of one sentence."""
    embedded, encoder = model.embed(batch.tokens), model.encoder
    if not isinstance(encoder, Psan):
        with recorded(model) as found:
            encoder(embedded, batch.lengths, batch.structure)
        longest = encoder.longest if isinstance(encoder, Summarised) else 1
        spans = adjacent_spans(batch.lengths, len(tokens), longest)
        phrases = [[int(i) for i in span if i >= 0] for members in spans for span in members]
        return list(attention_rows(model, found, tokens, phrases))
    explained = encoder.explain(embedded[0], batch.structure[0])
    phrases = _phrases(batch.structure[0])
    levels = {f"attention {place}": weights[None] for place, weights in enumerate(explained.levels, 1)}
    rows = [attention_row(name, tokens, weights, phrases) for name, weights in levels.items()]
    summary = attention_row("summary", tokens, explained.summary[None, None], phrases)
    return [*rows, summary | {"written": ["sentence"]}]


def _phrases(levels: Tensor) -> list[list[int]]:
    """The phrases of several words of levels (L, n), each once: positions of their words."""
    found = {tuple((level == number).nonzero()[:, 0].tolist()) for level in levels for number in level.unique()}
    return [list(phrase) for phrase in sorted(found, key=lambda p: (len(p), p)) if len(phrase) > 1]


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """scores.json and sentences.arrow of job.inputs["predictions"]: accuracy (%), of each group, and by length.

    sentences.arrow holds, per pair, (right, 1). With job.inputs["transfer"], its scores are among them.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = pc.equal(table["gold"], table["label"]).to_numpy()
    groups = np.array(table["group"].to_pylist())
    length = table["length"].to_numpy().round()
    scores = {"accuracy": _accuracy(right)}
    scores |= {f"accuracy/{group}": _accuracy(right[groups == group]) for group in sorted(set(groups) - {""})}
    scores |= {f"accuracy/length {n}": _accuracy(right[length == n]) for n in LENGTHS if (length == n).any()}
    statistics = pa.array(list(np.stack([right, np.ones_like(right)], 1).astype(np.int64)))
    write_shard(
        job.out / "sentences.arrow", pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    )
    found = {name: asdict(score) for name, score in scores.items()}
    if "transfer" in job.inputs:
        found |= job.inputs["transfer"].meta["scores"]
    write_durably(job.out / "scores.json", json.dumps(found, indent=1))
    return {"scores": found, "test_set": _pairs(job.inputs["rows"])}


def _pairs(rows: Artifact) -> list[dict[str, Any]]:
    """What the rows are, whatever an encoder is told of their structure: systems are compared on the same pairs."""
    told = read_shards(rows)
    table = told.select([name for name in told.column_names if not name.endswith("_structure")])
    return [{"rows": table.num_rows, "content": content_digest(table)}]


def _accuracy(right: NDArray[np.bool_]) -> Score:
    return Score(100 * float(right.mean()), "accuracy of three labels, %", len(right))
