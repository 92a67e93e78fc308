"""The commands that use trained models: predict, show-attention, draw, export."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, one_line, opened, print_json

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
    """Print the answers of a trained model, one per line; an empty line gets an empty one. A text that is too long (by default more
    than 200 words, or 10 characters a word on average) gets an empty line, and stderr says why.

    Example: echo "the red house sleeps" | phrasemodels predict 000/table1/sample/phrase-k2 -
    """
    from phrasemodels.data.formats.lines import lines_or_stdin

    lines, trained = [line.text for line in lines_or_stdin(file)], find_model(model)
    warn_of_unknown_words(trained, lines)
    found = iter(trained.answers([line for line in lines if line.strip()]))
    answers, failed = [], 0
    for number, line in enumerate(lines, 1):
        answer, problem = next(found) if line.strip() else ("", "")  # a model would answer something to no words
        failed += bool(problem)
        if problem:
            print(f"line {number}: {problem}", file=sys.stderr)
        if as_json:
            answers.append({"source": line, "answer": answer, **({"error": problem} if problem else {})})
        else:
            print(clean(answer))
    if as_json:
        print_json(answers, None)
    if failed:
        raise typer.Exit(1)


@app.command("show-attention")
def attend(
    model: Name,
    sentence: Annotated[str, typer.Argument(help="A sentence.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("attention.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a page of a model's attention to a sentence: words, phrases and the tree over them, layer by layer.

    Example: phrasemodels show-attention 000/table1/sample/phrase-k2 "the red house sleeps"
    """
    if not sentence.strip():
        raise ValueError("an empty text: give a sentence")
    if to.suffix != ".html":
        raise ValueError(f"{to}: a page is HTML; name a file that ends with .html")
    from phrasemodels.written import check_replaceable, writing

    if not as_json:
        check_replaceable(to, force)
    trained = find_model(model)
    warn_of_unknown_words(trained, [sentence])
    rows = trained.attend(sentence)
    if as_json:
        print_json(rows, None)
        return
    from phrasemodels.flows.report.attention import write_attention

    with writing(to, force=force):
        print(write_attention(trained.card(), rows, to))


@app.command()
def draw(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="A model, as for `predict`; of translators, several.")
    ],
    text: Annotated[
        str,
        typer.Option(
            help="A sentence; for question answering, facts and a question; for n-grams, phrases separated by ;"
        ),
    ],
    target: Annotated[str, typer.Option(help="A translation; by default the last model's.")] = "",
    to: Annotated[Path, typer.Option(help="The figure to write.")] = Path("structure.svg"),
    force: Force = False,
) -> None:
    """Draw what a model does with a text: segments of several translators, a chain of facts, a tree, or similar phrases.

    Example: phrasemodels draw 003/tablebabi/sample/binary-facts2 --text "Mary went home. Where is Mary?"
    """
    from phrasemodels.data.store.artifacts import write_durably
    from phrasemodels.flows.report.plots import draw as drawn
    from phrasemodels.written import check_replaceable, writing

    if to.suffix != ".svg":
        raise ValueError(f"{to}: figures are SVG; name a file that ends with .svg")
    check_replaceable(to, force)
    drawers = [find_model(name) for name in models]
    if problem := next(filter(None, (model.too_long(text) for model in drawers)), ""):
        raise ValueError(problem)
    with writing(to, force=force):
        write_durably(to, drawn(drawers, text, target))
    print(to)


@app.command()
def export(
    model: Name,
    to: Annotated[Path, typer.Argument(help="Folder to make.")],
    ctranslate2: Annotated[
        bool,
        typer.Option("--ctranslate2", help="Also write a plain Transformer for CTranslate2, to FOLDER/ctranslate2."),
    ] = False,
    force: Force = False,
) -> None:
    """Write a model to a folder that `predict`, `show-attention` and `phrasemodels.load` read: weights, configuration, vocabulary, card.

    Example: phrasemodels export 000/table1/sample/transformer exported --ctranslate2
    """
    from phrasemodels.written import check_replaceable

    check_replaceable(to, force)
    found, also = find_model(model), list[Any]()
    if ctranslate2:
        from phrasemodels.flows.results.models import as_ctranslate2

        also.append(as_ctranslate2)
    print(found.export(to, also, force))


SHOWN, LONGEST_SHOWN = 20, 100  # unknown words that are named, and characters of each


def warn_of_unknown_words(model: "Model", texts: list[str]) -> None:
    """Name on stderr the words that a model does not know."""
    if words := model.unknown_words(texts):
        more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
        shown = ", ".join(word[:LONGEST_SHOWN] for word in words[:SHOWN])
        print(one_line(f"unknown to this model, and read as one unknown word: {shown}{more}"), file=sys.stderr)


def find_model(name: str) -> "Model":
    """Return a trained model from the store or from an exported folder; say on stderr which training it is."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.models import CARD, find, load

    if Path(name, CARD).is_file():
        return load(Path(name))
    store, tracker = opened()
    model = find(store, name, tracker.keys())
    print(clean(model.description), file=sys.stderr)
    return model
