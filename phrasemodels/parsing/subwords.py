"""Words as pieces of the tokeniser of a pretrained encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phrasemodels.data.formats.trees import unescape
from phrasemodels.encoders.inputs import exported_tokeniser, pretrained_tokeniser

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
    """Pieces of a pretrained encoder's tokeniser. name, folder, offline: as in PretrainedConfig.

    The first piece is CLS and the last one SEP, for START and STOP; a word is represented by its last piece (paper 004,
    section 4.2). A word without any piece is the unknown one; "n't" gives its n to the previous word. Brackets, quotes and
    dashes of treebanks and of text are read alike: -LRB- as (, `` as ".
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
