"""The commands that use a trained parser, parse and serve, and `phrasemodels parsers`: list, fetch, train and score parsers."""

import glob
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain, islice
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.models import find_model, parser_of
from phrasemodels.flows.cli.terminal import Force, Json, clean, file_sources, print_json, writable_store
from phrasemodels.folders import check_inside

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from phrasemodels.data.store.artifacts import Artifact
    from phrasemodels.data.store.store import Step
    from phrasemodels.flows.results.models import Model
    from phrasemodels.flows.run.page_server import Served
    from phrasemodels.parsing.files import Answer, ParseTexts, Table
    from phrasemodels.parsing.parser import Parse, Parser
    from phrasemodels.tasks.parsers.parse import ParserBackend


app = typer.Typer()

INPUTS = ("auto", "text", "lines", "sentences", "tokens", "conllu")
TEXTS = (".txt", ".text", ".md", ".conllu", ".conll")  # of files that are read in a folder


@app.command()
def parse(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FILE...",
            help="The parser, by default the English one of the package; and texts, tables, folders of them, or - for stdin.",
        ),
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="brackets, conllu, jsonl (or json; an object for each sentence), arrow or parquet; by default brackets, or conllu of arcs "
            "alone.",
        ),
    ] = "",
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
    column: Annotated[
        str, typer.Option(help="The column of texts: files are tables, CSV, TSV, JSON lines or Parquet by their names.")
    ] = "",
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", help="With --column: a column that each sentence keeps, in jsonl, arrow and parquet; repeatable."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Paragraphs, lines or rows parsed together; with 1 each is answered at once.")
    ] = 256,
    out: Annotated[
        Path | None, typer.Option(help="A folder to write to: a file for each text, by its name, in place of stdout.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that parse, each with a parser of its own.")] = 1,
    force: Force = False,
) -> None:
    """Parse text into phrases and dependencies.

    With --input lines, sentences or tokens, an empty line gets an empty line (none in CoNLL-U). In jsonl, arrow and
    parquet each sentence has its file, its row (the line, or the row of a table), its number in the row, and its
    characters there. A row without words has the sentence 0.

    Example: echo "The red house doesn't sleep." | phrasemodels parse - --format conllu
    """
    import fcntl

    from phrasemodels.data.store.artifacts import atomic_replace
    from phrasemodels.folders import check_replaceable
    from phrasemodels.models.parser import DECODES
    from phrasemodels.parsing.files import BINARY, Table, answers, warn, write

    form = "jsonl" if form == "json" else form
    check_names(form or "conllu", decode, read)
    if batch < 1:
        raise ValueError(f"--batch {batch}: at least one sentence has to be read")
    if form in BINARY and not out and sys.stdout.isatty():
        raise ValueError(
            f"{form} is not for a terminal: write to a file, > parses.{form}, or to a folder, --out FOLDER"
        )
    model, given = model_and_files(what)
    table = Table(column, tuple(ids or ())) if column else None
    files = _texts(given, table, out)
    kept = checked(files, table, ids, read)
    parser = reader(model, decode)
    form = form or ("conllu" if parser.decode is DECODES["arcs"] else "brackets")
    to = _outputs(files, given, form, out, force) if out else {}
    check_decoder(parser, form, read)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that half-written files are removed
    with parsing(parser, model, decode, workers) as parse_texts:
        found = _told(files, lambda file: answers(parser, file, read, batch, parse_texts, table))
        for file, place in to.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            _remove_half_written(place)
            with atomic_replace(place) as path:
                with path.open("wb") as opened:
                    fcntl.flock(opened, fcntl.LOCK_EX)
                    write(found(file), opened, form, kept, len(files) > 1)
                check_replaceable(place, force)  # another file may have come there meanwhile
            warn(str(place))
        if not to:
            shown = clean if sys.stdout.isatty() else str  # a file keeps every character of its text
            sys.stdout.flush()
            write(
                chain.from_iterable(map(found, files)), sys.stdout.buffer, form, kept, len(files) > 1, shown, batch == 1
            )


