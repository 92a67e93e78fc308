"""The command that says how far an experiment is the paper's."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from phrasemodels.flows.cli.options import Json

app = typer.Typer()


@app.command()
def marks(
    experiment: Annotated[str, typer.Argument(help="Its name, like 003/tablebabi/paper/binary-qa02.")],
    as_json: Json = False,
) -> None:
    """Say how far an experiment is the paper's: its data, size, model, training and tuning, setting by setting.

    ≠ differs, so no verdict is given; ~ is other than published, which each verdict says; · the paper leaves open.
    """
    from phrasemodels.flows.experiments.catalogue import experiment as named

    known = named(experiment)
    if as_json:
        print(json.dumps({aspect: asdict(mark) for aspect, mark in known.marks.items()}, indent=1))
        return
    if not known.marks:
        print("counted, and not trained: its verdicts are by the digits that are printed")
        return
    for aspect, mark in known.marks.items():
        said = (
            f"{mark.agreeing} as printed, released or cited, {len(mark.open)} left open, {len(mark.stated)} other than published, "
            f"{len(mark.differing)} unlike"
        )
        print(f"{aspect:9} {'✓' if mark.given else '✗'}  {said}")
        for sign, words in (
            [("≠", w) for w in mark.differing] + [("~", w) for w in mark.stated] + [("·", w) for w in mark.open]
        ):
            print(f"             {sign} {words}")
    but = ", except for what ~ says" * any(mark.stated for mark in known.marks.values())
    print(f"comparable with the paper{but}" if known.comparable else f"not comparable: {known.unlike}")
