"""Natural language inference by decomposable attention."""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import torch
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.config import at_least
from phrasemodels.data.corpora.releases import LABELS
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.encoders.parents import SoftParents
from phrasemodels.inference.inputs import Tokeniser, lower_case, positions_of_heads, tokeniser, words_and_tree
from phrasemodels.inference.loaded import LoadedModel
from phrasemodels.inference.problems import Decomposition as DecomposedPairs
from phrasemodels.layers.attention_weights import TreeWeights
from phrasemodels.layers.blocks import BEGIN, SPECIAL, UNKNOWN
from phrasemodels.models.sentence_pair import Decomposable, DecomposableConfig
from phrasemodels.tasks.metrics.scores import accuracies, write_scores
from phrasemodels.tasks.prepare.corpora import AnyCorpus, as_they_are
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required, shards
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_ids, write_words
from phrasemodels.tasks.problems.recipe import Recipe, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import VECTORS, VectorFile, attention_row
from phrasemodels.tasks.train.batches import Batch, ListExamples, Rows, in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective

ROOT = BEGIN
OUTSIDE = 100  # vectors that words without one share (Parikh et al. 2016)
SIDES = ("premise", "hypothesis")
_NUMBERS = pa.list_(pa.field("item", pa.int32(), nullable=False))
_SENTENCES = {f"{side}_{kind}": _NUMBERS for side in SIDES for kind in ("ids", "heads")}
NUMBERED = required(id=pa.int64(), **_SENTENCES, label=_NUMBERS, group=pa.string())


@dataclass(frozen=True)
class PairVocabulary:
    """From text to words (`lower_case` or `as_written`) and the least count of a known word.

    With a file of word vectors every word of the file is known. Other words share OUTSIDE random vectors.
    """

    min_count: int = 1
    words: Tokeniser = lower_case
    vectors: VectorFile | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")


def pair_vocabulary(job: Job, settings: PairVocabulary) -> dict[str, Any]:
    """Write the vocabulary of the PAIRS job.inputs as words.txt.

    Word vectors go to vectors.safetensors if there are any. All entries have vectors of norm 1, as in the released code
    of paper 003.
    """
    tables = [read_shards(rows) for _, rows in sorted(job.inputs.items())]
    texts = (text for table in tables for side in SIDES for text in table[side].to_pylist())
    counts = Counter(word for text in texts for word in settings.words(text, "en"))
    if settings.vectors is None:
        return {"words": write_words(job.out, "words", by_frequency(counts, settings.min_count)), "outside": 0}
    known = dict(settings.vectors.read(counts.keys(), job.executor.sources.mirrors))
    words = by_frequency({word: counts[word] for word in known}) + [f"outside {i}" for i in range(OUTSIDE)]
    table = np.random.default_rng(0).normal(size=(len(words), settings.vectors.d)).astype(np.float32)
    for place, word in enumerate(words):
        table[place] = known.get(word, table[place]) if word not in SPECIAL else table[place]
    save_file({"vectors": table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-12)}, job.out / VECTORS)
    return {"words": write_words(job.out, "words", words), "outside": OUTSIDE}


def vectors_of(vocabulary: Artifact) -> str:
    """Return the path of the word vectors of a vocabulary, or an empty string."""
    return str(vocabulary.file(VECTORS)) if vocabulary.meta.get("outside") else ""


def numbers_of(vocabulary: Artifact) -> Callable[[Sequence[str]], list[int]]:
    """Return a function from words to ids. A word outside of the vocabulary is unknown. If there are vectors it shares one of the
    random ones instead, chosen by a hash of its letters.
    """
    ids, outside = read_ids(vocabulary, "words"), vocabulary.meta.get("outside", 0)

    def unknown(word: str) -> int:
        return len(ids) - outside + zlib.crc32(word.encode()) % outside if outside else UNKNOWN

    return lambda words: [ids[word] if word in ids and word not in SPECIAL else unknown(word) for word in words]


@dataclass(frozen=True)
class PairNumbers:
    """How a text becomes words."""

    words: Tokeniser = lower_case


def pairs(job: Job, settings: PairNumbers) -> dict[str, Any]:
    """Write NUMBERED shards of the labelled PAIRS job.inputs["rows"] in a step for each shard.

    It also reads ["vocabulary"]. Pairs without a label are dropped.
    """
    return map_shards(job, pair_shard, settings, vocabulary=job.inputs["vocabulary"])


