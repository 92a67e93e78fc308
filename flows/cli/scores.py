"""The command that writes a kept result for other programs: scores."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def scores(
    result: Annotated[str, typer.Argument(help="A kept result: the name of its folder in results/.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write into.")],
) -> None:
    """Write a kept result as printed.csv and scores.parquet, which `phrasemodels judge` and other programs read.

    Example: phrasemodels scores 003-tablebabi-paper babi && phrasemodels judge babi/printed.csv babi/scores.parquet
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.export_scores import export_scores

    for path in export_scores(result, folder):
        print(path)
