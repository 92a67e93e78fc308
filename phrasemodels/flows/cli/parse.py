"""The commands that use a trained parser: parse, labels, pack and serve."""

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from phrasemodels.flows.cli.models import Name, find_model
from phrasemodels.flows.cli.terminal import Force, clean

if TYPE_CHECKING:
    from phrasemodels.data.formats.lines import Line
    from phrasemodels.parsing.parser import Parse, Parser
    from phrasemodels.tasks.problems.parsing import ParsingRecipe, TreeParser


app = typer.Typer()

INPUTS = ("auto", "paragraphs", "text", "sentences", "tokens", "conllu")
BETWEEN_REPORTS = 5.0  # seconds


@app.command()
def parse(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FILE",
            help="The parser, by default the English one of the package; and a text, - for stdin.",
        ),
    ],
    form: Annotated[
        str, typer.Option("--format", help="brackets, conllu, or json (one object per line).")
    ] = "brackets",
    decode: Annotated[
        str, typer.Option(help="jointly; phrases or arcs alone; apart: the best phrases and the best arcs.")
    ] = "jointly",
    read: Annotated[
        str,
        typer.Option(
            "--input",
            help="paragraphs: one a line, divided into sentences; text: empty lines end paragraphs; sentences: one a line; "
            "tokens: sentences, spaces divide words; conllu. auto: conllu if the file looks like it, else paragraphs.",
        ),
    ] = "auto",
    tokenised: Annotated[bool, typer.Option("--tokenised", help="The same as --input tokens.")] = False,
    batch: Annotated[int, typer.Option(help="Lines parsed together; with 1 each is answered at once.")] = 256,
) -> None:
    """Parse text into phrase structure and dependencies. A line without words gets an empty line.

    Example: echo "The red house doesn't sleep." | phrasemodels parse - --format conllu
    """
    from phrasemodels.data.formats.trees import GROUP
    from phrasemodels.models.parser import DECODES

    check_names(form, decode, read)
    if batch < 1:
        raise ValueError(f"--batch {batch}: at least one sentence has to be read")
    if len(what) > 2:
        raise ValueError(f"{what[2]!r}: name a parser and one file at most")
    parser, file = reader(what[:-1]), Path(what[-1])
    if decode in DECODES:  # else as it was trained, with its weights of phrases and arcs
        parser.decode = DECODES[decode]
    if parser.decode is DECODES["arcs"]:
        check_names(form, "arcs", read)
    elif not set(parser.names.labels) - {"", GROUP}:
        raise ValueError("this parser has learned no phrases: ask for --decode arcs --format conllu")
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    shown = clean if sys.stdout.isatty() else str  # a file keeps every character of its text
    for answer in _reported(answers(parser, file, "tokens" if tokenised else read, batch)):
        for text in written(answer, form):
            print(shown(text))
        if not answer.parses:
            print()
        if batch == 1:
            sys.stdout.flush()


def check_names(form: str, decode: str, read: str) -> None:
    """Check the names of a format, a decoder and a kind of input. ValueError: one is unknown, or two do not go together."""
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.models.parser import DECODES
    from phrasemodels.tasks.problems.parsing import FORMATS

    decoders = ("jointly", *DECODES)
    for name, value, values in (("format", form, FORMATS), ("decoder", decode, decoders), ("input", read, INPUTS)):
        if value not in values:
            raise ValueError(f"no {name} {value!r}: {closest(value, values)}")
    if (form, decode) == ("brackets", "arcs"):
        raise ValueError("arcs alone have no brackets: ask for --format conllu or json")


class Answer(NamedTuple):
    """The parses of a line, or of a block of lines, the number of its first line, and the CoNLL-U that was read."""

    line: int
    parses: "list[Parse]"
    conllu: "Sequence[Line]" = ()


