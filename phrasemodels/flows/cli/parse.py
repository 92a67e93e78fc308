"""The commands that use a trained parser: parse, labels, pack and serve."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from phrasemodels.flows.cli.models import find_model, parser_of
from phrasemodels.flows.cli.terminal import Force, clean

if TYPE_CHECKING:
    from concurrent.futures import Future

    from phrasemodels.data.formats.lines import Line
    from phrasemodels.parsing.parser import Parse, Parser
    from phrasemodels.parsing.words import Sentences


app = typer.Typer()

INPUTS = ("auto", "text", "lines", "sentences", "tokens", "conllu")
BETWEEN_REPORTS = 5.0  # seconds
LONGEST_PARAGRAPH = 1 << 20  # characters; a longer one is cut at the end of a line
ENDINGS = (".txt", ".text", ".md", ".conllu", ".conll")  # of files that are read in a folder


@app.command()
def parse(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FILE...",
            help="The parser, by default the English one of the package; and texts, folders of texts, or - for stdin.",
        ),
    ],
    form: Annotated[
        str, typer.Option("--format", help="brackets, conllu, or json (one object per line).")
    ] = "brackets",
    decode: Annotated[
        str,
        typer.Option(
            help="jointly: phrases and arcs that agree; phrases or arcs: one of them alone; apart: the best of each, which may disagree."
        ),
    ] = "jointly",
    read: Annotated[
        str,
        typer.Option(
            "--input",
            help="text: empty lines end paragraphs; lines: each line is a paragraph, divided into sentences; sentences: one a "
            "line; tokens: sentences, spaces divide words; conllu. auto: conllu if the file looks like it, else text.",
        ),
    ] = "auto",
    tokenised: Annotated[bool, typer.Option("--tokenised", help="The same as --input tokens.")] = False,
    batch: Annotated[
        int, typer.Option(help="Paragraphs or lines parsed together; with 1 each is answered at once.")
    ] = 256,
    out: Annotated[
        Path | None, typer.Option(help="A folder to write to: a file for each text, by its name, in place of stdout.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that parse, each with a parser of its own.")] = 1,
    force: Force = False,
) -> None:
    """Parse text into phrase structure and dependencies. With --input lines, sentences or tokens, an empty line gets an empty line
    (none in CoNLL-U).

    Example: echo "The red house doesn't sleep." | phrasemodels parse - --format conllu
    """
    from phrasemodels.data.formats.trees import GROUP
    from phrasemodels.models.parser import DECODES
    from phrasemodels.written import check_replaceable

    read = "tokens" if tokenised else read
    check_names(form, decode, read)
    if batch < 1:
        raise ValueError(f"--batch {batch}: at least one sentence has to be read")
    model, given = model_and_files(what)
    files = [file for one in given for file in texts_of(one) if not (out and file.is_relative_to(out))]
    to = {file: out / _named(file, given, form) for file in files} if out else {}
    for place in to.values():
        check_replaceable(place, force)
    if len(set(to.values())) < len(to):
        raise ValueError(f"{out}: two of the texts have one name; parse them by two commands, to two folders")
    parser = reader(model)
    if decode in DECODES:  # else as it was trained, with its weights of phrases and arcs
        parser.decode = DECODES[decode]
    if parser.decode is DECODES["arcs"]:
        check_names(form, "arcs", read)
    elif not set(parser.names.labels) - {"", GROUP}:
        raise ValueError("this parser has learned no phrases: ask for --decode arcs --format conllu")
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    shown = clean if sys.stdout.isatty() else str  # a file keeps every character of its text
    with parsing(parser, model, decode, processes) as parse_texts, _progress(files) as report:
        for file in files:
            found = report(answers(parser, file, read, batch, parse_texts), file if len(files) > 1 else None)
            lines = _lines(found, form, f"{file.stem}-" if len(files) > 1 else "")
            if file in to:
                _write(to[file], lines, force)
                continue
            for line in lines:
                print(shown(line))
                if batch == 1:
                    sys.stdout.flush()


def _lines(found: "Iterable[Answer]", form: str, prefix: str) -> Iterator[str]:
    """Yield what is printed of answers: an empty line for one without words, but in CoNLL-U."""
    for answer in found:
        yield from written(answer, form, prefix)
        if not answer.parses and form != "conllu":
            yield ""


def _write(to: Path, lines: Iterable[str], force: bool) -> None:
    """Write a file that is there when it is whole."""
    from phrasemodels.written import check_replaceable

    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        check_replaceable(to, force)
        os.replace(part, to)
    finally:
        part.unlink(missing_ok=True)
    _warn(str(to))


def model_and_files(what: list[str]) -> tuple[list[str], list[Path]]:
    """Return the parser that is named first, if one is, and the files. ValueError: a file is missing."""
    from phrasemodels.parsing.saved import ABOUT

    first = Path(what[0])
    is_model = len(what) > 1 and what[0] != "-" and ((first / ABOUT).is_file() or not first.exists())
    files = [Path(name) for name in what[is_model:]]
    for file in files:
        if str(file) != "-" and not file.exists():
            raise ValueError(f"{file}: no such file; a sentence is given as: echo 'It rains.' | phrasemodels parse -")
    return what[:is_model], files


def texts_of(given: Path) -> list[Path]:
    """Return a file, or the texts in a folder and those below it, in order of their names. ValueError: it has none."""
    if not given.is_dir():
        return [given]
    found = sorted(path for path in given.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(given).parts)]
    if not found:
        raise ValueError(f"{given}: a folder without texts, whose names end with {', '.join(ENDINGS)}; name files")
    return found


def _named(file: Path, given: Sequence[Path], form: str) -> Path:
    """Return the path of a text's parses in the folder that is written: its own, below the folder that was given."""
    base = next((one for one in given if one.is_dir() and file.is_relative_to(one)), file.parent)
    name = Path("stdin") if str(file) == "-" else file.relative_to(base)
    return name.with_suffix({"brackets": ".brackets", "conllu": ".conllu", "json": ".jsonl"}[form])


