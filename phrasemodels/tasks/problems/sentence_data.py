"""Sentences as numbers: ids of words, structures and word vectors from a file.

Unknown words have buckets. A side is a column of text: premise or hypothesis of PAIRS or text of SENTENCES. Then come
sequences in and sequences out: batches of word ids with phrases and predictions as lists of tokens. Attention weights
come as rows.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from phrasemodels.config import at_least
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, sha256_of
from phrasemodels.data.store.store import Job
from phrasemodels.inference.inputs import NOTHING, Structure, Tokeniser, lower_spaces
from phrasemodels.inference.inputs import hashed as numbered
from phrasemodels.layers.blocks import PAD
from phrasemodels.layers.ngrams import PhraseAttention
from phrasemodels.models.pretrained_words import PieceVectors
from phrasemodels.models.sentence_pair import BUCKETS, RANGE
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_ids, write_words
from phrasemodels.tasks.train.batches import Batch, ListExamples, Rows

VECTORS = "vectors.safetensors"
NUMBER = re.compile(r"[-+.\deE]*\d[-+.\deE]*")


# (words of a sentence, vocabulary) -> the words that are read
Unknown = Callable[[list[str], Container[str]], list[str]]


def hashed(tokens: list[str], words: Container[str]) -> list[str]:
    """Keep unknown words. They share BUCKETS vectors."""
    return tokens


@dataclass(frozen=True)
class SentenceText:
    """The text of sentences.

    Args:
        sides: The columns to read.
        tokeniser: Their tokeniser.
    """

    sides: tuple[str, ...] = ("premise", "hypothesis")
    tokeniser: Tokeniser = lower_spaces

    def words(self, text: str) -> list[str]:
        """Return the words of a text. There is at least one."""
        return self.tokeniser(text, "en") or [NOTHING]


@dataclass(frozen=True)
class VectorFile:
    """A user's file of word vectors, as GloVe's: a word and its d numbers on each line.

    A first line of two numbers, as fastText's and word2vec's, is passed over.

    Args:
        name: The file in the user's folder.
        d: Numbers of a vector.
        sha256: Digest of its content. It identifies the file once it is located.
    """

    name: str
    d: int
    sha256: str = ""

    def __post_init__(self) -> None:
        at_least(self, 1, "d")

    def path(self, folders: Sequence[Path]) -> Path | None:
        """Return its path in the first folder with the file."""
        return next((folder / self.name for folder in folders if (folder / self.name).is_file()), None)

    def locate(self, folders: Sequence[Path]) -> "VectorFile | None":
        """Return the file with its digest if one of the folders has it."""
        path = self.path(folders)
        return None if path is None else replace(self, sha256=_digest(path, path.stat().st_mtime_ns))

    def read(
        self, words: Container[str], folders: Sequence[Path], most: int = 0
    ) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Yield words with their vectors and all words of the first `most` lines.

        OSError: no folder has the file. ValueError: a line is wrong or the file has changed since it was located. A
        change is known at the end of the file.
        """
        if (path := self.path(folders)) is None:
            raise OSError(f"{self.name} is in none of {', '.join(map(str, folders))}: put it there again")
        whole = hashlib.sha256()
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                whole.update(line)
                try:
                    word, _, rest = line.decode().partition(" ")
                    if number > most and word not in words:
                        continue
                    if (
                        number == 1 and word.isdecimal() and rest.strip().isdecimal()
                    ):  # numbers of words and of a vector
                        continue
                    fields = rest.split()
                    if len(fields) > self.d and not NUMBER.fullmatch(
                        fields[0]
                    ):  # of a phrase: a few lines of glove.840B
                        continue
                    with np.errstate(over="ignore"):
                        vector = np.array(fields, np.float32)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}; get the file again") from error
                if vector.shape != (self.d,) or not np.isfinite(vector).all():
                    raise ValueError(f"{path}, line {number}: {self.d} numbers of {word!r} expected")
                yield word, vector
        if self.sha256 and whole.hexdigest() != self.sha256:
            raise ValueError(f"{path}: the file has changed since the run was planned; start again")

    def of_unknown(self, count: int) -> NDArray[np.float32]:
        """Return the random vectors shared by unknown words."""
        return np.random.default_rng(0).uniform(-RANGE, RANGE, (count, self.d)).astype(np.float32)


@cache
def _digest(path: Path, changed: int) -> str:
    """Return the digest of a file, read again if its time of change is another one."""
    return sha256_of(path)


