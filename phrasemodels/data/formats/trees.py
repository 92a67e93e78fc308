"""Phrase structure trees as spans of token positions: brackets, heads, and joint trees.

All kinds of brackets are read: Penn `( (S ...) )` over several lines, one tree a line, sentiment trees. Reading is one
pass without recursion. So depth and length are not limited. Corpora without dependencies get heads by rules for content
heads.

A joint tree, or simplified HPSG tree (LAL parser, section 3.1; Zhou and Zhao 2019), is phrase structure and dependencies as one
tree of spans. The governor of a span's head lies outside of the span. A joint tree differs from a phrase structure tree in two
ways, both undone by `restore`:

- phrases over the same words are one span, their labels joined by `::`, outermost first; ROOT above a single phrase is
  left out;
- adjacent parts of a phrase may depend on a part other than its head. They are wrapped with it in a span `<H>`.
  So binary merges build the phrase, and each merge adds one arc, between the heads of its two parts.

Some phrases of corpora cannot be built from their dependencies. They stay as they are.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from phrasemodels.data.formats.lines import Line, is_name

ROOT = "ROOT"
TRACE = "-NONE-"
_UNTAGGED_TRACE = re.compile(r"\*(T|ICH|EXP|PPA|RNR|NOT)\*(-\d+)?")
_PIECE = re.compile(r"[()]|[^ \t\r\n\f\v()]+")  # other Unicode spaces are parts of words
_FUNCTION = re.compile(r"(?<=.)[-=].*")
_ESCAPES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"} | dict.fromkeys(" \t\r\n\f\v", "\u2423"))
_QUOTES = {"``": '"', "''": '"', "“": '"', "”": '"', "’": "'", "‘": "'", "`": "'"}


class Span(NamedTuple):
    """A phrase: tokens [start, end)."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """A sentence of n tokens with n tags and phrases in pre-order. Part-of-speech tags are no phrases."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    spans: tuple[Span, ...]


class _Open:
    """An open bracket."""

    __slots__ = ("index", "label", "start", "word", "wordless")

    def __init__(self, index: int, start: int) -> None:
        self.index, self.start = index, start  # position in the spans, first token
        self.label, self.word, self.wordless = "", "", True


def parse(brackets: str) -> Tree:
    """Read the tree of a string, without changes. ValueError: it does not hold exactly one tree."""
    trees = [tree for _, tree in read_brackets([Line(1, brackets)], "brackets")]
    if len(trees) != 1:
        raise ValueError(f"{len(trees)} trees, not one, in {brackets[:60]!r}")
    return trees[0]


def read_brackets(lines: Iterable[Line], where: str) -> Iterator[tuple[int, Tree]]:
    """Yield every tree with the number of its first line. ValueError: wrong brackets, with `where` and the line."""
    stack: list[_Open] = []
    tokens: list[str] = []
    tags: list[str] = []
    spans: list[Span | None] = []
    begin, fresh = 0, False  # fresh: the last piece was an opening bracket, so a label may follow
    for number, text in lines:
        for piece in _PIECE.findall(text):
            if piece == "(":
                if not stack:
                    begin, tokens, tags, spans = number, [], [], []
                elif stack[-1].word:
                    raise ValueError(f"{where}, line {number}: a bracket after the word {stack[-1].word!r}")
                else:
                    stack[-1].wordless = False
                stack.append(_Open(len(spans), len(tokens)))
                spans.append(None)
                fresh = True
                continue
            if not stack:
                raise ValueError(f"{where}, line {number}: {piece!r} outside of all brackets")
            if piece == ")":
                _close(stack.pop(), tokens, tags, spans, f"{where}, line {number}")
                if not stack:
                    yield begin, Tree(tuple(tokens), tuple(tags), tuple(span for span in spans if span))
            elif fresh:
                stack[-1].label = piece
            elif stack[-1].word or not stack[-1].wordless:
                raise ValueError(f"{where}, line {number}: {piece!r} beside other words or brackets of a phrase")
            else:
                stack[-1].word = piece
            fresh = False
    if stack:
        raise ValueError(f"{where}, line {begin}: the tree that begins here lacks {len(stack)} closing brackets")


def _close(node: _Open, tokens: list[str], tags: list[str], spans: list[Span | None], where: str) -> None:
    if not is_name(node.label):
        raise ValueError(f"{where}: {node.label[:20]!a} is no label: it is long, or has codes")
    if node.word:
        if node.label != TRACE and not (node.word[0] == "*" and _UNTAGGED_TRACE.fullmatch(node.word)):
            tokens.append(unescape(node.word))
            tags.append(node.label)
    elif node.wordless:
        raise ValueError(f"{where}: a bracket {node.label!r} with nothing in it")
    elif len(tokens) > node.start:
        spans[node.index] = Span(node.label, node.start, len(tokens))


def plain(tree: Tree) -> Tree:
    """Return the tree below one ROOT and without function tags: NP-SBJ-1 becomes NP."""
    spans = [span._replace(label=_FUNCTION.sub("", span.label)) for span in tree.spans]
    if spans and spans[0].label in ("", "TOP", "S1"):
        spans[0] = spans[0]._replace(label=ROOT)
    if tree.tokens and (not spans or spans[0].label != ROOT):
        spans.insert(0, Span(ROOT, 0, len(tree.tokens)))
    return tree._replace(spans=tuple(spans))


