"""Sentences to numbers: word ids with a place for every unknown word, structures, and word vectors of a file.

A side is a column of text: the premise or the hypothesis of PAIRS, the text of SENTENCES.
"""

import zlib
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from safetensors.numpy import save_file

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import Artifact, write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.models.sentence_pair import BUCKETS, RANGE
from phrasemodels.tasks.prepare.levels import Structure
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards
from phrasemodels.tasks.prepare.tokenise import Tokeniser

NOTHING = "."  # what an empty line reads as, as in SentEval: such lines are in the corpora, and count
WORDS, VECTORS = "words.txt", "vectors.safetensors"


def lower_spaces(text: str, language: str) -> list[str]:
    """Lower-case words of text that is tokenised already."""
    return text.lower().split()


@dataclass(frozen=True)
class Text:
    """Which columns are read, and how they are divided into words."""

    sides: tuple[str, ...] = ("premise", "hypothesis")
    tokeniser: Tokeniser = lower_spaces

    def words(self, text: str) -> list[str]:
        return self.tokeniser(text, "en") or [NOTHING]


@dataclass(frozen=True)
class VectorFile:
    """A file of word vectors, a word and its d numbers a line, that a user puts in by hand; bytes and check (crc32 of
    its first megabyte) say which it is, once it is found."""

    name: str
    d: int
    bytes: int = 0
    check: int = 0

    def found(self, folders: Sequence[Path]) -> "VectorFile | None":
        """The file, if it is in one of the folders."""
        path = next((folder / self.name for folder in folders if (folder / self.name).is_file()), None)
        if path is None:
            return None
        with path.open("rb") as file:
            return VectorFile(self.name, self.d, path.stat().st_size, zlib.crc32(file.read(1 << 20)))

    def of(self, words: Container[str], mirrors: Sequence[Path]) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """The vectors of words; an OSError says where the file has to be, a ValueError which line is wrong."""
        path = next((mirror / self.name for mirror in mirrors if (mirror / self.name).is_file()), None)
        if path is None:
            raise OSError(f"{self.name} is in none of {', '.join(map(str, mirrors))}: put it there again")
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    word, _, numbers = line.decode().partition(" ")
                    if word not in words:
                        continue
                    with np.errstate(over="ignore"):
                        vector = np.array(numbers.split(), np.float32)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}; get the file again") from error
                if vector.shape != (self.d,) or not np.isfinite(vector).all():
                    raise ValueError(f"{path}, line {number}: {self.d} numbers of {word!r} expected")
                yield word, vector


@dataclass(frozen=True)
class WordList:
    """The words of some inputs, by the text of each; those seen fewer than min_count times are left out, and so are
    those without a vector where there is a file of them."""

    texts: Mapping[str, Text]
    min_count: int = 1
    vectors: VectorFile | None = None


def word_list(job: Job, settings: WordList) -> dict[str, Any]:
    """words.txt, one a line, most frequent first; the line number, from 0, is the id. And vectors.safetensors, if there
    are vectors: those of the words, then those that unknown words share."""
    counts: Counter[str] = Counter()
    for name, text in settings.texts.items():
        table = read_shards(job.inputs[name])
        for side in text.sides:
            for value in table[side].to_pylist():
                counts.update(text.words(value))
    words = [word for word, count in sorted(counts.items(), key=lambda c: (-c[1], c[0])) if count >= settings.min_count]
    if settings.vectors:
        known = dict(settings.vectors.of(set(words), job.executor.sources.mirrors))
        words = [word for word in words if word in known]
        shared = np.random.default_rng(0).uniform(-RANGE, RANGE, (BUCKETS, settings.vectors.d)).astype(np.float32)
        save_file({"vectors": np.concatenate([*(known[word][None] for word in words), shared])}, job.out / VECTORS)
    write_durably(job.out / WORDS, "".join(f"{word}\n" for word in words))
    return {"words": len(words), "seen": len(counts), "vectors": settings.vectors is not None}


def vectors_of(vocabulary: Artifact) -> str:
    """The file of word vectors that came with a word list, or nothing."""
    return str(vocabulary.file(VECTORS)) if vocabulary.meta["vectors"] else ""


