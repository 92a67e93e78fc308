"""Part-of-speech tagging."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor
from torch.nn import functional as F

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import TOKENS, check, read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.store import Job, Step
from phrasemodels.inference.inputs import no_phrases, penn_treebank, subtrees
from phrasemodels.inference.problems import Tagging
from phrasemodels.layers.blocks import PAD, SPECIAL
from phrasemodels.models.tagger import Tagger, TaggerConfig
from phrasemodels.tasks.metrics.scores import Score, accuracy_of, by_group, write_scores
from phrasemodels.tasks.prepare.corpora import Corpus, SampleCorpus
from phrasemodels.tasks.prepare.phrases import Phrases, phrases
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, shards
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, read_words, vocabulary, write_words
from phrasemodels.tasks.problems.recipe import Recipe, Stage, text_name, training_stage
from phrasemodels.tasks.problems.sentence_data import (
    VECTORS,
    PhraseBatch,
    PhraseExamples,
    VectorFile,
    write_predictions,
)
from phrasemodels.tasks.train.batches import Rows, in_order
from phrasemodels.tasks.train.checkpoints import PredictSettings, best_device, load_trained
from phrasemodels.tasks.train.config import TrainConfig
from phrasemodels.tasks.train.trainer import Objective
from phrasemodels.verdicts.significance import Statistic


@dataclass(frozen=True)
class VectorVocabulary:
    """Words of the file are known in every split. Others are unknown with fewer than min_count occurrences in train."""

    vectors: VectorFile
    min_count: int = 2


def vector_vocabulary(job: Job, settings: VectorVocabulary) -> dict[str, Any]:
    """Write vocabularies of the TOKENS job.inputs["rows"].

    vectors.safetensors gets a unit vector for each source word. Words of the other inputs follow if the file has them.
    A word outside of the file has a random vector with mean and deviation of the others. Padding has zeros.
    """
    sizes = vocabulary(job, VocabularySettings(settings.min_count))
    words = read_words(Artifact(job.out, {}), "source")
    in_text = {word for rows in job.inputs.values() for word in _words(rows)}
    known = dict(settings.vectors.read(in_text.union(words), job.executor.sources.mirrors))
    words += sorted(known.keys() - set(words))
    sizes["source"] = write_words(job.out, "source", words)
    save_file({"vectors": unit_vectors(words, known, settings.vectors.d)}, job.out / VECTORS)
    return {**sizes, "vectors": True, "known": len(known)}


def _words(rows: Artifact) -> list[str]:
    return pc.unique(pc.list_flatten(read_shards(rows)["source"])).to_pylist()


def unit_vectors(words: list[str], known: dict[str, NDArray[np.float32]], d: int) -> NDArray[np.float32]:
    """Return a vector of norm 1 for each word (words, d) as in Star-Transformer's tagger. PAD has 0.

    ValueError: no word has a vector.
    """
    if not known:
        raise ValueError("no word of the treebank is in the file of word vectors: give one of English words")
    found = np.stack(list(known.values()))
    rng = np.random.default_rng(0)
    rows = [known[word] if word in known else rng.normal(found.mean(0), found.std(0)) for word in words]
    vectors = np.stack(rows).astype(np.float32).reshape(len(words), d)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    vectors[PAD] = 0.0
    return vectors


@dataclass(frozen=True)
class TagColumn:
    """The tags of a treebank.

    Args:
        column: The column with the tags, `tags` (Penn's) or `universal`.
    """

    column: str = "tags"


def tag_tokens(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Write TOKENS of the TREES or TAGGED shards job.inputs["rows"]: words as the source, tags as the target."""
    return map_shards(job, tag_tokens_shard, settings)


def tag_tokens_shard(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Write the TOKENS of one shard. ValueError: there is no such column, or a word without a tag."""
    path = job.inputs["shard"].path
    table = read_shard(path)
    if settings.column not in table.column_names:
        raise ValueError(f"{path}: no column {settings.column!r}; there are {', '.join(table.column_names)}")
    columns = {"id": table["id"], "source": table["tokens"], "target": table[settings.column], "group": table["group"]}
    made = check(pa.table(columns, schema=TOKENS), TOKENS, str(path))
    for row, words, tags in zip(made["id"], made["source"], made["target"], strict=True):
        if len(words) != len(tags):
            raise ValueError(f"{path}: row {row} has {len(words)} words and {len(tags)} tags in {settings.column!r}")
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


@dataclass(frozen=True)
class TaggingObjective(Objective):
    """Mean loss a word.

    The target of a row is its tags between BEGIN and END. The two marks are not predicted.
    """

    curve: ClassVar = "dev loss (nats a word)"

    def configure(self, model: TaggerConfig, vocabulary: Artifact) -> TaggerConfig:
        file = str(vocabulary.file(VECTORS)) if vocabulary.meta.get("vectors") else ""
        return replace(model, vocabulary=vocabulary.meta["source"], tags=vocabulary.meta["target"], vectors=file)

    def examples(self, paths: Sequence[Path]) -> PhraseExamples:
        return PhraseExamples(paths)

    def loss(self, model: Tagger, batch: PhraseBatch, smoothing: float) -> Tensor:
        """Return the summed cross entropy of the words' tags. A tag unknown to train is left out."""
        scores = model(batch.source, batch.lengths, batch.members).flatten(0, 1).float()
        gold = batch.target.masked_fill(batch.target < len(SPECIAL), PAD).flatten()
        return F.cross_entropy(scores, gold, ignore_index=PAD, reduction="sum", label_smoothing=smoothing)

    def count(self, data: PhraseExamples, rows: Rows) -> int:
        """Return the number of words, without BEGIN and END."""
        return int((data.lengths[rows, 1] - 2).sum())


@torch.inference_mode()
def tag(job: Job, settings: PredictSettings) -> dict[str, Any]:
    """Tag the numbered sentences job.inputs["phrases"] with the tokens ["rows"].

    It also reads ["model"] and ["vocabulary"]. It writes predictions.arrow. The score of a row is the sum of its tags'
    log-probabilities.
    """
    device = best_device()
    model = load_trained(settings.objective, settings.model, job.inputs, device)
    data = settings.objective.examples([shard.path for shard in shards(job.inputs["phrases"])])
    names = np.array(read_words(job.inputs["vocabulary"], "target"), dtype=object)
    known = torch.arange(len(SPECIAL), len(names), device=device)
    found: dict[int, tuple[list[str], float]] = {}
    for rows in in_order(data, settings.batch_tokens):
        batch = data.batch(rows).to(device)
        ids, scores = model.tag(batch.source, batch.lengths, batch.members, known)
        for row, n, best, score in zip(rows, batch.lengths, ids, scores, strict=True):
            inner = slice(1, int(n) - 1)
            found[int(row)] = list(names[best[inner].cpu().numpy()]), float(score[inner].sum())
    return write_predictions(job, job.inputs["rows"], found)


ACCURACY = Statistic("tag_counts", accuracy_of)
MOST_GROUPS = 8  # with more, groups are documents of a treebank, not kinds of sentences


def score_tags(job: Job, settings: TagColumn) -> dict[str, Any]:
    """Score job.inputs["predictions"]: accuracy over tokens (%).

    It is of all tokens, of known and of unknown words and by group of sentences. ["rows"] are the test set.
    ["vocabulary"] has the known words.
    """
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    known = set(read_words(job.inputs["vocabulary"], "source"))
    right, familiar = [], []
    for row in table.to_pylist():
        right.append(np.array([a == b for a, b in zip(row["hypothesis"], row["reference"], strict=True)], bool))
        familiar.append(np.array([word in known for word in row["source"]], bool))
    counts = np.array([[one.sum(), len(one)] for one in right], np.int64)
    groups = table["group"].to_pylist()
    if len(set(groups)) > MOST_GROUPS:
        groups = [""] * len(groups)
    parts = {f"accuracy{suffix}": counts[rows].sum(0) for suffix, rows in by_group(groups).items()}
    flat, seen = np.concatenate(right), np.concatenate(familiar)
    parts |= {f"{name}_words": np.array([flat[of].sum(), of.sum()]) for name, of in (("known", seen), ("new", ~seen))}
    signature = f"right tokens of all, {settings.column}"
    scores = {
        name: Score(100 * float(hits) / max(1, int(tokens)), f"{signature}, n={tokens}", len(right))
        for name, (hits, tokens) in parts.items()
    }
    sentences = pa.table(
        {"id": table["id"], "group": pa.array(groups, pa.string()), ACCURACY.column: pa.array(list(counts))}
    )
    return write_scores(job, scores, sentences, job.inputs["rows"].meta["shards"])


@dataclass(frozen=True)
class TaggingRecipe(Recipe):
    """A treebank with tags.

    Args:
        min_count: Words with fewer occurrences are unknown.
        vectors: A file of fixed word vectors, whose words are all known. None: vectors are learned.
    """

    corpus: Corpus | SampleCorpus
    tags: TagColumn = field(default_factory=TagColumn)
    phrases: Phrases = field(default_factory=lambda: Phrases(no_phrases))
    min_count: int = 2
    vectors: VectorFile | None = None

    slug: ClassVar = "tagging"
    answer_columns: ClassVar = ("reference", "hypothesis")

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")

    @property
    def name(self) -> str:
        return f"{self.slug}-{self.corpus.name}-{self.tags.column}"

    def data(self) -> dict[str, Step]:
        name = f"{self.corpus.name} {self.tags.column}"
        raw = {split: self.corpus.split(split) for split in ("train", "dev", "test")}
        tokens = {split: Step(tag_tokens, f"tags {name} {split}", self.tags, {"rows": raw[split]}) for split in raw}
        rows, label = {"rows": tokens["train"]}, f"vocabulary {name}"
        if self.vectors:
            others = {split: tokens[split] for split in ("dev", "test")}
            words = Step(vector_vocabulary, label, VectorVocabulary(self.vectors, self.min_count), rows | others)
        else:
            words = Step(vocabulary, label, VocabularySettings(self.min_count), rows)
        numbers = {
            split: Step(
                phrases,
                f"phrases {name} {split} ({self.phrases.enumerate.__name__} {self.phrases.longest})",
                dataclasses.replace(self.phrases, max_tokens=self.phrases.max_tokens if split == "train" else 0),
                {"rows": tokens[split], "vocabulary": words}
                | ({"trees": raw[split]} if self.phrases.enumerate is subtrees else {}),
            )
            for split in raw
        }
        return {**numbers, "vocabulary": words, "tokens": tokens["test"], "raw": raw["test"]}

    def predictor(self, vocabulary: Artifact) -> Tagging:
        kind, longest, marks = self.phrases.enumerate.__name__, self.phrases.longest, self.phrases.marks
        return Tagging(text_name(penn_treebank), "en", kind, longest, marks)

    def stages(self, model: TaggerConfig, config: TrainConfig, seed: int) -> dict[str, Stage]:
        objective = TaggingObjective()
        return {
            "model": training_stage(objective, model, config, seed),
            "predictions": Stage(
                tag,
                PredictSettings(objective, model, 8192),
                {"model": "model", "phrases": "test", "rows": "tokens", "vocabulary": "vocabulary"},
            ),
            "scores": Stage(
                score_tags, self.tags, {"predictions": "predictions", "rows": "raw", "vocabulary": "vocabulary"}
            ),
        }
