"""What a recipe gives to a report, as values: sections of text, tables and figures. flows/report draws them.

A recipe gets the outcomes of a table, or trained models by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from numpy.typing import NDArray

from phrasemodels.data.store.artifacts import Artifact
from phrasemodels.data.store.step import Step
from phrasemodels.tasks.train.config import TrainConfig

if TYPE_CHECKING:
    from phrasemodels.tasks.problems.recipe import Recipe

MOST_WORDS = 80  # of a sentence that is drawn against itself; a figure has the square of them as cells


@dataclass(frozen=True)
class Outcome:
    """A finished training of a table, one row and seed: its experiment, configurations and artifacts."""

    experiment: str
    row: str
    system: str
    variant: str
    seed: int
    recipe: "Recipe"
    model: Any
    train: TrainConfig
    trained: Artifact
    predicted: Artifact
    scored: Artifact


class TrainedModel(Protocol):
    """A trained model, for `Recipe.draw`. artifacts: its weights (`model`), vocabulary, and perhaps bpe."""

    @property
    def name(self) -> str: ...
    @property
    def variant(self) -> str: ...
    @property
    def config(self) -> Any: ...
    @property
    def artifacts(self) -> Mapping[str, Artifact]: ...
    def predict(self, texts: Sequence[str]) -> list[str]: ...

    def test_inputs(self) -> Mapping[str, Artifact]:
        """Return the inputs of the step that predicted the test set. ValueError: the store has no such step."""

    def run(self, step: Step, file: str) -> pa.Table:
        """Run a step in a store of its own; return the table in a file of its artifact."""


@dataclass(frozen=True)
class Heatmap:
    """Weights from 0 to 1 (rows, columns) in grey, with the names of rows and columns.

    boxes: cells (row, column) in a frame. arcs: (head, dependent) columns, drawn as arrows above. margin: inches beside
    and below the cells, for names.
    """

    weights: NDArray[Any]
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    boxes: Sequence[tuple[int, int]] = ()
    arcs: Sequence[tuple[int, int]] = ()
    margin: tuple[float, float] = (0.7, 1.2)


@dataclass(frozen=True)
class Heatmaps:
    """Heatmaps side by side. text: what a screen reader reads in their place."""

    panels: Sequence[Heatmap]
    text: str


@dataclass(frozen=True)
class Matrix:
    """Numbers of any sign (rows, columns) with a scale; axes: what rows and columns are. text: for a screen reader."""

    values: NDArray[Any]
    rows: Sequence[str]
    columns: Sequence[str]
    axes: tuple[str, str]
    text: str


@dataclass(frozen=True)
class Sweep:
    """Values in percent of all seeds by a number that was varied, a line for each name: mean, lowest and highest. axis: what
    was varied. values: what the values are."""

    lines: Mapping[str, Mapping[float, Sequence[float]]]
    axis: str
    values: str


@dataclass(frozen=True)
class Neighbours:
    """Vectors (m, d) with their names; the `count` nearest to each centre (an index) are marked."""

    vectors: NDArray[Any]
    names: Sequence[str]
    centres: Sequence[int]
    count: int


Figure = Heatmaps | Matrix | Sweep | Neighbours


@dataclass(frozen=True)
class ErrorKind:
    """A kind of errors: how many, their share in percent, and examples as named texts."""

    kind: str
    count: int
    share: float
    examples: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True)
class Section:
    """A section of a page: heading, text, rows of a table (column -> text), a figure, kinds of errors."""

    title: str
    text: str
    rows: Sequence[Mapping[str, str]] = ()
    figure: Figure | None = None
    errors: Sequence[ErrorKind] = ()


def too_large(rows: int, columns: int) -> str:
    """Return why a figure of so many words cannot be drawn; empty if it can."""
    if rows * columns <= MOST_WORDS**2:
        return ""
    return f"{rows} by {columns} words are too many for a figure; take a shorter sentence"


def check_size(rows: int, columns: int) -> None:
    """Raise a ValueError if a figure of so many words cannot be drawn."""
    if reason := too_large(rows, columns):
        raise ValueError(reason)
