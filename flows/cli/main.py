"""The command line: `phrasemodels`. Everything heavy is imported where it is used, so that --help is quick."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.ask import app as ask_app
from phrasemodels.flows.cli.corpora import app as corpora_app
from phrasemodels.flows.cli.parse import app as parse_app
from phrasemodels.flows.cli.parsers import app as parsers_app
from phrasemodels.flows.cli.selftest import app as selftest_app
from phrasemodels.flows.cli.store import app as store_app
from phrasemodels.flows.cli.use import app as use_app
from phrasemodels.infra.error_location import noting_error_line
from phrasemodels.infra.signals import ENDED, Stopped

if TYPE_CHECKING:
    from phrasemodels.flows.run.session import Session

app = typer.Typer(
    help="Phrase-level attention: five papers, from raw corpora to a verdict on every number they printed.\n\n"
    "Begin with [bold]phrasemodels reproduce[/bold]: it needs nothing from outside and takes a few minutes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Results go to stdout, progress to stderr. Settings: PHRASEMODELS_STORE, _MIRROR, _SUPPLIED, _PARSERS, _OFFLINE, _MLFLOW_URI, "
    "_RAY_ADDRESS, _PREFECT_API_URL, _CPUS, or a file that PHRASEMODELS_SETTINGS names; PHRASEMODELS_DEBUG=1 shows "
    "tracebacks.",
)

app.add_typer(ask_app)
app.add_typer(use_app)
app.add_typer(parse_app)
app.add_typer(corpora_app, name="corpora")
app.add_typer(parsers_app, name="parsers")
app.add_typer(store_app, name="store")
app.add_typer(selftest_app, name="selftest")

# By the package of an error. Not Ray: what it raises may be a mistake in somebody's layer, of which the traceback tells.
SERVICES = {"mlflow": "MLflow", "httpx": "Prefect", "prefect": "Prefect"}


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("phrasemodels"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version, and end.")
    ] = False,
) -> None:
    pass


Paper = Annotated[str, typer.Option(help="Paper, as in `phrasemodels experiments`.")]
TableNumber = Annotated[str, typer.Option("--table", help="Table of the paper.")]
Profile = Annotated[
    str,
    typer.Option(
        help="sample (generated corpus, minutes), laptop (real data, two cores), paper (its own setting, GPUs)."
    ),
]
Seeds = Annotated[int, typer.Option(help="Seeds of each row; a verdict needs 3.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Override a field of train, model or recipe of every row, like train.steps=200; repeatable."
    ),
]
Rows = Annotated[list[str] | None, typer.Option("--row", help="Only this row, like phrase-k2; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON with a stable schema.")]


@app.command()
def reproduce(
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "sample",
    seeds: Seeds = 2,
    set: Overrides = None,
    row: Rows = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Never fetch from a URL; say at once what is missing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a table of a paper from raw corpora to verdicts and a report; goes on where it was interrupted.

    Example: phrasemodels reproduce --paper 000 --table 1 --profile laptop --seeds 2
    """
    if offline:
        os.environ["PHRASEMODELS_OFFLINE"] = "true"
    _session(paper, table, profile, seeds, set, row)  # what is wrong with the arguments is said before anything starts
    from phrasemodels.infra.services import services
    from phrasemodels.infra.settings import Settings

    print("starting Prefect, Ray and MLflow", file=sys.stderr, flush=True)
    with services(Settings()):
        from phrasemodels.flows.run.reproduce import reproduce as flow

        result = flow(paper=paper, table=table, profile=profile, seeds=seeds, set=set, rows=row)
    from phrasemodels.flows.cli.terminal import print_table

    if as_json:
        print(json.dumps(result, indent=1))
    else:
        print_table(result)


@app.command()
def plan(
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "sample",
    seeds: Seeds = 2,
    set: Overrides = None,
    row: Rows = None,
    as_json: Json = False,
) -> None:
    """What `reproduce` would do: each step, hit or miss, and which part of its key changed."""
    from phrasemodels.flows.results.explain_miss import explain

    session = _session(paper, table, profile, seeds, set, row)
    rows: list[dict[str, Any]] = []
    for step in session.steps:
        hit, why = explain(session.store, step)
        rows.append({"step": step.name, "label": step.label, "key": step.key, "hit": hit, "why": why})
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for item in rows:
        print(f"{'hit ' if item['hit'] else 'MISS'}  {item['label']}" + (f"  ({item['why']})" if item["why"] else ""))
    print(f"{sum(item['hit'] for item in rows)} of {len(rows)} steps are in the store", file=sys.stderr)


