"""The commands that use trained models: predict, draw, export."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, one_line, opened, print_json

if TYPE_CHECKING:
    from phrasemodels.flows.results.models import Model
    from phrasemodels.parsing.parser import Parser
    from phrasemodels.tasks.problems.parsing import ParsingRecipe


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
    """Print a trained model's answer to each input line.

    Example: echo "the red house sleeps" | phrasemodels predict 000/table1/sample/phrase-k2 -

    A text that is too long gets an empty line, and stderr says why. By default that is one of more than 200 words, or of
    more than 10 characters a word on average.
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


@app.command()
def draw(
    model: Name,
    text: Annotated[
        str,
        typer.Option(help="A sentence; for question answering, facts and a question."),
    ],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("attention.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw a model's attention to a text, layer by layer, head by head.

    It is attention to words, phrases, facts or heads of arcs.
    --json prints it.

    Example: phrasemodels draw 000/table1/sample/phrase-k2 --text "the red house sleeps" --to attention.html
    """
    if not text.strip():
        raise ValueError("an empty text: give a sentence")
    if to.suffix != ".html":
        raise ValueError(f"{to}: name a page that ends with .html")
    from phrasemodels.flows.report.plots import write_attention
    from phrasemodels.folders import check_replaceable

    if not as_json:
        check_replaceable(to, force)
    found = find_model(model)
    if as_json:
        print_json(found.attend(text), None)
        return
    warn_of_unknown_words(found, [text])
    print(write_attention(found.card(), found.attend(text), to))


def parser_of(model: "Model") -> "tuple[ParsingRecipe, Parser]":
    """Return the recipe of a trained parser, and the parser. ValueError: the model is no parser."""
    from phrasemodels.tasks.problems.parsing import ParsingRecipe

    recipe = model.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        raise ValueError(f"{model.experiment.name} is no parser: name an experiment of paper 004")
    return recipe, recipe.parser(model.experiment.model, model.weights, model.vocabulary)


@app.command()
def export(
    model: Name,
    to: Annotated[Path, typer.Argument(help="Folder to make.")],
    ctranslate2: Annotated[
        bool,
        typer.Option("--ctranslate2", help="Also write a plain Transformer for CTranslate2, to FOLDER/ctranslate2."),
    ] = False,
    for_parse: Annotated[
        bool,
        typer.Option(
            "--parser", help="Write a parser for `parse` and `Parser.load`: weights in float16, vocabularies, card."
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Write a model to a folder that `phrasemodels.load` reads.

    The folder has weights, configuration, vocabulary and card. `predict` and `draw` read it too.

    Example: phrasemodels export 000/table1/sample/transformer exported --ctranslate2

    Example: phrasemodels export 004/english/laptop/lal english --parser
    """
    from phrasemodels.folders import check_replaceable

    check_replaceable(to, force)
    found, also = find_model(model), list[Any]()
    if for_parse:
        _export_parser(found, to, force)
        print(to)
        return
    if ctranslate2:
        from phrasemodels.flows.results.models import as_ctranslate2

        also.append(as_ctranslate2)
    print(found.export(to, also, force))


def _export_parser(model: "Model", to: Path, force: bool) -> None:
    """Write a parser to a folder that reads raw text with torch alone."""
    from phrasemodels.folders import writing_folder
    from phrasemodels.parsing.saved import Saved, save

    recipe, parser = parser_of(model)
    assert parser.config is not None
    saved = Saved(parser.original, parser.config, parser.entries, recipe.problem.decode, model.card(), recipe.split)
    with writing_folder(to, force) as folder:
        save(saved, folder)


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
