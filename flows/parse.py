"""The commands that use a trained parser: parse, labels."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.use import Name, find_model

if TYPE_CHECKING:
    from flows.recipes.parsing import ParsingRecipe
    from tasks.problems.parses import TreeParser
    from tasks.tokenise import Tokeniser

app = typer.Typer()


@app.command()
def parse(
    model: Name,
    file: Annotated[Path, typer.Argument(help="A sentence a line, or CoNLL-U (FILE.conllu); - is stdin.")],
    form: Annotated[str, typer.Option("--format", help="brackets, conllu or json (an object a line).")] = "brackets",
    tokenised: Annotated[bool, typer.Option("--tokenised", help="Words are separated by spaces.")] = False,
    batch: Annotated[int, typer.Option(help="Sentences that are read before any is answered; 1 to stream.")] = 256,
) -> None:
    """Trees of sentences, by a trained parser: raw text in, phrase structure and dependencies out.

    Example: echo "The red house doesn't sleep." | phrasemodels parse 004/parser/laptop/lal - --format conllu
    """
    from data.manifest import closest
    from tasks.parse_formats import FORMATS
    from tasks.tokenise import spaces

    if form not in FORMATS:
        raise ValueError(f"no format {form!r}: {closest(form, FORMATS)}")
    if batch < 1:
        raise ValueError(f"--batch {batch}: at least one sentence has to be read")
    recipe, parser = _parser(model)
    sentences = _sentences(file, spaces if tokenised else recipe.tokeniser)
    while chunk := list(islice(sentences, batch)):
        found = iter(parser.parse([words for words in chunk if words], recipe.divide))
        for words in chunk:
            print(FORMATS[form](next(found)) if words else "", flush=batch == 1)


@app.command()
def labels(
    model: Name,
    sentence: Annotated[str, typer.Argument(help="A sentence.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("labels.html"),
    most: Annotated[int, typer.Option(help="Labels that are shown: those that contribute most.")] = 24,
) -> None:
    """A page of what each label of a parser attends to in a sentence, and what it contributes to each phrase.

    Example: phrasemodels labels 004/parser/laptop/lal "The red house sleeps."
    """
    from flows.attention_pages import write_labels
    from tasks.problems.label_attention import view

    recipe, parser = _parser(model)
    words = recipe.tokeniser(sentence, "en")
    if not words:
        raise ValueError("an empty sentence: give one with words")
    print(write_labels(view(parser, words, recipe.divide), most, to))


def _parser(name: str) -> "tuple[ParsingRecipe, TreeParser]":
    from flows.recipes.parsing import ParsingRecipe

    found = find_model(name)
    recipe = found.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        raise ValueError(f"{found.experiment.name} is no parser: name an experiment of paper 004")
    return recipe, recipe.parser(found.experiment.model, found.weights, found.vocabulary)


def _sentences(file: Path, tokenise: "Tokeniser") -> Iterator[list[str]]:
    """The words of each sentence of a file; CoNLL-U has them already."""
    if file.suffix == ".conllu":
        from data.dependencies import read_conllu
        from data.lines import lines

        return (sentence.tokens for sentence in read_conllu(lines(file), str(file)))
    source: Iterable[str] = sys.stdin if str(file) == "-" else file.read_text(encoding="utf-8").splitlines()
    return (tokenise(line.strip(), "en") for line in source)
