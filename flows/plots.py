"""Plots, as files or as SVG for a page. Readable without colour: marks and line styles differ too."""

import html
import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

MARKS = ("o", "s", "^", "D", "v", "P", "X")
matplotlib.rcParams["text.parse_math"] = False  # two dollars in a sentence are no formula
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))


def learning_curve(history: Sequence[dict[str, float]], path: Path) -> None:
    """Loss on train and dev against updates."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    steps = [row["step"] for row in history]
    for index, (name, label) in enumerate((("loss", "train"), ("dev_loss", "dev"))):
        axes.plot(
            steps,
            [row[name] for row in history],
            label=label,
            marker=MARKS[index],
            linestyle=LINES[index],
            color="black",
            markersize=3,
        )
    axes.set(xlabel="updates", ylabel="loss (nats)")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def curves(histories: Mapping[str, Sequence[Mapping[str, float]]], said: str = "dev loss") -> str:
    """What is measured on dev, of several systems against updates, as SVG; said: what that is, with its unit."""
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, history) in enumerate(histories.items()):
        axes.plot(
            [r["step"] for r in history],
            [r["dev_loss"] for r in history],
            label=name,
            linewidth=1.4,
            markersize=4,
            marker=MARKS[index % len(MARKS)],
            linestyle=LINES[(index + index // len(MARKS)) % len(LINES)],
        )
    axes.set(xlabel="updates", ylabel=said)
    figure.legend(fontsize=8, loc="outside right upper")
    return svg(figure, f"{said} against updates: " + ", ".join(histories))


def intervals(rows: Sequence[dict[str, Any]], unit: str) -> str:
    """Mean, interval and single seeds of each row beside the published value, as SVG."""
    figure, axes = plt.subplots(figsize=(7.5, 0.55 * len(rows) + 1.1), layout="constrained")
    for y, row in enumerate(rows):
        axes.errorbar(
            row["mean"],
            y,
            xerr=row["half_width"] or 0,
            fmt="o",
            color="black",
            capsize=4,
            label="ours, 95 % interval" if not y else None,
        )
        axes.plot(
            row["values"],
            [y] * len(row["values"]),
            "|",
            color="black",
            markersize=11,
            label="single seeds" if not y else None,
        )
        axes.plot(
            [] if row["published"] is None else [row["published"]],
            [] if row["published"] is None else [y],
            marker="D",
            color="white",
            markeredgecolor="black",
            linestyle="none",
            label="published" if not y else None,
        )
    axes.set_yticks(range(len(rows)), [_wrapped(row["name"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.grid(axis="x", linewidth=0.4)
    figure.legend(fontsize=8, loc="outside upper right", ncols=3)
    return svg(figure, f"{unit}, ours and published: " + ", ".join(row["name"] for row in rows))


def differences(rows: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Differences from a baseline with their intervals, a line for each row and metric, as SVG."""
    metrics = list(dict.fromkeys(name for row in rows.values() for name in row))
    height = 0.24 * len(rows) * len(metrics) + 0.2 * len(rows) + 1.1
    figure, axes = plt.subplots(figsize=(7.5, height), layout="constrained")
    for index, metric in enumerate(metrics):
        shown = [(y, row[metric]) for y, row in enumerate(rows.values()) if metric in row]
        axes.errorbar(
            [found["difference"] for _, found in shown],
            [y + (index - (len(metrics) - 1) / 2) * 0.66 / len(metrics) for y, _ in shown],
            xerr=[
                [found["difference"] - found["low"] for _, found in shown],
                [found["high"] - found["difference"] for _, found in shown],
            ],
            fmt=MARKS[index % len(MARKS)],
            color="black",
            markerfacecolor="black" if not index else "white",
            markersize=5,
            capsize=3,
            linewidth=1.2 if not index else 0.8,
            label=metric,
        )
    axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), [_wrapped(name) for name in rows])
    axes.invert_yaxis()
    axes.set_xlabel("difference from the baseline (points)")
    axes.grid(axis="x", linewidth=0.4)
    if len(metrics) > 1:
        figure.legend(fontsize=8, loc="outside upper right", ncols=len(metrics))
    return svg(figure, "Differences from the baseline: " + ", ".join(rows))


def _wrapped(name: str, width: int = 30) -> str:
    """A name on lines of so many letters."""
    return "\n".join(textwrap.wrap(name, width))


def groups(rows: Sequence[dict[str, Any]], names: Sequence[str], unit: str) -> str:
    """A bar for each row and group of sentences, as SVG."""
    figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        positions = [x + (index - (len(names) - 1) / 2) * width for x in range(len(rows))]
        bars = axes.bar(
            positions,
            [row[name] for row in rows],
            width,
            label=name,
            edgecolor="black",
            hatch=("", "//", "..")[index % 3],
            color=("#4c72b0", "#dddddd", "#999999")[index % 3],
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set_xticks(range(len(rows)), [row["label"] for row in rows], fontsize=8)
    if len(rows) > 6:
        plt.setp(axes.get_xticklabels(), rotation=30, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)
    figure.legend(fontsize=8, loc="outside upper right", ncols=len(names))
    return svg(figure, f"{unit}, by kind of sentence: " + ", ".join(row["label"] for row in rows))


def heat(values: Any, rows: Sequence[str], columns: Sequence[str], axes_said: tuple[str, str], said: str) -> str:
    """Values (rows, columns) as SVG; dark is high. axes_said: what rows and columns are."""
    figure, axes = plt.subplots(figsize=(2.6 + 0.24 * len(columns), 1.6 + 0.19 * len(rows)), layout="constrained")
    shown = axes.imshow(values, cmap="Greys", aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
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
            axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
            axes.set_yticks(range(len(rows)), rows, fontsize=7)
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
    axes.set_xticks(range(len(columns)), [names[node] for node in columns], rotation=90, fontsize=8)
    axes.set_yticks(range(len(rows)), [names[node] for node in rows], fontsize=8)
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


def sweep(lines: Mapping[str, Mapping[float, Sequence[float]]], said: str) -> str:
    """Values in % of all seeds against a number that was varied, a line for each name, as SVG: means and deviations."""
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, found) in enumerate(lines.items()):
        axes.errorbar(
            list(found),
            [float(np.mean(values)) for values in found.values()],
            yerr=[float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in found.values()],
            color="black",
            marker=MARKS[index % len(MARKS)],
            markerfacecolor="white" if index % 2 else "black",
            linestyle=LINES[index % len(LINES)],
            markersize=5,
            linewidth=1.2,
            capsize=3,
            label=name,
        )
    axes.set(xlabel=said, ylabel="%")
    axes.set_xticks(sorted({x for found in lines.values() for x in found}))
    axes.grid(linewidth=0.4)
    figure.legend(fontsize=8, loc="outside upper left")
    return svg(figure, f"Matches in % against {said}: " + ", ".join(lines))


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


def svg(figure: Figure, said: str) -> str:
    """A figure as an SVG element without the XML header; `said` is what a screen reader reads in its place."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "phrasemodels"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    label = html.escape(said, quote=True)
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
