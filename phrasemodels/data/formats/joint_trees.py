"""Simplified HPSG trees: phrase structure and dependencies as one tree of spans (LAL parser, section 3.1; Zhou and
Zhao 2019).

The head of a span is the word whose governor lies outside of the span. A joint tree differs from a phrase structure
tree in two ways, both undone by `restore`:

- phrases over the same words are one span, their labels joined by `::`, outermost first; ROOT above a single phrase is
  left out;
- adjacent parts of a phrase that depend on one of them, and not on the head of the phrase, are wrapped in a span `<H>`.
  So binary merges build the phrase, and each merge adds one arc, between the heads of its two parts.

Some phrases of corpora cannot be built from their dependencies. They stay as they are; `misfits` lists them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from phrasemodels.data.formats.trees import ROOT, Span, Tree

GROUP = "<H>"
CHAIN = "::"

SEVERAL_HEADS = "several words have their governor outside of the span"
NOT_A_HEAD = "a governor is not the head of its part"
APART = "a group is not together"

Part = tuple[int, int]  # words [start, end)


def joint(tree: Tree, heads: Sequence[int] = ()) -> list[Span]:
    """Return the labelled spans of a joint tree in pre-order, no two over the same words; the first is the sentence.

    heads: (n), counted from 1, 0 is the root; they must be a tree. Without heads there are no spans `<H>`. ValueError: a
    label of the tree is `<H>` or holds `::`.
    """
    spans = _collapse(tree)
    if not heads:
        return spans
    depth = depths(heads)
    groups = [
        Span(GROUP, *group)
        for span, parts in zip(spans, parts_of(spans), strict=True)
        if len(parts) > 2
        for group in _groups(span, parts, heads, depth)
    ]
    return sorted(spans + groups, key=lambda span: (span.start, -span.end))


def restore(tokens: Sequence[str], tags: Sequence[str], spans: Sequence[Span]) -> Tree:
    """Return the phrase structure tree of joint spans, which are in pre-order."""
    chains = (Span(label, start, end) for joined, start, end in spans for label in joined.split(CHAIN))
    phrases = [span for span in chains if span.label != GROUP]
    if not phrases or phrases[0].label != ROOT:
        phrases.insert(0, Span(ROOT, 0, len(tokens)))
    return Tree(tuple(tokens), tuple(tags), tuple(phrases))


def misfits(spans: Sequence[Span], heads: Sequence[int]) -> list[tuple[Span, str]]:
    """Return the spans of a joint tree that no sequence of merges builds with these heads, each with the first reason."""
    depth = depths(heads)
    pairs = zip(spans, parts_of(spans), strict=True)
    return [(span, reason) for span, parts in pairs if (reason := _misfit(span, parts, heads, depth))]


def depths(heads: Sequence[int]) -> list[int]:
    """Return the number of arcs from the root to each word; heads: (n), a tree."""
    depth = [0] * (len(heads) + 1)
    for word in range(1, len(heads) + 1):
        path = []
        while word and not depth[word]:
            path.append(word)
            word = heads[word - 1]
        above = depth[word]
        for word in reversed(path):
            above += 1
            depth[word] = above
    return depth[1:]


def parts_of(spans: Sequence[Span]) -> list[list[Part]]:
    """Return the parts of each span, left to right: its child spans, and its words that are in none of them.

    spans: the spans of a tree, in pre-order.
    """
    parts: list[list[Part]] = [[] for _ in spans]
    open_spans: list[int] = []
    for index, (_, start, end) in enumerate(spans):
        while open_spans and spans[open_spans[-1]].end <= start:
            _fill(parts[last := open_spans.pop()], spans[last], spans[last].end)
        if open_spans:
            _fill(parts[open_spans[-1]], spans[open_spans[-1]], start)
            parts[open_spans[-1]].append((start, end))
        open_spans.append(index)
    for index in reversed(open_spans):
        _fill(parts[index], spans[index], spans[index].end)
    return parts


def _fill(parts: list[Part], span: Span, until: int) -> None:
    """Add the words from the last part to `until`."""
    first = parts[-1][1] if parts else span.start
    parts.extend((word, word + 1) for word in range(first, until))


def _collapse(tree: Tree) -> list[Span]:
    spans: list[Span] = []
    for span in tree.spans:
        if span.label == GROUP or CHAIN in span.label:
            raise ValueError(
                f"the label {span.label!r} has a meaning of its own in joint trees; rename it in the corpus"
            )
        if spans and spans[-1][1:] == span[1:]:
            spans[-1] = spans[-1]._replace(label=spans[-1].label + CHAIN + span.label)
        else:
            spans.append(span)
    if not spans or spans[0].end - spans[0].start < len(tree.tokens):
        raise ValueError("the tree has no phrase over all of its words; read it with `trees.plain`")
    root, _, below = spans[0].label.partition(CHAIN)
    if root == ROOT and below and below.partition(CHAIN)[0] != ROOT:
        spans[0] = spans[0]._replace(label=below)
    return spans


def _head(part: Part, depth: Sequence[int]) -> int:
    """Return the word nearest to the root, the first of several; if one word alone has its governor outside, it is that."""
    return min(range(*part), key=depth.__getitem__)


def _governors(span: Span, parts: Sequence[Part], heads: Sequence[int], depth: Sequence[int]) -> list[int]:
    """Return, for each part of a span, the part with the governor of its head; -1 if the governor is outside the span."""
    starts = [start for start, _ in parts]
    governors = (heads[_head(part, depth)] - 1 for part in parts)
    return [bisect_right(starts, g) - 1 if span.start <= g < span.end else -1 for g in governors]


def _groups(span: Span, parts: Sequence[Part], heads: Sequence[int], depth: Sequence[int]) -> Iterator[Part]:
    """Yield the words of each part together with all parts that depend on it, if there are such and they are adjacent.

    The part with the head of the span is left out. Governors are nearer to the root, so parts form no cycle.
    """
    above = _governors(span, parts, heads, depth)
    first, last, size = list(range(len(parts))), list(range(len(parts))), [1] * len(parts)
    for part in range(len(parts)):
        governor = above[part]
        while governor >= 0:
            first[governor], last[governor] = min(first[governor], part), max(last[governor], part)
            size[governor] += 1
            governor = above[governor]
    for part, governor in enumerate(above):
        if governor >= 0 and 1 < size[part] == last[part] - first[part] + 1:
            yield parts[first[part]][0], parts[last[part]][1]


def _misfit(span: Span, parts: Sequence[Part], heads: Sequence[int], depth: Sequence[int]) -> str:
    outside = [word for word in range(span.start, span.end) if not span.start < heads[word] <= span.end]
    if len(outside) != 1:
        return SEVERAL_HEADS
    own = [_head(part, depth) for part in parts]
    for word in own:
        governor = heads[word] - 1
        if word != outside[0] and governor != outside[0]:
            return APART if governor in own else NOT_A_HEAD
    return ""
