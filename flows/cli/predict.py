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
    model: Name,
    file: Annotated[Path, typer.Argument(help="One input per line; - is stdin.")],
    as_json: Json = False,
) -> None:
    """Print the answers of a trained model, one per line.

    Example: echo "the red house sleeps" | phrasemodels predict 000/table1/sample/phrase-k2 -
    """
    from phrasemodels.data.formats.lines import lines_or_stdin

    lines = [line.text for line in lines_or_stdin(file)]
    trained = find_model(model)
    tell_unknown_words(trained, lines)
    answers = trained.predict(lines)
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
    """Write a page of a model's attention to a sentence: words, phrases and the tree over them, layer by layer.

    Example: phrasemodels attend 000/table1/sample/phrase-k2 "the red house sleeps"
    """
    if not sentence.strip():
        raise ValueError("an empty text: give a sentence")
    trained = find_model(model)
    tell_unknown_words(trained, [sentence])
    rows = trained.attend(sentence)
    if as_json:
        print(json.dumps(rows))
        return
    from phrasemodels.flows.report.attention import write_attention

    print(write_attention(trained.card(), rows, to))


@app.command()
def draw(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="As for `attend`; translators may be several.")
    ],
    text: Annotated[
        str,
        typer.Option(
            help="A sentence; for question answering, facts and a question; for n-grams, phrases separated by ;"
        ),
    ],
    target: Annotated[str, typer.Option(help="A translation; by default that of the last model.")] = "",
    to: Annotated[Path, typer.Option(help="The figure to write.")] = Path("structure.svg"),
) -> None:
    """Draw what a model does with a text: segments of several translators, a chain of facts, a tree, or similar phrases.

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
    """Write a model to a folder that `predict` and `attend` read: safetensors, configuration, vocabulary, card."""
    print(find_model(model).export(to))


SHOWN = 20  # unknown words that are named


def tell_unknown_words(model: "Model", texts: list[str]) -> None:
    """Name on stderr the words that a model does not know."""
    if words := model.unknown_words(texts):
        more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
        print(f"unknown to this model, and read as one unknown word: {', '.join(words[:SHOWN])}{more}", file=sys.stderr)


def find_model(name: str) -> "Model":
    """Return a trained model from the store or from an exported folder; say on stderr which training it is."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.models import CARD, find, load
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    if Path(name, CARD).is_file():
        return load(Path(name))
    settings = Settings()
    model = find(open_store(settings), name, Tracker(settings.tracking_uri).keys())
    print(model.description, file=sys.stderr)
    return model
