"""The command that answers SQL over everything that was run: sql."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from phrasemodels.flows.cli.opened import opened
from phrasemodels.flows.cli.options import Json

app = typer.Typer()


def _completed(incomplete: str) -> list[str]:
    """Return the question so far with its last word completed: a view, or a column of a view."""
    from phrasemodels.flows.results.columns import VIEWS

    before, separator, word = incomplete.rpartition(" ")
    columns = (column for view in VIEWS.values() for column in view.columns)
    return [before + separator + name for name in sorted({*VIEWS, *columns}) if name.startswith(word.lower())]


@app.command()
def sql(
    question: Annotated[
        str,
        typer.Argument(help="A query of DuckDB; `show tables` lists the views.", autocompletion=_completed),
    ] = "",
    to: Annotated[Path | None, typer.Option(help="Write the answer to this Parquet file.")] = None,
    database: Annotated[
        Path | None, typer.Option(help="Write all views to this file, which any DuckDB opens.", metavar="FILE.duckdb")
    ] = None,
    as_json: Json = False,
) -> None:
    """Query runs, metrics, predictions, shards and verdicts with SQL. `show tables` lists the views, `describe verdicts` the
    columns of one. Join views of single runs by `using (experiment, seed)`, views over seeds by `using (experiment, metric)`.

    Examples: phrasemodels sql --database results.duckdb
    phrasemodels sql "select system, ours, half_width, verdict from verdicts where ours is not null order by ours desc"
    """
    import pyarrow as pa

    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.data.formats.shards import write_parquet
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.query import query, write_database

    if to is not None and to.suffix != ".parquet":
        raise ValueError(f"{to}: answers are written as Parquet; name a file that ends with .parquet")
    if database is not None:
        print(write_database(*opened(), database))
        if not question:
            return
    store, tracker = opened()
    columns, rows = query(store, tracker, question)
    if not rows and not store.present():
        where = store.root if store.shared is None else store.shared.url
        print(f"nothing has been run in {where}; kept results are in verdicts, seeds and published", file=sys.stderr)
    answer = [dict(zip(columns, row, strict=True)) for row in rows]
    if to is not None:
        values = [pa.array([row[place] for row in rows]) for place in range(len(columns))]
        write_parquet(to, pa.Table.from_arrays(values, names=columns))
        print(to)
    elif as_json:
        print(json.dumps(answer, indent=1, default=str))
    else:
        print_rows("", columns, answer)
