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

    ✓ all of it is the paper's. Of its settings, ≠ differs from what is published, so no verdict is given; ~ differs, and each
    verdict says so; · is our choice, as the paper does not say. Published is what the paper, its code or cited work has.
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
        counts = {
            "as published": mark.agreeing,
            "differ (≠)": len(mark.differing),
            "differ, as each verdict says (~)": len(mark.stated),
            "our choice (·)": len(mark.open),
        }
        said = ", ".join(f"{count} {words}" for words, count in counts.items() if count) or "nothing is said of it"
        print(f"{aspect:9} {'✓' if mark.given else '✗'}  {said}")
        for sign, words in (
            [("≠", w) for w in mark.differing] + [("~", w) for w in mark.stated] + [("·", w) for w in mark.open]
        ):
            print(f"             {sign} {words}")
    but = ", except for what ~ says" * any(mark.stated for mark in known.marks.values())
    print(f"comparable with the paper{but}" if known.comparable else f"not comparable: {known.unlike}")
