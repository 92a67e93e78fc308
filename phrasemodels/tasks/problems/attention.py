"""The attention of a model to a sentence, as rows of a table: weights over its tokens, then over its phrases."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from phrasemodels.layers.ngrams import PhraseAttention

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
    """Yield rows of ATTENTION without id and group, of the recorded weights (1, h, q, k) of one sentence, by module."""
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
    """Return weights (h, n, n), whose columns are n-grams by their last word, as weights (h, n, n + m) over words and m
    n-grams; and the n-grams. groups: the heads of each n-gram size. An n-gram at the start has only the words there are."""
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
    """Return weights (h, q, k) over n words and m phrases of a module that computed one row or column for all phrases
    because their states were equal."""
    if m > 1 and weights.shape[2] == n + 1:
        weights = torch.cat([weights[..., :n], (weights[..., n:] / m).expand(-1, -1, m)], 2)
        if weights.shape[1] == n + 1:
            weights = torch.cat([weights[:, :n], weights[:, n:].expand(-1, m, -1)], 1)
    return weights


def first_of_groups(groups: Sequence[str], count: int) -> list[int]:
    """Return the indices of the first `count` rows of each group, groups in alphabetical order."""
    names = np.array(groups, dtype=object)
    return [int(row) for name in sorted(set(names)) for row in np.flatnonzero(names == name)[:count]]
