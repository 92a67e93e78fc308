"""Text that a user asks a trained model about, as rows of a corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phrasemodels.data.formats.schemas import BITEXT, PAIRS, SENTENCES, TREES, build
from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.formats.trees import brackets, parse, plain
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Job, Step
from phrasemodels.tasks.prepare.sharded import SHARD, map_shards, read_shards, write_shards
from phrasemodels.tasks.prepare.tokenise import Tokeniser

TAB = "\t"
CHARACTERS = 10  # of a word on average, at most


def user_texts(texts: Sequence[str], groups: Sequence[str] = ()) -> Step:
    """Return the step that yields texts as a corpus of BITEXT rows, with the group of each text if there are groups."""
    return Step(given, "given sentences", UserTexts(tuple(texts), tuple(groups)))


def too_long(text: str, most_words: int) -> str:
    """Return why a text is too long for a model that answers at most so many words; an empty string if it is not."""
    words = len(text.split()) if 2 * most_words < len(text) <= CHARACTERS * most_words else 0
    if len(text) <= CHARACTERS * most_words and words <= most_words:
        return ""
    return (
        f"{len(text)} characters: at most {most_words} words of {CHARACTERS} characters are answered; divide the text"
    )


def first_texts(records: Artifact, text: Callable[[Mapping[str, Any]], str]) -> Step:
    """Return the step that yields the text of the first record of each group."""
    first: dict[str, str] = {}
    for record in read_shards(records).to_pylist():
        first.setdefault(record["group"], text(record))
    return user_texts([value for _, value in sorted(first.items())], sorted(first))


@dataclass(frozen=True)
class UserTexts:
    """Texts, and the group of each, or no groups."""

    texts: tuple[str, ...]
    groups: tuple[str, ...] = ()


def given(job: Job, settings: UserTexts) -> dict[str, Any]:
    """Write texts as sources of BITEXT shards; targets are empty."""
    empty = [""] * len(settings.texts)
    groups = settings.groups or empty
    columns = [pa.array(range(len(empty)), pa.int64()), pa.array(settings.texts, pa.string()), empty, groups]
    terms: dict[str, Any] = {"licences": [], "redistributable": True, "stand_in": False}
    return {"corpus": "given", **terms, **write_shards(job.out, pa.table(columns, schema=BITEXT))}


@dataclass(frozen=True)
class SentencesOrPairs:
    """pairs: each text is a premise, a tab and a hypothesis; otherwise one sentence. Both may be trees in brackets."""

    pairs: bool = False


def read_asked(job: Job, settings: SentencesOrPairs) -> dict[str, Any]:
    """Write SENTENCES or PAIRS shards of the sources of BITEXT shards job.inputs["rows"].

    ValueError: a text is no pair, or brackets are no tree.
    """
    rows = read_shards(job.inputs["rows"])
    texts, group = rows["source"].to_pylist(), rows["group"].to_pylist()
    if not settings.pairs:
        words, trees = zip(*map(_words_and_tree, texts), strict=True)
        made = build(SENTENCES, "given", {"text": words, "tree": trees, "group": group}, len(texts))
        return write_shards(job.out, made)
    columns: dict[str, list[str]] = {"premise": [], "premise_tree": [], "hypothesis": [], "hypothesis_tree": []}
    for text in texts:
        if text.count(TAB) != 1:
            raise ValueError(f"{text[:60]!r} is no pair: give a premise, a tab and a hypothesis")
        for side, part in zip(("premise", "hypothesis"), text.split(TAB), strict=True):
            sentence, tree = _words_and_tree(part)
            columns[side].append(sentence)
            columns[f"{side}_tree"].append(tree)
    return write_shards(job.out, build(PAIRS, "given", {**columns, "group": group}, len(texts)))


def _words_and_tree(text: str) -> tuple[str, str]:
    """Return the words of a text, and its tree if it is one in brackets."""
    if not text.lstrip().startswith("("):
        return text, ""
    tree = plain(parse(text))
    return " ".join(tree.tokens), brackets(tree)


@dataclass(frozen=True)
class WordRows:
    """A tokeniser, and the language of the text."""

    tokeniser: Tokeniser
    language: str = "en"


def word_rows(job: Job, settings: WordRows) -> dict[str, Any]:
    """Write TREES shards without trees, tags and heads: the words of the sources of BITEXT shards job.inputs["rows"]."""
    return map_shards(job, word_shard, settings)


def word_shard(job: Job, settings: WordRows) -> dict[str, Any]:
    """Write the words of one shard."""
    table = read_shard(job.inputs["shard"].path)
    tokens = [settings.tokeniser(text, settings.language) for text in table["source"].to_pylist()]
    columns = {"id": table["id"].combine_chunks(), "tokens": tokens, "group": table["group"].combine_chunks()}
    return {"dropped": 0, **write_shard(job.out / SHARD, build(TREES, "given text", columns, table.num_rows))}