def pair_shard(job: Job, settings: PairNumbers) -> dict[str, Any]:
    """Write ids and heads of one shard."""
    ids = numbers_of(job.inputs["vocabulary"])
    rows = []
    found = read_shard(job.inputs["shard"].path)
    for row in found.to_pylist():
        if not row["label"]:
            continue
        made = {"id": row["id"], "label": [LABELS.index(row["label"])], "group": row["group"]}
        for side in SIDES:
            words = settings.words(row[side], "en")
            heads = positions_of_heads(row[f"{side}_tree"], len(words))
            made |= {f"{side}_ids": [ROOT, *ids(words)], f"{side}_heads": heads}
        rows.append(made)
    meta = write_shard(job.out / SHARD, pa.Table.from_pylist(rows, schema=NUMBERED))
    return {"dropped": found.num_rows - len(rows), **meta}


@dataclass(frozen=True)
class HeadedPairBatch(Batch):
    """Ids and heads (B, n) of premises and hypotheses, -1 for no head; their lengths (B); labels (B) of the pairs."""

    premise: Tensor
    premise_lengths: Tensor
    premise_heads: Tensor
    hypothesis: Tensor
    hypothesis_lengths: Tensor
    hypothesis_heads: Tensor
    label: Tensor

    def sides(self) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
        """Return the inputs of a model: (ids, lengths, heads) of premises and of hypotheses."""
        premise = (self.premise, self.premise_lengths, self.premise_heads)
        return premise, (self.hypothesis, self.hypothesis_lengths, self.hypothesis_heads)


class HeadedPairExamples(ListExamples):
    """Rows of NUMBERED shards."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = [f"{side}_{kind}" for side in SIDES for kind in ("ids", "heads")]
        super().__init__(paths, (*names, "label"), [f"{side}_ids" for side in SIDES])

    def batch(self, rows: Rows) -> HeadedPairBatch:
        """Return some rows, padded to the longest of them."""
        tensors = {"label": self.padded("label", rows)[:, 0]}
        for side, lengths in zip(SIDES, self.lengths[rows].T, strict=True):
            tensors[side] = self.padded(f"{side}_ids", rows)
            tensors[f"{side}_lengths"] = torch.from_numpy(lengths.copy())
            tensors[f"{side}_heads"] = self.padded(f"{side}_heads", rows, -1)
        return HeadedPairBatch(**tensors)


@dataclass(frozen=True)
class DecompositionObjective(Objective):
    """Two sentences to a label: mean loss a pair. The best weights have the fewest wrong labels on dev."""

    curve: ClassVar = "wrong labels on dev (share of pairs)"

    def configure(self, model: DecomposableConfig, vocabulary: Artifact) -> DecomposableConfig:
        return replace(model, vocabulary=vocabulary.meta["words"], labels=len(LABELS), vectors=vectors_of(vocabulary))

    def examples(self, paths: Sequence[Path]) -> HeadedPairExamples:
        return HeadedPairExamples(paths)

    def loss(self, model: Decomposable, batch: HeadedPairBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the labels."""
        return F.cross_entropy(model(*batch.sides()), batch.label, reduction="sum", label_smoothing=smoothing)

    def criterion(self, model: Decomposable, batch: HeadedPairBatch) -> Tensor:
        """Return the number of wrong labels."""
        return (model(*batch.sides()).argmax(-1) != batch.label).sum()


LABELLED = required(id=pa.int64(), group=pa.string(), gold=pa.string(), label=pa.string())