def _remove_half_written(place: Path) -> None:
    """Remove what ended commands have left of a file. One that is being written is locked."""
    import fcntl

    for half in place.parent.glob(f".{glob.escape(place.name)}.*-{'[0-9a-f]' * 12}"):
        with suppress(OSError), half.open("ab") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            half.unlink()


def _texts(given: Sequence[Path], table: "Table | None", out: Path | None) -> list[Path]:
    """Return the files with texts, without those of an earlier run in a folder `out` below a given one. ValueError: `out` has the texts."""
    files = []
    for one in given:
        found = texts_of(one, table)
        if out and one.is_dir():
            where, folder = out.resolve(), one.resolve()
            if where == folder:
                raise ValueError(f"--out {out}: the texts are there; name another folder")
            below = where.is_relative_to(folder)
            found = [file for file in found if not (below and file.resolve().is_relative_to(where))]
        files += found
    if out and out.is_file():
        raise ValueError(f"--out {out}: it is a file; name a folder")
    return files


def checked(files: Sequence[Path], table: "Table | None", ids: Sequence[str] | None, read: str) -> "pa.Schema | None":
    """Return the types of columns that are kept; None for texts. ValueError: options do not go together, or files have columns of
    different types."""
    from phrasemodels.parsing.files import ENDINGS, schema, types_of

    if not table:
        if ids:
            raise ValueError("--id names a column of a table: name the column of texts, too, by --column")
        for file in files:
            if read == "auto" and file.suffix.lower() in ENDINGS:
                raise ValueError(
                    f"{file} is a table: name the column of texts by --column, or read it by --input lines"
                )
        return None
    if read in ("conllu", "lines"):
        raise ValueError("a column of a table is text, sentences or tokens: ask for another --input")
    kept = [types_of(file, table.kept) for file in files]
    if different := [file for file, own in zip(files, kept, strict=True) if own != kept[0]]:
        raise ValueError(
            f"{different[0]}: {', '.join(table.kept)} are of other types than in {files[0]}: parse it alone"
        )
    schema(kept[0])
    return kept[0]


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


def texts_of(given: Path, table: "Table | None" = None) -> list[Path]:
    """Return a file, or the texts or tables in a folder and those below it, in order of their names. ValueError: it has none."""
    from phrasemodels.parsing.files import ENDINGS

    if not given.is_dir():
        return [given]
    endings = ENDINGS if table else TEXTS
    found = sorted(path for path in given.rglob("*") if path.suffix.lower() in endings and path.is_file())
    found = [path for path in found if not any(part.startswith(".") for part in path.relative_to(given).parts)]
    for path in found:
        check_inside(path, given.resolve())
    if not found:
        raise ValueError(f"{given}: a folder without texts, whose names end with {', '.join(endings)}; name files")
    return found


def _named(file: Path, given: Sequence[Path], form: str) -> Path:
    """Return the path of a text's parses in the folder that is written: its own, below the folder that was given."""
    base = next((one for one in given if one.is_dir() and file.is_relative_to(one)), file.parent)
    return (Path("stdin") if str(file) == "-" else file.relative_to(base)).with_suffix(f".{form}")


@contextmanager
def parsing(parser: "Parser", model: list[str], decode: str, workers: int) -> "Iterator[ParseTexts]":
    """Yield a function that parses texts in order, in this process or in several, which hold few texts at a time."""
    from phrasemodels.parsing.files import splits

    if workers == 1:
        yield lambda texts, split, batch: parser.parse_each(texts, splits(parser)[split], batch)
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (model, decode))

    def parse_texts(texts: Iterator[str], split: str, batch: int) -> "Iterator[list[Parse]]":
        waiting: deque[Future[list[list[Parse]]]] = deque()
        try:
            while some := list(islice(texts, batch)):
                waiting.append(pool.submit(_parse, some, split))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool as error:  # Linux ends a process for which there is no memory
            raise ValueError("a worker process was ended, often for want of memory: try fewer --workers") from error

    others = active_children()
    try:
        yield parse_texts
    except BaseException:  # what is parsed now is not waited for
        for process in set(active_children()) - set(others):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_parser: "list[Parser]" = []  # of a process that parses for another


