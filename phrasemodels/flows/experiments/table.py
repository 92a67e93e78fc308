"""Rows, sizes and profiles: what the result tables of all papers are built from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from phrasemodels.flows.experiments.experiment import Answer, Experiment, TableName
from phrasemodels.tasks.train.config import TrainConfig


@dataclass(frozen=True)
class Size:
    """Widths and depths that all rows of a table share, so that rows differ only in what is compared; 0: not used.

    d, heads, layers, d_ff, dropout: of an encoder. hidden: of the classifier over it, or of a parser's span scorer.
    d_kv, arc_hidden: of the parser of paper 004. lstm, adasent, channels: of baselines of paper 001. parents: of the
    scorer of parents of paper 003.
    """

    d: int
    heads: int = 0
    layers: int = 0
    d_ff: int = 0
    dropout: float = 0.0
    hidden: int = 0
    d_kv: int = 0
    arc_hidden: int = 0
    lstm: int = 0
    adasent: int = 0
    channels: int = 0
    parents: int = 0

    @property
    def encoder(self) -> dict[str, Any]:
        """The fields that the configuration of a Transformer encoder takes."""
        return {name: getattr(self, name) for name in ("d", "heads", "layers", "d_ff", "dropout")}


@dataclass(frozen=True)
class Profile:
    """How a table is run at one size. recipe: the problem on its corpus; a row may replace fields of it."""

    size: Size
    train: TrainConfig
    recipe: Any


@dataclass(frozen=True)
class Row:
    """A system of a table.

    system, variant: its name in the paper. model: its configuration at a size. recipe, train: fields that it replaces in the
    profile's recipe and training, such as {"schedule": inverse_sqrt}. baseline: the row it is tested against; empty: the
    first of the table.
    """

    slug: str
    system: str
    variant: str
    model: Callable[[Size], Any]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""
    train: Mapping[str, Any] = field(default_factory=dict)


def experiments(
    table: TableName, profile: str, chosen: Profile, rows: Iterable[Row], answers: Callable[[Row], tuple[Answer, ...]]
) -> list[Experiment]:
    """Return the experiments of the rows of a table at one size."""
    return [
        Experiment(
            table=table,
            profile=profile,
            row=row.slug,
            system=row.system,
            variant=row.variant,
            answers=answers(row),
            recipe=replace(chosen.recipe, **row.recipe),
            model=row.model(chosen.size),
            train=replace(chosen.train, **row.train),
            baseline=row.baseline,
        )
        for row in rows
    ]
