"""Figures of problems (tasks/problems/report.py) as SVG."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from phrasemodels.flows.report.plots import LINES, MARKS, name_ticks, svg
from phrasemodels.tasks.problems.report import Figure, Heatmap, Heatmaps, Matrix, Neighbours, Sweep

if TYPE_CHECKING:
    from phrasemodels.flows.results.models import Model

CELL = 0.26  # inches of a cell of a heatmap


def draw(models: Sequence["Model"], text: str, target: str = "") -> str:
    """Return the figure that the problem of trained models has for a text. ValueError: the text is empty or does not suit, or
    the problem has no figure."""
    if not text.strip():
        raise ValueError("an empty text: give a sentence")
    return svg_of(models[0].experiment.recipe.draw(models, text, target))


def svg_of(figure: Figure) -> str:
    """Return a figure as SVG."""
    match figure:
        case Heatmaps():
            return _heatmaps(figure)
        case Matrix():
            return _matrix(figure)
        case Sweep():
            return _sweep(figure)
        case Neighbours():
            return _neighbours(figure)


def _heatmaps(figure: Heatmaps) -> str:
    """Panels side by side; 0 is white, 1 or more is black. Arcs stand above the one panel that has them."""
    panel, count = figure.panels[0], len(figure.panels)
    width, height = CELL * len(panel.columns), CELL * len(panel.rows)
    if panel.arcs:
        height = 1.5 * width
    size = (count * (width + panel.margin[0]), height + panel.margin[1])
    heights = (1, 2) if panel.arcs else (1,)
    drawn, grid = plt.subplots(
        len(heights), count, figsize=size, height_ratios=heights, sharex=bool(panel.arcs), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for axes, one in zip(grid[-1], figure.panels, strict=True):
        _heatmap(axes, one)
    if panel.arcs:
        for head, word in panel.arcs:
            _arc(grid[0, 0], head, word)
        grid[0, 0].set_ylim(0, 1 + len(panel.columns) / 2)
        grid[0, 0].axis("off")
    return svg(drawn, figure.text)


def _heatmap(axes: Any, panel: Heatmap) -> None:
    assert panel.weights.shape == (len(panel.rows), len(panel.columns)), "a name for each row and column"
    axes.imshow(panel.weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    name_ticks(axes, panel.rows, panel.columns, 8)
    for row, column in panel.boxes:
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=2)
        axes.add_patch(frame)
    if panel.title:
        axes.set_title(panel.title, fontsize=9)


def _arc(axes: Any, head: int, word: int) -> None:
    """Draw an arrow from a head to its dependent, higher the further they are apart."""
    bend = -0.5 if head < word else 0.5
    style = {"arrowstyle": "->", "connectionstyle": f"arc3,rad={bend}", "linewidth": 0.8}
    axes.annotate("", xy=(word, 0), xytext=(head, 0), arrowprops=style)


def _matrix(figure: Matrix) -> str:
    """Dark is high; if some values are negative, blue is high and red is low."""
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
    """Means over seeds, and bars from the lowest to the highest, a line for each name."""
    drawn, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, line) in enumerate(figure.lines.items()):
        low, mean, high = np.array([(min(values), np.mean(values), max(values)) for values in line.values()]).T
        axes.errorbar(
            list(line),
            mean,
            yerr=np.abs([mean - low, high - mean]),
            color="black",
            marker=MARKS[index % len(MARKS)],
            markerfacecolor="white" if index % 2 else "black",
            linestyle=LINES[index % len(LINES)],
            markersize=5,
            linewidth=1.2,
            capsize=3,
            label=name,
        )
    axes.set(xlabel=figure.axis, ylabel=f"{figure.values} (%)")
    varied = sorted({x for line in figure.lines.values() for x in line})
    axes.set_xticks(varied[:: max(1, len(varied) // 10)])
    axes.grid(linewidth=0.4)
    drawn.legend(fontsize=8, loc="outside upper left")
    return svg(drawn, f"{figure.values.capitalize()} in % against {figure.axis}: " + ", ".join(figure.lines))


def _neighbours(figure: Neighbours) -> str:
    """Vectors on their first two principal components; the nearest to each centre by cosine are marked, and shown again
    larger, with their names."""
    vectors, names, count = figure.vectors, figure.names, figure.count
    middle = vectors - vectors.mean(0)
    placed = middle @ np.linalg.svd(middle, full_matrices=False)[2][:2].T
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    size = (3.6 + 4.6 * len(figure.centres), 5.4)
    drawn, grid = plt.subplots(1, 1 + len(figure.centres), figsize=size, layout="constrained")
    grid[0].plot(*placed.T, ".", color="#999999", markersize=2)
    grid[0].set_title("all phrases", fontsize=8)
    for index, (centre, axes) in enumerate(zip(figure.centres, grid[1:], strict=True)):
        nearest = np.argsort(-(directions @ directions[centre]), kind="stable")[:count]
        for one, marker in ((grid[0], 4), (axes, 5)):
            one.plot(
                *placed[nearest].T, MARKS[index % len(MARKS)], color="black", markerfacecolor="white", markersize=marker
            )
        _name_points(axes, placed, nearest, names)
        axes.set_title(f"{count} nearest to {names[centre]}", fontsize=8)
    for axes in grid:
        axes.tick_params(labelsize=6)
    centres = ", ".join(names[c] for c in figure.centres)
    return svg(drawn, f"Phrase vectors by principal components; {count} nearest to {centres}")


def _name_points(axes: Any, placed: Any, chosen: Any, names: Sequence[str]) -> None:
    """Write the names of chosen points beside the plot, in the order of their heights."""
    order = chosen[np.argsort(placed[chosen, 1])]
    low, high = placed[chosen].min(0), placed[chosen].max(0)
    width = high[0] - low[0] + 1e-6
    for level, point in zip(np.linspace(low[1], high[1], len(order)), order, strict=True):
        axes.annotate(
            names[point], placed[point], (high[0] + 0.15 * width, level), fontsize=5,
            va="center", arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.3},
        )  # fmt: skip
    axes.set_xlim(low[0] - 0.1 * width, high[0] + 1.6 * width)
