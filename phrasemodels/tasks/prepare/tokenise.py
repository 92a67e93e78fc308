"""Tokenisers (functions of text and language) and the step of dividing parallel sentences into tokens.

A manifest says the languages of a corpus and their tokeniser. Both are checked before anything runs.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import (
    TOKENS,
    check,
    read_shard,
    write_shard,
)
from phrasemodels.data.store.store import Job
from phrasemodels.parsing.words import INSIDE, words
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards

Tokeniser = Callable[[str, str], list[str]]  # (text, language) -> tokens
Detokenise = Callable[[list[str], str], str]  # (tokens, language) -> text


def moses(text: str, language: str) -> list[str]:
    """Return Moses tokens (without HTML escapes)."""
    return _moses(language).tokenize(text, escape=False)


def moses_lower(text: str, language: str) -> list[str]:
    """Return the Moses tokens of text in lower case, as scripts of papers on Multi30k do it."""
    return moses(text.lower(), language)


def moses_then_lower(text: str, language: str) -> list[str]:
    """Return Moses tokens, each in lower case.

    Moses needs the capitals: a full stop before a small letter ends no sentence for it, so it leaves "folder." as one token.
    """
    return [token.lower() for token in moses(text, language)]


def spaces(text: str, language: str) -> list[str]:
    """Return the tokens of text that is tokenised already."""
    return text.split()


PREDICATES = ("mso:", "r-mso:")


def underscores_as_spaces(text: str, language: str) -> list[str]:
    """Return the tokens of an MSParS form with entities divided into words, as the question has them: `citric_acid`
    becomes two. Predicates stay whole. The ends of adjacent entities are lost."""
    return [piece for token in text.split() for piece in _apart(token) if piece]


def underscores_as_tokens(text: str, language: str) -> list[str]:
    """Return the same tokens with `_` as a token between the words of an entity, so that nothing is lost."""
    return [piece for token in text.split() for piece in " _ ".join(_apart(token)).split()]


def _apart(token: str) -> list[str]:
    return [token] if token.startswith(PREDICATES) else token.split("_")


def characters(text: str, language: str) -> list[str]:
    """Return the characters of Japanese without spaces.

    Text in other languages is tokenised already (paper 003).
    """
    return list("".join(text.split())) if language == "ja" else text.split()


def letters(text: str, language: str) -> list[str]:
    """Return the letters of English: the sample corpus has English in place of Japanese."""
    return list("".join(text.split())) if language == "en" else text.split()


def detokenise_moses(tokens: list[str], language: str) -> str:
    """Return running text, for metrics that tokenise by themselves."""
    return _detokeniser(language).detokenize(tokens)


def join(tokens: list[str], language: str) -> str:
    """Return the text of tokens that were split at spaces."""
    return " ".join(tokens)


def penn_treebank(text: str, language: str = "en") -> list[str]:
    """Return the tokens of English text as in treebanks: punctuation and clitics apart, numbers and abbreviations whole.

    Soft hyphens and word joiners are left out. The time is linear in the length of the text.
    """
    return [word.form for word in words(INSIDE.sub("", text))]


@cache
def _moses(language: str) -> Any:
    """Return sacremoses' tokeniser made two to five times as fast with equal results.

    It makes sets of 11,000 characters at each full stop. Here this is done once. It searches every text for commas,
    apostrophes and rows of full stops with classes of as many characters. Here only a text that has one is searched.
    """
    from sacremoses import MosesTokenizer

    made = MosesTokenizer(language)
    letters, small = frozenset(made.IsAlpha), frozenset(made.IsLower)
    made.isanyalpha = lambda text: not letters.isdisjoint(text)
    made.islower = small.issuperset
    for name in ("COMMA_SEPARATE_1", "COMMA_SEPARATE_2", "COMMA_SEPARATE_3"):
        setattr(made, name, _rule_with(",", *getattr(made, name)))
    for name in ("ENGLISH_SPECIFIC_APOSTROPHE", "FR_IT_SPECIFIC_APOSTROPHE"):
        setattr(made, name, [_rule_with("'", *rule) for rule in getattr(made, name)])
    made.TRAILING_DOT_APOSTROPHE = _rule_with("'", *made.TRAILING_DOT_APOSTROPHE)
    join_dots, divide_dots = made.replace_multidots, made.restore_multidots
    made.replace_multidots = lambda text: join_dots(text) if ".." in text or "DOTMULTI" in text else text
    made.restore_multidots = lambda text: divide_dots(text) if "DOTMULTI" in text else text
    return made


@dataclass(frozen=True)
class _Substitution:
    """A pattern that matches only texts with a sign. `sub` is the pattern's."""

    sign: str
    pattern: re.Pattern[str]

    def sub(self, replacement: str, text: str) -> str:
        return self.pattern.sub(replacement, text) if self.sign in text else text