@dataclass(frozen=True)
class WordListSettings:
    """The text of each input. Words with fewer than min_count occurrences are left out. A file of word vectors leaves out words
    without one, too.
    """

    texts: Mapping[str, SentenceText]
    min_count: int = 1
    vectors: VectorFile | PieceVectors | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "min_count")


def word_list(job: Job, settings: WordListSettings) -> dict[str, Any]:
    """Write words.txt, a vocabulary without special entries.

    Word vectors go to vectors.safetensors if there are any. BUCKETS random vectors follow the vectors of the words.
    Unknown words share them.
    """
    counts: Counter[str] = Counter()
    for name, text in settings.texts.items():
        table = read_shards(job.inputs[name])
        for side in text.sides:
            for value in table[side].to_pylist():
                counts.update(text.words(value))
    words = by_frequency(counts, settings.min_count, first=())
    if settings.vectors:
        known = dict(settings.vectors.read(set(words), job.executor.sources.mirrors))
        words = [word for word in words if word in known]
        shared = settings.vectors.of_unknown(BUCKETS)
        save_file({"vectors": np.concatenate([*(known[word][None] for word in words), shared])}, job.out / VECTORS)
    return {"words": write_words(job.out, "words", words), "seen": len(counts), "vectors": settings.vectors is not None}


def vectors_of(vocabulary: Artifact) -> str:
    """Return the path of the word vectors of a word list, or an empty string."""
    return str(vocabulary.file(VECTORS)) if vocabulary.meta["vectors"] else ""


@dataclass(frozen=True)
class NumberSettings:
    """The text and structure of each side.

    max_tokens: rows with longer sentences are dropped in training alone (0: none). labelled: rows without a label are
    dropped. unknown: the treatment of words outside of the vocabulary (hashed or left_out).
    """

    text: SentenceText
    structure: Structure
    max_tokens: int = 0
    labelled: bool = True
    unknown: Unknown = hashed

    def __post_init__(self) -> None:
        at_least(self, 0, "max_tokens")


def number(job: Job, settings: NumberSettings) -> dict[str, Any]:
    """Write shards of ids and structures of the PAIRS or SENTENCES job.inputs["rows"].

    It also reads ["vocabulary"].
    """
    return numbered_shards(job, number_shard, settings)


def numbered_shards(
    job: Job, shard: Callable[[Job, NumberSettings], dict[str, Any]], settings: NumberSettings
) -> dict[str, Any]:
    """Write shards of numbers by a step for each, with the statistics of their structures."""
    meta = map_shards(job, shard, settings, vocabulary=job.inputs["vocabulary"])
    return {**meta, **statistics([job.out / shard["file"] for shard in meta["shards"]], settings.text.sides)}


def number_shard(job: Job, settings: NumberSettings) -> dict[str, Any]:
    """Write SIDE_ids and SIDE_structure of one shard, with id, label, score and group."""
    table = read_shard(job.inputs["shard"].path)
    before = table.num_rows
    if settings.labelled:
        table = table.filter(pc.not_equal(table["label"], ""))
    words = read_ids(job.inputs["vocabulary"], "words")
    sides, read = settings.text.sides, settings.text.words
    tokens = {s: [settings.unknown(read(text), words) for text in table[s].to_pylist()] for s in sides}
    if settings.max_tokens:
        kept = [all(len(row) <= settings.max_tokens for row in rows) for rows in zip(*tokens.values(), strict=True)]
        table = table.filter(pa.array(kept))
        tokens = {s: [row for row, keep in zip(rows, kept, strict=True) if keep] for s, rows in tokens.items()}
    columns: dict[str, Any] = {"id": table["id"], "label": table["label"], "group": table["group"]}
    columns["score"] = table["score"] if "score" in table.column_names else pa.array(np.zeros(table.num_rows))
    for side in settings.text.sides:
        trees = _trees(table, side, settings.structure, str(job.inputs["shard"].path))
        columns[f"{side}_ids"] = _lists(tokens[side], _ids(tokens[side], words))
        columns[f"{side}_structure"] = _lists(tokens[side], structures(settings.structure, tokens[side], trees))
    return {"dropped": before - table.num_rows, **write_shard(job.out / SHARD, pa.table(columns))}


def _ids(tokens: list[list[str]], words: Mapping[str, int]) -> NDArray[np.int32]:
    """Return the ids of all tokens (tokens). An unknown word has the id of its bucket, after the vocabulary."""
    return np.fromiter((number for row in tokens for number in numbered(row, words)), np.int32)


