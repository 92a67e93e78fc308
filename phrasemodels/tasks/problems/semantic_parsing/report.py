"""What a report of semantic parsing shows beside scores (paper 002): merges (Figure 3), token accuracy while training (Figure
4), errors by kind (Table 6), and neighbours of phrases and words (Figures 6 and 9)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phrasemodels.data.download.manifest import closest
from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.tasks.metrics.error_kinds import KINDS, error_kind
from phrasemodels.tasks.problems.report import ErrorKind, Neighbours, Outcome, Section, Sweep
from phrasemodels.tasks.problems.semantic_parsing.score import AsText, matches
from phrasemodels.tasks.train.loop import history

EXAMPLES = 2
NEAREST, CENTRES = 30, 2
LAST_HEADS = "last quarter of the heads in the last layer, of the last word of each phrase"
OVER_SEEDS = "Means over seeds, with bars from the lowest to the highest."


def merges(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    """Yield matches on test against the merges of the byte-pair encoding, if rows differ in them (Figure 3)."""
    found: dict[str, dict[float, list[float]]] = {}
    for outcome in outcomes:
        count = outcome.recipe.forms.merges  # type: ignore[attr-defined]
        for metric in ("logic", "exact"):
            line = found.setdefault(f"{outcome.system} {outcome.variant}, {metric} match", {})
            line.setdefault(count, []).append(outcome.scored.meta["scores"][metric]["value"])
    if all(len(line) > 1 for line in found.values()):
        figure = Sweep(found, "merges of the byte-pair encoding", "matches")
        yield Section("Merges", f"{OVER_SEEDS} 0 merges are whole words.", figure=figure)


def accuracy_on_test(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    """Yield the share of right words of the test set, given the gold words before them, against updates, if the trainings
    were watched there (Figure 4)."""
    found: dict[str, dict[float, list[float]]] = {}
    for outcome in outcomes:
        for row in history(outcome.trained):
            line = found.setdefault(f"{outcome.system} {outcome.variant}", {})
            line.setdefault(row["step"], []).append(100 * (1 - row["dev_loss"]))
    figure = Sweep(found, "updates", "right words of test")
    text = f"{OVER_SEEDS} Each word is predicted from the gold words before it. The last weights are the model: nothing is chosen here."
    yield Section("Token accuracy against updates", text, figure=figure)


@dataclass(frozen=True)
class AnsweredQuestion:
    """A test question, its gold form, the predicted form, whether it is right by logic match, and whether the licence lets
    its text be shown."""

    question: str
    gold: str
    predicted: str
    right: bool
    shown: bool


def answered_questions(outcome: Outcome, text: AsText) -> list[AnsweredQuestion]:
    """Return all test questions of an outcome, in order."""
    right, table = matches(outcome.predicted, text)
    shown = bool(outcome.predicted.meta["redistributable"])
    columns = ([text(tokens) for tokens in table[side].to_pylist()] for side in ("source", "reference", "hypothesis"))
    rows = zip(*columns, right["logic"], strict=True)
    return [AnsweredQuestion(q, gold, predicted, bool(hit), shown) for q, gold, predicted, hit in rows]


def improvements(first_seeds: Sequence[Outcome], text: Callable[[Outcome], AsText]) -> Iterator[Section]:
    """Yield for each row the questions that it gets right and the first row on the same data gets wrong, by kind of error."""
    bases: list[tuple[Outcome, list[AnsweredQuestion]]] = []
    for outcome in first_seeds:
        answered = answered_questions(outcome, text(outcome))
        base = next((one for one in bases if one[0].recipe == outcome.recipe), None)
        if base is None:
            bases.append((outcome, answered))
        else:
            yield improvement(base[0].row, base[1], outcome.row, answered)


def improvement(base: str, first: Sequence[AnsweredQuestion], row: str, second: Sequence[AnsweredQuestion]) -> Section:
    """Return what one row gets right and its base, another row, gets wrong on the same questions."""
    pairs = list(zip(first, second, strict=True))
    better = [one for one, other in pairs if other.right and not one.right]
    worse = sum(one.right and not other.right for one, other in pairs)
    by_kind: dict[str, list[AnsweredQuestion]] = {kind: [] for kind in KINDS}
    for one in better:
        by_kind[error_kind(one.predicted, one.gold)].append(one)
    kinds = []
    for kind, of_kind in by_kind.items():
        shown = [one for one in of_kind[:EXAMPLES] if one.shown]
        examples = [{"question": one.question, "gold": one.gold, base: one.predicted} for one in shown]
        kinds.append(ErrorKind(kind, len(of_kind), 100 * len(of_kind) / max(1, len(better)), examples))
    text = (
        f"{len(better)} questions that {row} gets right and {base} wrong, first seeds, by logic match; {worse} the other way "
        "round. The paper's three kinds of errors (Table 6), told apart by rule."
    )
    return Section(f"What {row} gets right", text, errors=kinds)


def neighbours(
    first_seeds: Sequence[Outcome], grams: Callable[[Outcome], Step], run: Callable[[Step], Artifact]
) -> Iterator[Section]:
    """Yield for each row the phrases around the most frequent ones of the test set (Figure 6), or their last words (Figure 9)."""
    for outcome in first_seeds:
        made = run(grams(outcome))
        if not made.meta["redistributable"]:
            continue
        table = read_shard(made.file("grams.arrow"))
        if len(table) > NEAREST:
            grams_of = isinstance(outcome.model.encoder, NgramEncoderConfig)
            whose = "heads with the longest n-grams in the last such layer" if grams_of else LAST_HEADS
            text = (
                f"Queries of the {whose}, over the test set, on their first two principal components; the {NEAREST} nearest "
                "by cosine to the most frequent phrases. (Row, place of the last word) words."
            )
            yield Section(f"{'Phrases' if grams_of else 'Words'} of {outcome.row}", text, figure=gram_neighbours(table))


def gram_neighbours(grams: pa.Table, phrases: Sequence[str] = ()) -> Neighbours:
    """Return the figure of a table of `gram_vectors`, around some phrases or the most frequent ones.

    ValueError: there are too few n-grams, or a phrase is not among them.
    """
    if len(grams) <= NEAREST:
        why = "the encoder has no heads with queries" if not len(grams) else "only among more can the nearest be drawn"
        raise ValueError(f"{len(grams)} phrases, and {NEAREST} are drawn: {why}")
    known = grams["phrase"].to_pylist()
    counts = Counter(known)
    for phrase in phrases:
        if phrase not in counts:
            raise ValueError(f"no phrase {phrase!r} of the test set; {closest(phrase, known)}")
    most_frequent = sorted(counts, key=lambda phrase: (-counts[phrase], phrase))[:CENTRES]
    centres = [known.index(phrase) for phrase in phrases or most_frequent]
    places = zip(grams["row"].to_pylist(), grams["last"].to_pylist(), known, strict=True)
    names = [f"({row}, {last}) {phrase}" for row, last, phrase in places]
    return Neighbours(np.array(grams["vector"].to_pylist()), names, centres, NEAREST)