def _rule_with(sign: str, pattern: re.Pattern[str], replacement: str) -> tuple[_Substitution, str]:
    """Return a rule of sacremoses, whose pattern contains a sign."""
    return _Substitution(sign, pattern), replacement


@cache
def _detokeniser(language: str) -> Any:
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(language)


@dataclass(frozen=True)
class Tokenise:
    """A tokeniser, and the language of each side."""

    tokeniser: Tokeniser
    source_language: str
    target_language: str


def tokenise(job: Job, settings: Tokenise) -> dict[str, Any]:
    """Write TOKENS shards of the BITEXT shards job.inputs["rows"], in a step for each shard."""
    return map_shards(job, tokenise_shard, settings)


def tokenise_shard(job: Job, settings: Tokenise) -> dict[str, Any]:
    """Write the TOKENS of one shard."""
    table = read_shard(job.inputs["shard"].path)
    columns = {
        "id": table["id"],
        "source": [settings.tokeniser(text, settings.source_language) for text in table["source"].to_pylist()],
        "target": [settings.tokeniser(text, settings.target_language) for text in table["target"].to_pylist()],
        "group": table["group"],
    }
    made = check(pa.table(columns, schema=TOKENS), TOKENS, str(job.inputs["shard"].path))
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}


UNSPACED = ("ja", "zh", "yue", "th", "lo", "km", "my")  # written without spaces between words


def letters_or_words(text: str, language: str) -> list[str]:
    """Return the characters of a language without spaces between words, and the Moses tokens of any other."""
    return list("".join(text.split())) if language in UNSPACED else moses_lower(text, language)


def joined_letters_or_words(tokens: list[str], language: str) -> str:
    """Return running text of `letters_or_words`."""
    return "".join(tokens) if language in UNSPACED else detokenise_moses(tokens, language)


# By the names that a manifest may give (data/download/manifest.py: Languages).
TOKENISERS: dict[str, tuple[Tokeniser, Detokenise]] = {
    "moses": (moses_then_lower, detokenise_moses),
    "spaces": (spaces, join),
    "characters": (letters_or_words, joined_letters_or_words),
}


def check_language(tokeniser: Tokeniser, language: str, corpus: str) -> None:
    """ValueError: the tokeniser has no rules for the language. It would take another language's."""
    if tokeniser not in (moses_lower, moses_then_lower, letters_or_words):
        return
    from sacremoses.corpus import NonbreakingPrefixes

    if language in UNSPACED:
        if tokeniser is not letters_or_words:
            raise ValueError(
                f"{corpus}: {language!r} has no spaces between words, which Moses needs; {_how('characters')}"
            )
    elif language not in NonbreakingPrefixes().available_langs:
        raise ValueError(
            f"{corpus}: Moses has no rules for {language!r}; {_how('spaces')}, for text that is divided already"
        )


def _how(tokeniser: str) -> str:
    return f'write `tokeniser = "{tokeniser}"` into [languages] of its manifest'
