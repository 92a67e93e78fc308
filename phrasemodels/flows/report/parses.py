"""A parse as a page: the sentence, its tree and its arcs as figures, its words as a table, and what each label looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from phrasemodels.data.formats.trees import Span
from phrasemodels.flows.report.templates import readable, render
from phrasemodels.parsing.parse import Parse
from phrasemodels.parsing.parser import Parser

LETTER, GAP, STEP, LINE = (
    8.5,
    26,
    34,
    16,
)  # pixels: of a letter, between words, of a level of the tree, of a line of text
MOST_WORDS = 80  # of a sentence whose figures are drawn


@dataclass(frozen=True)
class Shown:
    """A parse with its figures; looks: for each label of the tree, (word, weight) of the words that it looks at most."""

    parse: Parse
    tree: Markup
    arcs: Markup
    looks: list[tuple[str, list[tuple[str, float]]]]

    @property
    def words(self) -> list[dict[str, Any]]:
        """A row for each word: its number, form, tags, head and relation."""
        parse = self.parse
        universal = parse.universal or [""] * len(parse.tokens)
        rows = zip(parse.tokens, universal, parse.tags or [""] * len(parse.tokens), strict=True)
        return [
            {"number": k, "form": form, "universal": upos, "tag": xpos, "head": self._head(k), "relation": self._relation(k)}
            for k, (form, upos, xpos) in enumerate(rows, 1)
        ]  # fmt: skip

    def _head(self, number: int) -> str:
        head = self.parse.heads[number - 1] if self.parse.heads else -1
        return "" if head < 0 else f"{self.parse.tokens[head - 1]} ({head})" if head else "the root"

    def _relation(self, number: int) -> str:
        return self.parse.relations[number - 1] if self.parse.relations else ""


def page(parser: Parser, text: str, most: int = 20) -> str:
    """Return the page of a text: a form, and the parses of its first `most` sentences."""
    parses = parser.parse(text) if text.strip() else []
    shown = [shown_parse(parser, parse) for parse in parses[:most]]
    return render("parse.html.jinja", text=text, shown=shown, left_out=len(parses) - len(shown), card=parser.card)


def shown_parse(parser: Parser, parse: Parse, most: int = 5) -> Shown:
    """Return a parse with its figures, which are empty if it has more than MOST_WORDS words."""
    if len(parse.tokens) > MOST_WORDS:
        return Shown(parse, Markup(), Markup(), [])
    return Shown(parse, _tree(parse), _arcs(parse), _looks(parser, parse, most))


def _looks(parser: Parser, parse: Parse, most: int) -> list[tuple[str, list[tuple[str, float]]]]:
    if parser.model.encoder.top is None:
        return []
    labels, weights = parser.attention(parse.tokens)
    words = ["(start)", *parse.tokens, "(end)"]
    used = {span.label for span in parse.tree.spans} if parse.tree else set()
    rows = [(label, row) for label, row in zip(labels, weights, strict=True) if used & set(label.split("::"))]
    return [(label, [(words[k], float(row[k])) for k in (-row).argsort()[:most]]) for label, row in rows]


def _centres(tokens: Sequence[str]) -> tuple[list[float], float]:
    """Return the middle of each word, and the width of all, in pixels."""
    centres, x = [], GAP / 2
    for token in tokens:
        width = max(4, len(token)) * LETTER
        centres.append(x + width / 2)
        x += width + GAP
    return centres, x


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    """Return an SVG that a screen reader announces by its title. parts: markup, escaped already."""
    head = (
        f'<svg role="img" aria-label="{escape(readable(title))}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-size="14" text-anchor="middle">'
    )
    return Markup(head + "".join(parts) + "</svg>")


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{style}">{escape(readable(text))}</text>'


def _tree(parse: Parse) -> Markup:
    """Draw the phrases above the words: a phrase stands one step above the highest of its parts."""
    if parse.tree is None:
        return Markup()
    centres, width = _centres(parse.tokens)
    spans = parse.tree.spans
    heights, places = [1] * len(spans), [0.0] * len(spans)
    children = _children(spans, len(parse.tokens))
    for k in reversed(range(len(spans))):
        inside = [(heights[c], places[c]) if phrase else (0, centres[c]) for phrase, c in children[k]]
        heights[k] = 1 + max(height for height, _ in inside)
        places[k] = (inside[0][1] + inside[-1][1]) / 2
    bottom = max(heights) * STEP + LINE
    parts = []
    for k, span in enumerate(spans):
        y = bottom - heights[k] * STEP
        for phrase, c in children[k]:
            x, below = (places[c], bottom - heights[c] * STEP - LINE) if phrase else (centres[c], bottom - LINE)
            turn = y + STEP - LINE  # then straight down, so that lines never cross
            parts.append(f'<path d="M{places[k]:.0f} {y + 4:.0f}L{x:.0f} {turn:.0f}V{below:.0f}"/>')
        parts.append(_text(places[k], y, span.label, "label"))
    for x, token, tag in zip(centres, parse.tokens, parse.tags or [""] * len(parse.tokens), strict=True):
        parts += [_text(x, bottom, tag, "tag"), _text(x, bottom + LINE + 2, token, "word")]
    return _svg(width, bottom + 2 * LINE, f"Phrase structure: {parse.brackets}", parts)


def _children(spans: Sequence[Span], n: int) -> list[list[tuple[bool, int]]]:
    """Return the parts of each span, in order: (True, place of a span) or (False, place of a word)."""
    owner = [0] * n
    above, stack = [-1] * len(spans), [0]
    for k, span in enumerate(spans):
        while k and not (spans[stack[-1]].start <= span.start and span.end <= spans[stack[-1]].end):
            stack.pop()
        above[k] = stack[-1] if k else -1
        stack.append(k)
        owner[span.start : span.end] = [k] * (span.end - span.start)
    children: list[list[tuple[bool, int]]] = [[] for _ in spans]
    for k in range(1, len(spans)):
        children[above[k]].append((True, k))
    for word in range(n):
        children[owner[word]].append((False, word))
    return [sorted(own, key=lambda child: spans[child[1]].start if child[0] else child[1]) for own in children]


def _arcs(parse: Parse) -> Markup:
    """Draw an arc from each head to its dependent, as high as it is long."""
    if not parse.heads:
        return Markup()
    centres, width = _centres(parse.tokens)
    levels = [abs(head - word) if head else 0 for word, head in enumerate(parse.heads, 1)]
    base = min(max(levels), 12) * 20 + 40.0
    parts = []
    for word, (head, relation) in enumerate(zip(parse.heads, parse.relations or [""] * len(levels), strict=True), 1):
        x = centres[word - 1]
        top = base - (min(levels[word - 1], 12) * 20 + 10)
        if head:
            start = centres[head - 1] + (6 if word > head else -6)
            parts.append(
                f'<path d="M{start:.0f} {base:.0f}C{start:.0f} {top:.0f} {x:.0f} {top:.0f} {x:.0f} {base:.0f}"/>'
            )
            parts.append(_text((start + x) / 2, base - (base - top) * 0.75 - 3, relation, "label"))
        else:
            parts += [f'<path d="M{x:.0f} 16L{x:.0f} {base:.0f}"/>', _text(x, 12, relation or "root", "label")]
        parts.append(
            f'<path class="tip" d="M{x - 4:.0f} {base - 7:.0f}L{x:.0f} {base:.0f}L{x + 4:.0f} {base - 7:.0f}Z"/>'
        )
        parts.append(_text(x, base + LINE, parse.tokens[word - 1], "word"))
    arcs = "; ".join(
        f"{parse.tokens[word - 1]} depends on {parse.tokens[head - 1] if head else 'the root'}"
        for word, head in enumerate(parse.heads, 1)
    )
    return _svg(width, base + 2 * LINE, f"Dependencies: {arcs}", parts)
