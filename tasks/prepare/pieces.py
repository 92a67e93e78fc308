"""Words to the pieces of a pretrained encoder's vocabulary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from phrasemodels.encoders.inputs import load_pretrained

Divide = Callable[[Sequence[str]], dict[str, list[int]]]


def no_pieces(tokens: Sequence[str]) -> dict[str, list[int]]:
    """For parsers without a pretrained encoder."""
    return {"pieces": [], "last": []}


@dataclass(frozen=True)
class Pieces:
    """Pieces of the tokeniser of an encoder: name, folder and offline as in PretrainedConfig.

    The first piece is CLS and the last SEP, which stand for START and STOP; a word is its last piece (paper 004,
    section 4.2). A word without a piece is the unknown one, and "n't" gives its n to the word before.
    """

    name: str
    folder: str = field(default="", compare=False)
    offline: bool = field(default=False, compare=False)

    def __call__(self, tokens: Sequence[str]) -> dict[str, list[int]]:
        tokeniser = _tokeniser(self.name, self.folder, self.offline)
        pieces, last = [tokeniser.cls_token_id], [0]
        for word in reunited(tokens):
            found = tokeniser(word, add_special_tokens=False)["input_ids"] or [tokeniser.unk_token_id]
            pieces += found
            last.append(len(pieces) - 1)
        return {"pieces": [*pieces, tokeniser.sep_token_id], "last": [*last, len(pieces)]}


def reunited(tokens: Sequence[str]) -> list[str]:
    """Words as pretrained encoders know them: do n't is don 't."""
    words = list(tokens)
    for place in range(1, len(words)):
        if words[place].lower() in ("n't", "n’t") and words[place - 1]:
            words[place - 1] += words[place][0]
            words[place] = words[place][1:]
    return words


@cache
def _tokeniser(name: str, folder: str, offline: bool) -> Any:
    found = load_pretrained("AutoTokenizer", name, folder, offline, add_prefix_space=True)  # a word is never in another
    if None in (found.cls_token_id, found.sep_token_id, found.unk_token_id):
        raise ValueError(
            f"{name}: its tokeniser has no CLS, SEP or unknown piece; take an encoder such as BERT or XLNet"
        )
    return found
