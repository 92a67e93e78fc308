"""Vocabularies of taggers that read word vectors of a file, which are not trained."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import PAD
from phrasemodels.tasks.prepare.vocabulary import VocabularySettings, read_words, vocabulary
from phrasemodels.tasks.problems.entailment.data import VECTORS, VectorFile


@dataclass(frozen=True)
class VectorVocabulary:
    """Words that occur fewer than min_count times are unknown; all others have a vector, of the file if it has one."""

    vectors: VectorFile
    min_count: int = 2


def vector_vocabulary(job: Job, settings: VectorVocabulary) -> dict[str, Any]:
    """Write the vocabularies of the TOKENS job.inputs["rows"], and vectors.safetensors: a unit vector for each source word.

    A word that the file lacks has a random one with mean and deviation of the others; padding has zeros.
    """
    sizes = vocabulary(job, VocabularySettings(settings.min_count))
    words = read_words(Artifact(job.out, {}), "source")
    known = dict(settings.vectors.read(set(words), job.executor.sources.mirrors))
    save_file({"vectors": unit_vectors(words, known, settings.vectors.d)}, job.out / VECTORS)
    return {**sizes, "vectors": True, "known": len(known)}


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
