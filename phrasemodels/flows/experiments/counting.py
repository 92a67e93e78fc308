"""Rows that are counted and not trained: of corpora, and of models that are only built."""

from typing import Any

from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment, TableName
from phrasemodels.tasks.problems.counting.recipe import CountingRecipe

PROFILE = "paper"  # the only size of what is counted
CORPUS = "dataset statistics"  # the system of a row about a corpus
Named = tuple[str, str]  # a row's system and variant


def counted(
    table: TableName,
    row: str,
    named: Named,
    recipe: CountingRecipe,
    answers: tuple[Answer, ...],
    model: Any = None,
) -> Experiment:
    """Return a row of a table that is counted."""
    return Experiment(table, PROFILE, row, *named, answers, recipe, model)


def exact(ours: str, cell: Cell, why_not: str = "", note: str = "") -> Answer:
    """Return the answer to a number that does not vary by seed."""
    return Answer(ours, cell, why_not=why_not, exact=True, note=note)
