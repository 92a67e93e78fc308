"""The command that compiles ahead of time: warm."""

import sys

import typer

app = typer.Typer()


@app.command()
def warm() -> None:
    """Compile the kernels of structured inference, so that no first call has to. Takes about a minute, once.

    Example: phrasemodels warm
    """
    from phrasemodels.structs import warm as compile_all

    seconds = compile_all(lambda name, spent: print(f"{spent:7.2f} s  {name}", file=sys.stderr))
    print(f"all kernels are compiled; this took {seconds:.1f} s")
