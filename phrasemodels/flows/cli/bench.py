"""The command `bench`."""

from pathlib import Path
from typing import Annotated

import typer

from phrasemodels.flows.cli.options import Json
from phrasemodels.flows.cli.terminal import print_rows

app = typer.Typer()


@app.command()
def bench(
    rounds: Annotated[
        int, typer.Option(min=1, help="Times that each command is run; layers run five times as often.")
    ] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the ratios under --history, by date and commit.")] = False,
    history: Annotated[Path, typer.Option(help="Folder of kept ratios.")] = Path("benchmarks/history"),
    over_commits: Annotated[
        bool, typer.Option("--over-commits", help="Measure nothing; show the kept ratios.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure this machine: commands, layers and inference, as ratios to something known in the same run.

    CPU time, so other work hardly matters. The last column is the change since the newest kept ratios.

    Example: phrasemodels bench --rounds 3
    """
    import json
    from dataclasses import asdict

    from phrasemodels.flows.results.commit import commit
    from phrasemodels.flows.run.bench import history as kept_in
    from phrasemodels.flows.run.bench import keep as write
    from phrasemodels.flows.run.bench import measures

    kept = kept_in(history)
    if over_commits:
        names = list(dict.fromkeys(what for _, ratios in kept for what in ratios))
        rows = [{"commit": when, **{name: _short(ratios.get(name)) for name in names}} for when, ratios in kept]
        if as_json:
            print(json.dumps(rows))
        else:
            print_rows("Ratios by commit", ["commit", *names], rows)
        return
    found = list(measures(rounds))
    if as_json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        when, before = kept[-1] if kept else ("the first", {})
        rows = [
            {
                "what": one.what,
                "compared with": one.against,
                "ratio": _short(one.ratio),
                "ms": _short(1e3 * one.seconds),
                f"since {when}": _change(one.ratio, before.get(one.what)),
            }
            for one in found
        ]
        print_rows("Speed of this machine, CPU time", list(rows[0]), rows)
    if keep:
        print(write(found, history, commit()))


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _change(now: float, before: float | None) -> str:
    return "" if not before else f"{100 * (now / before - 1):+.0f} %"