@dataclass(frozen=True)
class Number:
    """How the sides of a corpus become numbers. max_tokens drops longer rows (0: none), for training alone; labelled
    drops rows without a label."""

    text: Text
    structure: Structure
    max_tokens: int = 0
    labelled: bool = True


def number(job: Job, settings: Number) -> dict[str, Any]:
    """Shards of ids and structures, of PAIRS or SENTENCES shards and a word list job.inputs["vocabulary"]."""
    meta = map_shards(job, number_shard, settings, vocabulary=job.inputs["vocabulary"])
    return {**meta, **statistics([job.out / shard["file"] for shard in meta["shards"]], settings.text.sides)}


def number_shard(job: Job, settings: Number) -> dict[str, Any]:
    """SIDE_ids and SIDE_structure of one shard, with id, label, score and group."""
    table = read_shard(job.inputs["shard"].path)
    before = table.num_rows
    if settings.labelled:
        table = table.filter(pc.not_equal(table["label"], ""))
    words = {word: place for place, word in enumerate(read_word_list(job.inputs["vocabulary"]))}
    tokens = {s: [settings.text.words(text) for text in table[s].to_pylist()] for s in settings.text.sides}
    if settings.max_tokens:
        kept = [all(len(row) <= settings.max_tokens for row in rows) for rows in zip(*tokens.values(), strict=True)]
        table = table.filter(pa.array(kept))
        tokens = {s: [row for row, keep in zip(rows, kept, strict=True) if keep] for s, rows in tokens.items()}
    columns: dict[str, Any] = {"id": table["id"], "label": table["label"], "group": table["group"]}
    columns["score"] = table["score"] if "score" in table.column_names else pa.array(np.zeros(table.num_rows))
    for side in settings.text.sides:
        trees = _trees(table, side, settings.structure, str(job.inputs["shard"].path))
        columns[f"{side}_ids"] = _lists(tokens[side], _ids(tokens[side], words))
        columns[f"{side}_structure"] = _lists(tokens[side], _structures(tokens[side], trees, settings.structure))
    return {"dropped": before - table.num_rows, **write_shard(job.out / SHARD, pa.table(columns))}


def read_word_list(artifact: Artifact) -> list[str]:
    """The words, by id."""
    return artifact.file(WORDS).read_text(encoding="utf-8").split("\n")[:-1]


def _ids(tokens: list[list[str]], words: dict[str, int]) -> NDArray[np.int32]:
    """Ids of all tokens in a row; a word that is not known has that of its hash, behind those of the vocabulary."""
    return np.fromiter(
        (
            words[word] if word in words else len(words) + zlib.crc32(word.encode()) % BUCKETS
            for row in tokens
            for word in row
        ),
        np.int32,
    )


def _trees(table: pa.Table, side: str, structure: Structure, where: str) -> pa.ChunkedArray:
    """The trees of a side. ValueError: the structure reads them, and there are none."""
    trees = table["tree" if side == "text" else f"{side}_tree"]
    if structure.reads_trees and table.num_rows and not pc.any(pc.not_equal(trees, "")).as_py():
        raise ValueError(f"{where}: no tree of any {side}: parse the corpus, or take phrases that need no trees")
    return trees


def _structures(tokens: list[list[str]], trees: pa.ChunkedArray, structure: Structure) -> NDArray[np.int32]:
    lengths = np.array([len(row) for row in tokens], np.int64)
    numbers = structure(tokens, trees, lengths)
    if len(numbers) != lengths.sum():
        raise ValueError(
            f"trees of {len(numbers)} words for {lengths.sum()}: tokens have to be the leaves of the trees"
        )
    return numbers


def _lists(tokens: list[list[str]], values: NDArray[np.int32]) -> pa.ListArray:
    """Values of all tokens as one list a row; several numbers a token become lists of one length."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in tokens])]).astype(np.int32)
    flat = pa.array(values.ravel(), pa.int32())
    if values.ndim == 2:
        flat = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), flat)


def statistics(paths: Sequence[Path], sides: Sequence[str]) -> dict[str, Any]:
    """Table 1 of paper 001: by level, phrases a sentence and words a phrase."""
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
