"""Counting: printed numbers of corpora and models, found without training."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn

from phrasemodels.data.download.manifest import load
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import Levels, Tokeniser
from phrasemodels.layers.blocks import padded
from phrasemodels.models.sentence_pair import SentenceEncoderConfig
from phrasemodels.tasks.metrics.scores import Score, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.tokenise import Tokenise, tokenise
from phrasemodels.tasks.problems.entailment import TransferTask
from phrasemodels.tasks.problems.recipe import Recipe, Stage
from phrasemodels.tasks.problems.sentence_data import SentenceText, structures
from phrasemodels.tasks.problems.translation import TranslationObjective
from phrasemodels.tasks.train.config import TrainConfig


class CountingRecipe(Recipe):
    """A recipe with the stage `scores` alone. It reads data, and no model's weights."""

    trains: ClassVar[bool] = False


TRAIN_TOKENS = "train tokens"  # an input: the TOKENS of train


@dataclass(frozen=True)
class Splits:
    """The splits to count. A split without an input has no records."""

    names: tuple[str, ...]


def count_records(job: Job, settings: Splits) -> dict[str, Any]:
    """Count the records of the inputs. Each split is one input.

    `rows SPLIT` and `thousands SPLIT` are of one split and `rows` of all splits. `classes` is the number of labels in
    use. `lowest` and `highest` are scores of records with scores. `types SIDE` and `length SIDE` (mean tokens) are of
    the TOKENS job.inputs["train tokens"].
    """
    tables = {name: read_shards(job.inputs[name]) for name in settings.names if name in job.inputs}
    rows = {name: tables[name].num_rows if name in tables else 0 for name in settings.names}
    n = sum(rows.values())
    scores = {f"rows {name}": Score(float(count), "records", n) for name, count in rows.items()}
    scores |= {f"thousands {name}": Score(count / 1000, "thousand records", n) for name, count in rows.items()}
    scores["rows"] = Score(float(n), "records of all splits", n)
    scores |= _labels(list(tables.values()), n)
    if TRAIN_TOKENS in job.inputs:
        scores |= _text(read_shards(job.inputs[TRAIN_TOKENS]))
    return write_scores(job, scores, NO_SENTENCES, [shard for a in job.inputs.values() for shard in a.meta["shards"]])


def _labels(tables: list[pa.Table], n: int) -> dict[str, Score]:
    """Return the number of labels and the range of scores, as far as records have them."""
    found: dict[str, Score] = {}
    if tables and all("label" in table.column_names for table in tables):
        labels = {label for table in tables for label in pc.unique(table["label"]).to_pylist()} - {""}
        found["classes"] = Score(float(len(labels)), "labels that occur", n)
    if tables and all("score" in table.column_names for table in tables):
        ranges = [pc.min_max(table["score"]).as_py() for table in tables]
        found["lowest"] = Score(min(one["min"] for one in ranges), "lowest score that occurs", n)
        found["highest"] = Score(max(one["max"] for one in ranges), "highest score that occurs", n)
    return found


def _text(tokens: pa.Table) -> dict[str, Score]:
    """Return the number of different tokens and the mean length of both sides."""
    found: dict[str, Score] = {}
    for side in ("source", "target"):
        words, n = pc.list_flatten(tokens[side]), tokens.num_rows
        found[f"types {side}"] = Score(float(len(pc.unique(words))), "different tokens of train", n)
        found[f"length {side}"] = Score(len(words) / n, "tokens of a sentence of train, mean", n)
    return found


@dataclass(frozen=True)
class CorpusSizeRecipe(CountingRecipe):
    """The size of a corpus.

    Args:
        splits: Its splits under their names in the counts.
        text: The tokeniser of train for counts of types and lengths. None leaves them out.
    """

    corpus: Corpus | SampleCorpus
    splits: Mapping[str, str]
    text: Tokeniser | None = None

    slug: ClassVar = "size"

    def data(self) -> dict[str, Step]:
        has = (lambda split: True) if isinstance(self.corpus, SampleCorpus) else self.corpus.has
        known = {ours: self.corpus.split(theirs) for ours, theirs in self.splits.items() if has(theirs)}
        if self.text is not None:
            settings, label = Tokenise(self.text, "en", "lf"), f"tokenise {self.corpus.name} train"
            known[TRAIN_TOKENS] = Step(tokenise, label, settings, {"rows": known["train"]})
        return known

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {"scores": Stage(count_records, Splits(tuple(self.splits)), {name: name for name in self.data()})}


@dataclass(frozen=True)
class Rare:
    """A word is rare if it stands fewer than `below` times."""

    below: int