def _start(model: list[str], decode: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _parser.append(reader(model, decode))


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
    os._exit(1)


def _parse(texts: list[str], split: str) -> "list[list[Parse]]":
    from phrasemodels.parsing.files import splits

    return list(_parser[0].parse_each(texts, splits(_parser[0])[split]))


def _outputs(files: list[Path], given: list[Path], form: str, out: Path, force: bool) -> dict[Path, Path]:
    """Return the output of each file below a folder. ValueError: two have one name, or something else is there."""
    from phrasemodels.folders import check_replaceable

    to = {file: out / _named(file, given, form) for file in files}
    for place in to.values():
        check_replaceable(place, force)
    if len(set(to.values())) < len(to):
        raise ValueError(f"{out}: two of the texts have one name; parse them by two commands, to two folders")
    return to


def check_decoder(parser: "Parser", form: str, read: str) -> None:
    """Check that a parser finds the parts that a format shows. ValueError: it finds heads alone."""
    from phrasemodels.data.formats.trees import GROUP
    from phrasemodels.models.parser import DECODES

    if parser.decode is DECODES["arcs"]:
        check_names(form, "arcs", read)
    elif not set(parser.names.labels) - {"", GROUP}:
        raise ValueError("this parser has learned no phrases: ask for --decode arcs --format conllu")


def check_names(form: str, decode: str, read: str) -> None:
    """Check the names of a format, a decoder and a kind of input. ValueError: one is unknown, or two do not go together."""
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.models.parser import DECODES
    from phrasemodels.parsing.files import FORMATS

    decoders = ("jointly", *DECODES)
    for name, value, values in (("format", form, FORMATS), ("decoder", decode, decoders), ("input", read, INPUTS)):
        if value not in values:
            raise ValueError(f"no {name} {value!r}: {closest(value, values)}")
    if (form, decode) == ("brackets", "arcs"):
        raise ValueError("arcs alone have no brackets: ask for --format conllu or jsonl")


def _told(files: Sequence[Path], read: "Callable[[Path], Iterator[Answer]]") -> "Callable[[Path], Iterator[Answer]]":
    """Return a function that yields the answers of a file, and says on stderr how many lines of all files are done."""
    from phrasemodels.flows.run import Pace

    lengths = [_rows_in(file) for file in files] if all(file.is_file() for file in files) else []
    before = dict(zip(map(str, files), accumulate(lengths, initial=0), strict=False))
    pace, total = Pace(), sum(lengths)
    pace.is_due()  # the first line comes later

    def told(file: Path) -> "Iterator[Answer]":
        for answer in read(file):
            done = before.get(answer.file, 0) + answer.line
            left = pace.time_left(done, total)
            if pace.is_due():
                print(f"{done:,} lines" + (f" of {total:,}" if total else "") + left, file=sys.stderr, flush=True)
            yield answer

    return told


def _rows_in(file: Path) -> int:
    """Count the rows of a table of Parquet, or the lines of a file."""
    if file.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        with suppress(ValueError, OSError):  # a broken file is an error where it is read
            return int(pq.read_metadata(file).num_rows)
        return 0
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def reader(model: list[str], decode: str = "jointly") -> "Parser":
    """Return the parser of the package, of a folder that `pack` made, or of a trained model. decode: if not jointly, as it was trained,
    with its weights of phrases and arcs."""
    from phrasemodels.models.parser import DECODES
    from phrasemodels.parsing.parser import Parser
    from phrasemodels.parsing.saved import ABOUT

    if not model or Path(model[0], ABOUT).is_file():
        parser = Parser.load(model[0]) if model else Parser.load()
    else:
        parser = trained_parser(_found(model[0]))
    parser.decode = DECODES.get(decode, parser.decode)
    return parser


def _found(name: str) -> "Model":
    """Return a trained model. ValueError: nothing has the name; the message says how to get a parser, too."""
    from phrasemodels.flows.results.lineage import UnknownNameError

    try:
        return find_model(name)
    except UnknownNameError as error:
        raise ValueError(
            f"no parser {name!r} here: {error}. Without a name the text is English; for another language name the folder that "
            "`phrasemodels parsers train TREEBANK FOLDER` makes"
        ) from error


def trained_parser(model: "Model") -> "Parser":
    """Return the parser of a trained model. ValueError: the model is no parser."""
    return parser_of(model)[1]


@app.command()
def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="A parser, as for `parse`, or a model, as for `predict`; by default the English parser of the package."
        ),
    ] = "",
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default is for this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8900,
) -> None:
    """Serve a page on which a model answers the text you type.

    A parser shows phrases, dependencies, and what each label attends to. Other models answer each line.

    Example: phrasemodels serve 000/table1/sample/phrase-k2
    """
    from phrasemodels.flows.run.page_server import server

    served = _served(model)
    with server(served, host, port) as made:
        print(f"http://{host}:{made.server_address[1]}/ (JSON: {served.path}?text=...); Ctrl-C ends it", flush=True)
        made.serve_forever()


