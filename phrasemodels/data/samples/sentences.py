"""Sentences of the sample grammar, with trees and with German-like translations, in disjoint, reproducible splits.

A known share of the sentences has an idiom, a phrase with a translation not composed from its words. Every word of an idiom
also occurs in plain sentences, so the right translation depends on the whole phrase.
"""

import random
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from phrasemodels.data.samples import english, german
from phrasemodels.data.samples.grammar import Utterance, utterance
from phrasemodels.data.samples.lexicon import IDIOMS, readings

T = TypeVar("T")

ATTEMPTS = 2_000  # draws for one new record before an error


def disjoint(
    seed: int,
    sizes: Mapping[str, int],
    draw: Callable[[random.Random, int], T | None],
    identity: Callable[[T], Hashable],
) -> dict[str, list[T]]:
    """Draw splits of these sizes. No two records have the same identity.

    draw(rng, i): a candidate for the i-th record of a split, or None to be called again. Smaller splits are drawn first. So
    if the largest split grows, the others stay the same, and it begins with its former records. ValueError: a size below 0,
    or too few different records.
    """
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"size of {name} is {size}: give 0 or more")
    seen: set[Hashable] = set()
    drawn: dict[str, list[T]] = {}
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        rng = random.Random(f"{seed}/{name}")
        drawn[name] = []
        for i in range(sizes[name]):
            record = _new(rng, i, draw, identity, seen)
            if record is None:
                raise ValueError(
                    f"{name} needs {sizes[name]} records, but only {i} new ones were found: ask for fewer in all splits"
                )
            drawn[name].append(record)
    return {name: drawn[name] for name in sizes}


def _new(
    rng: random.Random,
    i: int,
    draw: Callable[[random.Random, int], T | None],
    identity: Callable[[T], Hashable],
    seen: set[Hashable],
) -> T | None:
    for _ in range(ATTEMPTS):
        record = draw(rng, i)
        if record is not None and (key := identity(record)) not in seen:
            seen.add(key)
            return record
    return None


LENGTHS = range(4, 21)  # English tokens


@dataclass(frozen=True, slots=True)
class Sentence:
    """An English-like sentence with its analyses and its one translation. It has n tokens."""

    source: tuple[str, ...]  # n
    target: tuple[str, ...]
    tags: tuple[str, ...]  # n Penn tags
    tree: str  # Penn brackets
    heads: tuple[int, ...]  # n, 1-based, 0 for the root; projective
    relations: tuple[str, ...]  # n, Universal Dependencies
    idiom: str | None  # name of the idiom; None in a plain sentence


_BRACKET = re.compile(r"\(([^ /()]+)(?:/([^ ()]+))?(?: ([^ ()]+)\))?|\)")
_RELATION = re.compile(r"/[^ ()]+")


def read(brackets: str) -> tuple[tuple[str, ...], tuple[str, ...], str, tuple[int, ...], tuple[str, ...]]:
    """Return (tokens, tags, Penn brackets, heads, relations) of annotated brackets as in `english.py`."""
    nodes = _BRACKET.findall(brackets)
    leaves = [(tag, word) for tag, _, word in nodes if word]
    heads, relations = [0] * len(leaves), ["root"] * len(leaves)
    # children: (token, relation) of the open phrase; above: the open phrases around it
    position, children, above = 0, [], []
    for tag, relation, word in nodes:
        if word:
            position += 1
            children.append((position, relation))
        elif tag:
            above.append((relation, children))
            children = []
        else:
            (head,) = [token for token, marked in children if not marked]
            for token, marked in children:
                if marked:
                    heads[token - 1], relations[token - 1] = head, marked
            relation, children = above.pop()
            children.append((head, relation))
    tags, tokens = zip(*leaves, strict=True)
    return tokens, tags, _RELATION.sub("", brackets), tuple(heads), tuple(relations)


def sentence(derivation: Utterance, idiom: str | None = None) -> Sentence:
    """Return both linearisations of a derivation, with the analyses of the English one."""
    tokens, tags, tree, heads, relations = read(english.utterance(derivation))
    return Sentence(tokens, tuple(german.utterance(derivation).split()), tags, tree, heads, relations, idiom)


def draw(rng: random.Random, idiom: str | None) -> Sentence | None:
    """Draw a sentence with this idiom, or a plain one. None: it is too short or too long, or has another reading."""
    drawn = sentence(utterance(rng, idiom), idiom)
    allowed = [] if idiom is None else [idiom]
    return drawn if len(drawn.source) in LENGTHS and readings(" ".join(drawn.source)) == allowed else None


IDIOM_SHARE = 0.3


def corpus(seed: int, sizes: Mapping[str, int]) -> dict[str, list[Sentence]]:
    """Draw disjoint splits of these sizes. No source sentence occurs twice.

    In every prefix of a split the share of idioms is IDIOM_SHARE, and all idioms are equally frequent. A larger split begins
    with the smaller one (phrasemodels.data.samples.sentences.disjoint). ValueError: too few sentences.
    """

    def turn(rng: random.Random, i: int) -> Sentence | None:
        before, after = int(i * IDIOM_SHARE), int((i + 1) * IDIOM_SHARE)
        return draw(rng, IDIOMS[before % len(IDIOMS)] if after > before else None)

    return disjoint(seed, sizes, turn, lambda sentence: sentence.source)
