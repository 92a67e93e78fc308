"""What a report of semantic parsing shows beside scores (paper 002): sweeps (Figures 3 and 4), errors by kind (Table 6), and
neighbours of phrases (Figure 6)."""

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

EXAMPLES = 2
NEAREST, CENTRES = 30, 2

# What rows may differ in: the axis of its figure, the heading, a remark, and its value.
SWEEPS: tuple[tuple[str, str, str, Callable[[Outcome], int]], ...] = (
    (
        "merges of the byte-pair encoding",
        "Merges",
        "0 merges are whole words.",
        lambda outcome: outcome.recipe.forms.merges,  # type: ignore[attr-defined]
    ),
    (
        "updates",
        "Matches against updates",
        "Each point is a training of its own, so of so many updates.",
        lambda outcome: outcome.train.steps,
    ),
)


def sweeps(outcomes: Sequence[Outcome]) -> Iterator[Section]:
    """Yield matches on test against what the rows of one system differ in (Figures 3 and 4)."""
    systems: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        systems.setdefault((outcome.system, outcome.variant), []).append(outcome)
    for axis, title, remark, value in SWEEPS:
        if all(len({value(outcome) for outcome in of_system}) > 1 for of_system in systems.values()):
            lines: dict[str, dict[float, list[float]]] = {}
            for (system, variant), of_system in systems.items():
                for outcome in of_system:
                    for metric in ("logic", "exact"):
                        line = lines.setdefault(f"{system} {variant}, {metric} match", {})
                        line.setdefault(value(outcome), []).append(outcome.scored.meta["scores"][metric]["value"])
            text = f"Means over seeds with their standard deviations. {remark}"
            yield Section(title, text, figure=Sweep(lines, axis))


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
    """Yield for each row with n-grams the phrases around the most frequent ones of the test set (Figure 6)."""
    for outcome in first_seeds:
        if not isinstance(outcome.model.encoder, NgramEncoderConfig):
            continue
        made = run(grams(outcome))
        if not made.meta["redistributable"]:
            continue
        table = read_shard(made.file("grams.arrow"))
        if len(table) > NEAREST:
            text = (
                "Queries of the heads with the longest n-grams in the last such layer, over the test set, on their first "
                f"two principal components; the {NEAREST} nearest by cosine to the most frequent phrases. (Row, place of "
                "the last word) words."
            )
            yield Section(f"Phrases of {outcome.row}", text, figure=gram_neighbours(table))


def gram_neighbours(grams: pa.Table, phrases: Sequence[str] = ()) -> Neighbours:
    """Return the figure of a table of `gram_vectors`, around some phrases or the most frequent ones.

    ValueError: there are too few n-grams, or a phrase is not among them.
    """
    if len(grams) <= NEAREST:
        raise ValueError(f"{len(grams)} phrases: the {NEAREST} nearest can only be drawn among more")
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
