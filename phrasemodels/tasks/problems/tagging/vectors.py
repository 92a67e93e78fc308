"""Vocabularies of taggers that read word vectors of a file, which are not trained."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from safetensors.numpy import save_file

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import PAD
from phrasemodels.tasks.prepare.sharded import read_shards
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, read_words, vocabulary, write_words
from phrasemodels.tasks.problems.entailment.data import VECTORS, VectorFile


@dataclass(frozen=True)
class VectorVocabulary:
    """Words that the file has are known in every split. Of the others those are unknown that occur fewer than min_count times
    in train."""

    vectors: VectorFile
    min_count: int = 2


def vector_vocabulary(job: Job, settings: VectorVocabulary) -> dict[str, Any]:
    """Write the vocabularies of the TOKENS job.inputs["rows"], with the source words of all inputs that the file has behind
    those of "rows", and vectors.safetensors: a unit vector for each source word.

    A word that the file lacks has a random one with mean and deviation of the others; padding has zeros.
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
    """Return a vector of norm 1 for each word (words, d), as in Star-Transformer's tagger; that of PAD is 0.

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
