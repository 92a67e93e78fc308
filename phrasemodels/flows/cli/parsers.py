"""`phrasemodels parsers`: list, fetch, train and score the models of parsers, and describe the trees that they make."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, print_json

if TYPE_CHECKING:
    from phrasemodels.data.store.artifacts import Artifact
    from phrasemodels.data.store.store import Step, Store
    from phrasemodels.tasks.parsers.parse import ParserBackend

app = typer.Typer(help="Models of parsers: list, fetch, train, score, levels.", no_args_is_help=True)

DOWNLOADED, SHIPPED, STANFORD = "stanza", "english", "stanford"
COLUMNS = ("name", "title", "licence", "stand_in", "there")
ADDED = "added"  # in place of a licence of models: by a project folder or a package
Name = Annotated[str, typer.Argument(help="A parser of `parsers list`.")]


@app.command(name="list")
def list_parsers(as_json: Json = False) -> None:
    """List the parsers that a pipeline can use.

    `there`: it is in the store. `english` is the parser of `phrasemodels parse`, which needs none of the others.
    """
    from phrasemodels.data.download.manifest import load_parser, parser_names
    from phrasemodels.tasks.parsers.shipped import shipped_card

    store = _store()
    known = {
        name: (load_parser(name).title, load_parser(name).licence, load_parser(name).stand_in)
        for name in parser_names()
    }
    card = shipped_card()
    known[SHIPPED] = (card["name"], ", ".join(card["licences"]), card["stand_in"])
    known[DOWNLOADED] = ("Stanza's own English models, from its server", "of each model, by its makers", False)
    known[STANFORD] = ("the Stanford PCFG parser, put in by hand; needs Java", "LicenseRef-Stanford-parser", False)
    rows = [
        dict(
            zip(
                COLUMNS,
                (name, *about, name == SHIPPED or store.find(step_of(name), verify=False) is not None),
                strict=True,
            )
        )
        for name, about in known.items()
    ]
    rows += [dict(zip(COLUMNS, (name, part, ADDED, False, True), strict=True)) for name, part in _added().items()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        marks = [
            str(row["licence"]),
            *(["stand-in"] if row["stand_in"] else []),
            "there" if row["there"] else "not there",
        ]
        print(clean(f"{row['name']:12} {row['title']}  ({', '.join(marks)})"))


@app.command()
def fetch(name: Name) -> None:
    """Fetch a parser's models, and verify them.

    `stanza` downloads Stanza's own models from its server.

    Example: PHRASEMODELS_PARSERS=~/models phrasemodels parsers fetch gum
    """
    print(_artifact(step_of(name)).path)


@app.command()
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


@app.command()
def score(
    name: Name,
    treebank: Annotated[str, typer.Argument(help="A corpus of trees with gold tokens.")] = "gum",
    split: Annotated[str, typer.Option(help="The split to parse.")] = "test",
    head: Annotated[int, typer.Option(min=0, help="Parse only this many sentences, the first ones; 0: all.")] = 0,
    as_json: Json = False,
) -> None:
    """Parse a treebank, and print the agreement with its trees."""
    from phrasemodels.tasks.metrics.parseval import treebank_scores
    from phrasemodels.tasks.prepare.corpora import Corpus
    from phrasemodels.tasks.prepare.sharded import read_shards

    parser, models = _back_end(name)
    gold = read_shards(_artifact(Corpus(treebank).split(split))).slice(0, head or None).combine_chunks()
    folders = {name: _artifact(step).path for name, step in models.items()}  # they may have to be fetched
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


@app.command()
def levels(
    corpus: Annotated[str, typer.Argument(help="A corpus with trees, or with text that is parsed.")],
    split: Annotated[str, typer.Option(help="The split to describe.")] = "test",
    column: Annotated[str, typer.Option(help="The column of text to parse.")] = "tokens",
    name: Annotated[str, typer.Option("--parser", help="A parser; by default the trees of the corpus are read.")] = "",
    head: Annotated[
        int, typer.Option(min=0, help="Take this many rows, drawn at random but always the same; 0: all.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Count phrases at each level of trees, beside Table 1 of 001.

    Example: phrasemodels parsers levels senteval --split TREC.test --column text --parser gum
    """
    from phrasemodels.data.store.store import Step
    from phrasemodels.flows.results.sql import TABLE_1, query
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker
    from phrasemodels.tasks.parsers.parse import GoldTrees, ParseColumn, parse
    from phrasemodels.tasks.prepare.constituents import Divide, divide
    from phrasemodels.tasks.prepare.corpora import Corpus, TakeShare, take_share

    parser, models = _back_end(name, ("pos", "constituency")) if name else (GoldTrees(), {})
    label = f"{corpus} {split} {column} by {name or 'the corpus'}" + (f", {head} rows" if head else "")
    rows = Corpus(corpus).split(split)
    if head:
        rows = Step(take_share, f"share {rows.label}", TakeShare({"stop": head}), {"rows": rows})
    trees = Step(parse, f"parse {label}", ParseColumn(parser, column), {"rows": rows, **models})
    divided = _artifact(Step(divide, f"divide {label}", Divide(), {"rows": trees}))
    question = f"select * exclude (label, key) from ({TABLE_1}) where key = '{divided.key}'"
    names, rows_by_level = query(_store(), Tracker(Settings().tracking_uri), question)
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows_by_level])
        return
    for level, phrases, words, *published in rows_by_level:
        beside = f" (paper: {published[0]:.2f}, {published[1]:.2f})" if published[0] else ""
        print(f"level {level}: {phrases:.2f} phrases a sentence, {words:.2f} words a phrase{beside}")


