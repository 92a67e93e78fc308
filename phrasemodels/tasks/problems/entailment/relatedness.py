"""Relatedness of two sentences: trained on scores from 1 to 5 (SICK-R), and by the angle of their vectors (STS14)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from phrasemodels.tasks.metrics.correlation import pearson, spearman
from phrasemodels.tasks.problems.entailment.logistic import Counter, since_the_best
from phrasemodels.tasks.train.batches import stream

SCORES = torch.arange(1.0, 6.0)
Rated = tuple[Tensor, NDArray[np.float64]]  # features (n, d) of pairs, scores (n)
BATCH, PASSES, MOST_PASSES, PATIENCE = 64, 50, 1000, 3


def targets(scores: NDArray[np.float64]) -> Tensor:
    """Return scores as distributions over 1 to 5 with these means (n, 5) (Tai et al. 2015, Eq 15)."""
    given = torch.from_numpy(scores).float().unsqueeze(1)
    return (1 - (given - SCORES).abs()).clamp(min=0)


def relatedness(
    train: Rated, dev: Rated, test: Rated, seed: int, counter: Counter = since_the_best
) -> dict[str, float]:
    """Return Pearson's r and Spearman's ρ (from -1 to 1) and the mean squared error on test, of a softmax layer.

    It is trained by the squared error of distributions, and stopped by Pearson's r on dev. counter: how checks without a
    better r are counted, as in LogisticConfig.
    """
    generator = torch.Generator().manual_seed(stream(seed, "relatedness"))
    layer = nn.Linear(train[0].shape[1], 5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) / train[0].shape[1] ** 0.5)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-3, (0.9, 0.999), 1e-8)
    gold = targets(train[1])
    best, best_state, without = -1.0, layer.state_dict(), torch.tensor(0)
    for _ in range(0, MOST_PASSES + 1, PASSES):
        for _ in range(PASSES):
            for rows in torch.randperm(len(gold), generator=generator).split(BATCH):
                loss = (layer(train[0][rows]).softmax(-1) - gold[rows]).square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        found = pearson(_expected(layer, dev[0]), dev[1])
        without = counter(without, torch.tensor(found > best))
        if found > best:
            best, best_state = found, {name: value.clone() for name, value in layer.state_dict().items()}
        if without > PATIENCE:
            break
    layer.load_state_dict(best_state)
    answers = _expected(layer, test[0])
    error = float(np.square(answers - test[1]).mean())
    return {
        "pearson": pearson(answers, test[1]),
        "spearman": spearman(answers, test[1]),
        "mse": error,
        "rows": len(gold),
    }


@torch.no_grad()
def _expected(layer: nn.Linear, features: Tensor) -> NDArray[np.float64]:
    """Return the expected score of each row (n)."""
    return (layer(features).softmax(-1) @ SCORES).double().numpy()


def similarity(u: Tensor, v: Tensor, scores: NDArray[np.float64], groups: NDArray[np.str_]) -> dict[str, float]:
    """Return correlations of cosines with scores: means over groups, which papers print, and means weighted by rows."""
    cosine = torch.cosine_similarity(u, v).double().numpy()
    names, counts = np.unique(groups, return_counts=True)
    found: dict[str, float] = {}
    for name, measure in (("pearson", pearson), ("spearman", spearman)):
        values = [measure(cosine[groups == group], scores[groups == group]) for group in names]
        found |= {name: float(np.mean(values)), f"{name} by rows": float(np.average(values, weights=counts))}
    return {**found, "rows": len(scores)}
