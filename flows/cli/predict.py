"""The commands that use trained models: predict, attend, draw, export."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phrasemodels.flows.cli.options import Json

if TYPE_CHECKING:
    from phrasemodels.flows.results.models import Model

app = typer.Typer()

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="An experiment (its best seed is taken), a folder of `export`, a store key or MLflow run."
    ),
]


@app.command()
def predict(
    model: Name, file: Annotated[Path, typer.Argument(help="A sentence a line; - is stdin.")], as_json: Json = False
) -> None:
    """Answers of a trained model, one a line.

    Example: echo "the red house sleeps" | phrasemodels predict 000/table1/sample/phrase-k2 -
    """
    from phrasemodels.data.formats.lines import lines_or_stdin

    lines = [line.text for line in lines_or_stdin(file)]
    answers = find_model(model).predict(lines)
    if as_json:
        print(json.dumps([{"source": line, "answer": answer} for line, answer in zip(lines, answers, strict=True)]))
        return
    for answer in answers:
        print(answer)


@app.command()
def attend(
    model: Name,
    sentence: Annotated[str, typer.Argument(help="A sentence.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("attention.html"),
    as_json: Json = False,
) -> None:
    """A page of what a model attends to in a sentence: words, phrases and the tree over them, layer by layer.

    Example: phrasemodels attend 000/table1/sample/phrase-k2 "the red house sleeps"
    """
    if not sentence.strip():
        raise ValueError("an empty text: give a sentence")
    found = find_model(model)
    rows = found.attend(sentence)
    if as_json:
        print(json.dumps(rows))
        return
    from phrasemodels.flows.report.attention import write_attention

    print(write_attention(found.card(), rows, to))


@app.command()
def draw(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="As of `attend`; several translators.")],
    text: Annotated[
        str,
        typer.Option(help="A sentence; a model that answers: facts and a question; of n-grams: phrases, apart by ;"),
    ],
    target: Annotated[str, typer.Option(help="A translation; without it the last model's own.")] = "",
    to: Annotated[Path, typer.Option(help="The figure to write.")] = Path("structure.svg"),
) -> None:
    """A figure of one model: segments of several side by side, a chain of facts, a tree of words, phrases that are alike.

    Example: phrasemodels draw 003/tablebabi/sample/binary-facts2 --text "Mary went home. Where is Mary?"
    """
    from phrasemodels.data.store.artifacts import write_durably
    from phrasemodels.flows.report.figures import draw as drawn

    if to.suffix != ".svg":
        raise ValueError(f"{to}: figures are SVG; name a file that ends with .svg")
    write_durably(to, drawn([find_model(name) for name in models], text, target))
    print(to)


@app.command()
def export(model: Name, to: Annotated[Path, typer.Argument(help="Folder to make.")]) -> None:
    """Take a model elsewhere: safetensors, configuration, vocabulary, card. `predict` and `attend` read the folder."""
    print(find_model(model).export(to))


def find_model(name: str) -> "Model":
    """A trained model, of the store or of an exported folder."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.models import CARD, find, load
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    if Path(name, CARD).is_file():
        return load(Path(name))
    settings = Settings()
    found = find(open_store(settings), name, Tracker(settings.tracking_uri).keys())
    print(found.description, file=sys.stderr)
    return found