def written(answer: Answer, form: str) -> Iterator[str]:
    """Yield the parses of an answer in a format; CoNLL-U that was read keeps what the parser does not predict."""
    from phrasemodels.tasks.problems.parsing import FORMATS

    for count, found in enumerate(answer.parses, 1):
        if form == "conllu" and answer.conllu:
            yield found.conllu(read=answer.conllu)
        else:
            yield FORMATS[form](found, f"{answer.line}-{count}")


def answers(parser: "Parser", file: Path, read: str, batch: int) -> Iterator[Answer]:
    from phrasemodels.data.formats.lines import lines_with_replacements
    from phrasemodels.parsing.words import by_spaces, undivided

    if str(file) != "-" and (file.is_dir() or not file.exists()):  # a pipe is read, too
        kind = "is a folder" if file.is_dir() else "no such file"
        raise ValueError(f"{file}: {kind}; a sentence is given as: echo 'It rains.' | phrasemodels parse -")
    lines = lines_with_replacements(file, _warn)
    if read == "auto":
        lines, read = recognised(lines, file)
    if read == "conllu":
        yield from conllu_answers(parser, lines, "stdin" if str(file) == "-" else str(file), batch)
        return
    numbers: list[int] = []

    def texts() -> Iterator[str]:
        for number, text in blocks(lines) if read == "text" else lines:
            numbers.append(number)
            yield text

    split = {"sentences": undivided(parser.split), "tokens": by_spaces}.get(read, parser.split)
    for place, parses in enumerate(parser.parse_each(texts(), split, batch)):
        yield Answer(numbers[place], parses)


def conllu_answers(parser: "Parser", lines: "Iterable[Line]", where: str, batch: int) -> Iterator[Answer]:
    """Yield the parse of each sentence of CoNLL-U; all before a broken line are answered."""
    from phrasemodels.data.formats.conllu import conllu_sentences, read_conllu

    broken: list[ValueError] = []
    waiting: deque[list[Line]] = deque()

    def tokens() -> Iterator[list[str]]:
        for own in conllu_sentences(lines):
            try:
                (sentence,) = read_conllu(own, where)
            except ValueError as error:
                broken.append(error)
                return
            waiting.append(own)
            yield sentence.tokens

    for found in parser.parse_tokens(tokens(), batch):
        own = waiting.popleft()
        yield Answer(own[0].number, [found], own)
    if broken:
        raise broken[0]


def recognised(lines: "Iterator[Line]", file: Path) -> "tuple[Iterator[Line], str]":
    """Return the lines, and whether they are `conllu` or `paragraphs`: the first that is no comment has ten columns."""
    from itertools import chain

    seen = []
    for line in lines:
        seen.append(line)
        if line.text.strip() and not line.text.startswith("#"):
            break
    fields = seen[-1].text.split("\t") if seen else []
    if len(fields) != 10 or not fields[0].replace("-", "").replace(".", "").isdecimal():
        return chain(seen, lines), "paragraphs"
    if file.suffix != ".conllu":
        _warn("this is read as CoNLL-U; --input paragraphs reads it as text")
    return chain(seen, lines), "conllu"


def blocks(lines: "Iterable[Line]") -> "Iterator[Line]":
    """Yield the lines between empty lines as one text, with the number of the first of them."""
    waiting: list[Line] = []
    for line in lines:
        if line.text.strip():
            waiting.append(line)
        elif waiting:
            yield waiting[0]._replace(text="\n".join(one.text for one in waiting))
            waiting = []
    if waiting:
        yield waiting[0]._replace(text="\n".join(one.text for one in waiting))