def _back_end(name: str, processors: tuple[str, ...] = ()) -> "tuple[ParserBackend, dict[str, Step]]":
    """Return a parser by name and the steps that yield its models; processors: of Stanza, the ones that are needed, by default
    all. One that users add has no models."""
    from phrasemodels import project
    from phrasemodels.tasks.parsers.shipped import ShippedParser
    from phrasemodels.tasks.parsers.stanford import StanfordParser
    from phrasemodels.tasks.parsers.stanza import PROCESSORS, Stanza

    if name in _added():
        parser: ParserBackend = project.part("parsers", name)()
        return parser, {}
    if name == SHIPPED:
        return ShippedParser(), {"models": step_of(name)}
    if name == STANFORD:
        return StanfordParser(), {"models": step_of(name)}
    return Stanza(processors=processors or PROCESSORS), {"models": step_of(name)}


def _added() -> dict[str, str]:
    """Return the parsers that users add, {name: part}. ValueError: one has the name of one of ours."""
    from phrasemodels import project
    from phrasemodels.data.download.manifest import parser_names

    added = project.parts("parsers")
    if taken := sorted(set(added) & {DOWNLOADED, SHIPPED, STANFORD, *parser_names()}):
        raise ValueError(f"parsers: {added[taken[0]]}: there is a parser {taken[0]!r} already; choose another name")
    return added


def step_of(name: str) -> "Step":
    """Return the step that yields the models of a parser by name. ValueError: the name is unknown."""
    from phrasemodels.infra.settings import Settings
    from phrasemodels.tasks.parsers.shipped import shipped
    from phrasemodels.tasks.parsers.stanford import StanfordFiles
    from phrasemodels.tasks.parsers.stanza import DownloadParser, downloaded, fetched

    if name == DOWNLOADED:
        return downloaded(DownloadParser())
    if name == SHIPPED:
        return shipped()
    if name == STANFORD:
        return StanfordFiles().locate(Settings().mirrors).step()
    return fetched(name)


def _artifact(step: "Step") -> "Artifact":
    from phrasemodels.data.download.manifest import Sources
    from phrasemodels.data.store.store import Executor
    from phrasemodels.infra.settings import Settings

    settings = Settings()
    print(step.label, file=sys.stderr, flush=True)
    return _store().run(step, Executor(sources=Sources(settings.mirrors, settings.offline, settings.private)))


def _store() -> "Store":
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.infra.settings import Settings

    return open_store(Settings())
