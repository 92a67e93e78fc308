"""The sample corpora: a seeded synchronous grammar of English-like sentences, their trees and German-like translations.

A known share of the sentences holds an idiom, a phrase whose translation is not composed from its words. Every word of
an idiom occurs in plain sentences too, so a model has to read the phrase to tell which translation is meant.
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
    """(tokens, tags, Penn brackets, heads, relations) of annotated brackets, see `english.py`."""
    nodes = _BRACKET.findall(brackets)
    leaves = [(tag, word) for tag, _, word in nodes if word]
    heads, relations = [0] * len(leaves), ["root"] * len(leaves)
    position, children, above = (
        0,
        [],
        [],
    )  # children (token, relation) of the open phrase, and the open phrases above it
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
    """Both linearisations of a derivation and the analyses of the English one."""
    tokens, tags, tree, heads, relations = read(english.utterance(derivation))
    return Sentence(tokens, tuple(german.utterance(derivation).split()), tags, tree, heads, relations, idiom)


def draw(rng: random.Random, idiom: str | None) -> Sentence | None:
    """One sentence with this idiom, or a plain one for None; None where the draw is too short, too long, or could be
    read as an idiom."""
    drawn = sentence(utterance(rng, idiom), idiom)
    allowed = [] if idiom is None else [idiom]
    return drawn if len(drawn.source) in LENGTHS and readings(" ".join(drawn.source)) == allowed else None


def corpus(seed: int, sizes: Mapping[str, int], idiom_share: float = 0.3) -> dict[str, list[Sentence]]:
    """Disjoint splits of these sizes: no two share a source sentence, and none holds a sentence twice.

    Every prefix of a split holds `idiom_share` of idioms, each as often as the others. A larger split keeps what the
    smaller one held, see `phrasemodels.data.samples.splits.disjoint`. Raises ValueError for a size or share that cannot be met.
    """
    if not 0 <= idiom_share <= 1:
        raise ValueError(f"idiom_share is {idiom_share}, but it is a share: give a number from 0 to 1")

    def turn(rng: random.Random, i: int) -> Sentence | None:
        before, after = int(i * idiom_share), int((i + 1) * idiom_share)
        return draw(rng, IDIOMS[before % len(IDIOMS)] if after > before else None)

    return disjoint(seed, sizes, turn, lambda sentence: sentence.source)
