"""The commands that list experiments and compare their settings, run a table (reproduce, plan, keep) or one training (train,
prepare)."""

import os
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import (
    ExperimentName,
    FirstSeed,
    Force,
    Json,
    Like,
    Overrides,
    Paper,
    Profile,
    Rows,
    Seeds,
    Sweep,
    TableNumber,
    Tune,
    clean,
    print_json,
)

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.run.plan import Plan
    from phrasemodels.infra.settings import Settings


app = typer.Typer()


@app.command()
def reproduce(
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "sample",
    seeds: Seeds = 2,
    set: Overrides = None,
    row: Rows = None,
    first_seed: FirstSeed = 0,
    like: Like = "",
    sweep: Sweep = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Never fetch from a URL; list at once the files that are missing.")
    ] = False,
    tune: Tune = 0,
    as_json: Json = False,
) -> None:
    """Run a table of a paper, from raw corpora to a report.

    Stop it at any time: the same command continues from the last checkpoint.

    Example: phrasemodels reproduce --paper 000 --table 1 --profile laptop --seeds 2
    """
    if offline:
        os.environ["PHRASEMODELS_OFFLINE"] = "true"
    import phrasemodels.infra.environment  # noqa: F401  before prefect
    from phrasemodels.flows.cli.terminal import print_rows, print_table
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.flows.run.plan import outlined
    from phrasemodels.flows.run.reproduce import replay_finished_run
    from phrasemodels.infra.settings import Settings

    settings, asked = Settings(), _asked(paper, table, profile, seeds, set, row, first_seed, like, sweep)
    outline = outlined(asked, settings)
    found = None if tune else replay_finished_run(asked, outline, open_store(settings), settings)
    result = found or _run(asked, settings, tune)
    if as_json:
        print_json(result)
    else:
        if result["tuning"]:
            print_rows("Settings chosen by the lowest dev loss", list(result["tuning"][0]), result["tuning"])
        if result["rows"]:
            print_table(result)
    for line in result["diverged"]:
        print(line, file=sys.stderr)


def _run(asked: dict[str, Any], settings: "Settings", tune: int) -> dict[str, Any]:
    """Start the services and run the steps of a request; return what the command prints."""
    from phrasemodels.infra.services import services

    request, plan, store = _planned(asked, settings)
    if not settings.ray_address:  # a cluster of others says what it has once it is joined
        from phrasemodels.flows.run.execute import check_here

        check_here((p for p in plan.pipelines if p.trains and not store.find(p.trained, verify=False)), settings)
    print("starting Prefect, Ray and MLflow", file=sys.stderr, flush=True)
    with services(settings):
        from phrasemodels.flows.run.reproduce import reproduce_plan

        return reproduce_plan(request, plan, store, settings, tune)


def _planned(asked: dict[str, Any], settings: "Settings") -> tuple["Request", "Plan", "Store"]:
    """Return a request, its plan and the store. OSError: files are missing and may not be fetched."""
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.run.plan import planned

    request = Request(**asked)
    return request, *planned(request, settings)


def _asked(
    paper: str,
    table: str,
    profile: str,
    seeds: int,
    set: list[str] | None,
    row: list[str] | None,
    first_seed: int,
    like: str = "",
    sweep: list[str] | None = None,
) -> dict[str, Any]:
    """Return the fields of a `Request`."""
    asked = {"paper": paper, "table": table, "profile": profile, "seeds": seeds, "set": set or [], "rows": row or []}
    return asked | {"first_seed": first_seed, "like": like, "sweep": sweep or []}


