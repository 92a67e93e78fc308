"""Records to tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards

Tokeniser = Callable[[str, str], list[str]]


def moses_lower(text: str, language: str) -> list[str]:
    """Moses tokens in lower case, as papers on Multi30k have them (no HTML escapes)."""
    return _moses(language).tokenize(text.lower(), escape=False)


def spaces(text: str, language: str) -> list[str]:
    """Text that is tokenised already."""
    return text.split()


PREDICATES = ("mso:", "r-mso:")


def underscores_as_spaces(text: str, language: str) -> list[str]:
    """Tokens of MSParS with entities divided into words, `citric_acid` into two; predicates stay whole.

    The question has them divided already. Where one entity ends and the next begins cannot be seen any more.
    """
    return [piece for token in text.split() for piece in _apart(token) if piece]


def underscores_as_tokens(text: str, language: str) -> list[str]:
    """The same with `_` as a token where it stood, so that it can be undone."""
    return [piece for token in text.split() for piece in " _ ".join(_apart(token)).split()]


def _apart(token: str) -> list[str]:
    return [token] if token.startswith(PREDICATES) else token.split("_")


def characters(text: str, language: str) -> list[str]:
    """The characters of Japanese, without spaces; other languages are tokenised already (paper 003)."""
    return list("".join(text.split())) if language == "ja" else text.split()


def letters(text: str, language: str) -> list[str]:
    """The same of English: what the sample corpus has in place of Japanese."""
    return list("".join(text.split())) if language == "en" else text.split()


def detokenise_moses(tokens: list[str], language: str) -> str:
    """Running text, for scorers that tokenise for themselves."""
    return _detokeniser(language).detokenize(tokens)


def join(tokens: list[str], language: str) -> str:
    """Running text of tokens that were split at spaces."""
    return " ".join(tokens)


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
    """How each side is divided into tokens."""

    tokeniser: Tokeniser
    source_language: str
    target_language: str


def tokenise(job: Job, settings: Tokenise) -> dict[str, Any]:
    """TOKENS shards of BITEXT shards, one step a shard."""
    return map_shards(job, tokenise_shard, settings)


def tokenise_shard(job: Job, settings: Tokenise) -> dict[str, Any]:
    """TOKENS of one BITEXT shard."""
    table = read_shard(job.inputs["shard"].path)
    columns = {
        "id": table["id"],
        "source": [settings.tokeniser(text, settings.source_language) for text in table["source"].to_pylist()],
        "target": [settings.tokeniser(text, settings.target_language) for text in table["target"].to_pylist()],
        "group": table["group"],
    }
    made = check(pa.table(columns, schema=TOKENS), TOKENS, str(job.inputs["shard"].path))
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}