def _served(name: str) -> "Served":
    """Return what a server answers of a parser or of another model."""
    from phrasemodels.flows.run.page_server import served_model, served_parser
    from phrasemodels.parsing.saved import ABOUT

    if not name or Path(name, ABOUT).is_file():
        parser = reader([name] if name else [])
    else:
        from phrasemodels.tasks.problems.parsing import ParsingRecipe

        found = _found(name)
        if not isinstance(found.experiment.recipe, ParsingRecipe):
            return served_model(found)
        parser = trained_parser(found)
    parser.load_kernels()
    return served_parser(parser)


parsers = typer.Typer(help="Models of parsers: list, fetch, train, score.", no_args_is_help=True)

SHIPPED, STANFORD = "english", "stanford"
COLUMNS = ("name", "title", "licence", "stand_in", "there")
ADDED = "added"  # in place of a licence of models: by a project folder or a package
Name = Annotated[str, typer.Argument(help="A parser of `parsers list`; `score` also takes the folder of one.")]


@parsers.command(name="list")
def list_parsers(as_json: Json = False) -> None:
    """List the parsers that a pipeline can use.

    `there`: it is in the store. `english` is the parser of `phrasemodels parse`, which needs none of the others.
    """
    from phrasemodels.data.download.manifest import load_parser, parser_names
    from phrasemodels.tasks.parsers.shipped import shipped_card

    store = writable_store()
    models = {name: load_parser(name) for name in parser_names()}
    known = [(name, one.title, one.licence, one.stand_in) for name, one in models.items()]
    card = shipped_card()
    known.append((SHIPPED, card["name"], ", ".join(card["licences"]), card["stand_in"]))
    known.append(
        (STANFORD, "the Stanford PCFG parser, put in by hand; needs Java", "LicenseRef-Stanford-parser", False)
    )
    there = [about[0] == SHIPPED or store.find(step_of(about[0]), verify=False) is not None for about in known]
    rows: list[dict[str, Any]] = [
        dict(zip(COLUMNS, (*about, found), strict=True)) for about, found in zip(known, there, strict=True)
    ]
    rows += [dict(zip(COLUMNS, (name, part, ADDED, False, True), strict=True)) for name, part in _added().items()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        marks = [row["licence"], *["stand-in"] * row["stand_in"], "there" if row["there"] else "not there"]
        print(clean(f"{row['name']:12} {row['title']}  ({', '.join(marks)})"))


@parsers.command()
def fetch(name: Name) -> None:
    """Fetch a parser's models, and verify them.

    Example: PHRASEMODELS_PARSERS=~/models phrasemodels parsers fetch gum
    """
    print(_artifact(step_of(name)).path)


@parsers.command()
def train(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a treebank of Universal Dependencies.")],
    to: Annotated[Path, typer.Argument(help="Folder to make.")],
    updates: Annotated[int, typer.Option(min=1, help="Updates of the parser's weights.")] = 4000,
    minutes: Annotated[float, typer.Option(min=0, help="CPU minutes of learning words and sentences, at most.")] = 4.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of both trainings.")] = 0,
    name: Annotated[str, typer.Option(help="The name of the corpus; by default that of the folder.")] = "",
    vectors: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Word vectors as text (GloVe, fastText): a file in the project's corpora folder, or in the one that "
            "PHRASEMODELS_SUPPLIED names. Words of its first 20,000 lines are known, too.",
        ),
    ] = "",
    force: Force = False,
) -> None:
    """Train a parser on a treebank of any language.

    It learns sentences, words, multiword tokens, tags and dependencies. The treebank becomes a corpus of the project
    folder, as by `corpora add`. Use the parser as `phrasemodels parse FOLDER text.txt --format conllu`.

    Example: phrasemodels parsers train UD_French-Sequoia french
    """
    from phrasemodels.flows.run.parser_training import train_parser

    print(train_parser(data, to, updates, minutes, seed, name, vectors, force))


