"""The command that serves a page: serve."""

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def serve(
    model: Annotated[
        str, typer.Argument(help="A parser, as for `parse`; by default the English one of the package.")
    ] = "",
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default is for this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8900,
) -> None:
    """Serve a page on which one types a text and sees its phrases, dependencies, and what each label looks at.

    Example: phrasemodels serve
    """
    from phrasemodels.flows.cli.parse import reader
    from phrasemodels.flows.run.page_server import server

    with server(reader([model] if model else []), host, port) as made:
        print(f"http://{host}:{made.server_address[1]}/ (JSON: /parse.json?text=...); Ctrl-C ends it", flush=True)
        made.serve_forever()
