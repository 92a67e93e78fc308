"""Tokenisers, functions of (text, language), and the step that divides parallel sentences into tokens."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards

Tokeniser = Callable[[str, str], list[str]]  # (text, language) -> tokens
Detokenise = Callable[[list[str], str], str]  # (tokens, language) -> text


def moses(text: str, language: str) -> list[str]:
    """Return Moses tokens (without HTML escapes)."""
    return _moses(language).tokenize(text, escape=False)


def moses_lower(text: str, language: str) -> list[str]:
    """Return Moses tokens in lower case, as in papers on Multi30k."""
    return moses(text.lower(), language)


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
    """Return the characters of Japanese without spaces; text in other languages is tokenised already (paper 003)."""
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


_PIECE = re.compile(
    r"""
    https?://\S+[^\s.,;:!?)\]'"] | (?<!\S)\S[^\s@]*@\S+\.\w+          # addresses; written so, neither tries twice
  | (?:[A-Za-z]\.){2,}                                                # U.S., e.g.
  | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|Inc|Ltd|Co|Corp|Fig|No)\.(?=\s|$|,)
  | \d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?\b                             # 1,000.5 10:30 1st 1990s
  | \w+(?:[-'’.&/]\w+)*                                               # words, with what stands inside of them
  | ['’]n['’] | ['’](?:\d+s?|s|re|ve|ll|d|m|tis|twas|em|cause|til)\b     # by themselves; else it is a quote
  | \.{2,} | -{2,} | `` | '' | \S
    """,
    re.VERBOSE,
)
_CLITIC = re.compile(r"(?i)n['’]t|['’](?:s|re|ve|ll|d|m)")
_BACKWARDS = re.compile(r"(?i)(?:t['’]n|(?:s|er|ev|ll|d|m)['’])+")  # from the end no clitic is part of another
_WHOLE = {"cannot": ("can", "not"), "gonna": ("gon", "na"), "wanna": ("wan", "na"), "gotta": ("got", "ta")}


def penn_treebank(text: str, language: str = "en") -> list[str]:
    """Return the tokens of English text as in treebanks: punctuation and clitics apart, numbers and abbreviations whole.

    The time is linear in the length of the text.
    """
    tokens: list[str] = []
    for piece in _PIECE.findall(text):
        parts = _WHOLE.get(piece.lower())
        if parts:
            tokens += [piece[: len(parts[0])], piece[len(parts[0]) :]]
        elif found := _BACKWARDS.match(piece[:0:-1]):
            word = len(piece) - found.end()
            tokens += [piece[:word], *_CLITIC.findall(piece[word:])]
        else:
            tokens.append(piece)
    return tokens


@cache
def _moses(language: str) -> Any:
    from sacremoses import MosesTokenizer

    return MosesTokenizer(language)


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
