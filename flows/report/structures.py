"""The figures of paper 003, each a function of models and a sentence: attention to segments, facts, trees. As SVG. A
ValueError says that there are too many words to be drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle
from torch import Tensor

from phrasemodels.encoders.parents import SoftParents
from phrasemodels.flows.report.attention_pages import too_many
from phrasemodels.flows.report.plots import name_ticks, svg
from phrasemodels.layers.attention_weights import TreeWeights
from phrasemodels.models.memory import Chain, Hops
from phrasemodels.models.recurrent import RecurrentTranslator

CELL = 0.26  # inches


def segments(
    models: Mapping[str, RecurrentTranslator], source: Sequence[str], target: Sequence[str], ids: tuple[Tensor, Tensor]
) -> str:
    """What each model's decoder attends to, side by side: rows are the target's tokens, columns the source's.

    ids: those of source (n) and of target (t), the latter beginning with BEGIN instead of with its first token.
    """
    n, t = len(ids[0]), len(ids[1])
    _check(t, n)
    figure, panels = plt.subplots(
        1, len(models), figsize=(len(models) * (CELL * n + 0.7), CELL * t + 1.2), layout="constrained", squeeze=False
    )
    for axes, (name, model) in zip(panels[0], models.items(), strict=True):
        weights = model.eval().attention(ids[0][None], torch.tensor([n]), torch.zeros(1, 0, 2).long(), ids[1][None])[0]
        _heat(axes, weights, target, source)
        axes.set_title(name, fontsize=9)
    return svg(figure, f"Attention to {' '.join(source)}: " + ", ".join(models))


@torch.inference_mode()
def facts(model: Hops | Chain, told: Sequence[str], question: str, ids: tuple[Tensor, Tensor]) -> str:
    """Weights of the facts (rows) at each step, and the model's best sequence of facts in frames.

    ids: those of the facts (n, w) and of the question (v).
    """
    _check(len(told), len(ids[0]))
    weights = model.eval().weights(ids[0][None], ids[1][None])[0].T
    best = model.evidence(ids[0][None], ids[1][None])[0].tolist()
    steps = [f"{k + 1}" for k in range(len(best))]
    figure, axes = plt.subplots(figsize=(CELL * len(best) + 4.5, CELL * len(told) + 1.0), layout="constrained")
    _heat(axes, weights, list(told), steps)
    for step, fact in enumerate(best):
        axes.add_patch(Rectangle((step - 0.5, fact - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=2))
    axes.set_title(question, fontsize=9)
    return svg(figure, f"Facts for {question}: " + ", ".join(told[fact] for fact in best))


@torch.inference_mode()
def parents(parser: SoftParents, embedded: Tensor, words: Sequence[str]) -> str:
    """Soft parents of a sentence as a heat map (rows are words, columns their heads), above it the best tree's arcs.

    embedded (n, d) with the root first; words are the n - 1 others.
    """
    names, lengths = ["root", *words], torch.tensor([len(embedded)])
    _check(len(words), len(words))
    scores = parser.eval().scores(embedded[None], lengths)
    heads = TreeWeights().best(scores, lengths)[0].tolist()
    width = CELL * len(names)
    figure, (above, axes) = plt.subplots(
        2, 1, figsize=(width + 1.2, 1.5 * width + 1.0), height_ratios=(1, 2), sharex=True, layout="constrained"
    )
    _heat(axes, parser.weights(scores, lengths)[0, 1:], names[1:], names)
    for word, head in enumerate(heads[1:], 1):
        _arc(above, head, word)
    above.set_ylim(0, 1 + len(names) / 2)
    above.axis("off")
    return svg(figure, "Tree of " + " ".join(f"{names[h]}→{w}" for w, h in zip(words, heads[1:], strict=True)))


def _check(down: int, across: int) -> None:
    if said := too_many(down, across):
        raise ValueError(said)


def _heat(axes: Any, weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A grey map of weights (rows, columns), 0 white and 1 or more black."""
    assert weights.shape == (len(rows), len(columns)), "a name for each row and column"
    axes.imshow(weights.numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    name_ticks(axes, rows, columns, 8)


def _arc(axes: Any, head: int, word: int) -> None:
    """An arrow from a head to its dependent, higher the further they are apart."""
    bend = -0.5 if head < word else 0.5
    style = {"arrowstyle": "->", "connectionstyle": f"arc3,rad={bend}", "linewidth": 0.8}
    axes.annotate("", xy=(word, 0), xytext=(head, 0), arrowprops=style)
