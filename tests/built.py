"""Which spans of a joint tree no merges build."""

from collections.abc import Sequence

from phrasemodels.data.formats.trees import Part, Span, _head, depths, parts_of

SEVERAL_HEADS = "several words have their governor outside of the span"
NOT_A_HEAD = "a governor is not the head of its part"
APART = "a group is not together"


def misfits(spans: Sequence[Span], heads: Sequence[int]) -> list[tuple[Span, str]]:
    """Return the spans of a joint tree that no merges build with these heads, each with the first reason."""
    depth = depths(heads)
    pairs = zip(spans, parts_of(spans), strict=True)
    return [(span, reason) for span, parts in pairs if (reason := _misfit(span, parts, heads, depth))]


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