@app.command()
def experiments(as_json: Json = False) -> None:
    """Every experiment, with the published number that it answers."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.experiments.catalogue import experiments as all_experiments

    rows = [
        {
            "experiment": e.name,
            "paper": e.paper,
            "table": answer.cell.table if answer.cell else None,
            "system": e.system,
            "variant": e.variant,
            "dataset": answer.cell.dataset if answer.cell else None,
            "metric": answer.metric,
            "published": answer.cell.published if answer.cell else None,
            "comparable": e.comparable,
        }
        for e in all_experiments()
        for answer in e.answers
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    print_rows("Experiments", ["experiment", "system", "variant", "metric", "published"], rows)


@app.command()
def train(
    experiment: Annotated[str, typer.Argument(help="An experiment, as `phrasemodels experiments` lists them.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    local: Annotated[bool, typer.Option("--local", help="In this process, without Prefect, Ray and MLflow.")] = False,
    data: Annotated[Path | None, typer.Option(help="With --local: a folder that `phrasemodels prepare` made.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --local and --data: where to put weights, predictions and scores.", show_default="results"
        ),
    ] = None,
    set: Overrides = None,
) -> None:
    """Train, decode and score one experiment with one seed.

    With --local nothing but torch, pyarrow and sacrebleu is needed if the data has been prepared.
    Example: phrasemodels train 000/table1/sample/phrase-k2 --seed 1 --local
    """
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.experiments.experiment import override

    if data is not None and not local:
        raise ValueError("--data goes with --local: what was prepared is trained in this process")
    if out is not None and data is None:
        raise ValueError("--out goes with --local --data: what is not prepared is kept in the store")
    chosen = find(experiment)
    for assignment in set or []:
        chosen = override(chosen, assignment)
    if data is not None:
        from phrasemodels.flows.run.local import train_prepared

        result = train_prepared(chosen, seed, data, out or Path("results"))
    else:
        from phrasemodels.flows.run.local import train_experiment

        result = train_experiment(chosen, seed, local)
    print(json.dumps(result, indent=1))


@app.command()
def keep(
    name: Annotated[str, typer.Argument(help="Folder to make under results/.")],
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "laptop",
    seeds: Seeds = 3,
    set: Overrides = None,
    row: Rows = None,
    note: Annotated[str, typer.Option(help="What a reader has to know: machine, what else ran, why this size.")] = "",
) -> None:
    """Keep with the project what a table's trainings in the store found: verdicts and report read it from results/.

    Example: phrasemodels keep 000-table1-laptop --table 1 --profile laptop --seeds 3
    """
    from phrasemodels.flows.results.keep import keep as write
    from phrasemodels.flows.results.results import KEPT

    print(write(_session(paper, table, profile, seeds, set, row), KEPT / name, note))


@app.command()
def prepare(
    experiment: Annotated[str, typer.Argument(help="An experiment, as `phrasemodels experiments` lists them.")],
    to: Annotated[Path, typer.Option(help="Folder to make; take it to a machine with a GPU.")],
    set: Overrides = None,
) -> None:
    """Put the shards that an experiment trains and is tested on into one folder, for `train --local --data`."""
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.experiments.experiment import override
    from phrasemodels.flows.run.local import prepare_folder

    chosen = find(experiment)
    for assignment in set or []:
        chosen = override(chosen, assignment)
    print(prepare_folder(chosen, to))


@app.command()
def doctor() -> None:
    """Import and start every part once; say what is missing and how to get it."""
    from phrasemodels.flows.cli.doctor import examine

    raise typer.Exit(0 if examine() else 1)


def _session(
    paper: str, table: str, profile: str, seeds: int, overrides: list[str] | None, rows: list[str] | None
) -> "Session":
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.experiments.catalogue import table as find_table
    from phrasemodels.flows.run.session import Session
    from phrasemodels.infra.settings import Settings

    session = Session(find_table(paper, table, profile, seeds, overrides or [], rows or []), Settings())
    session.store  # noqa: B018  cannot be written to? then say so now
    if missing := session.missing_files():
        raise OSError("offline, and these files are missing; put each at the place named:\n  " + "\n  ".join(missing))
    return session


def main() -> None:
    """Entry point: a user's mistake ends with one line and exit status 1, or 2 for the command line's own."""
    try:
        with noting_error_line():
            app(standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {ENDED}")
    except Stopped as reason:
        sys.exit(str(reason))
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # how Ray answers the signal while the services start
            sys.exit(f"terminated; {ENDED}")
        raise
    except (ValueError, OSError) as error:
        if os.environ.get("PHRASEMODELS_DEBUG"):
            raise
        notes = getattr(error, "__notes__", [])
        sys.exit(f"phrasemodels: {error}" + (f" ({'; '.join(notes)})" if notes else ""))
    except Exception as error:
        part = SERVICES.get(type(error).__module__.split(".")[0])
        if part is None or os.environ.get("PHRASEMODELS_DEBUG"):
            raise
        said = (str(error).splitlines() or [type(error).__name__])[0]
        sys.exit(f"phrasemodels: {part} does not answer as it should ({said}); PHRASEMODELS_DEBUG=1 tells more")


if __name__ == "__main__":
    main()
