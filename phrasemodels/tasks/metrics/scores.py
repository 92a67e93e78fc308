"""Scores of answers and the files of a scoring step.

Scores are accuracy, correlation, BLEU, length to failure and users' metrics.
"""

import inspect
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phrasemodels.data.formats.shards import read_shard, write_shard
from phrasemodels.data.store.artifacts import write_durably
from phrasemodels.data.store.store import Job
from phrasemodels.project import line_of
from phrasemodels.verdicts.significance import Array, Statistic

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


@dataclass(frozen=True)
class Score:
    """A value in its usual unit, a signature of its computation and the number of sentences."""

    value: float
    signature: str
    sentences: int


def write_scores(
    job: Job, scores: Mapping[str, Score], sentences: pa.Table, test_set: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write scores.json and sentences.arrow and return the meta of the artifact.

    sentences.arrow has the statistics of each sentence. test_set: identifies the scored rows, for example by the shards
    of the test split. Systems are compared only on the same test set.
    """
    plain = {name: asdict(score) for name, score in scores.items()}
    write_shard(job.out / "sentences.arrow", sentences)
    write_durably(job.out / "scores.json", json.dumps(plain, indent=1))
    return {"scores": plain, "test_set": test_set}


def accuracy(right: NDArray[np.bool_], signature: str) -> Score:
    """Return the share of true values (n)."""
    return Score(100 * float(right.mean()), signature, len(right))


def accuracies(right: NDArray[np.bool_], groups: Sequence[str], signature: str) -> dict[str, Score]:
    """Return the accuracy over all n sentences, and over each group of sentences: `accuracy/GROUP`."""
    return {f"accuracy{suffix}": accuracy(right[rows], signature) for suffix, rows in by_group(groups).items()}


def by_group(groups: Sequence[str]) -> Mapping[str, NDArray[np.bool_]]:
    """Return masks (n) of sentences by the suffix of their metric's name.

    The suffix is "" for all sentences and "/GROUP" for each named group in alphabetical order.
    """
    names = np.asarray(groups)
    return {"": np.ones(len(names), bool), **{f"/{name}": names == name for name in sorted(set(names) - {""})}}


def accuracy_of(sums: Array) -> Array:
    """Return the accuracy in percent of summed (right, all) counts (..., 2). It is 0 of nothing."""
    return 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Pearson's r of two sequences (n). It is 0 if one of them is constant."""
    from scipy import stats  # not at the top: machines that only train do not need scipy

    return float(stats.pearsonr(x, y)[0]) if np.ptp(x) and np.ptp(y) else 0.0


def spearman(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Spearman's ρ of two sequences (n). It is 0 if one of them is constant."""
    from scipy import stats

    return float(stats.spearmanr(x, y)[0]) if np.ptp(x) and np.ptp(y) else 0.0


def tokenised_bleu() -> "BLEU":
    """BLEU as Moses' multi-bleu computes it: tokens as they are, lower case, no smoothing, 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize="none", lowercase=True, smooth_method="none", force=True)


def bleu(metric: "BLEU", hypotheses: list[str], references: list[str]) -> Score:
    """Return corpus BLEU against one reference a sentence."""
    return bleu_of_counts(metric, corpus_counts(metric, hypotheses, references), len(hypotheses))


def bleu_of_counts(metric: "BLEU", sums: NDArray[np.int64], sentences: int) -> Score:
    """Return corpus BLEU of the sums (10) of `corpus_counts` over blocks of sentences.

    The metric must have counted some sentences before.
    """
    ours, theirs, *counts = sums.tolist()
    found = metric.compute_bleu(counts[:4], counts[4:], ours, theirs, metric.smooth_method, metric.smooth_value)
    return Score(float(found.score), str(metric.get_signature()), sentences)


def corpus_counts(metric: "BLEU", hypotheses: list[str], references: list[str]) -> NDArray[np.int64]:
    """Return the counts (10) behind corpus BLEU: lengths of hypotheses and references, matches and totals.

    Matches and totals are of 1- to 4-grams.
    """
    found = metric.corpus_score(hypotheses, [references])
    return np.array([found.sys_len, found.ref_len, *found.counts, *found.totals], np.int64)


def bleu_counts(hypotheses: list[str], references: list[str], metric: "BLEU | None" = None) -> NDArray[np.int64]:
    """Return `corpus_counts` each sentence (n, 10). The default is of tokenised BLEU."""
    metric = metric or tokenised_bleu()
    each = [corpus_counts(metric, [h], [r]) for h, r in zip(hypotheses, references, strict=True)]
    return np.array(each, np.int64).reshape(-1, 10)


def ngram_counts(hypothesis: Sequence[int], reference: Sequence[int]) -> list[int]:
    """Return `bleu_counts` of one sentence of ids. A training needs no library for texts."""
    matches, totals = [], []
    for n in range(1, 5):
        own, theirs = (Counter(zip(*(ids[i:] for i in range(n)), strict=False)) for ids in (hypothesis, reference))
        matches.append((own & theirs).total())
        totals.append(own.total())
    return [len(hypothesis), len(reference), *matches, *totals]


def bleu_of(sums: Array) -> Array:
    """Return corpus BLEU without smoothing of summed `bleu_counts` (..., 10)."""
    hypothesis, reference, matches, totals = sums[..., 0], sums[..., 1], sums[..., 2:6], sums[..., 6:10]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.log(matches / totals).mean(-1)
        penalty = np.minimum(0.0, 1 - reference / hypothesis)
        return np.nan_to_num(100 * np.exp(precision + penalty), nan=0.0)


CORPUS_BLEU = Statistic("bleu_counts", bleu_of)


def length_to_failure(hypothesis: list[str], reference: list[str]) -> float:
    """Return the percentage of the reference before the first wrong token. 100: both are equal.

    A longer hypothesis fails at the token after the reference.
    """
    right = 0
    for ours, theirs in zip(hypothesis, reference, strict=False):
        if ours != theirs:
            break
        right += 1
    longer = right == len(reference) < len(hypothesis)
    return 100 * right / (len(reference) + longer)


# references, answers, as text -> a value, named as the function
Metric = Callable[[Sequence[str], Sequence[str]], float]


def check_metrics(metrics: Any) -> None:
    """Check metrics of a user.

    ValueError: they are no tuple of functions of (references, answers). Or two have one name. The name is the name of
    their scores.
    """
    if not isinstance(metrics, tuple):
        raise ValueError(f"metrics: {metrics!r} is no tuple of functions; write (my_metric,)")
    for metric in metrics:
        if not inspect.isfunction(metric):
            raise ValueError(f"metrics: {metric!r} is no function of references and answers")
        try:
            inspect.signature(metric).bind([], [])
        except TypeError as error:
            raise ValueError(f"metric {metric.__name__!r} takes no (references, answers): {error}") from error
    names = [metric.__name__ for metric in metrics]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"metrics: two functions are called {twice[0]!r}, the name of their scores; rename one")


@dataclass(frozen=True)
class OwnScoring:
    """A problem's scoring step with settings, metrics and the columns (reference, answer) of predictions."""

    make: Callable[[Job, Any], dict[str, Any]]
    settings: Any
    columns: tuple[str, str]
    metrics: tuple[Metric, ...]


def score_with_own(job: Job, settings: OwnScoring) -> dict[str, Any]:
    """Score job.inputs["predictions"] as the problem does, then by each metric. ValueError: a name is taken."""
    meta = settings.make(job, settings.settings)
    table = read_shard(job.inputs["predictions"].file("predictions.arrow"))
    if "restart" in table.column_names:  # of several starts the best stands first; the others are for evidence
        table = table.filter(pc.equal(table["restart"], 0))
    references, answers = ([_text(value) for value in table[name].to_pylist()] for name in settings.columns)
    own = {metric.__name__: _score(metric, references, answers) for metric in settings.metrics}
    if taken := sorted(own.keys() & meta["scores"].keys()):
        raise ValueError(f"metric {taken[0]!r}: the problem has one of this name; rename the function")
    scores: Mapping[str, Any] = {**meta["scores"], **{name: asdict(score) for name, score in own.items()}}
    write_durably(job.out / "scores.json", json.dumps(scores, indent=1))
    return {**meta, "scores": scores}


def _score(metric: Metric, references: Sequence[str], answers: Sequence[str]) -> Score:
    """Return the score by a user's metric. ValueError: it fails, or returns no finite number."""
    try:
        found: Any = metric(references, answers)
    except Exception as error:
        said = f"{type(error).__name__}: {error}{line_of(error)}"
        raise ValueError(f"metric {metric.__name__!r} fails on the test set: {said}") from error
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"metric {metric.__name__!r} returned {str(found)[:80]}: it has to return one finite number")
    return Score(value, f"{metric.__module__}:{metric.__name__}", len(answers))


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
