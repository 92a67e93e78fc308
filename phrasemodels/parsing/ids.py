"""Sentences as ids: entries of vocabularies, batches of sentences, and pieces of the tokeniser of a pretrained encoder.

Positions are START, the words, STOP.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrasemodels.data.formats.trees import unescape
from phrasemodels.encoders.inputs import ParserInput, exported_tokeniser, pretrained_tokeniser
from phrasemodels.layers.blocks import BEGIN, END, PAD, UNKNOWN, padded
from phrasemodels.parsing.words import composed, plain

LETTERS = 20  # of a longer word: the first ten and the last ten

# tokens of a sentence -> {"pieces": ids, "last": the place of each word's last piece, START and STOP included}
Divide = Callable[[Sequence[str]], dict[str, list[int]]]


def no_pieces(tokens: Sequence[str]) -> dict[str, list[int]]:
    """No pieces, for parsers without a pretrained encoder."""
    return {"pieces": [], "last": []}


class Ids:
    """Ids of entries of vocabularies. entries: of each side, by id.

    plainly: unknown marks are read as plain ones, and accents with their letters.
    """

    def __init__(self, entries: Mapping[str, Sequence[str]], plainly: bool = False) -> None:
        self.ids = {side: {entry: number for number, entry in enumerate(own)} for side, own in entries.items()}
        self.plainly, self.plain = plainly, plain(self.ids["characters"]) if plainly else {}

    def of(self, side: str, entry: str, otherwise: int = UNKNOWN) -> int:
        """Return the id of an entry, or `otherwise` if the vocabulary lacks it."""
        return self.ids[side].get(entry, otherwise)

    def sentence(self, tokens: Sequence[str], tags: Sequence[str] = ()) -> dict[str, Any]:
        """Return words, characters and tags of all positions. Without tags all are unknown. -LRB- is read as a bracket."""
        known = [self.of("tags", tag) for tag in tags] or [UNKNOWN] * len(tokens)
        forms = [self.form(token) for token in tokens]
        return {
            "words": [BEGIN, *(self.of("words", form.lower()) for form in forms), END],
            "tags": [BEGIN, *known, END],
            "characters": [_row([BEGIN]), *map(self._letters, forms), _row([END])],
        }

    def form(self, token: str) -> str:
        """Return a token in the spelling of the treebank. A character of HTML is itself (&amp;)."""
        form = html.unescape(token) if token[0] == "&" and token[-1] == ";" else unescape(token)
        return composed(form)[0].translate(self.plain) if self.plainly and not form.isascii() else form

    def _letters(self, token: str) -> list[int]:
        if len(token) > LETTERS:
            token = token[: LETTERS // 2] + token[-LETTERS // 2 :]
        known = self.ids["characters"]
        return _row([known.get(character, UNKNOWN) for character in token])

    def cells(self, spans: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
        """Return spans as (i, j, label), without unknown labels."""
        known = ((start, end - 1, self.of("labels", label, -1)) for label, start, end in spans)
        return [cell for cell in known if cell[2] >= 0]

    def batch(self, sentences: Sequence[Sequence[str]], divide: Divide = no_pieces) -> ParserInput:
        """Return sentences, none of them empty, padded to the longest."""
        forms = [[self.form(token) for token in tokens] for tokens in sentences]
        words = padded([[BEGIN, *(self.of("words", form.lower()) for form in own), END] for own in forms])
        edges = [_row([]), _row([BEGIN]), _row([END])]
        places = {form: len(edges) + k for k, form in enumerate(dict.fromkeys(chain.from_iterable(forms)))}
        characters = torch.tensor([*edges, *map(self._letters, places)])
        rows = padded([[1, *(places[form] for form in own), 2] for own in forms])
        lengths = torch.tensor([len(own) for own in forms])
        divided = [divide(tokens) for tokens in sentences]
        pieces, last = (padded([own[name] for own in divided]) for name in ("pieces", "last"))
        counts = torch.tensor([len(own["pieces"]) for own in divided])
        longest = int((characters > 0).sum(1).max())
        tags = torch.full_like(words, UNKNOWN)
        return ParserInput(words, rows, characters[:, :longest], tags, lengths, pieces, counts, last)


def _row(ids: list[int]) -> list[int]:
    return ids + [PAD] * (LETTERS - len(ids))


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


# How pretrained encoders know the words of treebanks, and other signs that text has for them.
PLAIN = {
    **{
        f"-{side}{kind}B-": sign
        for signs, kind in (("()", "R"), ("[]", "S"), ("{}", "C"))
        for side, sign in zip("LR", signs, strict=True)
    },
    **dict.fromkeys(("``", "''", "“", "”", "„", "«", "»"), '"'),
    **dict.fromkeys(("`", "‘", "’", "‹", "›"), "'"),
    **dict.fromkeys(("–", "—"), "--"),
}


@dataclass(frozen=True)
class Pieces:
    """Pieces of a pretrained encoder's tokeniser.

    The first piece is CLS and the last one SEP, for START and STOP; a word is represented by its last piece (paper 004,
    section 4.2). A word without any piece is the unknown one; "n't" gives its n to the previous word. Brackets, quotes and
    dashes of treebanks and of text are read alike: -LRB- as (, `` as ".

    Args:
        name: A folder, or the name of a model on the Hugging Face hub.
        folder: Where the files of a named encoder are, if not on the hub.
        offline: Don't ask the hub.
    """

    name: str
    folder: str = field(default="", compare=False)
    offline: bool = field(default=False, compare=False)

    def __call__(self, tokens: Sequence[str]) -> dict[str, list[int]]:
        return divided(pretrained_tokeniser(self.name, self.folder, self.offline), tokens)


@dataclass(frozen=True)
class ExportedPieces:
    """Pieces of the tokeniser of an exported model, divided as by Pieces. folder: of its encoder."""

    folder: str

    def __call__(self, tokens: Sequence[str]) -> dict[str, list[int]]:
        return divided(exported_tokeniser(self.folder), tokens)


def divided(tokeniser: Any, tokens: Sequence[str]) -> dict[str, list[int]]:
    """Return the ids of the pieces of tokens, and the position of the last piece of each, with START and STOP."""
    pieces, last = [tokeniser.cls_token_id], [0]
    for word in reunited([as_written(token) for token in tokens]):
        found = tokeniser(word, add_special_tokens=False)["input_ids"] or [tokeniser.unk_token_id]
        pieces += found
        last.append(len(pieces) - 1)
    return {"pieces": [*pieces, tokeniser.sep_token_id], "last": [*last, len(pieces)]}


def as_written(token: str) -> str:
    """Return a token of a treebank as running text has it: ( for -LRB-, " for `` and '', no backslash before / and *."""
    return PLAIN.get(token) or unescape(token)


def reunited(tokens: Sequence[str]) -> list[str]:
    """Return words as pretrained encoders know them: do n't becomes don 't."""
    words = list(tokens)
    for place in range(1, len(words)):
        if words[place].lower() in ("n't", "n’t") and words[place - 1]:
            words[place - 1] += words[place][0]
            words[place] = words[place][1:]
    return words