@torch.inference_mode()
def label(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Label the numbered pairs job.inputs["pairs"] and write predictions.arrow.

    It also reads ["model"] and ["vocabulary"].
    """
    model = load_trained(settings.objective, settings.model, job.inputs)
    paths = [shard.path for shard in shards(job.inputs["pairs"])]
    data = settings.objective.examples(paths)
    found: dict[int, int] = {}
    for rows in in_order(data, settings.batch_tokens):
        best = model(*data.batch(rows).sides()).argmax(-1)
        found |= dict(zip(rows.tolist(), best.tolist(), strict=True))
    table = pa.concat_tables([read_shard(path).select(["id", "group", "label"]) for path in paths])
    gold = table["label"].combine_chunks().flatten().to_pylist()
    columns = [table["id"], table["group"], [LABELS[i] for i in gold], [LABELS[found[row]] for row in range(len(data))]]
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=LABELLED))}


def score_labels(job: Job, settings: None) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy (%), also by group. ["pairs"] are the test set."""
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    right = np.array(table["gold"].to_pylist()) == np.array(table["label"].to_pylist())
    scores = accuracies(right, table["group"].to_pylist(), "accuracy of three labels, %")
    statistics = pa.array([[int(hit), 1] for hit in right])
    sentences = pa.table({"id": table["id"], "group": table["group"], "right": statistics})
    return write_scores(job, scores, sentences, job.inputs["pairs"].meta["shards"])


@torch.inference_mode()
def soft_parents(loaded: LoadedModel, text: str) -> dict[str, Any]:
    """Return a row of ATTENTION: the weights of the heads of a sentence's words, with the head in the best tree.

    ValueError: the model has no soft parents.
    """
    how, model = cast(DecomposedPairs, loaded.predictor), cast(Decomposable, loaded.module)
    if not isinstance(parser := model.parents, SoftParents):
        raise ValueError("this model has no soft parents to look at: name a row with simple or structured attention")
    ids, _ = how.numbered(loaded, text)
    names = ["root", *tokeniser(how.tokeniser, loaded.parts)(words_and_tree(text)[0], "en")]
    read, lengths = torch.tensor([ids], device=loaded.device), torch.tensor([len(ids)], device=loaded.device)
    scores = parser.scores(model.embed(read), lengths)
    heads = TreeWeights().best(scores, lengths)[0, 1:].tolist()
    written = [f"{word} ← {names[head]}" for word, head in zip(names[1:], heads, strict=True)]
    return attention_row("parents", names, parser.weights(scores, lengths)[:, 1:], []) | {"written": written}


@dataclass(frozen=True)
class DecompositionRecipe(Recipe):
    """Pairs of sentences.

    Args:
        min_count: Words with fewer occurrences in train are unknown.
        parsed: Gives records their trees. The heads are the hard parents.
        words: How a text becomes words, `lower_case` or `as_written`.
        vectors: A file of fixed word vectors. Words without one share a hundred random vectors (`numbers_of`). None: vectors are learned.
    """

    corpus: AnyCorpus
    min_count: int = 1
    parsed: Callable[[Step], Step] = as_they_are
    words: Tokeniser = lower_case
    vectors: VectorFile | None = None

    slug: ClassVar = "entailment"
    answer_columns: ClassVar = ("gold", "label")

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")

    def data(self) -> dict[str, Step]:
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        name, settings = self.corpus.name, PairVocabulary(self.min_count, self.words, self.vectors)
        # vectors of a file are not trained, so words of dev and test may have theirs
        read = raw if self.vectors else {"rows": raw["train"]}
        words = Step(pair_vocabulary, f"vocabulary {name}", settings, read)

        def numbers(label: str, rows: Step) -> Step:
            return Step(pairs, label, PairNumbers(self.words), {"rows": rows, "vocabulary": words})

        known = {split: numbers(f"pairs {name} {split}", self.parsed(raw[split])) for split in raw}
        # `test` may have other trees for each row of a table; all are scored on the same test set
        return {**known, "test_set": numbers(f"pairs {name} test", raw["test"]), "vocabulary": words}

    def stages(self, model: DecomposableConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = DecompositionObjective()
        answers = {"model": "model", "pairs": "test", "vocabulary": "vocabulary"}
        return {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(label, PredictSettings(objective, model, 4096), answers),
            "scores": Stage(score_labels, None, {"predictions": "predictions", "pairs": "test_set"}),
        }

    def predictor(self, vocabulary: Artifact) -> DecomposedPairs:
        return DecomposedPairs(LABELS, text_name(self.words), vocabulary.meta.get("outside", 0))

    def question(self, prediction: Mapping[str, Any], record: Mapping[str, Any]) -> str:
        return " / ".join(filter(None, (record["premise"], record["hypothesis"])))

    def attention(self, model: LoadedModel, text: str) -> list[dict[str, Any]]:
        return [soft_parents(model, text)]
