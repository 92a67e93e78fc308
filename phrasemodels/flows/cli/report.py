"""The command that writes the page over all papers."""

import typer

from phrasemodels.flows.cli.opened import opened

app = typer.Typer()


@app.command()
def report() -> None:
    """Write one page over all papers: verdicts in the papers' own layout, systems across papers, kept results."""
    from phrasemodels.flows.report.overview import write_overview

    store, tracker = opened()
    print(write_overview(store.open(), tracker))
