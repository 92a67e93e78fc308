"""Plots, as files or as SVG for a page. Readable without colour: marks and line styles differ too."""

import html
import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text

from phrasemodels.flows.report.templates import readable

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
    found = {name: [(row["step"], row["dev_loss"]) for row in history] for name, history in histories.items()}
    return lines(found, "updates", said)


def lines(points: Mapping[str, Sequence[tuple[float, float]]], across: str, said: str) -> str:
    """A line for each name through its points, as SVG; across and said: what the axes are, with their units."""
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, line) in enumerate(points.items()):
        axes.plot(
            [x for x, _ in line],
            [y for _, y in line],
            label=name,
            linewidth=1.4,
            markersize=4,
            marker=MARKS[index % len(MARKS)],
            linestyle=LINES[(index + index // len(MARKS)) % len(LINES)],
        )
    axes.set(xlabel=across, ylabel=said)
    figure.legend(fontsize=8, loc="outside right upper")
    return svg(figure, f"{said} against {across}: " + ", ".join(points))


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


def name_ticks(axes: Any, rows: Sequence[str], columns: Sequence[str], size: int) -> None:
    """What rows and columns of a picture are called."""
    axes.set_xticks(range(len(columns)), list(map(readable, columns)), rotation=90, fontsize=size)
    axes.set_yticks(range(len(rows)), list(map(readable, rows)), fontsize=size)


def svg(figure: Figure, said: str) -> str:
    """A figure as an SVG element without the XML header; `said` is what a screen reader reads in its place."""
    for one in figure.findobj(Text):
        one.set_text(readable(one.get_text()))
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "phrasemodels"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser's fonts draw it
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    label = html.escape(readable(said), quote=True)
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
