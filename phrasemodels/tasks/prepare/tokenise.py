"""Tokenisers, functions of (text, language), and the step that divides parallel sentences into tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.parsing.words import INSIDE, words
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


def penn_treebank(text: str, language: str = "en") -> list[str]:
    """Return the tokens of English text as in treebanks: punctuation and clitics apart, numbers and abbreviations whole.

    Soft hyphens and word joiners are left out. The time is linear in the length of the text.
    """
    return [word.form for word in words(INSIDE.sub("", text))]


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
