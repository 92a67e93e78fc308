"""A phrase structure tree as linked nodes, and drawings of parses as SVG.

Needs no other library. Coordinates of SVG are in pixels.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape

from phrasemodels.data.formats.trees import Tree


class Node:
    """A phrase, or a word: tokens [start, end) of the sentence. A word has its tag as label and no children."""

    __slots__ = ("children", "end", "label", "parent", "start", "tokens")

    def __init__(self, label: str, start: int, end: int, tokens: Sequence[str]) -> None:
        self.label, self.start, self.end, self.tokens = label, start, end, tokens
        self.children: list[Node] = []
        self.parent: Node | None = None

    @property
    def leaves(self) -> list[str]:
        """The words below the node."""
        return list(self.tokens[self.start : self.end])

    @property
    def is_word(self) -> bool:
        """Whether the node is a word."""
        return not self.children

    def __iter__(self) -> Iterator["Node"]:
        """Yield the node and all nodes below it in pre-order."""
        waiting = [self]
        while waiting:
            yield (node := waiting.pop())
            waiting += reversed(node.children)

    def find(self, *labels: str) -> list["Node"]:
        """Return the phrases of these labels in pre-order, the node itself among them. Without labels return all phrases."""
        return [node for node in self if not node.is_word and (not labels or node.label in labels)]

    def __repr__(self) -> str:
        return f"<{self.label} {' '.join(self.leaves)}>"


def nodes(tree: Tree) -> Node:
    """Return the root of a tree as a node with all below it."""
    root: Node | None = None
    open_: list[Node] = []
    words = [Node(tag, k, k + 1, tree.tokens) for k, tag in enumerate(tree.tags)]
    place = 0

    def add(node: Node) -> None:
        node.parent = open_[-1]
        open_[-1].children.append(node)

    for label, start, end in tree.spans:
        while place < start or (open_ and open_[-1].end <= start):
            if open_[-1].end <= place:
                open_.pop()
            else:
                add(words[place])
                place += 1
        node = Node(label, start, end, tree.tokens)
        if open_:
            add(node)
        root = root or node
        open_.append(node)
    while open_:
        while place < open_[-1].end:
            add(words[place])
            place += 1
        open_.pop()
    if root is None:
        raise ValueError("a tree without phrases has no root")
    return root


WIDTH, LEVEL, SIDE, LETTER = 14, 36, 10, 7.5  # least space between words, height of a level, margin, width of a letter

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(root: Node) -> str:
    """Return a tree as SVG: labels above, words below. A screen reader hears brackets."""
    words = [node for node in root if node.is_word]
    place, x = {}, float(SIDE)
    for word in words:
        width = LETTER * max(len(word.label), len(word.tokens[word.start])) + WIDTH
        place[id(word)] = x + width / 2
        x += width
    heights: dict[int, int] = {}
    order = list(root)
    for node in reversed(order):
        heights[id(node)] = 1 + max((heights[id(child)] for child in node.children), default=0)
        if node.children:
            place[id(node)] = (place[id(node.children[0])] + place[id(node.children[-1])]) / 2
    top = heights[id(root)]
    height = LEVEL * (top + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{x + SIDE:.0f}" height="{height}" '
        f'viewBox="0 0 {x + SIDE:.0f} {height}" font-family="sans-serif" font-size="13" text-anchor="middle">',
        f"<title>{escape(bracketed(root))}</title>",
    ]
    for node in order:
        y = LEVEL * (top - heights[id(node)]) + 20
        parts.append(_text(place[id(node)], y, node.label, "#1a4f8b"))
        for child in node.children:
            below = LEVEL * (top - heights[id(child)]) + 20
            parts.append(
                f'<path d="M{place[id(node)]:.1f} {y + 5}v5H{place[id(child)]:.1f}V{below - 13}" stroke="#888" fill="none"/>'
            )
        if node.is_word:
            parts.append(_text(place[id(node)], y + 20, node.tokens[node.start], "currentColor"))
    return _drawn([*parts, "</svg>"])


def _drawn(parts: Sequence[str]) -> str:
    """Return a drawing without the characters that XML forbids."""
    return NO_XML.sub("\ufffd", "".join(parts))


def _text(x: float, y: float, text: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.0f}" fill="{colour}">{escape(text)}</text>'


def arcs_svg(tokens: Sequence[str], tags: Sequence[str], heads: Sequence[int], relations: Sequence[str]) -> str:
    """Return a dependency tree as SVG: arcs from heads to their dependents above the words."""
    names = [*relations, *[""] * (len(heads) - len(relations))]
    places, x = [], float(SIDE)
    for k, token in enumerate(tokens):
        width = LETTER * max(len(token), len(tags[k]) if tags else 0, len(names[k])) + WIDTH
        places.append(x + width / 2)
        x += width
    levels = _levels(heads)
    top = 26 * (max(levels, default=0) + 1)
    title = "; ".join(
        f"{token} depends on {tokens[head - 1]}" if head else f"{token} is the root"
        for token, head in zip(tokens, heads, strict=True)
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{x + SIDE:.0f}" height="{top + 48}" '
        f'viewBox="0 0 {x + SIDE:.0f} {top + 48}" font-family="sans-serif" font-size="13" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
    ]
    for k, head in enumerate(heads):
        y = top - 26 * levels[k]
        if head:
            start, end = places[head - 1], places[k]
            shift = 4 if end > start else -4  # arcs of one head side by side
            path = f"M{start + shift:.1f} {top}V{y:.0f}H{end:.1f}V{top}"
            parts.append(f'<path d="{path}" stroke="#888" fill="none"/>')
            parts.append(f'<path d="M{end - 3:.1f} {top - 6}L{end:.1f} {top}L{end + 3:.1f} {top - 6}" fill="#888"/>')
            parts.append(
                f'<text x="{(start + end) / 2:.1f}" y="{y - 3:.0f}" font-size="11" fill="#1a4f8b">{escape(names[k])}</text>'
            )
        parts.append(_text(places[k], top + 18, tokens[k], "currentColor"))
        if tags:
            parts.append(_text(places[k], top + 36, tags[k], "#1a4f8b"))
    return _drawn([*parts, "</svg>"])


def _levels(heads: Sequence[int]) -> list[int]:
    """Return the height of each word's arc: above all arcs inside of it."""
    spans = sorted((abs(head - 1 - k), min(k, head - 1), max(k, head - 1), k) for k, head in enumerate(heads) if head)
    levels, highest = [0] * len(heads), [0] * max(1, len(heads))  # highest arc between word k and the next
    for _, first, last, k in spans:
        levels[k] = 1 + max(highest[first:last], default=0)
        highest[first:last] = [levels[k]] * (last - first)
    return levels


def bracketed(root: Node) -> str:
    """Return a tree in brackets for reading aloud. `trees.brackets` writes brackets that can be read again."""
    out: list[str] = []
    waiting: list[Node | None] = [root]
    while waiting:
        node = waiting.pop()
        if node is None:
            out.append(")")
            continue
        out.append(f" ({node.label}")
        waiting.append(None)
        if node.is_word:
            out.append(f" {node.tokens[node.start]}")
        waiting += reversed(node.children)
    return "".join(out).strip()
