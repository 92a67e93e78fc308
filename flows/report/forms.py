"""What a report of semantic parsing shows besides its numbers (paper 002): errors by kind, the sweeps of Figures 3 and 4,
and the neighbours of phrases (Figure 6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from markupsafe import Markup
from phrasemodels.flows.run.session import Session

from phrasemodels.data.formats.shards import read_shard
from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.encoders.ngram import NgramEncoderConfig
from phrasemodels.flows.experiments.experiment import Pipeline
from phrasemodels.flows.report.gram_figure import NEAREST, gram_figure
from phrasemodels.flows.report.plots import sweep
from phrasemodels.flows.report.sections import Section
from phrasemodels.tasks.metrics.error_kinds import KINDS, error_kind
from phrasemodels.tasks.problems.semantic_parsing.recipe import SemanticParsingRecipe
from phrasemodels.tasks.problems.semantic_parsing.score import FormScoreSettings, matches

EXAMPLES = 2


def sections(session: Session) -> list[Section]:
    """All that can be shown of a table; nothing for other problems. Sentences only where they may be passed on."""
    first = [p for p in session.pipelines if p.seed == session.table.seeds[0]]
    if not all(isinstance(p.experiment.recipe, SemanticParsingRecipe) for p in first):
        return []
    return [*_sweeps(session), *_improvements(session, first), *_neighbours(session, first)]


def _recipe(pipeline: Pipeline) -> SemanticParsingRecipe:
    return cast(SemanticParsingRecipe, pipeline.experiment.recipe)


def _merges(pipeline: Pipeline) -> int:
    return _recipe(pipeline).forms.merges


def _updates(pipeline: Pipeline) -> int:
    return int(pipeline.experiment.train.steps)


# What rows may differ in: what it is, its heading, what is said of it, and how it is found.
SWEPT: tuple[tuple[str, str, str, Callable[[Pipeline], int]], ...] = (
    ("merges of the byte-pair encoding", "Merges", "0 merges are whole words.", _merges),
    ("updates", "Matches against updates", "Each point is a training of its own, so of so many updates.", _updates),
)


def _sweeps(session: Session) -> Iterator[Section]:
    """Figures 3 and 4: matches on test against what the rows of one system differ in."""
    systems: dict[tuple[str, str], list[Pipeline]] = {}
    for p in session.pipelines:
        systems.setdefault((p.experiment.system, p.experiment.variant), []).append(p)
    for what, title, said, number in SWEPT:
        if all(len({number(p) for p in found}) > 1 for found in systems.values()):
            points: dict[str, dict[float, list[float]]] = {}
            for (system, variant), found in systems.items():
                for p in found:
                    scores = _found(session, p.scored).meta["scores"]
                    for metric in ("logic", "exact"):
                        line = points.setdefault(f"{system} {variant}, {metric} match", {})
                        line.setdefault(number(p), []).append(scores[metric]["value"])
            yield Section(
                title, f"Means over seeds with their standard deviations. {said}", Markup(sweep(points, what))
            )


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
        if len(table) > NEAREST:
            said = (
                "Queries of the heads with the longest n-grams in the last such layer, over the test set, on their first "
                f"two principal components; the {NEAREST} nearest by cosine to the most frequent phrases. (Row, place of "
                "the last word) words."
            )
            yield Section(f"Phrases of {p.experiment.row}", said, Markup(gram_figure(table)))


def _found(session: Session, step: Any) -> Artifact:
    found = session.store.find(step, verify=False)
    assert found is not None, "a report is of what has been run"
    return found
