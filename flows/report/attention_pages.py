"""Pages and figures of what a model attends to in single sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from phrasemodels.data.formats.trees import brackets
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.flows.report.attention_plots import amid, attention, heads, heat
from phrasemodels.flows.report.templates import render

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.parsing.label_attention import LabelView


MOST = 80  # words of a sentence that is drawn with itself: a figure has as many cells as their square


def attention_figures(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two figures for each attention of each sentence: mean over heads, and head by head if there are several; of a
    sentence with too many words, what is said instead."""
    return [
        {"group": row["group"], "sentence": _sentence(row["tokens"]), "module": row["module"]}
        | {name: Markup(plot) for name, plot in zip(("plot", "heads"), _drawn(row), strict=True)}
        for row in rows
    ]


def _sentence(tokens: list[str]) -> str:
    """Tokens without the marks around them, if there are any."""
    return " ".join(token for token in tokens if token not in ("<s>", "</s>"))


def _drawn(row: dict[str, Any]) -> tuple[str, str]:
    weights, tokens, phrases = _weights(row), row["tokens"], row["phrases"]
    across, down = len(tokens), len(row.get("written") or tokens)
    if said := too_many(down, across):
        return f"<p>{said}.</p>", ""
    mean = f"Attention {row['module']}, mean over heads"
    if row.get("written") is not None:
        rows, columns, each = row["written"], tokens, weights
        axes = ("written" if row["module"].startswith("decoder.") else "from", "attended to")
        drawn = heat(weights.mean(0), rows, columns, axes, mean)
    else:
        each, rows, columns = amid(tokens, phrases, weights)
        drawn = attention(tokens, phrases, weights.mean(0), mean)
    return drawn, heads(each, rows, columns, f"Heads of {row['module']}") if len(weights) > 1 else ""


def too_many(down: int, across: int) -> str:
    """What is said instead of a figure of so many words; empty if it can be drawn."""
    if down * across <= MOST**2:
        return ""
    return f"{down} by {across} words are too many for a figure; take a shorter sentence"


def _weights(row: dict[str, Any]) -> Any:
    """(h, q, k)."""
    return np.array(row["weights"], np.float32).reshape(row["shape"])


def write_attention(card: dict[str, Any], rows: list[dict[str, Any]], to: Path) -> Path:
    """The page of one sentence: every attention to it, and every head of each."""
    to.parent.mkdir(parents=True, exist_ok=True)
    write_durably(to, render("attention.html.jinja", card=card, figures=attention_figures(rows)))
    return to


def write_labels(view: "LabelView", most: int, to: Path) -> Path:
    """A page of a parse: what labels attend to, and what they contribute, averaged and as shares."""
    order = np.argsort(-np.ptp(view.averages, 0), kind="stable")[:most]
    names = [view.labels[label] for label in order]
    words = ["<s>", *view.parse.tokens, "</s>"]
    spans = [f"{label} {' '.join(view.parse.tokens[start:end])}"[:60] for label, start, end in view.spans]
    figures = {
        "What each label attends to": heat(
            view.attention[order], names, words, ("label", "word"), "attention of labels"
        ),
        "Contributions to phrases: means": heat(
            view.averages[:, order], spans, names, ("phrase", "label"), "mean contribution of labels to phrases"
        ),
        "Contributions to phrases: shares": heat(
            view.shares[:, order], spans, names, ("phrase", "label"), "share of labels in phrases"
        ),
    }
    tree = brackets(view.parse.tree) if view.parse.tree else ""
    shown = {title: Markup(svg) for title, svg in figures.items()}
    write_durably(to, render("labels.html.jinja", parse=view.parse, tree=tree, figures=shown))
    return to