@app.command()
def plan(
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "sample",
    seeds: Seeds = 2,
    set: Overrides = None,
    row: Rows = None,
    first_seed: FirstSeed = 0,
    like: Like = "",
    sweep: Sweep = None,
    as_json: Json = False,
) -> None:
    """Show what `reproduce` would do, and run nothing.

    It lists each step: in the store (hit) or not (miss), and what changed since.

    Example: phrasemodels plan --paper 000 --profile paper --row transformer
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.records import explain, open_store
    from phrasemodels.flows.run.plan import outlined
    from phrasemodels.infra.settings import Settings

    settings, asked = Settings(), _asked(paper, table, profile, seeds, set, row, first_seed, like, sweep)
    steps, store = outlined(asked, settings).steps, open_store(settings)
    rows: list[dict[str, Any]] = [
        {"step": step.name, "label": step.label, "key": step.key, "hit": hit, "why": why}
        for step, (hit, why) in zip(steps, explain(store, steps), strict=True)
    ]
    if settings.offline and not all(row["hit"] for row in rows):
        _planned(asked, settings)
    if as_json:
        print_json(rows)
        return
    for item in rows:
        print(f"{'hit ' if item['hit'] else 'MISS'}  {item['label']}" + (f"  ({item['why']})" if item["why"] else ""))
    hits = sum(item["hit"] for item in rows)
    missing = "; `reproduce` with the same options runs the others" * (hits < len(rows))
    print(f"{hits} of {len(rows)} steps are in the store{missing}", file=sys.stderr)


@app.command()
def keep(
    name: Annotated[str, typer.Argument(help="Folder to make under results/.")],
    paper: Paper = "000",
    table: TableNumber = "1",
    profile: Profile = "laptop",
    seeds: Seeds = 3,
    set: Overrides = None,
    row: Rows = None,
    first_seed: FirstSeed = 0,
    like: Like = "",
    sweep: Sweep = None,
    tune: Annotated[int, typer.Option(min=0, help="Trials of each row, if the run had --tune; they are kept too.")] = 0,
    note: Annotated[str, typer.Option(help="What a reader has to know: machine, what else ran, why this size.")] = "",
    join: Annotated[
        Path | None,
        typer.Option(help="Add the seeds and rows of this kept result, made elsewhere, to NAME.", metavar="FOLDER"),
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            help="Take all trainings in this folder, made elsewhere by `train --local --data`.", metavar="FOLDER"
        ),
    ] = None,
) -> None:
    """Copy the results of a table from the store to results/NAME.

    `verdicts`, `report` and `sql` read them there.

    With --join or --trained nothing is taken from the store: seeds and rows that were kept or trained on another machine are
    added to NAME. Example: phrasemodels keep 000-table1-laptop --table 1 --profile laptop --seeds 3
    """
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.experiments.catalogue import Request
    from phrasemodels.flows.results.keep import check_committed
    from phrasemodels.flows.results.keep import join as joined
    from phrasemodels.flows.results.keep import keep as write
    from phrasemodels.flows.results.records import KEPT, open_to_read, own
    from phrasemodels.flows.run.plan import planned
    from phrasemodels.infra.settings import Settings

    if not name.isprintable() or "/" in name or name.startswith(".") or not 0 < len(name.encode()) <= 200:
        raise ValueError(f"{name!r}: not the name of a folder in results/: give one like 000-table1-laptop")
    if own() != KEPT and (KEPT / name).exists():
        raise ValueError(f"{name}: a result that came with this package is called so; choose another name")
    if trained is not None and (join is not None or set or row or like or sweep or tune):
        raise ValueError(
            "--trained takes all trainings of its folder: leave --join, --set, --row, --like, --sweep and --tune out"
        )
    if join is not None:
        for folder in (own() / name, join):
            if not (folder / "result.json").is_file():
                raise ValueError(f"{folder}: no kept result is there")
        print(joined(own() / name, join))
        return
    check_committed()
    if trained is not None:
        from phrasemodels.flows.run.trained import keep_trained

        print(keep_trained(trained, own() / name, note))
        return
    asked = Request(**_asked(paper, table, profile, seeds, set, row, first_seed, like, sweep))
    made, store = planned(asked, Settings())
    if tune:
        from phrasemodels.flows.run.plan import Plan
        from phrasemodels.flows.run.tune import finished_searches, tuned

        made = Plan(tuned(made.table, finished_searches(made.table, tune, store)))
    made, run_ids = made.as_compared(store), open_to_read()[1].keys()
    print(write(store, made.table, made.pipelines, made.comparison, own() / name, note, run_ids))


@app.command()
def train(
    experiment: ExperimentName,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    local: Annotated[bool, typer.Option("--local", help="Train in this process, without Ray.")] = False,
    data: Annotated[Path | None, typer.Option(help="With --local: a folder made by `phrasemodels prepare`.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --local and --data: the folder for weights, predictions and scores.",
            show_default="the folder results",
        ),
    ] = None,
    set: Overrides = None,
) -> None:
    """Train one experiment with one seed, and score it on the test set.

    With --local and prepared data, `pip install '.[parse]' sacrebleu pydantic filelock` in a clone is enough.
    Example: phrasemodels train 000/table1/sample/phrase-k2 --seed 1 --local
    """
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.run.local import train_experiment, train_prepared

    if data is not None and not local:
        raise ValueError("--data needs --local: prepared data is trained on in this process")
    if out is not None and data is None:
        raise ValueError("--out needs --local --data: other trainings are kept in the store")
    chosen = find(experiment, set or [])
    prepared = None if data is None else train_prepared(chosen, seed, data, out or Path("results"), set or [])
    print_json(prepared or train_experiment(chosen, seed, local))


@app.command()
def prepare(
    experiment: ExperimentName,
    to: Annotated[Path, typer.Option(help="Folder to make; take it to a machine with a GPU.")],
    set: Overrides = None,
    force: Force = False,
) -> None:
    """Copy an experiment's data into a folder, for `train --local --data`."""
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.run.local import prepare_folder
    from phrasemodels.folders import check_replaceable

    check_replaceable(to, force)
    print(prepare_folder(find(experiment, set or []), to, force))


