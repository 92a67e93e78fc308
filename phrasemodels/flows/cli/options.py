"""Options that several commands share."""

from typing import Annotated

import typer

Paper = Annotated[str, typer.Option(help="Paper, as in `phrasemodels experiments`.")]
TableNumber = Annotated[str, typer.Option("--table", help="Table of the paper.")]
Profile = Annotated[
    str,
    typer.Option(
        help="sample (generated corpus, minutes), laptop (real data, two cores), paper (the paper's setting, GPUs)."
    ),
]
Seeds = Annotated[int, typer.Option(help="Seeds of each row; a verdict needs 3.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a field of train, model or recipe (of every row), like train.steps=200; repeatable."
    ),
]
Rows = Annotated[list[str] | None, typer.Option("--row", help="Only this row, like phrase-k2; repeatable.")]
Tune = Annotated[
    int,
    typer.Option(
        min=0,
        help="Trials of each row, with settings drawn at random; the table is run with those that are best on dev. 0: none.",
    ),
]
Duration = Annotated[
    str,
    typer.Option(
        "--for",
        help="Stop the trainings after this time, like 3h, 90m or 1h30m; what they have done is kept, and the same command goes "
        "on. Rows that are nearest to a verdict come first. By default there is no limit.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON with a stable schema.")]
ExperimentName = Annotated[str, typer.Argument(help="An experiment, as `phrasemodels experiments` lists them.")]