# texts, how they are divided, texts of a batch
ParseTexts = Callable[[Iterator[str], str, int], Iterator["list[Parse]"]]


@contextmanager
def parsing(parser: "Parser", model: list[str], decode: str, processes: int) -> Iterator[ParseTexts]:
    """Yield a function that parses texts in order, in this process or in several, which hold few texts at a time."""
    if processes == 1:
        yield lambda texts, split, batch: parser.parse_each(texts, splits(parser)[split], batch)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _start, (model, decode)) as pool:

        def parse_texts(texts: Iterator[str], split: str, batch: int) -> "Iterator[list[Parse]]":
            waiting: deque[Future[list[list[Parse]]]] = deque()
            while some := list(islice(texts, batch)):
                waiting.append(pool.submit(_parse, some, split))
                if len(waiting) > 2 * processes:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()

        yield parse_texts


def splits(parser: "Parser") -> "dict[str, Sentences]":
    """Return how the texts of each kind of input are divided."""
    from phrasemodels.parsing.words import by_spaces, undivided

    whole = undivided(parser.split)
    return {"text": parser.split, "lines": parser.split, "sentences": whole, "tokens": by_spaces}


_parser: "list[Parser]" = []  # of a process that parses for another


def _start(model: list[str], decode: str) -> None:
    from phrasemodels.models.parser import DECODES

    _parser.append(reader(model))
    if decode in DECODES:
        _parser[0].decode = DECODES[decode]


def _parse(texts: list[str], split: str) -> "list[list[Parse]]":
    return list(_parser[0].parse_each(texts, splits(_parser[0])[split]))


def check_names(form: str, decode: str, read: str) -> None:
    """Check the names of a format, a decoder and a kind of input. ValueError: one is unknown, or two do not go together."""
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.models.parser import DECODES
    from phrasemodels.parsing.parser import FORMATS

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


def written(answer: Answer, form: str, prefix: str = "") -> Iterator[str]:
    """Yield the parses of an answer in a format; CoNLL-U that was read keeps what the parser does not predict. prefix: of the
    names of sentences, which are the number of the line and of the sentence that begins in it."""
    from phrasemodels.parsing.parser import FORMATS

    for count, found in enumerate(answer.parses, 1):
        if form == "conllu" and answer.conllu:
            yield found.conllu(read=answer.conllu)
        else:
            yield FORMATS[form](found, f"{prefix}{answer.line}-{count}")


