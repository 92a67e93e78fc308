"""TREES as the files that Stanza's training programs read."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import svds

from phrasemodels.data.formats.conllu import sentence_to_conllu

_OPENING = frozenset(["(", "[", "{", "``", "“", "‘", "$", "£", "#"])
_CLOSING = re.compile(r"[.,;:!?%)\]}”’]+|''|n't|'\w{0,2}|’\w{1,2}", re.IGNORECASE)
WINDOW = 5  # words on each side of a word
WIDTH = 100  # of word vectors


def spaced(tokens: Sequence[str]) -> list[bool]:
    """Return for each token whether a space follows in running text, by rules: not all treebanks say it."""
    return [
        token not in _OPENING and not _CLOSING.fullmatch(following)
        for token, following in zip(tokens, [*tokens[1:], "x"], strict=True)
    ]


def conllu(table: pa.Table) -> str:
    """Return the sentences that have heads as CoNLL-U."""
    made = []
    for row in table.to_pylist():
        if row["heads"]:
            spaces = ["_" if space else "SpaceAfter=No" for space in spaced(row["tokens"])]
            arcs = row["heads"], row["relations"]
            made.append(sentence_to_conllu(row["tokens"], row["tags"], row["universal"], *arcs, spaces))
    return "\n".join(made) + "\n"


def running_text(table: pa.Table) -> str:
    """Return the sentences of `conllu` as text, in paragraphs of 20 sentences."""
    sentences = [
        "".join(t + " " * s for t, s in zip(row["tokens"], spaced(row["tokens"]), strict=True)).strip()
        for row in table.to_pylist()
        if row["heads"]
    ]
    paragraphs = [" ".join(sentences[first : first + 20]) for first in range(0, len(sentences), 20)]
    return "\n\n".join(paragraphs) + "\n"


def bracketed(table: pa.Table) -> str:
    """Return the trees in brackets, one a line."""
    return "".join(f"{tree}\n" for tree in table["tree"].to_pylist() if tree)


def write_vectors(table: pa.Table, path: Path) -> int:
    """Write vectors of the words (in lower case) as text, a word a line; return the number of words.

    They are positive pointwise mutual information within WINDOW words, reduced to WIDTH by singular value decomposition.
    """
    sentences = [[token.lower() for token in tokens if " " not in token] for tokens in table["tokens"].to_pylist()]
    words = sorted({word for sentence in sentences for word in sentence})
    ids = {word: place for place, word in enumerate(words)}
    numbers = [np.array([ids[word] for word in sentence], np.int64) for sentence in sentences]
    near = [(s[:-gap], s[gap:]) for s in numbers for gap in range(1, WINDOW + 1) if len(s) > gap]
    one, other = (np.concatenate([pair[side] for pair in near]) for side in (0, 1))
    rows, columns = np.concatenate([one, other]), np.concatenate([other, one])
    counts = coo_matrix((np.ones(len(rows)), (rows, columns)), (len(words), len(words))).tocsr().tocoo()
    each = np.bincount(rows, minlength=len(words)).astype(float)
    information = np.log(counts.data * each.sum() / (each[counts.row] * each[counts.col]))
    matrix = coo_matrix((np.maximum(information, 0), (counts.row, counts.col)), counts.shape).tocsr()
    width = min(WIDTH, len(words) - 1)
    start = np.random.default_rng(0).standard_normal(len(words))  # fixed, so that the vectors are reproducible
    u, s, _ = svds(matrix, width, v0=start)
    vectors = u * np.sqrt(s)
    vectors *= np.sqrt(len(vectors)) / np.linalg.norm(vectors)
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{len(words)} {width}\n")
        for word, vector in zip(words, vectors, strict=True):
            file.write(f"{word} {' '.join(f'{x:.5f}' for x in vector)}\n")
    return len(words)