def _trees(table: pa.Table, side: str, structure: Structure, where: str) -> pa.ChunkedArray:
    """Return the trees of a side. ValueError: the structure needs trees, and there are none."""
    trees = table["tree" if side == "text" else f"{side}_tree"]
    if structure.reads_trees and table.num_rows and not pc.any(pc.not_equal(trees, "")).as_py():
        raise ValueError(f"{where}: no {side} has a tree: parse the corpus, or take phrases that need no trees")
    return trees


def structures(structure: Structure, tokens: list[list[str]], trees: pa.ChunkedArray) -> NDArray[np.int32]:
    """Return the structure of all tokens (tokens, k). ValueError: a tree is malformed, or has other words."""
    found = [structure([NOTHING], "")[:0]]
    for row, (own, tree) in enumerate(zip(tokens, trees.to_pylist(), strict=True)):
        try:
            found += [structure(own, tree)] if own else [found[0]]
            if len(found[-1]) != len(own):
                raise ValueError("another number of words")
        except ValueError as error:
            raise ValueError(f"row {row}: {tree[:60]!r} is no tree of {len(own)} words; parse its tokens") from error
    return np.concatenate(found)


def _lists(tokens: list[list[str]], values: NDArray[np.int32]) -> pa.ListArray:
    """Return the values of all tokens as a list for each row. Several values of a token become a list of one length."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in tokens])]).astype(np.int32)
    flat = pa.array(values.ravel(), pa.int32())
    if values.ndim == 2:
        flat = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


def statistics(paths: Sequence[Path], sides: Sequence[str]) -> dict[str, Any]:
    """Return phrases a sentence and words a phrase for each level (paper 001, Table 1)."""
    sentences, words, phrases = 0, 0, np.zeros(1)
    for path in paths:
        table = read_shard(path)
        for side in sides:
            lists = table[f"{side}_structure"].combine_chunks()
            numbers = lists.values.values.to_numpy().reshape(len(lists.values), -1)
            sentences, words = sentences + len(lists), words + len(numbers)
            phrases = phrases + (numbers[lists.offsets.to_numpy()[1:] - 1] + 1).sum(0)
    if not sentences:
        return {}
    return {
        "phrases_per_sentence": [round(float(x), 3) for x in phrases / sentences],
        "words_per_phrase": [round(float(x), 3) for x in words / phrases],
    }


@dataclass(frozen=True)
class SentenceBatch(Batch):
    """B sentences: tokens (B, n), lengths (B), structure (B, k, n) with -1 for none."""

    tokens: Tensor
    lengths: Tensor
    structure: Tensor


class SentenceExamples(ListExamples):
    """Rows of numbered shards, with one side or two."""

    def __init__(self, paths: Sequence[Path], sides: Sequence[str]) -> None:
        self.sides = tuple(sides)
        names = [f"{side}_{kind}" for side in sides for kind in ("ids", "structure")]
        super().__init__(paths, names, [f"{side}_ids" for side in sides])

    def batch(self, rows: Rows) -> SentenceBatch:
        """Return the sentences of some rows, all of the first side before the second."""
        parts = [(self.padded(f"{s}_ids", rows), self.padded(f"{s}_structure", rows, -1)) for s in self.sides]
        n = max(tokens.shape[1] for tokens, _ in parts)
        tokens = torch.cat([F.pad(t, (0, n - t.shape[1])) for t, _ in parts])
        structure = torch.cat([F.pad(s, (0, 0, 0, n - s.shape[1]), value=-1) for _, s in parts]).transpose(1, 2)
        return SentenceBatch(tokens, torch.from_numpy(self.lengths[rows].T.flatten()), structure)


_TOKENS = pa.list_(pa.string())
PREDICTIONS = required(
    id=pa.int64(), group=pa.string(), source=_TOKENS, reference=_TOKENS, hypothesis=_TOKENS, score=pa.float64()
)


@dataclass(frozen=True)
class PhraseBatch(Batch):
    """Padded ids: source (B, n) and target (B, t), lengths (B) of the source, phrases (B, m, k) padded with -1."""

    source: Tensor
    lengths: Tensor
    members: Tensor
    target: Tensor

    def padded_to(self, size: Callable[[int], int]) -> "PhraseBatch":
        """Return the batch with its rows, source, target and number of phrases padded to sizes. Added rows have one PAD and no target."""
        n, m, t = (size(x.shape[1]) - x.shape[1] for x in (self.source, self.members, self.target))
        b = size(len(self.source)) - len(self.source)
        source, target = F.pad(self.source, (0, n, 0, b), value=PAD), F.pad(self.target, (0, t, 0, b), value=PAD)
        return PhraseBatch(
            source, F.pad(self.lengths, (0, b), value=1), F.pad(self.members, (0, 0, 0, m, 0, b), value=-1), target
        )


class PhraseExamples(ListExamples):
    """Rows of phrase shards (tasks/prepare/phrases.py)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths, ("source", "target", "phrases"), ("source", "target"))

    def batch(self, rows: Rows) -> PhraseBatch:
        """Return some rows, padded to the longest of them."""
        lengths = torch.from_numpy(self.lengths[rows, 0])
        source, target = (self.padded(side, rows) for side in ("source", "target"))
        return PhraseBatch(source, lengths, self.padded("phrases", rows, -1), target)


