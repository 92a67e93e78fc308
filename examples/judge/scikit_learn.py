"""Train again what scikit-learn's documentation prints numbers of, and write the score of each seed and test item.

`python examples/judge/scikit_learn.py scores.csv && phrasemodels judge examples/judge/scikit-learn.csv scores.csv`
"""

import csv
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

SEEDS = 3
Build = Callable[[int], Any]  # a model from its seed
DIGITS = (load_digits, {"test_size": 0.5, "shuffle": False})
CANCER = (load_breast_cancer, {"random_state": 42})
WINE = (load_wine, {"test_size": 0.3, "random_state": 42})
# row, data set, its loader and split, seeds, model
RESULTS: tuple[tuple[str, str, tuple[Any, dict[str, Any]], int, Build], ...] = (
    ("support vectors", "digits", DIGITS, 1, lambda seed: SVC(gamma=0.001)),
    ("random forest", "digits", DIGITS, SEEDS, lambda seed: RandomForestClassifier(random_state=seed)),
    ("random forest", "breast cancer", CANCER, SEEDS, lambda seed: RandomForestClassifier(random_state=seed)),
    ("naive Bayes", "wine", WINE, 1, lambda seed: make_pipeline(PCA(2), GaussianNB())),
    ("scaled naive Bayes", "wine", WINE, 1, lambda seed: make_pipeline(StandardScaler(), PCA(2), GaussianNB())),
)


def scores() -> Iterator[tuple[str, str, str, int, int, int]]:
    """Yield row, data set, metric, seed, item, and whether the item was classified right."""
    for row, dataset, (load, split), seeds, build in RESULTS:
        train, test, known, right = train_test_split(*load(return_X_y=True), **split)
        for seed in range(seeds):
            for item, same in enumerate(build(seed).fit(train, known).predict(test) == right):
                yield row, dataset, "accuracy", seed, item, int(same)


if __name__ == "__main__":
    with open(sys.argv[1], "w", newline="") as file:
        csv.writer(file).writerows([("row", "dataset", "metric", "seed", "item", "score"), *scores()])
