"""What a report of semantic parsing shows besides its numbers (paper 002): errors by kind, the sweep of Figure 3, and the
neighbours of phrases (Figure 6)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from markupsafe import Markup

from data.artifacts import Artifact
from data.shards import read_shard
from flows.attention_plots import neighbours
from flows.experiment import Pipeline
from flows.plots import sweep
from flows.recipes.semantic_parsing import SemanticParsingRecipe
from flows.sections import Section
from flows.session import Session
from phrasemodels.encoders.ngram import NgramEncoderConfig
from tasks.error_kinds import KINDS, error_kind
from tasks.problems.semantic_parsing import FormScoreSettings, matches

EXAMPLES, NEAREST, CENTRES = 2, 30, 2


def sections(session: Session) -> list[Section]:
    """All that can be shown of a table; nothing for other problems. Sentences only where they may be passed on."""
    first = [p for p in session.pipelines if p.seed == session.table.seeds[0]]
    if not all(isinstance(p.experiment.recipe, SemanticParsingRecipe) for p in first):
        return []
    return [*_sweep(session), *_improvements(session, first), *_neighbours(session, first)]


def _recipe(pipeline: Pipeline) -> SemanticParsingRecipe:
    return cast(SemanticParsingRecipe, pipeline.experiment.recipe)


def _sweep(session: Session) -> Iterator[Section]:
    """Figure 3, if rows differ in how many merges there are."""
    found: dict[float, dict[str, list[float]]] = {}
    for pipeline in session.pipelines:
        scores = _found(session, pipeline.scored).meta["scores"]
        metrics = found.setdefault(_recipe(pipeline).forms.merges, {"logic": [], "exact": []})
        for name, values in metrics.items():
            values.append(scores[name]["value"])
    if len(found) > 1:
        plot = Markup(sweep(dict(sorted(found.items())), "merges of the byte-pair encoding"))
        yield Section("Merges", "Means over seeds, and single seeds as bars; 0 merges are whole words.", plot)


def _improvements(session: Session, pipelines: list[Pipeline]) -> Iterator[Section]:
    """What the first row on a corpus gets wrong and another right, on the same questions, by kind of error."""
    bases: list[tuple[Pipeline, list[Answered]]] = []
    for p in pipelines:
        base = next((one for one in bases if one[0].experiment.recipe == p.experiment.recipe), None)
        if base is None:
            bases.append((p, _answered(session, p)))
        else:
            yield _improved(base[0], base[1], p, _answered(session, p))


def _improved(base: Pipeline, first: list["Answered"], pipeline: Pipeline, second: list["Answered"]) -> Section:
    pairs = list(zip(first, second, strict=True))
    better = [one for one, other in pairs if other.right and not one.right]
    worse = sum(one.right and not other.right for one, other in pairs)
    by_kind: dict[str, list[Answered]] = {kind: [] for kind in KINDS}
    for one in better:
        by_kind[error_kind(one.wrong, one.gold)].append(one)
    kinds = [
        {
            "kind": kind,
            "count": len(found),
            "share": 100 * len(found) / max(1, len(better)),
            "examples": [
                {"question": one.question, "gold": one.gold, base.experiment.row: one.wrong}
                for one in found[:EXAMPLES]
                if one.shown
            ],
        }
        for kind, found in by_kind.items()
    ]
    said = (
        f"{len(better)} questions that {pipeline.experiment.row} gets right and {base.experiment.row} wrong, first seeds, "
        f"by logic match; {worse} the other way round. The paper's three kinds of errors (Table 6), told apart by rule."
    )
    return Section(f"What {pipeline.experiment.row} gets right", said, kinds=kinds)


@dataclass(frozen=True)
class Answered:
    """A question, the gold form, the form that was answered, and whether text may be shown."""

    question: str
    gold: str
    wrong: str
    right: bool
    shown: bool


def _answered(session: Session, pipeline: Pipeline) -> list[Answered]:
    """Every test question, with whether it was right by logic match."""
    settings = pipeline.stages["scores"].settings
    assert isinstance(settings, FormScoreSettings)
    predictions = _found(session, pipeline.predicted)
    found, table = matches(predictions, settings)
    shown = bool(predictions.meta["redistributable"])
    question, gold, wrong = (
        [settings.text(tokens) for tokens in table[side].to_pylist()] for side in ("source", "reference", "hypothesis")
    )
    rows = zip(question, gold, wrong, found["logic"], strict=True)
    return [Answered(q, g, w, bool(right), shown) for q, g, w, right in rows]


def _neighbours(session: Session, pipelines: list[Pipeline]) -> Iterator[Section]:
    """Figure 6 of each row with n-grams: phrases of the test set around the most frequent ones."""
    for p in pipelines:
        recipe = _recipe(p)
        trained = _found(session, p.trained)
        if not isinstance(p.experiment.model.encoder, NgramEncoderConfig):
            continue
        made = session.store.run(recipe.grams(p.experiment.model, {"model": trained, **recipe.data()}))
        if not made.meta["redistributable"]:
            continue
        table = read_shard(made.file("grams.arrow"))
        vectors, phrases = np.array(table["vector"].to_pylist()), table["phrase"].to_pylist()
        names = [
            f"({r}, {k}) {t}"
            for r, k, t in zip(table["row"].to_pylist(), table["last"].to_pylist(), phrases, strict=True)
        ]
        counted = sorted(set(phrases), key=lambda phrase: (-phrases.count(phrase), phrase))
        centres = [phrases.index(phrase) for phrase in counted[:CENTRES]]
        if len(names) > NEAREST:
            said = (
                "Queries of the heads with the longest n-grams in the last such layer, over the test set, on their first "
                f"two principal components; the {NEAREST} nearest by cosine to the most frequent phrases. (Row, place of "
                "the last word) words."
            )
            yield Section(f"Phrases of {p.experiment.row}", said, Markup(neighbours(vectors, names, centres, NEAREST)))


def _found(session: Session, step: Any) -> Artifact:
    found = session.store.find(step, verify=False)
    assert found is not None, "a report is of what has been run"
    return found
