"""Printed numbers that compare two systems of ours: ratios of speeds, and gains."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from phrasemodels.flows.experiments.experiment import Cell
from phrasemodels.flows.results.results import Result
from phrasemodels.tasks.metrics.compare import reason_not
from phrasemodels.verdicts.judgement import judge
from phrasemodels.verdicts.significance import seed_group


def percent(value: float, base: float) -> float:
    """Return a value in percent of a base."""
    return 100 * value / base


def gain(value: float, base: float) -> float:
    """Return how much a value is above a base."""
    return value - base


@dataclass(frozen=True)
class Derived:
    """A printed number, and the printed numbers of the two systems that it compares."""

    cell: Cell
    over: Cell
    base: Cell
    value: Callable[[float, float], float]


MIXED = "n=[0;0;2;2;3;3;4;4]"
SPEED = Cell("002", "Table 5", "Transformer", "ours", "training_speed", "MSParS")
RATIO = Cell("002", "text 4.3.1", "PhraseTransformer", "vs Transformer", "", "MSParS")
DERIVED = (
    Derived(
        replace(RATIO, metric="relative_training_speed_min"),
        replace(SPEED, system="PhraseTransformer Res.", variant=MIXED),
        SPEED,
        percent,
    ),
    Derived(
        replace(RATIO, metric="relative_training_speed_max"),
        replace(SPEED, system="PhraseTransformer", variant=MIXED),
        SPEED,
        percent,
    ),
    Derived(
        Cell("002", "text 4.3.1", "PhraseTransformer Sum", "vs Transformer", "gain_logic_match", "Atis", "test"),
        Cell("002", "Table 2", "PhraseTransformer Sum", MIXED, "logic match", "Atis", "test"),
        Cell("002", "Table 3", "Transformer", "ours", "logic match", "Atis", "test"),
        gain,
    ),
)


def derived_from(columns: dict[str, str]) -> Derived | None:
    """Return how a printed number is derived; columns: its row of data/published_results.csv."""
    return next((d for d in DERIVED if all(columns[n] == value for n, value in d.cell.wanted.items())), None)


def derive(known: Derived, results: Sequence[Result]) -> dict[str, Any]:
    """Return the verdict on a derived number, with its value and seeds; empty if no comparison has both systems.

    Of absolute speeds nothing is comparable, but their ratio is; so only the size, data and settings of both count.
    """
    pairs = [
        (over, base)
        for over in _answering(known.over, results)
        for base in _answering(known.base, results)
        if over.source == base.source
    ]
    if not pairs:
        return {}
    pair = max(pairs, key=lambda two: two[0].worth)
    values = [r.row["values"][r.answer.metric] for r in pair]
    seeds = [seed for seed in pair[0].row["seeds"] if seed in pair[1].row["seeds"]]
    by_seed = [dict(zip(r.row["seeds"], own, strict=True)) for r, own in zip(pair, values, strict=True)]
    if not seeds:
        return {}
    ours = seed_group([known.value(by_seed[0][seed], by_seed[1][seed]) for seed in seeds])
    stand_in = any(r.row["stand_in"] for r in pair)
    why = dict.fromkeys(r.experiment.reason_not(replace(r.answer, why_not="")) for r in pair)
    verdict = judge(known.cell.printed, ours, reason_not(stand_in, "; ".join(filter(None, why))))
    return {
        "ours": ours.mean,
        "half_width": None if ours.n < 2 else ours.half_width,
        "seeds": ours.n,
        "verdict": verdict.verdict,
        "reason": f"{verdict.reason}; of {pair[0].experiment.name} and {pair[1].experiment.row}",
        "source": pair[0].source,
        "title": pair[0].title,
        "experiment": pair[0].experiment.name,
        "runs": pair[0].runs,
    }


def _answering(cell: Cell, results: Iterable[Result]) -> list[Result]:
    """Return the results that answer a cell: every column that both name is equal."""

    def same(other: Cell | None) -> bool:
        if other is None:
            return False
        return all(other.wanted.get(name, value) == value for name, value in cell.wanted.items())

    return [r for r in results if same(r.answer.cell)]