def count_words(job: Job, settings: Rare) -> dict[str, Any]:
    """Count the words between spaces of the SENTENCES job.inputs["train"].

    `thousand words` counts different ones. `rare` is the percentage of rare words among them.
    """
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
    """The vocabulary of the training set of a corpus of SENTENCES.

    Args:
        below: A word is rare if it stands fewer times.
    """

    corpus: Corpus | SampleCorpus
    below: int

    slug: ClassVar = "vocabulary"

    def data(self) -> dict[str, Step]:
        return {"train": self.corpus.split("train")}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        return {"scores": Stage(count_words, Rare(self.below), {"train": "train"})}


@dataclass(frozen=True)
class Division:
    """The columns of text with their tokeniser and the levels of phrases.

    stand_in: whether the corpus replaces another one whatever its trees are. by: the parser of the trees for
    signatures.
    """

    text: SentenceText
    levels: Levels
    stand_in: bool = False
    by: str = ""


def count_phrases(job: Job, settings: Division) -> dict[str, Any]:
    """Count the phrases of the PAIRS or SENTENCES of all inputs: `phrases LEVEL` of a sentence, `words LEVEL` of a phrase.

    Each sentence counts as often as it stands there. Both numbers are means.
    """
    sentences, words, phrases = 0, 0, np.zeros(len(settings.levels.levels))
    for rows in job.inputs.values():
        table = read_shards(rows)
        for side in settings.text.sides:
            tokens = [settings.text.words(text) for text in table[side].to_pylist()]
            trees = table["tree" if side == "text" else f"{side}_tree"]
            lengths = np.array([len(row) for row in tokens], np.int64)
            numbers = structures(settings.levels, tokens, trees)
            sentences, words = sentences + len(tokens), words + int(lengths.sum())
            # numbered from 0 in each sentence, so the last word's number is one less than their count
            phrases += (numbers[np.cumsum(lengths) - 1] + 1).sum(0, dtype=np.int64)
    scores, by = {}, f"; trees by {settings.by}" if settings.by else ""
    for level, count in zip(settings.levels.levels, phrases, strict=True):
        scores[f"phrases {level}"] = Score(float(count) / sentences, f"phrases of a sentence, mean{by}", sentences)
        scores[f"words {level}"] = Score(words / float(count), f"words of a phrase, mean{by}", sentences)
    test_set = [shard for a in job.inputs.values() for shard in a.meta["shards"]]
    return {**write_scores(job, scores, NO_SENTENCES, test_set), "stand_in": settings.stand_in}


def of_stand_in(corpus: Corpus | SampleCorpus, task: TransferTask) -> bool:
    """Return whether a task's corpus is a stand-in. Trees by a parser of ours do not make it one."""
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
        by = str(getattr(self.task.parsed, "card_name", ""))
        settings = Division(self.task.text, self.levels, of_stand_in(self.corpus, self.task), by)
        return {"scores": Stage(count_phrases, settings, inputs)}


NO_SENTENCES = pa.schema({"id": pa.int32(), "group": pa.string()}).empty_table()

NO_DATA = {"licences": [], "redistributable": True, "stand_in": False}  # the terms of what is made of no data


@dataclass(frozen=True)
class ModelSize:
    """The configurations of a model and of another one to compare it with (None: none).

    without: the name of a module to leave out, for example given word vectors. "" leaves out none.
    """

    model: Any
    other: Any = None
    without: str = ""


def count_parameters(job: Job, settings: ModelSize) -> dict[str, Any]:
    """Build a model and count it.

    `parameters`: millions. `width`: of a sentence vector if the model makes any. With another model `share` is the
    percent of its parameters. `increase` is the percent above it. A given job.inputs["vocabulary"] has the number of
    words of both sides.
    """
    configs = [model for model in (settings.model, settings.other) if model is not None]
    if "vocabulary" in job.inputs:
        configs = [TranslationObjective().configure(model, job.inputs["vocabulary"]) for model in configs]
    models = [config.build() for config in configs]
    counts = [_parameters(model, settings.without) for model in models]
    signature = f"parameters{f' without those of {settings.without}' * bool(settings.without)}, M"
    scores = {"parameters": Score(counts[0] / 1e6, signature, 0)}
    if hasattr(models[0], "width"):
        scores["width"] = Score(float(models[0].width), "numbers of a sentence vector", 0)
    if settings.other is not None:
        scores["share"] = Score(100 * counts[0] / counts[1], "parameters, of those of the other model, %", 0)
        scores["increase"] = Score(100 * (counts[0] / counts[1] - 1), "parameters more than the other model has, %", 0)
    return {**write_scores(job, scores, NO_SENTENCES, []), **NO_DATA}


def _parameters(model: nn.Module, without: str) -> int:
    """Return the number of a model's parameters, each counted once."""
    names = [f"{without}."] if without else []
    return sum(p.numel() for name, p in model.named_parameters() if not name.startswith(tuple(names)))


