"""Names of experiments with their overrides, also as names of files."""

import re
from collections.abc import Mapping
from typing import Any

from phrasemodels.data.store.store import digest_of

CHANGE = "+"  # stands before each override in the name of a changed row


_CHANGES = re.compile(r"\+(?=(?:recipe|model|train)\.)")


TAKEN = ("across",)  # names of ours in the place of a paper's number


LONGEST = 120  # characters of a file's name, before its ending


def divided(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the row and the overrides in the name of an experiment: `ROW+train.steps=2` has one override."""
    row, *changes = _CHANGES.split(name)
    return row, tuple(changes)


def file_name(name: str) -> str:
    """Return a name as files, folders and registered models can have it: without slashes; a long one is cut and gets a
    digest."""
    plain = re.sub(r"[^\w.,=+-]", "-", name)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{digest_of(name)[:16]}"


def plain_reason(reason: str) -> str:
    """Return a reason of a verdict as a sentence has it: another corpus; 5 settings differ, of size and model."""
    text = reason.replace("a stand-in, not the paper's data", "another corpus than the paper's")
    text = re.sub(r"other than published: (\d+) settings", r"\1 settings are not as published", text)
    text = re.sub(r"the paper leaves open, and ours is: (\d+) settings", r"the paper leaves \1 open", text)
    text = re.sub(
        r" (\(phrasemodels compare-settings [^()]+\)); (the paper leaves \d+ open[^()]*) \1", r", and \2 \1", text
    )
    text = text.replace("other than published: ", "not as published: ")
    text = text.replace("the paper leaves open, and ours is: ", "chosen by us, as the paper leaves it open: ")
    text = re.sub(r"not the paper's ([a-z, ]+): (\d+) settings", r"\2 settings differ, of \1", text)
    text = re.sub(r"not the paper's ([a-z, ]+): 1 setting\b", r"1 setting differs, of \1", text)
    return re.sub(r"not the paper's ([a-z, ]+)(?=;|$)", r"settings differ, of \1", text)


SHORT = (  # words of a kind of reason, and that reason in at most four words
    ("counted", "counted"),
    ("re-tuning", "settings of our own"),
    ("as released", "the code's settings"),
    ("as published", "the paper's settings"),
    ("contradiction", "contradicts other numbers"),
    ("suspect", "under an assumption"),
    ("too few runs", "too few runs"),
    ("true by construction", "true by construction"),
    ("chosen because", "true by construction"),
    ("no logical forms", "answers aren't public"),
    ("stand-in", "other data"),
    ("trees by", "trees of another parser"),
    ("not the paper's size", "a small size"),
    ("not the paper's", "other settings"),
    ("literature", "work of others"),
    ("corpus is not here", "no corpus"),
    ("P100", "another machine"),
    ("memory", "what counts isn't said"),
    ("not counted", "not counted yet"),
    ("no run", "no run yet"),
    ("another model", "another model"),
)


def short_reason(row: Mapping[str, Any]) -> str:
    """Return the reason of a verdict in at most four words."""
    if row["reason"].startswith("readings differ"):
        return "readings differ"
    if row["verdict"] == "reproduced" and row["says_nothing"]:
        return "says nothing: chance"
    return next((short for words, short in SHORT if words in row["kind"]), row["kind"][:24])
