"""Byte-pair encoding (Sennrich et al. 2016) of both sides together: learned from train, applied to every split.

A piece that does not end its word has `@@` behind it.
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
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards

END, UNKNOWN, GOES_ON = "</w>", "<unk>", "@@"


@dataclass(frozen=True)
class LearnBpe:
    """How many merges; pairs seen fewer than min_count times are not merged."""

    merges: int = 6000
    min_count: int = 2


def learn_bpe(job: Job, settings: LearnBpe) -> dict[str, Any]:
    """bpe.json: merges in their order, of both sides of the TOKENS job.inputs["rows"]."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    table = read_shards(job.inputs["rows"])
    words = Counter(word for side in ("source", "target") for word in pc.list_flatten(table[side]).to_pylist())
    # Given beforehand, so that their numbers, by which ties are broken, are the same each time.
    alphabet = [UNKNOWN, *sorted({c for w in words for c in w} | {w[-1] + END for w in words})]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + settings.merges,
        min_frequency=settings.min_count,
        special_tokens=alphabet,
        end_of_word_suffix=END,
        show_progress=False,
    )
    tokenizer.train_from_iterator((" ".join([word] * count) for word, count in sorted(words.items())), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    write_durably(job.out / "bpe.json", json.dumps({"vocab": learned["vocab"], "merges": learned["merges"]}))
    return {"merges": len(learned["merges"])}


@dataclass(frozen=True)
class ApplyBpe:
    """Nothing to choose."""


def apply_bpe(job: Job, settings: ApplyBpe) -> dict[str, Any]:
    """TOKENS shards of TOKENS shards, in pieces by job.inputs["bpe"]; one step a shard."""
    return map_shards(job, apply_bpe_shard, settings, bpe=job.inputs["bpe"])


def apply_bpe_shard(job: Job, settings: ApplyBpe) -> dict[str, Any]:
    """TOKENS of one shard, in pieces."""
    divide = cache(divider(job.inputs["bpe"].file("bpe.json").read_text(encoding="utf-8")))
    table = read_shard(job.inputs["shard"].path)
    for side in ("source", "target"):
        pieces = [[piece for word in words for piece in divide(word)] for words in table[side].to_pylist()]
        place = table.schema.get_field_index(side)
        table = table.set_column(place, table.schema.field(side), pa.array(pieces, table.schema.field(side).type))
    return {"dropped": 0, **write_shard(job.out / SHARD, check(table, TOKENS, str(job.inputs["shard"].path)))}


def divider(learned: str) -> Callable[[str], list[str]]:
    """The function from a word to its pieces; what is not in the alphabet is a piece by itself."""
    from tokenizers import models

    found = json.loads(learned)
    merges = [tuple(pair) for pair in found["merges"]]
    model = models.BPE(found["vocab"], merges, unk_token=UNKNOWN, end_of_word_suffix=END)

    def divide(word: str) -> list[str]:
        raw = word.encode()  # offsets are of bytes
        pieces = [raw[slice(*token.offsets)].decode() for token in model.tokenize(word)]
        return [*(piece + GOES_ON for piece in pieces[:-1]), pieces[-1]]

    return divide


def without_bpe(tokens: list[str]) -> str:
    """Running text of pieces; a piece that has nothing behind it ends its word."""
    return " ".join(tokens).replace(f"{GOES_ON} ", "").removesuffix(GOES_ON)


def joined(tokens: list[str]) -> str:
    """Running text of whole words."""
    return " ".join(tokens)
