"""Sentences that a user gives to a sentence encoder, as text or as a tree in brackets; two of a pair between a tab."""

from dataclasses import dataclass
from typing import Any

from phrasemodels.data.formats.schemas import PAIRS, SENTENCES, build
from phrasemodels.data.formats.trees import brackets, parse, plain
from phrasemodels.data.store.step import Job
from phrasemodels.tasks.prepare.sharded import read_shards, write_shards

TAB = "\t"


@dataclass(frozen=True)
class Asked:
    """pairs: each text is a premise, a tab and a hypothesis."""

    pairs: bool = False


def read_asked(job: Job, settings: Asked) -> dict[str, Any]:
    """SENTENCES or PAIRS shards of BITEXT shards job.inputs["rows"], whose sources are what was given."""
    rows = read_shards(job.inputs["rows"])
    texts, group = rows["source"].to_pylist(), rows["group"].to_pylist()
    if not settings.pairs:
        words, trees = zip(*map(_read, texts), strict=True)
        made = build(SENTENCES, "given", {"text": words, "tree": trees, "group": group}, len(texts))
        return write_shards(job.out, made)
    columns: dict[str, list[str]] = {"premise": [], "premise_tree": [], "hypothesis": [], "hypothesis_tree": []}
    for text in texts:
        if text.count(TAB) != 1:
            raise ValueError(f"{text[:60]!r} is no pair: give a premise, a tab and a hypothesis")
        for side, part in zip(("premise", "hypothesis"), text.split(TAB), strict=True):
            columns[side].append(_read(part)[0])
            columns[f"{side}_tree"].append(_read(part)[1])
    return write_shards(job.out, build(PAIRS, "given", {**columns, "group": group}, len(texts)))


def _read(text: str) -> tuple[str, str]:
    """The words, and the tree if brackets were given."""
    if not text.lstrip().startswith("("):
        return text, ""
    tree = plain(parse(text))
    return " ".join(tree.tokens), brackets(tree)
