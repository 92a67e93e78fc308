"""The command that writes a kept result for other programs: scores."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def scores(
    result: Annotated[str, typer.Argument(help="A kept result: the name of its folder in results/.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write into.")],
    crate: Annotated[
        bool, typer.Option("--crate", help="Describe the files and where they are from, as RO-Crate and as Croissant.")
    ] = False,
) -> None:
    """Write a kept result as printed.csv and scores.parquet, which `phrasemodels judge` and other programs read.

    Example: phrasemodels scores 003-tablebabi-paper babi && phrasemodels judge babi/printed.csv babi/scores.parquet
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.crate import write_crate
    from phrasemodels.flows.results.export_scores import export_scores

    made = export_scores(result, folder)
    for path in (*made, *(write_crate(result, folder) if crate else ())):
        print(path)
