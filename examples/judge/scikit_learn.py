"""Measure again numbers that scikit-learn's package prints, and write the score of each seed and item.

`python examples/judge/scikit_learn.py scores.csv && phrasemodels judge examples/judge/scikit-learn.csv scores.csv`

wine: leave-one-out, as Aeberhard, Coomans and de Vel (1992) printed it; scikit-learn quotes them in the description of the
data (`sklearn/datasets/descr/wine_data.rst`). digits, iris: what the docstrings of Perceptron (of its seed 0) and
LogisticRegression print, on the data that the model was fitted to.
"""

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

SEEDS = 5
Build = Callable[[int], Any]  # a model from its seed


def left_out(model: Any, x: Any, y: Any) -> Any:
    """Predict each item by a model of all others."""
    return cross_val_predict(model, x, y, cv=LeaveOneOut())


def fitted(model: Any, x: Any, y: Any) -> Any:
    """Predict the items that the model was fitted to."""
    return model.fit(x, y).predict(x)


# row, data set, its loader, how it is tested, seeds, model
RESULTS: tuple[tuple[str, str, Any, Callable[[Any, Any, Any], Any], int, Build], ...] = (
    ("1NN", "wine", load_wine, left_out, 1, lambda seed: make_pipeline(StandardScaler(), KNeighborsClassifier(1))),
    ("LDA", "wine", load_wine, left_out, 1, lambda seed: LinearDiscriminantAnalysis()),
    ("QDA", "wine", load_wine, left_out, 1, lambda seed: QuadraticDiscriminantAnalysis()),
    ("Perceptron", "digits", load_digits, fitted, SEEDS, lambda seed: Perceptron(tol=1e-3, random_state=seed)),
    ("logistic regression", "iris", load_iris, fitted, 1, lambda seed: LogisticRegression(random_state=0)),
)


def scores() -> Iterator[tuple[str, str, str, int, int, int]]:
    """Yield row, data set, metric, seed, item, and whether the item was classified right."""
    for row, dataset, load, predicted, seeds, build in RESULTS:
        x, y = load(return_X_y=True)
        for seed in range(seeds):
            for item, same in enumerate(predicted(build(seed), x, y) == y):
                yield row, dataset, "accuracy", seed, item, int(same)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)  # the docstring's logistic regression stops early
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("row", "dataset", "metric", "seed", "item", "score"), *scores()])
