"""Plots of scores, learning curves and attention and figures of problems as SVG, files or pages.

Figures of problems are in tasks/problems/recipe.py. Plots are readable without colour. Marks and line styles differ.
Attention comes as rows of ATTENTION (tasks/problems/sentence_data.py).
"""

import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.report import readable, render
from phrasemodels.tasks.problems.recipe import Figure, Matrix, Sweep, too_large
from phrasemodels.verdicts.significance import seed_group

matplotlib.use("Agg")
matplotlib.rcdefaults()  # a matplotlibrc may set labels by LaTeX, which reads files

MARKS = ("o", "s", "^", "D", "v", "P", "X")
matplotlib.rcParams["text.parse_math"] = False  # text between two dollar signs is no formula
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))


def curves(histories: Mapping[str, Sequence[Sequence[Mapping[str, float]]]], ylabel: str = "dev loss") -> str:
    """Return learning curves as SVG: the dev criterion of each system against updates, mean over seeds with its 95 % interval.

    histories: of each seed of each system. Only updates with an evaluation of all seeds are drawn.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    bands: dict[str, list[tuple[float, float]]] = {}
    for name, seeds in histories.items():
        by_seed = [{row["step"]: row["dev_loss"] for row in history} for history in seeds]
        steps = [step for step in by_seed[0] if all(step in losses for losses in by_seed)]
        groups = [seed_group([losses[step] for losses in by_seed]) for step in steps]
        points[name] = [(step, group.mean) for step, group in zip(steps, groups, strict=True)]
        if len(seeds) > 1:
            bands[name] = [(group.mean - group.half_width, group.mean + group.half_width) for group in groups]
    return lines(points, "updates", ylabel, bands)


def lines(
    points: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    ylabel: str,
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    ticks: Sequence[float] = (),
) -> str:
    """Return a line for each name through its points, as SVG.

    Args:
        bands: The interval (low, high) at each point.
        ticks: The marked places of the x axis. Default: matplotlib's choice.
    """
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, line) in enumerate(points.items()):
        xs, ys = [x for x, _ in line], [y if math.isfinite(y) else math.nan for _, y in line]
        (drawn,) = axes.plot(
            xs,
            ys,
            label=textwrap.fill(name, 30),
            linewidth=1.4,
            markersize=4,
            marker=MARKS[index % len(MARKS)],
            linestyle=LINES[(index + index // len(MARKS)) % len(LINES)],
        )
        if band := (bands or {}).get(name):
            low, high = zip(*band, strict=True)
            axes.fill_between(xs, low, high, color=drawn.get_color(), alpha=0.15, linewidth=0)
    if lowest := [
        y for line in points.values() for _, y in line if math.isfinite(y)
    ]:  # wide intervals of two seeds do not flatten the curves
        edge = 0.3 * (max(lowest) - min(lowest)) or 0.1  # one value, or equal ones
        axes.set_ylim(min(lowest) - edge, max(lowest) + edge)
    if all(float(x).is_integer() for line in points.values() for x, _ in line):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if ticks:
        axes.set_xticks(ticks)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    figure.legend(fontsize=8, loc="outside right upper")
    return svg(figure, f"{ylabel} against {xlabel}: " + ", ".join(points))


def name_ticks(axes: Any, rows: Sequence[str], columns: Sequence[str], size: int) -> None:
    """Write the names of rows and columns beside an image."""
    axes.set_xticks(range(len(columns)), list(map(readable, columns)), rotation=90, fontsize=size)
    axes.set_yticks(range(len(rows)), list(map(readable, rows)), fontsize=size)


def svg(figure: MatplotlibFigure, text: str) -> str:
    """Return a figure as an SVG element, and close it. text: for a screen reader."""
    for one in figure.findobj(Text):
        one.set_text(readable(one.get_text()))
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "phrasemodels"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a font lacks a letter; the browser has others
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    element = buffer.getvalue()
    label = html.escape(readable(text), quote=True)
    return element[element.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def svg_of(figure: Figure) -> str:
    """Return a figure as SVG."""
    match figure:
        case Matrix():
            return _matrix(figure)
        case Sweep():
            return _sweep(figure)


def _matrix(figure: Matrix) -> str:
    """Dark is high. If some values are negative, blue is high and red is low."""
    values, rows, columns = figure.values, figure.rows, figure.columns
    drawn, axes = plt.subplots(figsize=(2.6 + 0.24 * len(columns), 1.6 + 0.19 * len(rows)), layout="constrained")
    most = float(abs(values).max())
    scale = {"cmap": "RdBu", "vmin": -most, "vmax": most} if values.min() < 0 else {"cmap": "Greys"}
    shown = axes.imshow(values, aspect="auto", **scale)
    name_ticks(axes, rows, columns, 7)
    axes.set(ylabel=figure.axes[0], xlabel=figure.axes[1])
    drawn.colorbar(shown, ax=axes, fraction=0.03)
    return svg(drawn, figure.text)


def _sweep(figure: Sweep) -> str:
    """A line for each name with means over seeds and a band from the lowest to the highest."""
    values = figure.lines.items()
    means = {name: [(x, float(np.mean(of))) for x, of in line.items()] for name, line in values}
    bands = {name: [(min(of), max(of)) for of in line.values()] for name, line in values}
    varied = sorted({x for line in figure.lines.values() for x in line})
    return lines(means, figure.axis, f"{figure.values} (%)", bands, varied[:: max(1, len(varied) // 10)])


LONGEST_NAME = 30  # letters of a phrase that names a row or column
ATTENDS = {
    "across": "all words and phrases attend to all (phase 1)",
    "inside": "phrases and their words attend to each other (phase 2)",
    "attention": "self-attention",
    "source": "attention to the source",
    "weights": "attention to the source",
    "summary": "the sentence attends to its words",
    "facts": "the facts that each step attends to, and the best one",
    "parents": "words attend to heads, and the head in the best tree",
}


def write_attention(card: dict[str, Any], rows: list[dict[str, Any]], to: Path) -> Path:
    """Write the page of one sentence: every attention to it, with every head. card: of the model."""
    to.parent.mkdir(parents=True, exist_ok=True)
    write_durably(to, render("attention.html.jinja", card=card, figures=attention_figures(rows)))
    return to


def attention_figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return two figures for each row of ATTENTION: the mean over heads, and each head if there are several.

    A sentence with too many words gets a line that says so.
    """
    return [
        {
            "group": row["group"],
            "sentence": " ".join(token for token in row["tokens"] if token not in ("<s>", "</s>")),
            "module": in_words(row["module"]),
            **{name: Markup(_narrowed(plot)) for name, plot in zip(("plot", "heads"), _plots(row), strict=True)},
        }
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
    least = f"{0.6 * float(width[1]):.0f}pt" if width else "0"
    return plot.replace("<svg", f'<svg style="max-width: 100%; min-width: {least}"', 1)


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
        nodes, lines, places = _order(tokens, phrases, weights)
        names = _names(tokens, nodes)
        each, rows, columns = weights[:, lines][:, :, places], [names[n] for n in lines], [names[n] for n in places]
        mean = attention(tokens, phrases, weights.mean(0), title)
    return mean, heads(each, rows, columns, f"Heads of {name}") if len(weights) > 1 else ""


def attention(tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any, text: str) -> str:
    """Return weights (q, k) over tokens and phrases as SVG with the tree of phrases above.

    Each phrase is among its words. Phrases without a column are in the tree alone over the middle of their words. text:
    for a screen reader.
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
    """Return weights (h, q, k) head by head as small SVG with one scale.

    Rows and columns are named at the edge.
    """
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


def _order(
    tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any
) -> tuple[list[Sequence[int]], list[int], list[int]]:
    """Return the positions of each node and the order of rows and columns of (..., q, k).

    Phrases are among their words.
    """
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
    """Return the largest nodes inside of each node and its height over the words.

    A node is given by the positions of its words.
    """
    words = [frozenset(node) for node in nodes]
    parts: list[list[int]] = [[] for _ in nodes]
    heights = [0] * len(nodes)
    for node in sorted(range(len(nodes)), key=lambda n: len(words[n])):
        inside = [other for other in range(len(nodes)) if words[other] < words[node]]
        parts[node] = [one for one in inside if not any(words[one] < words[other] for other in inside)]
        heights[node] = 1 + max((heights[part] for part in parts[node]), default=-1)
    return parts, heights
