"""The step of dividing parallel sentences into tokens.

A manifest says the languages of a corpus and their tokeniser. Both are checked before anything runs.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import (
    TOKENS,
    check,
    read_shard,
    write_shard,
)
from phrasemodels.data.store.store import Job
from phrasemodels.inference.inputs import (
    UNSPACED,
    Detokeniser,
    Tokeniser,
    detokenise_moses,
    join,
    joined_letters_or_words,
    letters_or_words,
    moses_lower,
    moses_then_lower,
    spaces,
)
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards


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


# By the names that a manifest may give (data/download/manifest.py: Languages).
TOKENISERS: dict[str, tuple[Tokeniser, Detokeniser]] = {
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