def write_predictions(job: Job, rows: Artifact, found: Mapping[int, tuple[list[str], float]]) -> dict[str, Any]:
    """Write predictions.arrow: the predicted tokens and their score by row beside the TOKENS `rows`."""
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
    return {"predictions": write_shard(job.out / "predictions.arrow", pa.table(columns, schema=PREDICTIONS))}


# weights (h, q, k) of a module: heads, rows that attend, columns that are attended to. Rows and columns are the tokens, then
# the phrases (positions of their tokens). If `written` is not null, it names the rows, and the columns are tokens alone.
ATTENTION = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("tokens", pa.list_(pa.string()), nullable=False),
        pa.field("phrases", pa.list_(pa.list_(pa.int32())), nullable=False),
        pa.field("module", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.int32(), 3), nullable=False),
        pa.field("weights", pa.list_(pa.float32()), nullable=False),
        pa.field("written", pa.list_(pa.string())),
    ]
)


def attention_rows(
    model: nn.Module, found: Mapping[str, Tensor], tokens: Sequence[str], phrases: list[list[int]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of ATTENTION without id and group by module.

    They are of the recorded weights (1, h, q, k) of one sentence.
    """
    modules = dict(model.named_modules())
    for name, (weights,) in found.items():
        module = modules.get(name)
        if isinstance(module, PhraseAttention):
            yield attention_row(name, tokens, *over_grams(weights, module.phrases.groups))
        else:
            yield attention_row(name, tokens, _apart(weights, len(tokens), len(phrases)), phrases)


def attention_row(module: str, tokens: Sequence[str], weights: Tensor, phrases: list[list[int]]) -> dict[str, Any]:
    """Return one row of ATTENTION without id and group."""
    numbers = {"shape": list(weights.shape), "weights": weights.flatten().tolist()}
    return {"tokens": tokens, "phrases": phrases, "module": module, **numbers, "written": None}


def over_grams(weights: Tensor, groups: Mapping[int, slice | list[int]]) -> tuple[Tensor, list[list[int]]]:
    """Return the n-grams and weights over words and n-grams.

    The columns of `weights` (h, n, n) are n-grams by their last word. The result (h, n, n + m) has n words and m
    n-grams. groups: the heads of each n-gram size. An n-gram at the start has only the words there are.
    """
    h, n, _ = weights.shape
    ends = {size: [tuple(range(max(0, i + 1 - max(1, size)), i + 1)) for i in range(n)] for size in groups}
    grams = sorted({gram for found in ends.values() for gram in found if len(gram) > 1}, key=lambda g: (len(g), g))
    place = {(i,): i for i in range(n)} | {gram: n + i for i, gram in enumerate(grams)}
    spread = weights.new_zeros(h, n, n + len(grams))
    for size, heads in groups.items():
        for head in np.arange(h)[heads]:
            spread[head][:, [place[gram] for gram in ends[size]]] = weights[head]
    return spread, [list(gram) for gram in grams]


def _apart(weights: Tensor, n: int, m: int) -> Tensor:
    """Return weights (h, q, k) over n words and m phrases, where a module computed one row or column for all phrases of equal
    states.
    """
    if m > 1 and weights.shape[2] == n + 1:
        weights = torch.cat([weights[..., :n], (weights[..., n:] / m).expand(-1, -1, m)], 2)
        if weights.shape[1] == n + 1:
            weights = torch.cat([weights[:, :n], weights[:, n:].expand(-1, m, -1)], 1)
    return weights