@app.command()
def experiments(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only rows that hold these, like `phrase-k2` or ATIS."),
    ] = None,
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    table: Annotated[str, typer.Option(help="Only this table, as `reproduce --table` takes it.")] = "",
    profile: Annotated[str, typer.Option(help="Only this size: sample, laptop or paper.")] = "",
    bibtex: Annotated[bool, typer.Option("--bibtex", help="Print entries of the papers for a bibliography.")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show each setting of one experiment for `--set`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the tables of the papers, or the experiments of one.

    With a word or an option it lists experiments, with the printed number that each answers.

    Example: phrasemodels experiments --paper 002 --profile laptop

    Example: phrasemodels experiments 000/table1/sample/phrase-k2 --settings
    """
    from phrasemodels.flows.cli.terminal import print_rows

    if bibtex:
        _print_bibtex(paper)
        return
    if settings:
        _print_settings(words or [], as_json)
        return
    rows = chosen(listed(), words or [], {"paper": paper, "number": table, "profile": profile})
    if as_json:
        print_json([{name: row[name] for name in row if name not in HIDDEN} for row in rows])
    elif words or paper or table or profile:
        print_rows("Experiments", ["experiment", "system", "variant", "metric", "published"], rows)
    else:
        from phrasemodels.flows.experiments.published import papers

        for paper, own in groupby(tables(rows), lambda row: row["paper"]):
            cited = ""
            if known := papers().get(paper):
                cited = f": {known.citation}" + (f" Since then: {known.later}" if known.later else "")
            print(clean(f"--paper {paper}{cited}"))
            for row in own:
                numbers = f"rows: {row['rows']} · printed numbers: {row['printed numbers']}"
                facts = filter(None, (row["problem"], row["corpora"], row["metrics"], numbers))
                print(clean(f"  --table {row['table']}  {row['about']}\n      {' · '.join(facts)}"))
        print("`reproduce` runs a table, `experiments` lists its rows: both take --paper, --table and --profile")


def _print_bibtex(paper: str) -> None:
    """Print the entry of a paper, or of all. ValueError: there is no such paper."""
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.flows.experiments.published import papers

    known = papers()
    if paper and paper not in known:
        raise ValueError(f"no paper {paper!r} here: {closest(paper, known)}")
    for one in [known[paper]] if paper else known.values():
        print(one.bibtex + "\n")


def _print_settings(words: list[str], as_json: bool) -> None:
    """Print the settings of one experiment. ValueError: not one experiment is named."""
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.experiments.catalogue import experiment
    from phrasemodels.flows.experiments.overrides import settings

    if len(words) != 1:
        raise ValueError("--settings: name one experiment, like 000/table1/sample/phrase-k2")
    rows = list(settings(experiment(words[0])))
    if as_json:
        print_json(rows)
    else:
        print_rows(f"Settings of {words[0]}, for --set", ["setting", "value", "takes", "meaning"], rows)


def listed() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment, as `phrasemodels experiments` lists them."""
    from phrasemodels.data.store.disk_cache import cached_on_disk

    found: list[dict[str, Any]] = cached_on_disk("experiments", None, _rows)
    return found


def _rows() -> list[dict[str, Any]]:
    """Return a row for each answer of each experiment."""
    from phrasemodels.flows.experiments.catalogue import about
    from phrasemodels.flows.experiments.catalogue import experiments as all_experiments

    return [
        {
            "experiment": e.name,
            "paper": e.paper,
            "table": answer.cell.table if answer.cell else None,
            "system": e.system,
            "variant": e.variant,
            "problem": e.recipe.problem_name,
            "corpus": getattr(e.recipe.corpus, "name", None),
            "dataset": answer.cell.dataset if answer.cell else None,
            "metric": answer.metric,
            "published": answer.cell.published if answer.cell else None,
            "comparable": e.comparable,
            "of": e.table.paper,
            "number": e.table.number,
            "profile": e.profile,
            "about": about(e.table.paper, e.table.number),
        }
        for e in all_experiments()
        for answer in e.answers
    ]


HIDDEN = ("number", "profile", "of", "about")  # columns that are only for choosing


def chosen(rows: list[dict[str, Any]], words: list[str], wanted: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows that hold all words, in any case, and have all wanted values. ValueError: there is none; the nearest
    value is named."""
    from phrasemodels.data.download.manifest import closest

    for name, value in ((name, value) for name, value in wanted.items() if value):
        known = {row["of" if name == "paper" else name] for row in rows}
        if value not in known:
            raise ValueError(f"no {'table' if name == 'number' else name} {value!r} here: {closest(value, known)}")
        rows = [row for row in rows if row["of" if name == "paper" else name] == value]
    found = [row for row in rows if all(word.lower() in " ".join(map(str, row.values())).lower() for word in words)]
    if not found:
        raise ValueError(
            f"no experiment holds {' and '.join(map(repr, words))}; `phrasemodels experiments` lists the tables"
        )
    return found


SHOWN = 4  # metrics of a table that are named


def tables(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each table: what it is about, its problem, corpora and metrics, its rows, and the printed numbers that
    they answer."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["of"], row["number"]), []).append(row)
    return [
        {
            "paper": paper,
            "table": number,
            "about": own[0]["about"],
            "problem": own[0]["problem"],
            "corpora": ", ".join(_names(own, "corpus")),
            "metrics": ", ".join(_names(own, "metric")),
            "rows": len({row["experiment"].split("/", 3)[-1] for row in own}),
            "printed numbers": len({(r["system"], r["variant"], r["dataset"], r["metric"]) for r in own if r["published"] is not None}),
        }
        for (paper, number), own in found.items()
    ]  # fmt: skip


def _names(rows: list[dict[str, Any]], column: str) -> list[str]:
    """Return the values of a column, each once: of real corpora, if there are some, and not of generated ones."""
    real = [row for row in rows if row["profile"] != "sample"]
    names = list(dict.fromkeys(row[column] for row in real or rows if row[column]))
    return names if len(names) <= SHOWN else [*names[:SHOWN], f"and {len(names) - SHOWN} more"]


@app.command("compare-settings")
def compare_settings(
    experiment: Annotated[str, typer.Argument(help="Its name, like 003/tablebabi/paper/binary-qa02.")],
    as_json: Json = False,
) -> None:
    """Compare an experiment with its paper, setting by setting.

    ✓: all as published, ✗: not. Settings marked ≠ differ, so there is no verdict; those marked ~ differ, and each verdict says so;
    those marked · are not published, so they are our choice. Published means in the paper, its code or work that it cites.
    """
    from phrasemodels.flows.experiments.catalogue import experiment as named
    from phrasemodels.flows.experiments.published import plain_reason

    known = named(experiment)
    if as_json:
        print_json({name: asdict(aspect) for name, aspect in known.aspects.items()})
        return
    if not known.aspects:
        print("counted, and not trained: its verdicts are by the digits that are printed")
        return
    for aspect, one in known.aspects.items():
        counts = {
            "as published": one.agreeing,
            "differ (≠)": len(one.differing),
            "differ, as each verdict says (~)": len(one.stated),
            "our choice (·)": len(one.open),
        }
        said = ", ".join(f"{count} {words}" for words, count in counts.items() if count) or "nothing is said of it"
        print(f"{aspect:9} {'✓' if one.as_published else '✗'}  {said}")
        for sign, words in (
            [("≠", w) for w in one.differing] + [("~", w) for w in one.stated] + [("·", w) for w in one.open]
        ):
            print(f"             {sign} {words}")
    but = ", except for what ~ says" * any(one.stated for one in known.aspects.values())
    why = plain_reason(known.differences).replace(f" (phrasemodels compare-settings {known.name})", "")
    print(f"comparable with the paper{but}" if known.comparable else f"not comparable: {why}")
