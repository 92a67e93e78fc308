"""Text as tokens, and tokens as text, by the names that an exported model gives to them.

Each function does the same as the step of the pipeline that has its name (`tasks/prepare/tokenise.py`); a test compares them.
"""

import json
import re
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from phrasemodels.layers.blocks import SPECIAL, UNKNOWN
from phrasemodels.parsing.words import INSIDE, words

Tokeniser = Callable[[str, str], list[str]]  # (text, language) -> tokens
Detokeniser = Callable[[list[str], str], str]  # (tokens, language) -> text

UNSPACED = ("ja", "zh", "yue", "th", "lo", "km", "my")  # written without spaces between words
PREDICATES = ("mso:", "r-mso:")  # of MSParS, whose underscores stay
NOTHING = "."  # the only word of an empty sentence
BUCKETS = 128  # vectors that unknown words share
_WORD = re.compile(r"[\w'-]+")


def _moses(text: str, language: str) -> list[str]:
    tokens: list[str] = _of_sacremoses("MosesTokenizer", language).tokenize(text, escape=False)
    return tokens


def _running(tokens: list[str], language: str) -> str:
    return str(_of_sacremoses("MosesDetokenizer", language).detokenize(tokens))


@cache
def _of_sacremoses(kind: str, language: str) -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise ValueError(
            "this model reads Moses tokens: pip install sacremoses, or give each text as a list of tokens"
        ) from error
    return getattr(sacremoses, kind)(language)


def _letters(text: str) -> list[str]:
    return list("".join(text.split()))


def _entities(joint: str) -> Tokeniser:
    def divide(text: str, language: str) -> list[str]:
        parts = ([t] if t.startswith(PREDICATES) else t.split("_") for t in text.split())
        return [piece for own in parts for piece in joint.join(own).split(" ") if piece]

    return divide


TOKENISERS: Mapping[str, Tokeniser] = {
    "moses": _moses,
    "moses_lower": lambda text, language: _moses(text.lower(), language),
    "moses_then_lower": lambda text, language: [token.lower() for token in _moses(text, language)],
    "spaces": lambda text, language: text.split(),
    "as_written": lambda text, language: text.split(),
    "lower_spaces": lambda text, language: text.lower().split(),
    "lower_case": lambda text, language: text.lower().split(),
    "characters": lambda text, language: _letters(text) if language == "ja" else text.split(),
    "letters": lambda text, language: _letters(text) if language == "en" else text.split(),
    "letters_or_words": lambda text, language: (
        _letters(text) if language in UNSPACED else _moses(text.lower(), language)
    ),
    "underscores_as_spaces": _entities(" "),
    "underscores_as_tokens": _entities(" _ "),
    "penn_treebank": lambda text, language: [word.form for word in words(INSIDE.sub("", text))],
    "words": lambda text, language: _WORD.findall(text.lower()),
}
DETOKENISERS: Mapping[str, Detokeniser] = {
    "": lambda tokens, language: " ".join(tokens),
    "join": lambda tokens, language: " ".join(tokens),
    "detokenise_moses": _running,
    "joined_letters_or_words": lambda tokens, language: (
        "".join(tokens) if language in UNSPACED else _running(tokens, language)
    ),
}
MARKED = "marked "  # before the name of a tokeniser whose tokens stand between <s> and </s>


def tokeniser(name: str, own: Mapping[str, Any]) -> Tokeniser:
    """Return a tokeniser by name. own: the caller's functions, by "module:name". ValueError: there is none."""
    plain = name.removeprefix(MARKED)
    found = TOKENISERS.get(plain) or own.get(plain)
    if found is None:
        raise ValueError(f"its tokeniser {name} is not of this library; pass the function: load(folder, function)")
    return found if plain == name else lambda text, language: ["<s>", *found(text, language), "</s>"]


def detokeniser(name: str, own: Mapping[str, Any]) -> Detokeniser:
    """Return a detokeniser by name. own: the caller's functions, by "module:name". ValueError: there is none."""
    if (found := DETOKENISERS.get(name) or own.get(name)) is None:
        raise ValueError(f"its detokeniser {name} is not of this library; pass the function: load(folder, function)")
    return found


MOST_WORDS = 200  # of a text
CHARACTERS = 10  # of a word on average, at most


def too_long(text: str, most_words: int = MOST_WORDS) -> str:
    """Return why a text is too long for a model that answers at most so many words; an empty string if it is not."""
    words = len(text.split()) if 2 * most_words < len(text) <= CHARACTERS * most_words else 0
    if len(text) <= CHARACTERS * most_words and words <= most_words:
        return ""
    return (
        f"{len(text)} characters: at most {most_words} words of {CHARACTERS} characters are answered; divide the text"
    )


def hashed(tokens: list[str], known: Mapping[str, int]) -> list[int]:
    """Return ids. An unknown word has one of BUCKETS ids after the vocabulary, by a hash of its letters."""
    return [known[token] if token in known else len(known) + zlib.crc32(token.encode()) % BUCKETS for token in tokens]


def left_out(tokens: list[str], known: Container[str]) -> list[str]:
    """Leave out unknown words. At least one word stays."""
    return [token for token in tokens if token in known] or [NOTHING]


def ids_of(tokens: Sequence[str], entries: Mapping[str, int]) -> list[int]:
    """Return the ids of tokens. A token is unknown if the vocabulary lacks it or it spells a special entry."""
    return [UNKNOWN if token in SPECIAL else entries.get(token, UNKNOWN) for token in tokens]


class Pieces:
    """Byte-pair encoding by the merges of an exported model (bpe.json: `vocab` and ordered `merges`). ValueError: the file
    is damaged."""

    END, GOES_ON = "</w>", "@@"

    def __init__(self, file: Path) -> None:
        try:
            learned = json.loads(file.read_text(encoding="utf-8"))
            pairs = [(first, second) for first, second in learned["merges"]]
            texts = [*learned["vocab"], *(text for pair in pairs for text in pair)]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("a piece is no text")
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ValueError(f"{file}: not the merges of words' pieces ({error}); export the model again") from error
        self.vocabulary = frozenset(learned["vocab"])
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self._divided: dict[str, list[str]] = {}

    def __call__(self, tokens: Sequence[str]) -> list[str]:
        """Return the pieces of words. A piece ends with `@@` if its word goes on."""
        return [piece for token in tokens for piece in self._word(token)]

    def _word(self, word: str) -> list[str]:
        if word not in self._divided:
            parts = self._merged([*word[:-1], word[-1] + self.END])
            inner = [part.removesuffix(self.END) for part in parts]
            self._divided[word] = [*(part + self.GOES_ON for part in inner[:-1]), inner[-1]]
        return self._divided[word]

    def _merged(self, parts: list[str]) -> list[str]:
        """Merge learned pairs in the order of learning, leftmost first. An unknown letter is a part by itself."""
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in pairwise(parts)]
            best = min(ranks)
            if best == len(self.ranks):
                break
            place = ranks.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


def without_pieces(tokens: list[str]) -> str:
    """Return the words of pieces as text. The last piece ends its word in any case."""
    return " ".join(tokens).replace(f"{Pieces.GOES_ON} ", "").removesuffix(Pieces.GOES_ON)
