"""The commands that use a trained parser: parse, labels."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phrasemodels.flows.cli.predict import Name, find_model
from phrasemodels.flows.cli.terminal import clean

if TYPE_CHECKING:
    from phrasemodels.tasks.prepare.tokenise import Tokeniser
    from phrasemodels.tasks.problems.parsing.predict import TreeParser
    from phrasemodels.tasks.problems.parsing.recipe import ParsingRecipe

app = typer.Typer()


@app.command()
def parse(
    model: Name,
    file: Annotated[Path, typer.Argument(help="One sentence per line, or CoNLL-U (FILE.conllu); - is stdin.")],
    form: Annotated[
        str, typer.Option("--format", help="brackets, conllu, or json (one object per line).")
    ] = "brackets",
    decode: Annotated[
        str, typer.Option(help="jointly; phrases or arcs alone; apart: the best phrases and the best arcs.")
    ] = "jointly",
    tokenised: Annotated[
        bool, typer.Option("--tokenised", help="The input is tokenised: spaces separate words.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Sentences parsed together; with 1 each is answered at once.")] = 256,
) -> None:
    """Parse raw text with a trained parser into phrase structure and dependencies.

    Example: echo "The red house doesn't sleep." | phrasemodels parse 004/parser/laptop/lal - --format conllu
    """
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.models.parser import DECODES
    from phrasemodels.tasks.prepare.tokenise import spaces
    from phrasemodels.tasks.problems.parsing.predict import FORMATS

    if form not in FORMATS:
        raise ValueError(f"no format {form!r}: {closest(form, FORMATS)}")
    if decode not in (known := ("jointly", *DECODES)):
        raise ValueError(f"no decoder {decode!r}: {closest(decode, known)}")
    if (form, decode) == ("brackets", "arcs"):
        raise ValueError("arcs alone have no brackets: ask for --format conllu or json")
    if batch < 1:
        raise ValueError(f"--batch {batch}: at least one sentence has to be read")
    recipe, parser = _parser(model)
    if decode in DECODES:  # else as it was trained, with its weights of phrases and arcs
        parser.objective = replace(parser.objective, decode=DECODES[decode])
    sentences = _sentences(file, spaces if tokenised else recipe.tokeniser)
    number = 0
    while chunk := list(islice(sentences, batch)):
        short = [words if len(words) <= recipe.most_words else [] for words in chunk]
        parses = iter(parser.parse([words for words in short if words], recipe.divide))
        for given, words in zip(chunk, short, strict=True):
            number += 1
            if len(given) > len(words):
                print(f"sentence {number}: {len(given)} words, at most {recipe.most_words}; divide it", file=sys.stderr)
            print(clean(FORMATS[form](next(parses))) if words else "", flush=batch == 1)


@app.command()
def labels(
    model: Name,
    sentence: Annotated[str, typer.Argument(help="A sentence.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("labels.html"),
    most: Annotated[int, typer.Option(min=1, help="Show this many labels, those that contribute most.")] = 24,
) -> None:
    """Write a page that shows where each label of a parser attends in a sentence, and what it contributes to each phrase.

    Example: phrasemodels labels 004/parser/laptop/lal "The red house sleeps."
    """
    from phrasemodels.flows.report.attention import write_labels
    from phrasemodels.tasks.problems.parsing.labels import view_labels
    from phrasemodels.tasks.problems.report import check_size

    if to.suffix != ".html":
        raise ValueError(f"{to}: a page is HTML; name a file that ends with .html")
    recipe, parser = _parser(model)
    words = recipe.tokeniser(sentence, "en")
    if not words:
        raise ValueError("an empty sentence: give one with words")
    check_size(len(words), len(words))
    print(write_labels(view_labels(parser, words, recipe.divide), most, to))


def _parser(name: str) -> "tuple[ParsingRecipe, TreeParser]":
    """Return the recipe of a trained parser, and the parser. ValueError: the model is no parser."""
    from phrasemodels.tasks.problems.parsing.recipe import ParsingRecipe

    model = find_model(name)
    recipe = model.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        raise ValueError(f"{model.experiment.name} is no parser: name an experiment of paper 004")
    return recipe, recipe.parser(model.experiment.model, model.weights, model.vocabulary)


def _sentences(file: Path, tokenise: "Tokeniser") -> Iterator[list[str]]:
    """Yield the words of each sentence of a file; a CoNLL-U file is tokenised already."""
    from phrasemodels.data.formats.lines import lines, lines_or_stdin

    if file.suffix == ".conllu":
        from phrasemodels.data.formats.conllu import read_conllu

        return (sentence.tokens for sentence in read_conllu(lines(file), str(file)))
    return (tokenise(line.text.strip(), "en") for line in lines_or_stdin(file))