def answers(
    parser: "Parser", file: Path, read: str, batch: int, parse_texts: ParseTexts | None = None
) -> Iterator[Answer]:
    """Yield the parses of each paragraph or line of a file."""
    from phrasemodels.data.formats.lines import lines_with_replacements

    where = "stdin" if str(file) == "-" else str(file)
    lines = lines_with_replacements(file, _warn)
    if read == "auto":
        lines, read = recognised(lines, file)
    if read == "conllu":
        yield from conllu_answers(parser, lines, where, batch)
        return
    numbers: deque[int] = deque()

    def texts() -> Iterator[str]:
        for number, text in blocks(lines) if read == "text" else lines:
            numbers.append(number)
            yield text

    given = parse_texts or (lambda texts, split, batch: parser.parse_each(texts, splits(parser)[split], batch))
    for parses in given(texts(), read, batch):
        yield Answer(numbers.popleft(), parses)


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
    """Return the lines, and whether they are `conllu` or `text`: the first that is no comment has ten columns."""
    seen = []
    for line in lines:
        seen.append(line)
        if line.text.strip() and not line.text.startswith("#"):
            break
    fields = seen[-1].text.split("\t") if seen else []
    if len(fields) != 10 or not fields[0].replace("-", "").replace(".", "").isdecimal():
        return chain(seen, lines), "text"
    if file.suffix != ".conllu":
        _warn("this is read as CoNLL-U; --input text reads it as text")
    return chain(seen, lines), "conllu"


def blocks(lines: "Iterable[Line]") -> "Iterator[Line]":
    """Yield the lines between empty lines as one text, with the number of the first of them."""
    waiting: list[Line] = []
    size = 0
    for line in lines:
        if line.text.strip():
            waiting.append(line)
            size += len(line.text)
        if waiting and (not line.text.strip() or size > LONGEST_PARAGRAPH):
            yield waiting[0]._replace(text="\n".join(one.text for one in waiting))
            waiting, size = [], 0
    if waiting:
        yield waiting[0]._replace(text="\n".join(one.text for one in waiting))


Report = Callable[[Iterable[Answer], Path | None], Iterator[Answer]]


@contextmanager
def _progress(files: Sequence[Path]) -> Iterator[Report]:
    """Yield a function that passes answers of a file on, and shows progress: by a bar if stderr is a terminal and stdout, where the
    parses go, is none; else by lines."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield _reported
        return
    from phrasemodels.flows.run.bars import bar

    known = all(file.is_file() for file in files)
    lengths = {file: _lines_in(file) for file in files} if known else {}
    before = 0  # lines of earlier files
    with bar("lines", sum(lengths.values()) if known else None) as update:

        def report(answers: Iterable[Answer], file: Path | None) -> Iterator[Answer]:
            nonlocal before
            line = 0
            for answer in answers:
                line = answer.line
                update(before + line, None)
                yield answer
            before += lengths[file or files[0]] if known else line
            update(before, None)

        yield report


def _lines_in(file: Path) -> int:
    """Count the lines of a file."""
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def _reported(answers: Iterable[Answer], file: Path | None) -> Iterator[Answer]:
    """Yield answers; report their number and rate on stderr, if this takes long. file: named if there are several."""
    count, started, last = 0, time.monotonic(), 0.0
    for answer in answers:
        last = last or time.monotonic()  # not while the first answers are waited for
        yield answer
        count += len(answer.parses)
        if time.monotonic() - last > BETWEEN_REPORTS:
            last = time.monotonic()
            where = f"{file}, line" if file else "line"
            _warn(f"{where} {answer.line}: {count:,} sentences, {count / (last - started):.0f} a second")


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
    recipe, parser = parser_of(find_model(model[0]))
    return parser.parser(recipe.divide, recipe.split)


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

    parser = reader([model] if model else [])
    parser.load_kernels()
    with server(parser, host, port) as made:
        print(f"http://{host}:{made.server_address[1]}/ (JSON: /parse.json?text=...); Ctrl-C ends it", flush=True)
        made.serve_forever()
