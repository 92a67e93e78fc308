"""Reader of bAbI: stories in numbered lines, with questions among them.

1 Mary went to the kitchen.
2 Where is Mary?  TAB  kitchen  TAB  1
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from phrasemodels.data.formats.lines import bounded, lines
from phrasemodels.data.formats.shards import STORIES, build, columns

_NUMBERED = re.compile(r"([1-9][0-9]{0,5}) (.*)")


def read(files: Mapping[str, Path], max_words: int, task: str = "") -> pa.Table:
    """Return STORIES with a row for each question. It holds all facts of the story before the question."""
    path = files["stories"]
    rows: list[tuple[object, ...]] = []
    facts: dict[int, str] = {}  # by their line numbers in the story
    story, last = -1, 0
    for number, text in lines(path):
        match = _NUMBERED.fullmatch(text.rstrip(" "))
        if not match or int(match[1]) not in (1, last + 1):
            raise ValueError(
                f"{path}, line {number}: {text[:40]!r} does not begin with {last + 1}, or with 1 for a new story"
            )
        last = int(match[1])
        if last == 1:
            story, facts = story + 1, {}
        question, tab, rest = bounded(match[2], str(path), number, max_words).partition("\t")
        if tab:
            answer, _, support = rest.partition("\t")
            places = _places(support, facts, f"{path}, line {number}")
            rows.append((task, story, list(facts.values()), list(facts), question.strip(), answer.strip(), places))
            if not question.strip() or not answer.strip():
                raise ValueError(f"{path}, line {number}: the question or the answer is empty")
        else:
            facts[last] = question.strip()
    names = ("task", "story", "facts", "lines", "question", "answer", "support")
    return build(STORIES, str(path), columns(names, rows), len(rows))


def _places(support: str, facts: dict[int, str], where: str) -> list[int]:
    """Return the positions of the supporting facts among the facts, from their line numbers."""
    places = {str(line): place for place, line in enumerate(facts)}
    wrong = [line for line in support.split() if line not in places]
    if wrong:
        raise ValueError(f"{where}: the answer rests on line {wrong[0]}, which is no fact before the question")
    return [places[line] for line in support.split()]