def brackets(tree: Tree) -> str:
    """Write a tree on one line. Brackets in words and tags become -LRB- and -RRB-. A word without a tag gets X."""
    opened = [""] * len(tree.tokens)
    closed = [0] * len(tree.tokens)
    for label, start, end in tree.spans:
        opened[start] += f"({label} "
        closed[end - 1] += 1
    return " ".join(
        f"{before}({tag.translate(_BRACKETS) or 'X'} {token.translate(_BRACKETS)}){')' * after}"
        for before, tag, token, after in zip(opened, tree.tags, tree.tokens, closed, strict=True)
    )


def unescape(word: str) -> str:
    """Return a word as in running text: brackets for -LRB- and so on, and no backslash before / and *.

    Escapes inside of a word count, too: :--RRB- is :-).
    """
    if "-" in word:
        if bracket := _ESCAPES.get(word.upper()):
            return bracket
        if "RB-" in word:
            word = word.replace("-LRB-", "(").replace("-RRB-", ")")
    return word.replace("\\/", "/").replace("\\*", "*") if "\\" in word else word


def alike(one: str, other: str) -> bool:
    """Whether two words differ only in quotation marks and escapes."""
    return one == other or _spelling(one) == _spelling(other)


def _spelling(word: str) -> str:
    word = unescape(word)
    return _QUOTES.get(word, word)


WH_WORDS, WH_PLACES = frozenset(("WDT", "WP", "WP$")), frozenset((("NP", "SBAR"), ("NP", "SBARQ")))


def wh_phrases(tree: Tree) -> Tree:
    """Rename noun phrases to WHNP if they begin with a wh-word before the clause of SBAR or SBARQ.

    The Penn Treebank does so (its bracketing guidelines, Bies et al. 1995): (SBAR (WHNP (WP who)) (S ...)). GUM's conversion does so
    for objects, but calls subjects of relative clauses and questions NP.
    """
    if WH_WORDS.isdisjoint(tree.tags):
        return tree
    above, spans, after_clause = _above(tree.spans), list(tree.spans), set()
    for k, (label, start, _) in enumerate(tree.spans):
        around = above[k]
        if label in ("S", "SQ", "SINV", "VP"):
            after_clause.add(around)
        elif (
            (label, tree.spans[around].label) in WH_PLACES
            and tree.tags[start] in WH_WORDS
            and around not in after_clause
        ):
            spans[k] = spans[k]._replace(label="WHNP")
    return tree._replace(spans=tuple(spans))


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
    """Return the head of each token from 1 (0 for the root). The heads are a projective tree."""
    spans = tree.spans or (Span("ROOT", 0, len(tree.tokens)),)
    above = _above(spans)
    children: list[list[tuple[str, int]]] = [[] for _ in spans]  # their labels and heads
    for token in range(len(tree.tokens)):
        inside = max((i for i, s in enumerate(spans) if s.start <= token < s.end), default=0)
        children[inside].append((tree.tags[token], token))
    found = [0] * len(tree.tokens)
    for i in reversed(range(len(spans))):
        head = _head_by_rules(spans[i].label, sorted(children[i], key=lambda child: child[1]))
        for _, token in children[i]:
            if token != head:
                found[token] = head + 1
        if i:
            children[above[i]].append((spans[i].label, head))
    return found


def _above(spans: tuple[Span, ...]) -> list[int]:
    """Return the index of each phrase's parent phrase. It is 0 for the first phrase, the root."""
    above, stack = [0] * len(spans), [0]
    for i, span in enumerate(spans[1:], 1):
        while len(stack) > 1 and not (spans[stack[-1]].start <= span.start and span.end <= spans[stack[-1]].end):
            stack.pop()
        above[i] = stack[-1]
        stack.append(i)
    return above


def _head_by_rules(label: str, children: list[tuple[str, int]]) -> int:
    for wanted in RULES.get(label, RULES["S"] if label.startswith("S") else ()):
        alike = [token for name, token in children if name.startswith(wanted)]
        if alike:
            return alike[-1] if wanted in LAST else alike[0]
    return children[-1][1]


GROUP = "<H>"
CHAIN = "::"


Part = tuple[int, int]  # words [start, end)


def joint(tree: Tree, heads: Sequence[int] = ()) -> list[Span]:
    """Return the labelled spans of a joint tree in pre-order, no two over the same words. The first is the sentence.

    heads: (n), counted from 1. The root is 0. They must be a tree. Without heads there are no spans `<H>`. ValueError:
    a label of the tree is `<H>` or holds `::`.
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


def depths(heads: Sequence[int]) -> list[int]:
    """Return the number of arcs from the root to each word. heads: (n), a tree."""
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
    """Return the parts of each span from left to right: its child spans and its remaining words.

    spans: the spans of a tree in pre-order.
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
    """Return the word nearest to the root, the first of several. A single word with an outside governor comes first."""
    return min(range(*part), key=depth.__getitem__)


def _governors(span: Span, parts: Sequence[Part], heads: Sequence[int], depth: Sequence[int]) -> list[int]:
    """Return the part with the governor of the head of each part of a span.

    It is -1 if the governor is outside the span.
    """
    starts = [start for start, _ in parts]
    governors = (heads[_head(part, depth)] - 1 for part in parts)
    return [bisect_right(starts, g) - 1 if span.start <= g < span.end else -1 for g in governors]


def _groups(span: Span, parts: Sequence[Part], heads: Sequence[int], depth: Sequence[int]) -> Iterator[Part]:
    """Yield the words of each part together with all of its dependent parts, if there are any and they are adjacent.

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
