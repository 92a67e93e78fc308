"""Pictures of what a model attends to and of the vectors it makes, as SVG for a page."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from phrasemodels.flows.report.plots import MARKS, name_ticks, svg


def heat(values: Any, rows: Sequence[str], columns: Sequence[str], axes_said: tuple[str, str], said: str) -> str:
    """Values (rows, columns) as SVG: dark is high; where some are negative, blue is high and red is low. axes_said: what
    rows and columns are."""
    figure, axes = plt.subplots(figsize=(2.6 + 0.24 * len(columns), 1.6 + 0.19 * len(rows)), layout="constrained")
    most = float(abs(values).max())
    scale = {"cmap": "RdBu", "vmin": -most, "vmax": most} if values.min() < 0 else {"cmap": "Greys"}
    shown = axes.imshow(values, aspect="auto", **scale)
    name_ticks(axes, rows, columns, 7)
    axes.set(ylabel=axes_said[0], xlabel=axes_said[1])
    figure.colorbar(shown, ax=axes, fraction=0.03)
    return svg(figure, said)


def _amid(
    tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any
) -> tuple[list[Sequence[int]], list[int], list[int]]:
    """Positions of each node, and the order of rows and columns of (..., q, k) in which phrases stand amid their words."""
    nodes = [*([i] for i in range(len(tokens))), *phrases]
    order = sorted(range(len(nodes)), key=lambda node: (sum(nodes[node]) / len(nodes[node]), len(nodes[node])))
    rows, columns = ([node for node in order if node < size] for size in weights.shape[-2:])
    return nodes, rows, columns


def heads(weights: Any, rows: Sequence[str], columns: Sequence[str], said: str) -> str:
    """Weights (h, q, k) head by head, as SVG: small, one scale for all; rows and columns are named at the edge."""
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
    return svg(figure, said)


def amid(tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any) -> tuple[Any, list[str], list[str]]:
    """Weights (h, q, k) with rows and columns as in `attention`, and the names of these."""
    nodes, rows, columns = _amid(tokens, phrases, weights)
    names = [short(" ".join(tokens[i] for i in node)) for node in nodes]
    return weights[:, rows][:, :, columns], [names[node] for node in rows], [names[node] for node in columns]


def short(name: str, most: int = 30) -> str:
    """A label that leaves room for what it labels: both ends of a long phrase."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 + 1 :]}"


def attention(tokens: Sequence[str], phrases: Sequence[Sequence[int]], weights: Any, said: str) -> str:
    """Weights (q, k) over tokens and phrases, as SVG: each phrase stands amid its words, the tree over them above.

    Phrases that nothing attends to are in the tree alone, over the middle of their words.
    """
    nodes, rows, columns = _amid(tokens, phrases, weights)
    place = {node: float(column) for column, node in enumerate(columns)}
    place |= {n: sum(place[i] for i in nodes[n]) / len(nodes[n]) for n in range(len(nodes)) if n not in place}
    names = [short(" ".join(tokens[i] for i in node)) for node in nodes]
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
    return svg(figure, said)


def tree(nodes: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[int]]:
    """Of each node, by the positions of its words: the largest nodes inside it, and its height over the words."""
    words = [frozenset(node) for node in nodes]
    parts: list[list[int]] = [[] for _ in nodes]
    heights = [0] * len(nodes)
    for node in sorted(range(len(nodes)), key=lambda n: len(words[n])):
        inside = [other for other in range(len(nodes)) if words[other] < words[node]]
        parts[node] = [one for one in inside if not any(words[one] < words[other] for other in inside)]
        heights[node] = 1 + max((heights[part] for part in parts[node]), default=-1)
    return parts, heights


def neighbours(vectors: Any, names: Sequence[str], centres: Sequence[int], count: int) -> str:
    """Vectors (m, d) on their first two principal components, as SVG; the `count` nearest to each centre by cosine are
    marked, and shown again larger, with their names."""
    middle = vectors - vectors.mean(0)
    placed = middle @ np.linalg.svd(middle, full_matrices=False)[2][:2].T
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    figure, grid = plt.subplots(1, 1 + len(centres), figsize=(3.6 + 4.6 * len(centres), 5.4), layout="constrained")
    grid[0].plot(*placed.T, ".", color="#999999", markersize=2)
    grid[0].set_title("all phrases", fontsize=8)
    for index, (centre, axes) in enumerate(zip(centres, grid[1:], strict=True)):
        nearest = np.argsort(-(directions @ directions[centre]), kind="stable")[:count]
        for one, size in ((grid[0], 4), (axes, 5)):
            one.plot(
                *placed[nearest].T, MARKS[index % len(MARKS)], color="black", markerfacecolor="white", markersize=size
            )
        order = nearest[np.argsort(placed[nearest, 1])]
        low, high = placed[nearest].min(0), placed[nearest].max(0)
        for level, point in zip(np.linspace(low[1], high[1], len(order)), order, strict=True):
            axes.annotate(
                names[point], placed[point], (high[0] + 0.15 * (high[0] - low[0] + 1e-6), level), fontsize=5,
                va="center", arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.3},
            )  # fmt: skip
        axes.set_xlim(low[0] - 0.1 * (high[0] - low[0] + 1e-6), high[0] + 1.6 * (high[0] - low[0] + 1e-6))
        axes.set_title(f"{count} nearest to {names[centre]}", fontsize=8)
    for axes in grid:
        axes.tick_params(labelsize=6)
    return svg(
        figure, f"Phrase vectors by principal components; {count} nearest to " + ", ".join(names[c] for c in centres)
    )
