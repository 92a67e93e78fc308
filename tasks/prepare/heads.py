"""Heads of tokens as positions, from TREES, where they count from 1."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ints = NDArray[np.int64]
NOBODY = -1  # the head of a root, and of a token without a tree


def parents(heads: pa.ChunkedArray, lengths: Ints) -> Ints:
    """For every token the position of its head in its sentence, NOBODY for the root, from a column of heads that count
    from 1 (TREES). lengths (S): tokens of each sentence; one without a tree has NOBODY everywhere. Flat (tokens)."""
    given = pc.list_value_length(heads).to_numpy().astype(np.int64)
    if wrong := np.flatnonzero((given != lengths) & (given > 0)).tolist():
        row = wrong[0]
        raise ValueError(f"row {row}: {given[row]} heads for {lengths[row]} tokens; parse the tokens that are used")
    out = np.full(int(lengths.sum()), NOBODY, np.int64)
    flat = pc.list_flatten(heads).to_numpy()
    if len(flat) and (flat.min() < 0 or (flat > np.repeat(given, given)).any()):
        raise ValueError("a head lies outside of its sentence")
    out[np.repeat(given > 0, lengths)] = flat.astype(np.int64) - 1
    return out


def between_marks(heads: pa.ChunkedArray, lengths: Ints) -> Ints:
    """The same for sentences between BEGIN and END, which have no head; lengths (S) count them."""
    found = np.full(int(lengths.sum()), NOBODY, np.int64)
    inner = np.ones(len(found), bool)
    inner[np.cumsum(lengths) - 1] = inner[np.cumsum(lengths) - lengths] = False
    within = parents(heads, lengths - 2)
    found[inner] = np.where(within < 0, NOBODY, within + 1)
    return found
