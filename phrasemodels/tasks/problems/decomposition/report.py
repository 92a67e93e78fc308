"""The figure of soft parents: a distribution over the heads of each word, and the best tree (paper 003)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from phrasemodels.encoders.parents import SoftParents
from phrasemodels.layers.attention_weights import TreeWeights
from phrasemodels.tasks.problems.decomposition.data import ROOT, numbers_of
from phrasemodels.tasks.problems.decomposition.objective import DecompositionObjective
from phrasemodels.tasks.problems.report import Heatmap, Heatmaps, TrainedModel, check_size
from phrasemodels.tasks.train.checkpoints import load_trained


def parents_figure(trained: TrainedModel, words: Sequence[str]) -> Heatmaps:
    """Return the soft parents of a sentence's words. ValueError: the model has none, or there are too many words."""
    model = load_trained(DecompositionObjective(), trained.config, trained.artifacts)
    if not isinstance(model.parents, SoftParents):
        raise ValueError(f"{trained.name} has no soft parents to draw")
    with torch.inference_mode():
        ids = [ROOT, *numbers_of(trained.artifacts["vocabulary"])(words)]
        embedded = model.embed(torch.tensor(ids))
    return soft_parents(model.parents, embedded, words)


@torch.inference_mode()
def soft_parents(parser: SoftParents, embedded: Tensor, words: Sequence[str]) -> Heatmaps:
    """Return the weights of heads (columns) of n - 1 words (rows), with the arcs of the best tree.

    embedded (n, d) has the root in front.
    """
    names, lengths = ["root", *words], torch.tensor([len(embedded)])
    check_size(len(words), len(words))
    scores = parser.eval().scores(embedded[None], lengths)
    heads = TreeWeights().best(scores, lengths)[0].tolist()
    weights = parser.weights(scores, lengths)[0, 1:].numpy()
    arcs = [(head, word) for word, head in enumerate(heads[1:], 1)]
    panel = Heatmap(weights, names[1:], names, arcs=arcs, margin=(1.2, 1.0))
    return Heatmaps([panel], "Tree of " + " ".join(f"{names[head]}→{names[word]}" for head, word in arcs))
