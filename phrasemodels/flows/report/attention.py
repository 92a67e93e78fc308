"""Pages and figures of what a model attends to in single sentences, from rows of ATTENTION (tasks/problems/sequences.py).

A parse as a page: the sentence, its tree and its arcs as figures, its words as a table, and what each label looks at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup, escape

from phrasemodels.data.formats.trees import Span
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.report.plots import name_ticks, svg, svg_of
from phrasemodels.flows.report.templates import readable, render
from phrasemodels.parsing.parser import Parse, Parser
from phrasemodels.tasks.problems.recipe import Matrix, too_large

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.parsing import LabelView


LONGEST_NAME = 30  # letters of a phrase that names a row or column


def write_attention(card: dict[str, Any], rows: list[dict[str, Any]], to: Path) -> Path:
    """Write the page of one sentence: every attention to it, and every head of each. card: of the model."""
    to.parent.mkdir(parents=True, exist_ok=True)
    write_durably(to, render("attention.html.jinja", card=card, figures=attention_figures(rows)))
    return to


def write_labels(view: "LabelView", most: int, to: Path) -> Path:
    """Write the page of a parse: what its labels attend to and contribute, for the `most` labels that contribute most."""
    figures = {title: Markup(svg_of(figure)) for title, figure in view.figures(most).items()}
    write_durably(to, render("labels.html.jinja", parse=view.parse, tree=view.parse.brackets, figures=figures))
    return to


def attention_figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return two figures for each row of ATTENTION: the mean over heads, and each head if there are several; or, for a
    sentence with too many words, a line that says so."""
    return [
        {"group": row["group"], "sentence": _sentence(row["tokens"]), "module": row["module"]}
        | {name: Markup(plot) for name, plot in zip(("plot", "heads"), _plots(row), strict=True)}
        for row in rows
    ]


def _sentence(tokens: list[str]) -> str:
    """Return tokens as text, without <s> and </s>."""
    return " ".join(token for token in tokens if token not in ("<s>", "</s>"))


def _plots(row: dict[str, Any]) -> tuple[str, str]:
    """Return the plot of the mean over heads, and of all heads (empty if there is one)."""
    weights = np.array(row["weights"], np.float32).reshape(row["shape"])
    tokens, phrases, written = row["tokens"], row["phrases"], row.get("written")
    if reason := too_large(len(written or tokens), len(tokens)):
        return f"<p>{reason}.</p>", ""
    title = f"Attention {row['module']}, mean over heads"
    if written is not None:
        axes = ("written" if row["module"].startswith("decoder.") else "from", "attended to")
        rows, columns, each = written, tokens, weights
        mean = svg_of(Matrix(weights.mean(0), rows, columns, axes, title))
    else:
        each, rows, columns = among_words(tokens, phrases, weights)
        mean = attention(tokens, phrases, weights.mean(0), title)
    return mean, heads(each, rows, columns, f"Heads of {row['module']}") if len(weights) > 1 else ""


def attention(tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any, text: str) -> str:
    """Return weights (q, k) over tokens and phrases as SVG, each phrase among its words, with the tree of phrases above.

    Phrases that are no columns are in the tree alone, over the middle of their words. text: for a screen reader.
    """
    nodes, rows, columns = _order(tokens, phrases, weights)
    place = {node: float(column) for column, node in enumerate(columns)}
    place |= {n: sum(place[i] for i in nodes[n]) / len(nodes[n]) for n in range(len(nodes)) if n not in place}
    names = _names(tokens, nodes)
    parts, heights = tree(nodes)
    height, top, room = 0.24 * len(rows), max(heights), 0.07 * max(map(len, names))
    figure, (above, axes) = plt.subplots(
        2,
        1,
        figsize=(1.8 + room + 0.24 * len(columns), 1.2 + room + 0.3 * top + height),
        height_ratios=(0.15 + 0.3 * top, height),
        sharex=True,
        layout="constrained",
    )
    for node, inside in enumerate(parts):
        for part in inside:
            above.plot([place[part], place[node]], [heights[part], heights[node]], color="#777777", linewidth=0.6)
        above.plot(place[node], heights[node], "s" if inside else "o", color="black", markersize=3)
    above.axis("off")
    shown = axes.imshow(weights[rows][:, columns], cmap="Greys", vmin=0, aspect="auto")
    name_ticks(axes, [names[node] for node in rows], [names[node] for node in columns], 8)
    axes.set(xlabel="attended to", ylabel="from")
    figure.colorbar(shown, ax=axes, label="weight", fraction=0.03)
    return svg(figure, text)


def heads(weights: Any, rows: Sequence[str], columns: Sequence[str], text: str) -> str:
    """Return weights (h, q, k) head by head as SVG: small, with one scale; rows and columns are named at the edge."""
    across = min(len(weights), 2)
    down = -(-len(weights) // across)
    width, height = max(1.8, 0.14 * len(columns)), max(0.8, 0.14 * len(rows))
    size = (0.9 + width * across, 0.9 + down * (0.3 + height))
    figure, grid = plt.subplots(
        down, across, figsize=size, squeeze=False, sharex=True, sharey=True, layout="constrained"
    )
    for head, axes in enumerate(grid.flat):
        axes.set_visible(head < len(weights))
        if head < len(weights):
            axes.imshow(weights[head], cmap="Greys", vmin=0, vmax=weights.max(), aspect="auto")
            axes.set_title(f"head {head + 1}", fontsize=8)
            name_ticks(axes, rows, columns, 7)
            axes.tick_params(length=1)
    return svg(figure, text)


def among_words(
    tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any
) -> tuple[Any, list[str], list[str]]:
    """Return weights (h, q, k) with rows and columns in the order of `attention`, and their names."""
    nodes, rows, columns = _order(tokens, phrases, weights)
    names = _names(tokens, nodes)
    return weights[:, rows][:, :, columns], [names[node] for node in rows], [names[node] for node in columns]


def _order(
    tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any
) -> tuple[list[Sequence[int]], list[int], list[int]]:
    """Return the positions of each node, and the order of rows and columns of (..., q, k): phrases among their words."""
    nodes = [*([i] for i in range(len(tokens))), *phrases]
    order = sorted(range(len(nodes)), key=lambda node: (sum(nodes[node]) / len(nodes[node]), len(nodes[node])))
    rows, columns = ([node for node in order if node < size] for size in weights.shape[-2:])
    return nodes, rows, columns


def _names(tokens: Sequence[str], nodes: Sequence[Sequence[int]]) -> list[str]:
    """Return the words of each node; of a long phrase both ends."""
    names = [" ".join(tokens[i] for i in node) for node in nodes]
    half = LONGEST_NAME // 2
    return [name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half + 1 :]}" for name in names]


def tree(nodes: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[int]]:
    """Return, for each node by the positions of its words, the largest nodes inside of it, and its height over the words."""
    words = [frozenset(node) for node in nodes]
    parts: list[list[int]] = [[] for _ in nodes]
    heights = [0] * len(nodes)
    for node in sorted(range(len(nodes)), key=lambda n: len(words[n])):
        inside = [other for other in range(len(nodes)) if words[other] < words[node]]
        parts[node] = [one for one in inside if not any(words[one] < words[other] for other in inside)]
        heights[node] = 1 + max((heights[part] for part in parts[node]), default=-1)
    return parts, heights


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
