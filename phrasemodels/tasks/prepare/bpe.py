"""Byte-pair encoding (Sennrich et al. 2016) of both sides together: learned from train, applied to all splits.

A piece ends with `@@` if its word goes on.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phrasemodels.data.formats.schemas import TOKENS, check
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards

WORD_END, UNKNOWN_PIECE, GOES_ON = "</w>", "<unk>", "@@"


@dataclass(frozen=True)
class LearnBpe:
    """The number of merges; pairs that occur fewer than min_count times are not merged."""

    merges: int = 6000
    min_count: int = 2

    def __post_init__(self) -> None:
        at_least(self, 0, "merges")
        at_least(self, 1, "min_count")


def learn_bpe(job: Job, settings: LearnBpe) -> dict[str, Any]:
    """Learn merges of both sides of the TOKENS job.inputs["rows"]. Writes bpe.json: vocabulary and ordered merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    table = read_shards(job.inputs["rows"])
    words = Counter(word for side in ("source", "target") for word in pc.list_flatten(table[side]).to_pylist())
    # As special tokens, letters have fixed ids; ties between pairs are broken by ids, so results do not vary.
    alphabet = [UNKNOWN_PIECE, *sorted({c for w in words for c in w} | {w[-1] + WORD_END for w in words})]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN_PIECE, end_of_word_suffix=WORD_END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + settings.merges,
        min_frequency=settings.min_count,
        special_tokens=alphabet,
        end_of_word_suffix=WORD_END,
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join([word] * count) for word, count in sorted(words.items())), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    write_durably(job.out / "bpe.json", json.dumps({"vocab": learned["vocab"], "merges": learned["merges"]}))
    return {"merges": len(learned["merges"])}


def apply_bpe(job: Job, settings: None) -> dict[str, Any]:
    """Write TOKENS shards of pieces, of the TOKENS job.inputs["rows"] by the merges ["bpe"], in a step for each shard."""
    return map_shards(job, apply_bpe_shard, bpe=job.inputs["bpe"])


def apply_bpe_shard(job: Job, settings: None) -> dict[str, Any]:
    """Write the pieces of one shard."""
    divide = cache(divider(job.inputs["bpe"].file("bpe.json").read_text(encoding="utf-8")))
    table = read_shard(job.inputs["shard"].path)
    for side in ("source", "target"):
        pieces = [[piece for word in words for piece in divide(word)] for words in table[side].to_pylist()]
        place = table.schema.get_field_index(side)
        table = table.set_column(place, table.schema.field(side), pa.array(pieces, table.schema.field(side).type))
    return {"dropped": 0, **write_shard(job.out / SHARD, check(table, TOKENS, str(job.inputs["shard"].path)))}


def divider(learned: str) -> Callable[[str], list[str]]:
    """Return the function from a word to its pieces, for a bpe.json; an unknown letter is a piece by itself."""
    from tokenizers import models

    found = json.loads(learned)
    merges = [tuple(pair) for pair in found["merges"]]
    model = models.BPE(found["vocab"], merges, unk_token=UNKNOWN_PIECE, end_of_word_suffix=WORD_END)

    def divide(word: str) -> list[str]:
        raw = word.encode()  # offsets are of bytes
        pieces = [raw[slice(*token.offsets)].decode() for token in model.tokenize(word)]
        return [*(piece + GOES_ON for piece in pieces[:-1]), pieces[-1]]

    return divide


def without_bpe(tokens: list[str]) -> str:
    """Return the words of pieces as text; the last piece ends its word in any case."""
    return " ".join(tokens).replace(f"{GOES_ON} ", "").removesuffix(GOES_ON)


def joined(tokens: list[str]) -> str:
    """Return whole words as text."""
    return " ".join(tokens)
