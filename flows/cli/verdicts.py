"""The command that judges every number that the papers printed: verdicts."""

import json
from typing import Annotated, Any

import typer

from phrasemodels.flows.cli.opened import opened
from phrasemodels.flows.cli.options import Json

app = typer.Typer()


@app.command()
def verdicts(
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    as_json: Json = False,
) -> None:
    """Print a verdict on every number that the papers printed, one line each, with its reason and the runs behind it.

    Example: phrasemodels verdicts --paper 000
    """
    from phrasemodels.flows.results.results import all_results
    from phrasemodels.flows.results.verdicts import summary
    from phrasemodels.flows.results.verdicts import verdicts as find

    rows = find(all_results(*opened()), paper)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(_line(row))
    for name, counts in summary(rows).items():
        print(f"paper {name}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def _line(row: dict[str, Any]) -> str:
    ours = "" if row["ours"] is None else f"{row['ours']:.2f}"
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    what = " ".join(part for part in (row["system"], row["variant"], row["dataset"], row["metric"]) if part)
    runs = " ".join(f"seed {run['seed']}: {run['run'] or run['train']}" for run in row["runs"] if run["train"])
    where = f"  [{row['source']}{'; ' + runs if runs else ''}]" if row["source"] else ""
    numbers = f"{row['published']:>9g} {ours + half:>14}"
    return f"{row['paper']} {row['table']:<14} {numbers}  {row['verdict']:<14} {what}: {row['reason']}{where}"
