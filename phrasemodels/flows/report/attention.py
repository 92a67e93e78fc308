"""Pages and figures of a model's attention in single sentences, from rows of ATTENTION (tasks/problems/sequences.py)."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.report.plots import name_ticks, svg, svg_of
from phrasemodels.flows.report.templates import render
from phrasemodels.tasks.problems.recipe import Matrix, too_large

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.parsing import LabelView


LONGEST_NAME = 30  # letters of a phrase that names a row or column
ATTENDS = {
    "across": "all words and phrases attend to all (phase 1)",
    "inside": "phrases and their words attend to each other (phase 2)",
    "attention": "self-attention",
    "source": "attention to the source",
    "weights": "attention to the source",
    "summary": "the sentence attends to its words",
}


def write_attention(card: dict[str, Any], rows: list[dict[str, Any]], to: Path) -> Path:
    """Write the page of one sentence: every attention to it, with every head. card: of the model."""
    to.parent.mkdir(parents=True, exist_ok=True)
    write_durably(to, render("attention.html.jinja", card=card, figures=attention_figures(rows)))
    return to


def write_labels(view: "LabelView", most: int, to: Path) -> Path:
    """Write the page of a parse: attention and contribution of the `most` labels with the largest contributions."""
    figures = {title: Markup(svg_of(figure)) for title, figure in view.figures(most).items()}
    write_durably(to, render("labels.html.jinja", parse=view.parse, tree=view.parse.brackets, figures=figures))
    return to


def attention_figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return two figures for each row of ATTENTION: the mean over heads, and each head if there are several.

    A sentence with too many words gets a line that says so.
    """
    return [
        {"group": row["group"], "sentence": _sentence(row["tokens"]), "module": in_words(row["module"])}
        | {name: Markup(_narrowed(plot)) for name, plot in zip(("plot", "heads"), _plots(row), strict=True)}
        for row in rows
    ]


def in_words(module: str) -> str:
    """Describe a module's attention: "encoder.layers.0.attention" is "Encoder, layer 1: self-attention".

    Other names stay as they are, for example those of your own modules.
    """
    *path, last = module.split(".")
    if last.startswith("attention "):
        return f"Words attend inside their phrases, level {last.removeprefix('attention ')}"
    if last not in ATTENDS:
        return module
    place = [part for part in path if part in ("encoder", "decoder")] + [
        f"layer {int(n) + 1}" for n in path if n.isdigit()
    ]
    text = f"{', '.join(place)}: {ATTENDS[last]}" if place else ATTENDS[last]
    return text[0].upper() + text[1:]


def _narrowed(plot: str) -> str:
    """Return a plot that shrinks on narrow screens, to 60 % of its width at least."""
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', plot)
    return (
        plot.replace("<svg", f'<svg style="max-width: 100%; min-width: {0.6 * float(width[1]):.0f}pt"', 1)
        if width
        else plot
    )


def _sentence(tokens: list[str]) -> str:
    """Return tokens as text, without <s> and </s>."""
    return " ".join(token for token in tokens if token not in ("<s>", "</s>"))


def _plots(row: dict[str, Any]) -> tuple[str, str]:
    """Return the plot of the mean over heads, and of all heads (empty if there is one)."""
    weights = np.array(row["weights"], np.float32).reshape(row["shape"])
    tokens, phrases, written = row["tokens"], row["phrases"], row.get("written")
    if reason := too_large(len(written or tokens), len(tokens)):
        return f"<p>{reason}.</p>", ""
    name = in_words(row["module"])
    title = f"{name}, mean over heads"
    if written is not None:
        axes = ("written" if row["module"].startswith("decoder.") else "from", "attended to")
        rows, columns, each = written, tokens, weights
        mean = svg_of(Matrix(weights.mean(0), rows, columns, axes, title))
    else:
        each, rows, columns = among_words(tokens, phrases, weights)
        mean = attention(tokens, phrases, weights.mean(0), title)
    return mean, heads(each, rows, columns, f"Heads of {name}") if len(weights) > 1 else ""


def attention(tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any, text: str) -> str:
    """Return weights (q, k) over tokens and phrases as SVG, each phrase among its words, with the tree of phrases above.

    Phrases without a column are in the tree alone, over the middle of their words. text: for a screen reader.
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
    """Return weights (h, q, k) head by head as SVG: small, with one scale. Rows and columns are named at the edge."""
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
    """Return the words of each node, of a long phrase both ends."""
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
