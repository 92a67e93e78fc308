"""Sentences of the sample grammar: English-like, with trees and with German-like translations.

A known share of the sentences has an idiom, a phrase whose translation is not composed from its words. Every word of an
idiom also occurs in plain sentences, so the right translation depends on the whole phrase.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from phrasemodels.data.samples import english, german
from phrasemodels.data.samples.abstract import Utterance
from phrasemodels.data.samples.derivations import utterance
from phrasemodels.data.samples.idioms import IDIOMS, readings
from phrasemodels.data.samples.splits import disjoint

LENGTHS = range(4, 21)  # English tokens


@dataclass(frozen=True, slots=True)
class Sentence:
    """An English-like sentence with its analyses and its one translation; n tokens."""

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
    """Return (tokens, tags, Penn brackets, heads, relations) of annotated brackets, which `english.py` describes."""
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


def corpus(seed: int, sizes: Mapping[str, int], idiom_share: float = 0.3) -> dict[str, list[Sentence]]:
    """Draw disjoint splits of these sizes; no source sentence occurs twice.

    In every prefix of a split the share of idioms is `idiom_share`, and all idioms are equally frequent. A larger split
    begins with the smaller one (phrasemodels.data.samples.splits.disjoint). ValueError: a share outside 0 to 1, or too
    few sentences.
    """
    if not 0 <= idiom_share <= 1:
        raise ValueError(f"idiom_share is {idiom_share}: give a number from 0 to 1")

    def turn(rng: random.Random, i: int) -> Sentence | None:
        before, after = int(i * idiom_share), int((i + 1) * idiom_share)
        return draw(rng, IDIOMS[before % len(IDIOMS)] if after > before else None)

    return disjoint(seed, sizes, turn, lambda sentence: sentence.source)
