"""Sentences as ids: entries of vocabularies, and batches of sentences. Positions are START, the words, STOP."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.data.formats.trees import unescape
from phrasemodels.encoders.inputs import ParserInput
from phrasemodels.layers.ids import BEGIN, END, PAD, UNKNOWN

LETTERS = 20  # of a longer word: the first ten and the last ten
SIDES = ("words", "characters", "tags", "labels", "relations")

# tokens of a sentence -> {"pieces": ids, "last": the place of each word's last piece, START and STOP included}
Divide = Callable[[Sequence[str]], dict[str, list[int]]]


def no_pieces(tokens: Sequence[str]) -> dict[str, list[int]]:
    """No pieces, for parsers without a pretrained encoder."""
    return {"pieces": [], "last": []}


class Ids:
    """Ids of entries of vocabularies. entries: of each side, by id."""

    def __init__(self, entries: Mapping[str, Sequence[str]]) -> None:
        self.ids = {side: {entry: number for number, entry in enumerate(own)} for side, own in entries.items()}

    def of(self, side: str, entry: str, otherwise: int = UNKNOWN) -> int:
        """Return the id of an entry, or `otherwise` if the vocabulary lacks it."""
        return self.ids[side].get(entry, otherwise)

    def sentence(self, tokens: Sequence[str], tags: Sequence[str] = ()) -> dict[str, Any]:
        """Return words, characters and tags of all positions; without tags, all are unknown. -LRB- is read as a bracket."""
        known = [self.of("tags", tag) for tag in tags] or [UNKNOWN] * len(tokens)
        forms = [unescape(token) for token in tokens]
        return {
            "words": [BEGIN, *(self.of("words", form.lower()) for form in forms), END],
            "tags": [BEGIN, *known, END],
            "characters": [_row([BEGIN]), *map(self._letters, forms), _row([END])],
        }

    def _letters(self, token: str) -> list[int]:
        if len(token) > LETTERS:
            token = token[: LETTERS // 2] + token[-LETTERS // 2 :]
        return _row([self.of("characters", character) for character in token])

    def cells(self, spans: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
        """Return spans as (i, j, label), without those whose label the vocabulary lacks."""
        known = ((start, end - 1, self.of("labels", label, -1)) for label, start, end in spans)
        return [cell for cell in known if cell[2] >= 0]

    def batch(self, sentences: Sequence[Sequence[str]], divide: Divide = no_pieces) -> ParserInput:
        """Return sentences, none of which is empty, padded to the longest."""
        rows = [{**self.sentence(tokens), **divide(tokens)} for tokens in sentences]
        words, pieces, last = (_padded([row[name] for row in rows]) for name in ("words", "pieces", "last"))
        letters = np.zeros((*words.shape, LETTERS), np.int64)
        for row, own in zip(rows, letters, strict=True):
            own[: len(row["characters"])] = row["characters"]
        forms, characters = different_forms(letters)
        lengths = torch.tensor([len(tokens) for tokens in sentences])
        counts = torch.tensor([len(row["pieces"]) for row in rows])
        return ParserInput(words, forms, characters, torch.full_like(words, UNKNOWN), lengths, pieces, counts, last)


def _row(ids: list[int]) -> list[int]:
    return ids + [PAD] * (LETTERS - len(ids))


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    out = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for padded, row in zip(out, rows, strict=True):
        padded[: len(row)] = torch.tensor(row)
    return out


def different_forms(characters: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return the different rows of characters (B, N, c), and for each position the index of its row (B, N)."""
    flat = np.ascontiguousarray(characters.astype(np.int32)).reshape(-1, characters.shape[2])
    keys = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1]))).ravel()
    _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
    different = flat[first]
    longest = int((different > 0).sum(1).max(initial=1))
    return torch.from_numpy(rows.reshape(characters.shape[:2])), torch.from_numpy(
        different[:, :longest].astype(np.int64)
    )
