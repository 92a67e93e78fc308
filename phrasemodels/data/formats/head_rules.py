"""Heads of words from a phrase structure tree, by rules for content heads, for corpora without dependencies."""

from phrasemodels.data.formats.trees import Span, Tree

# For each phrase the labels of its possible heads, in order of preference; a child matches by the beginning of its label.
CLAUSE = ("VP", "S", "ADJP", "NP", "PP")
RULES = {
    "ROOT": CLAUSE,
    "S": CLAUSE,
    "SBAR": ("S", "VP", "NP"),
    "VP": ("VP", "VB", "ADJP", "MD", "NP"),
    "NP": ("NN", "NX", "NP", "PRP", "CD", "JJ", "DT"),
    "PP": ("NP", "S", "PP", "ADVP", "IN"),
    "ADJP": ("JJ", "ADJP", "VB"),
}
LAST = ("NN",)  # the last of several matches is the head: "the shop window"


def heads(tree: Tree) -> list[int]:
    """Return the head of each token, counted from 1, 0 for the root; the heads are a projective tree."""
    spans = tree.spans or (Span("ROOT", 0, len(tree.tokens)),)
    above = _above(spans)
    children: list[list[tuple[str, int]]] = [[] for _ in spans]  # their labels and heads
    for token in range(len(tree.tokens)):
        inside = max((i for i, s in enumerate(spans) if s.start <= token < s.end), default=0)
        children[inside].append((tree.tags[token], token))
    found = [0] * len(tree.tokens)
    for i in reversed(range(len(spans))):
        head = _head(spans[i].label, sorted(children[i], key=lambda child: child[1]))
        for _, token in children[i]:
            if token != head:
                found[token] = head + 1
        if i:
            children[above[i]].append((spans[i].label, head))
    return found


def _above(spans: tuple[Span, ...]) -> list[int]:
    """Return the index of each phrase's parent phrase; 0 for the first phrase, which is the root."""
    above, stack = [0] * len(spans), [0]
    for i, span in enumerate(spans[1:], 1):
        while len(stack) > 1 and not (spans[stack[-1]].start <= span.start and span.end <= spans[stack[-1]].end):
            stack.pop()
        above[i] = stack[-1]
        stack.append(i)
    return above


def _head(label: str, children: list[tuple[str, int]]) -> int:
    for wanted in RULES.get(label, RULES["S"] if label.startswith("S") else ()):
        alike = [token for name, token in children if name.startswith(wanted)]
        if alike:
            return alike[-1] if wanted in LAST else alike[0]
    return children[-1][1]
