"""The commands that explain where a result is from: trace, diff."""

import json
from typing import Annotated

import typer

from phrasemodels.flows.cli.opened import opened
from phrasemodels.flows.cli.options import Json
from phrasemodels.flows.cli.terminal import clean

app = typer.Typer()

What = Annotated[
    str, typer.Argument(help="A store key (its first six digits are enough), a label, or a run of MLflow.")
]


@app.command()
def trace(what: What, as_json: Json = False) -> None:
    """List the inputs of a result, down to the digests of archives, and everything made from it. Also takes a file's sha256.

    Example: phrasemodels trace "000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.results.lineage import Lineage, described
    from phrasemodels.flows.results.lineage import as_json as plain

    store, tracker = opened()
    lineage = Lineage(store)
    holding = lineage.holding(what)
    artifact = holding[0] if holding else lineage.find(what, tracker.keys())
    back, forward = list(lineage.back(artifact)), lineage.forward(artifact)
    if as_json:
        steps = [{"depth": depth, "role": role, **plain(origin)} for depth, role, origin, again in back if not again]
        print(json.dumps({"back": steps, "forward": [plain(result) for result in forward]}, indent=1))
        return
    for depth, role, origin, again in back:
        name = f"{role}: " if role else ""
        text = f"{origin.manifest['label']}  (above)" if again else described(origin)  # type: ignore[union-attr]
        print(clean("  " * depth + name + text))
    print(f"\nmade from it: {len(forward) or 'nothing'}")
    for result in forward:
        print(clean("  " + described(result)))


@app.command()
def diff(one: What, other: What, as_json: Json = False) -> None:
    """List the differences of two trainings, scores or other results: settings, inputs, libraries, source, values.

    Example: phrasemodels diff "train 000/table1/sample/transformer seed 0" "train 000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.lineage import Lineage, difference

    store, tracker = opened()
    lineage, run_ids = Lineage(store), tracker.keys()
    first, second = (lineage.find(what, run_ids) for what in (one, other))
    rows = [{"": name, "one": mine, "other": theirs} for name, mine, theirs in difference(first, second)]
    if as_json:
        print(json.dumps([dict(zip(("name", "one", "other"), row.values(), strict=True)) for row in rows], indent=1))
    elif rows:
        print_rows(f"{first.manifest['label']} | {second.manifest['label']}", ["", "one", "other"], rows)
    else:
        print("nothing")