def _reported(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Yield answers; report their number and rate on stderr, if this takes long."""
    count, started, last = 0, time.monotonic(), 0.0
    for answer in answers:
        last = last or time.monotonic()  # not while the first answers are waited for
        yield answer
        count += len(answer.parses)
        if time.monotonic() - last > BETWEEN_REPORTS:
            last = time.monotonic()
            _warn(f"line {answer.line}: {count:,} sentences, {count / (last - started):.0f} a second")


def _warn(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def reader(model: list[str]) -> "Parser":
    """Return the parser of the package, of a folder that `pack` made, or of a trained model."""
    from phrasemodels.parsing.parser import Parser
    from phrasemodels.parsing.saved import ABOUT

    if not model:
        return Parser.load()
    if Path(model[0], ABOUT).is_file():
        return Parser.load(model[0])
    recipe, parser = _trained(model[0])
    return parser.parser(recipe.divide, recipe.split)


@app.command("show-labels")
def labels(
    model: Name,
    sentence: Annotated[str, typer.Argument(help="A sentence.")],
    to: Annotated[Path, typer.Option(help="The page to write.")] = Path("labels.html"),
    most: Annotated[int, typer.Option(min=1, help="Show this many labels, those that contribute most.")] = 24,
    force: Force = False,
) -> None:
    """Write a page that shows where each label of a parser attends in a sentence, and what it contributes to each phrase.

    Example: phrasemodels show-labels 004/parser/laptop/lal "The red house sleeps."
    """
    from phrasemodels.flows.report.attention import write_labels
    from phrasemodels.tasks.problems.parsing import view_labels
    from phrasemodels.tasks.problems.recipe import check_size
    from phrasemodels.written import check_replaceable, writing

    if to.suffix != ".html":
        raise ValueError(f"{to}: a page is HTML; name a file that ends with .html")
    check_replaceable(to, force)
    recipe, parser = _trained(model)
    words = recipe.tokeniser(sentence, "en")
    if not words:
        raise ValueError("an empty sentence: give one with words")
    check_size(len(words), len(words))
    with writing(to, force=force):
        print(write_labels(view_labels(parser, words, recipe.divide), most, to))


@app.command("export-parser")
def pack(
    model: Name,
    to: Annotated[Path, typer.Argument(help="Folder to make.")],
    card: Annotated[Path | None, typer.Option(help="A JSON object to add to the card: scores, licences.")] = None,
    force: Force = False,
) -> None:
    """Write a parser to a folder that `parse` and `Parser.load` read with torch alone: weights in float16, vocabularies, card.

    Example: phrasemodels export-parser 004/english/laptop/lal english
    """
    from phrasemodels.parsing.saved import Saved, save
    from phrasemodels.written import check_replaceable, writing_folder

    check_replaceable(to, force)
    trained = find_model(model)
    recipe, parser = _trained(model)
    more = json.loads(card.read_text(encoding="utf-8")) if card else {}
    saved = Saved(
        parser.model, parser.config, parser.entries, recipe.problem.decode, trained.card() | more, recipe.split
    )
    with writing_folder(to, force) as folder:
        save(saved, folder)
    print(to)


def _trained(name: str) -> "tuple[ParsingRecipe, TreeParser]":
    """Return the recipe of a trained parser, and the parser. ValueError: the model is no parser."""
    from phrasemodels.tasks.problems.parsing import ParsingRecipe

    model = find_model(name)
    recipe = model.experiment.recipe
    if not isinstance(recipe, ParsingRecipe):
        raise ValueError(f"{model.experiment.name} is no parser: name an experiment of paper 004")
    return recipe, recipe.parser(model.experiment.model, model.weights, model.vocabulary)


@app.command()
def serve(
    model: Annotated[
        str, typer.Argument(help="A parser, as for `parse`; by default the English one of the package.")
    ] = "",
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default is for this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8900,
) -> None:
    """Serve a page on which one types a text and sees its phrases, dependencies, and what each label looks at.

    Example: phrasemodels serve
    """
    from phrasemodels.flows.run.page_server import server

    with server(reader([model] if model else []), host, port) as made:
        print(f"http://{host}:{made.server_address[1]}/ (JSON: /parse.json?text=...); Ctrl-C ends it", flush=True)
        made.serve_forever()
