"""The command that lists the experiments."""

import json
from typing import Any

import typer

from phrasemodels.flows.cli.options import Json

app = typer.Typer()


@app.command()
def experiments(as_json: Json = False) -> None:
    """List every experiment, with the published number that it answers."""
    from phrasemodels.data.store.remembered import remembered
    from phrasemodels.flows.cli.terminal import print_rows

    rows = remembered("experiments", None, _rows)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print_rows("Experiments", ["experiment", "system", "variant", "metric", "published"], rows)


def _rows() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment."""
    from phrasemodels.flows.experiments.catalogue import experiments as all_experiments

    return [
        {
            "experiment": e.name,
            "paper": e.paper,
            "table": answer.cell.table if answer.cell else None,
            "system": e.system,
            "variant": e.variant,
            "dataset": answer.cell.dataset if answer.cell else None,
            "metric": answer.metric,
            "published": answer.cell.published if answer.cell else None,
            "comparable": e.comparable,
        }
        for e in all_experiments()
        for answer in e.answers
    ]
