"""Stories as numbers: ids of the words of facts and questions, answers, and the facts that support them."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.step import Job
from phrasemodels.layers.checks import at_least
from phrasemodels.layers.ids import PAD, UNKNOWN
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, required
from phrasemodels.tasks.prepare.vocabulary import by_frequency, read_words, write_words

_WORD = re.compile(r"[\w'-]+")


def words(text: str) -> list[str]:
    """Return the words of a fact or a question in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def story_vocabulary(job: Job, settings: None) -> dict[str, Any]:
    """Write words.txt: the words of the STORIES job.inputs["rows"], and their answers; an answer of several words is one
    entry."""
    table = read_shards(job.inputs["rows"])
    counts = Counter(answer.lower() for answer in table["answer"].to_pylist())
    for facts, question in zip(table["facts"].to_pylist(), table["question"].to_pylist(), strict=True):
        counts.update(word for text in (*facts, question) for word in words(text))
    return {"words": write_words(job.out, "words", by_frequency(counts))}


def story_schema(width: int) -> pa.Schema:
    """Return the schema of numbered stories.

    facts: ids of the last facts, `width` words each, padded. answer: one id. support: places of the supporting facts
    among those that are kept; -1 for another.
    """
    number = pa.field("item", pa.int32(), nullable=False)
    numbers, facts = pa.list_(number), pa.list_(pa.field("item", pa.list_(number, width), nullable=False))
    return required(id=pa.int64(), facts=facts, question=numbers, answer=numbers, support=numbers, group=pa.string())


@dataclass(frozen=True)
class StoryLimits:
    """The number of last facts that are kept, and of words of a fact or question."""

    slots: int = 25
    words: int = 20

    def __post_init__(self) -> None:
        at_least(self, 1, "slots", "words")


def stories(job: Job, settings: StoryLimits) -> dict[str, Any]:
    """Write shards of ids of the STORIES job.inputs["rows"], in a step for each shard; also reads ["vocabulary"]."""
    return map_shards(job, story_shard, settings, vocabulary=job.inputs["vocabulary"])


def story_shard(job: Job, settings: StoryLimits) -> dict[str, Any]:
    """Write the ids of one shard; no question is dropped."""
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
                "facts": [fact + [PAD] * (settings.words - len(fact)) for fact in facts],
                "question": numbers(row["question"]),
                "answer": [ids.get(row["answer"].lower(), UNKNOWN)],
                "support": [max(place - left_out, -1) for place in row["support"]],
                "group": row["group"],
            }
        )
    made = pa.Table.from_pylist(rows, schema=story_schema(settings.words))
    return {"dropped": 0, **write_shard(job.out / SHARD, made)}
