"""Stories to numbers: the words of facts and questions, answers, and the facts that support them."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.step import Job
from phrasemodels.layers.ids import SPECIAL
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards
from phrasemodels.tasks.prepare.vocabulary import read_words

UNKNOWN = 1
_WORD = re.compile(r"[\w'-]+")


def words(text: str) -> list[str]:
    """The words of a fact or a question, in lower case, without punctuation."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class StoryWords:
    """The vocabulary has all words and all answers; an answer of several words is one entry."""


def story_vocabulary(job: Job, settings: StoryWords) -> dict[str, Any]:
    """words.txt of STORIES, one word a line; the line number, from 0, is the id."""
    table = read_shards(job.inputs["rows"])
    counts = Counter(answer.lower() for answer in table["answer"].to_pylist())
    for facts, question in zip(table["facts"].to_pylist(), table["question"].to_pylist(), strict=True):
        counts.update(word for text in (*facts, question) for word in words(text))
    found = [*SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word))]
    write_durably(job.out / "words.txt", "".join(f"{word}\n" for word in found))
    return {"words": len(found)}


def story_schema(width: int) -> pa.Schema:
    """Ids of the last facts (`width` words each, 0 for none) and of the question; the answer's id; the places of the
    supporting facts among those that are kept, -1 for one that is not."""
    number = pa.field("item", pa.int32(), nullable=False)
    numbers, facts = pa.list_(number), pa.list_(pa.field("item", pa.list_(number, width), nullable=False))
    kinds = {"id": pa.int64(), "facts": facts, "question": numbers, "answer": numbers, "support": numbers}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in {**kinds, "group": pa.string()}.items()])


@dataclass(frozen=True)
class Stories:
    """How many of the last facts are kept, and how many words of each, and of the question."""

    slots: int = 25
    words: int = 20


def stories(job: Job, settings: Stories) -> dict[str, Any]:
    """Shards of ids, of STORIES shards and job.inputs["vocabulary"]; one step a shard."""
    return map_shards(job, story_shard, settings, vocabulary=job.inputs["vocabulary"])


def story_shard(job: Job, settings: Stories) -> dict[str, Any]:
    """Ids of one STORIES shard; no question is dropped."""
    ids = {word: i for i, word in enumerate(read_words(job.inputs["vocabulary"], "words"))}

    def numbers(text: str) -> list[int]:
        return [ids.get(word, UNKNOWN) for word in words(text)[: settings.words]]

    rows = []
    for row in read_shard(job.inputs["shard"].path).to_pylist():
        facts = [numbers(fact) for fact in row["facts"][-settings.slots :]]
        left_out = len(row["facts"]) - len(facts)
        rows.append(
            {
                "id": row["id"],
                "facts": [fact + [0] * (settings.words - len(fact)) for fact in facts],
                "question": numbers(row["question"]),
                "answer": [ids.get(row["answer"].lower(), UNKNOWN)],
                "support": [max(place - left_out, -1) for place in row["support"]],
                "group": row["group"],
            }
        )
    made = pa.Table.from_pylist(rows, schema=story_schema(settings.words))
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}