@dataclass(frozen=True)
class ModelSizeRecipe(CountingRecipe):
    """The size of a model.

    Args:
        corpus: The source of its words. None: the model has its own number of words.
        text: A recipe of `corpus` with a `vocabulary` in its data.
        other: A configuration to compare the model with. None: none.
        without: The name of a module to leave out, such as given word vectors. "": leave out none.
    """

    corpus: Any = None
    text: Any = None
    other: Any = None
    without: str = ""

    slug: ClassVar = "parameters"

    @property
    def name(self) -> str:
        return self.slug if self.corpus is None else super().name

    def data(self) -> dict[str, Step]:
        return {"vocabulary": self.text.data()["vocabulary"]} if self.text is not None else {}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {"vocabulary": "vocabulary"} if self.text is not None else {}
        return {"scores": Stage(count_parameters, ModelSize(model, self.other, self.without), inputs)}


ROWS, BATCHES = 16, 32  # sentences of a batch, and batches
SIGNATURE = f"activations saved for the backward pass of a step, as float32, MiB, mean over batches of {ROWS} sentences"
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Activations:
    """An encoder, the sentences and other encoders by name for comparison."""

    model: SentenceEncoderConfig
    others: Mapping[str, SentenceEncoderConfig]
    task: TransferTask
    levels: Levels
    stand_in: bool


def count_activations(job: Job, settings: Activations) -> dict[str, Any]:
    """Count `memory` (MiB) of the encoder on the SENTENCES of all inputs.

    `reduction` is the percentage saved beside the leanest of the other encoders.
    """
    chosen = _sentences(job, settings)
    found = {name: _mebibytes(config, chosen) for name, config in {"": settings.model, **settings.others}.items()}
    signature = SIGNATURE
    scores = {"memory": Score(found[""], signature, sum(len(lengths) for lengths, _ in chosen))}
    if settings.others:
        less = {name: 100 * (1 - found[""] / found[name]) for name in settings.others}
        scores |= {f"reduction {name}": Score(value, signature, 0) for name, value in less.items()}
        scores["reduction"] = Score(min(less.values()), signature, 0)
    test_set = [shard for a in job.inputs.values() for shard in a.meta["shards"]]
    return {**write_scores(job, scores, NO_SENTENCES, test_set), "stand_in": settings.stand_in}


def _sentences(job: Job, settings: Activations) -> list[tuple[Tensor, Tensor]]:
    """Return lengths (B) and levels of phrases (B, L, n) of batches of sentences drawn at random."""
    tokens: list[list[str]] = []
    numbers = []
    for rows in job.inputs.values():
        table = read_shards(rows)
        own = [settings.task.text.words(text) for text in table["text"].to_pylist()]
        divided = structures(settings.levels, own, table["tree"])
        numbers += np.split(divided, np.cumsum([len(row) for row in own])[:-1])
        tokens += own
    order = np.random.default_rng(0).permutation(len(tokens))
    parts = [order[first : first + ROWS] for first in range(0, len(order), ROWS)][:BATCHES]
    batches = [[numbers[i] for i in part] for part in parts]
    return [(torch.tensor([*map(len, own)]), padded(own, -1).transpose(1, 2).contiguous()) for own in batches]


def _mebibytes(config: SentenceEncoderConfig, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Return the mean bytes that a forward pass saves, counted as float32. It runs in float64, since no kernel recomputes weights
    of attention there.
    """
    encoder = config.build().double().train()
    sizes = [saved_bytes(encoder, *batch, config.d) for batch in batches]
    return sum(sizes) / len(sizes) / 2**20


def saved_bytes(encoder: nn.Module, lengths: Tensor, levels: Tensor, d: int) -> int:
    """Return the bytes of all tensors of a forward pass without the parameters. Each storage counts once."""
    known = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    found: dict[int, int] = {}
    kept: list[Tensor] = []  # alive until the end, so that no address is given twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            size = FLOAT if tensor.is_floating_point() else tensor.element_size()
            found[storage.data_ptr()] = storage.nbytes() // tensor.element_size() * size
            kept.append(tensor)
        return tensor

    words = torch.randn(len(lengths), levels.shape[2], d, dtype=torch.float64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept.append(encoder(words, lengths, levels))
    return sum(found.values())


@dataclass(frozen=True)
class ActivationsRecipe(CountingRecipe):
    """Activations of an encoder on a transfer task's sentences.

    Args:
        others: Other encoders by name, for comparison.
    """

    corpus: Any
    task: TransferTask
    levels: Levels
    others: Mapping[str, SentenceEncoderConfig] = field(default_factory=dict)

    slug: ClassVar = "activations"

    def data(self) -> dict[str, Step]:
        return {split: self.task.parsed(self.corpus.split(split)) for split in self.task.splits}

    def stages(self, model: Any, config: TrainConfig, seed: int) -> dict[str, Stage]:
        inputs = {split: split for split in self.task.splits}
        settings = Activations(model, self.others, self.task, self.levels, of_stand_in(self.corpus, self.task))
        return {"scores": Stage(count_activations, settings, inputs)}