@parsers.command()
def score(
    name: Name,
    treebank: Annotated[str, typer.Argument(help="A corpus of trees with gold tokens.")] = "gum",
    split: Annotated[str, typer.Option(help="The split to parse.")] = "test",
    head: Annotated[int, typer.Option(min=0, help="Parse only this many sentences, the first ones; 0: all.")] = 0,
    as_json: Json = False,
) -> None:
    """Parse a treebank, and print the agreement with its trees."""
    from phrasemodels.parsing.saved import ABOUT
    from phrasemodels.tasks.metrics.parseval import treebank_scores
    from phrasemodels.tasks.parsers.shipped import ShippedParser
    from phrasemodels.tasks.prepare.corpora import Corpus
    from phrasemodels.tasks.prepare.sharded import read_shards

    own = Path(name, ABOUT).is_file()
    parser, models = (ShippedParser(), {}) if own else _back_end(name)
    gold = read_shards(_artifact(Corpus(treebank).split(split))).slice(0, head or None).combine_chunks()
    folders = {part: _artifact(step).path for part, step in models.items()}  # they may have to be fetched
    folders |= {"models": Path(name)} if own else {}
    parser.analyse(gold.slice(0, 2), "tokens", folders)  # so that loading is not timed
    start = time.perf_counter()
    predicted = parser.analyse(gold, "tokens", folders)
    seconds = time.perf_counter() - start
    result = treebank_scores(gold, predicted) | {"sentences_per_second": gold.num_rows / seconds}
    if as_json:
        print_json(result)
        return
    for metric, value in result.items():
        print(f"{metric:22} {value:8.2f}")


def _back_end(name: str) -> "tuple[ParserBackend, dict[str, Step]]":
    """Return a parser by name and the steps that yield its models. One that users add has no models."""
    from phrasemodels import project
    from phrasemodels.tasks.parsers.shipped import ShippedParser
    from phrasemodels.tasks.parsers.stanford import StanfordParser
    from phrasemodels.tasks.parsers.stanza import Stanza

    if name in _added():
        parser: ParserBackend = project.part("parsers", name)()
        return parser, {}
    if name == SHIPPED:
        return ShippedParser(), {"models": step_of(name)}
    if name == STANFORD:
        return StanfordParser(), {"models": step_of(name)}
    return Stanza(), {"models": step_of(name)}


def _added() -> dict[str, str]:
    """Return the parsers that users add, {name: part}. ValueError: one has the name of one of ours."""
    from phrasemodels import project
    from phrasemodels.data.download.manifest import parser_names

    added = project.parts("parsers")
    if taken := sorted(set(added) & {SHIPPED, STANFORD, *parser_names()}):
        raise ValueError(f"parsers: {added[taken[0]]}: there is a parser {taken[0]!r} already; choose another name")
    return added


def step_of(name: str) -> "Step":
    """Return the step that yields the models of a parser by name. ValueError: the name is unknown."""
    from phrasemodels.infra.settings import Settings
    from phrasemodels.tasks.parsers.shipped import shipped
    from phrasemodels.tasks.parsers.stanford import StanfordFiles
    from phrasemodels.tasks.parsers.stanza import fetched

    if name == SHIPPED:
        return shipped()
    if name == STANFORD:
        return StanfordFiles().locate(Settings().mirrors).step()
    return fetched(name)


def _artifact(step: "Step") -> "Artifact":
    from phrasemodels.data.store.store import Executor

    print(step.label, file=sys.stderr, flush=True)
    return writable_store().run(step, Executor(sources=file_sources()))
