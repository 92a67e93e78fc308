"""Plots, as files or as SVG for a page. Readable without colour: marks and line styles differ too."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

MARKS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))


def learning_curve(history: Sequence[dict[str, float]], path: Path) -> None:
    """Loss on train and dev against updates."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    steps = [row["step"] for row in history]
    for index, (name, label) in enumerate((("loss", "train (smoothed labels)"), ("dev_loss", "dev"))):
        axes.plot(
            steps,
            [row[name] for row in history],
            label=label,
            marker=MARKS[index],
            linestyle=LINES[index],
            color="black",
            markersize=3,
        )
    axes.set(xlabel="updates", ylabel="loss (nats a token)")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def curves(histories: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Dev loss of several systems against updates, as SVG."""
    figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for index, (name, history) in enumerate(histories.items()):
        axes.plot(
            [r["step"] for r in history],
            [r["dev_loss"] for r in history],
            label=name,
            linewidth=1.4,
            markersize=4,
            marker=MARKS[index % len(MARKS)],
            linestyle=LINES[index % len(LINES)],
        )
    axes.set(xlabel="updates", ylabel="dev loss (nats a token)")
    axes.legend(fontsize=8)
    return svg(figure)


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
            row["published"],
            y,
            marker="D",
            color="white",
            markeredgecolor="black",
            linestyle="none",
            label="published" if not y else None,
        )
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.grid(axis="x", linewidth=0.4)
    axes.legend(fontsize=8, loc="best")
    return svg(figure)


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
    axes.set_ylabel(unit)
    axes.legend(fontsize=8, loc="lower right")
    return svg(figure)


def svg(figure: Figure) -> str:
    """A figure as an SVG element, without the XML header."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "phrasemodels"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
