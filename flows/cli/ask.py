"""The commands that ask what was found: sql, verdicts, report, trace, diff."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store
    from phrasemodels.infra.tracking import Tracker

app = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON with a stable schema.")]


@app.command()
def sql(
    question: Annotated[
        str,
        typer.Argument(
            help="SQL of DuckDB, over: runs, metrics, seeds, predictions, phrases, levels, leaks, shards, lineage, verdicts, published."
        ),
    ],
    to: Annotated[Path | None, typer.Option(help="Write the answer into this file, as Parquet.")] = None,
    as_json: Json = False,
) -> None:
    """Ask anything of runs, metrics, predictions, shards and verdicts.

    Example: phrasemodels sql "select system, ours, half_width, verdict from verdicts order by ours desc"
    """
    import pyarrow as pa

    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.data.formats.shards import write_parquet
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.query import query
    from phrasemodels.infra.services import start_mlflow
    from phrasemodels.infra.settings import Settings

    if to is not None and to.suffix != ".parquet":
        raise ValueError(f"{to}: answers are written as Parquet; name a file that ends with .parquet")
    start_mlflow(Settings())
    columns, rows = query(*_opened(), question)
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    if to is not None:
        values = [pa.array([row[place] for row in rows]) for place in range(len(columns))]
        write_parquet(to, pa.Table.from_arrays(values, names=columns))
        print(to)
    elif as_json:
        print(json.dumps(found, indent=1, default=str))
    else:
        print_rows("", columns, found)


@app.command()
def verdicts(
    paper: Annotated[str, typer.Option(help="Only this paper, like 000.")] = "",
    as_json: Json = False,
) -> None:
    """A verdict on every number that the papers printed: one line each, with its reason and the runs it rests on.

    Example: phrasemodels verdicts --paper 000
    """
    from phrasemodels.flows.results.results import all_results
    from phrasemodels.flows.results.verdicts import summary
    from phrasemodels.flows.results.verdicts import verdicts as find

    rows = find(all_results(*_opened()), paper)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(_line(row))
    for name, counts in summary(rows).items():
        print(f"paper {name}: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


@app.command()
def report() -> None:
    """Write one page over all papers: verdicts in the papers' own layout, systems across papers, kept results."""
    from phrasemodels.flows.report.overview import write_overview

    print(write_overview(*_opened()))


What = Annotated[
    str, typer.Argument(help="A store key (its first six digits are enough), a label, or a run of MLflow.")
]


@app.command()
def trace(what: What, as_json: Json = False) -> None:
    """Where a result is from, down to the digests of archives; and all that was made from it, or from a file's sha256.

    Example: phrasemodels trace "000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.results.lineage import Lineage, described
    from phrasemodels.flows.results.lineage import as_json as plain

    store, tracker = _opened()
    lineage = Lineage(store)
    holding = lineage.holding(what)
    artifact = holding[0] if holding else lineage.find(what, tracker.keys())
    back, forward = list(lineage.back(artifact)), lineage.forward(artifact)
    if as_json:
        steps = [{"depth": depth, "role": role, **plain(found)} for depth, role, found, again in back if not again]
        print(json.dumps({"back": steps, "forward": [plain(found) for found in forward]}, indent=1))
        return
    for depth, role, found, again in back:
        name = f"{role}: " if role else ""
        print("  " * depth + name + (f"{found.manifest['label']}  (above)" if again else described(found)))  # type: ignore[union-attr]
    print(f"\nmade from it: {len(forward) or 'nothing'}")
    for found in forward:
        print("  " + described(found))


@app.command()
def diff(one: What, other: What, as_json: Json = False) -> None:
    """In what two trainings, scores or stages differ: settings, inputs, libraries, source, results.

    Example: phrasemodels diff "train 000/table1/sample/transformer seed 0" "train 000/table1/sample/phrase-k2 seed 0"
    """
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.lineage import Lineage, difference

    store, tracker = _opened()
    lineage, run_ids = Lineage(store), tracker.keys()
    first, second = (lineage.find(what, run_ids) for what in (one, other))
    rows = [{"": name, "one": mine, "other": theirs} for name, mine, theirs in difference(first, second)]
    if as_json:
        print(json.dumps([dict(zip(("name", "one", "other"), row.values(), strict=True)) for row in rows], indent=1))
    elif rows:
        print_rows(f"{first.manifest['label']} | {second.manifest['label']}", ["", "one", "other"], rows)
    else:
        print("nothing")


def _line(row: dict[str, Any]) -> str:
    ours = "" if row["ours"] is None else f"{row['ours']:.2f}"
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    what = " ".join(part for part in (row["system"], row["variant"], row["dataset"], row["metric"]) if part)
    runs = " ".join(f"seed {run['seed']}: {run['run'] or run['train']}" for run in row["runs"] if run["train"])
    where = f"  [{row['source']}{'; ' + runs if runs else ''}]" if row["source"] else ""
    numbers = f"{row['published']:>9g} {ours + half:>14}"
    return f"{row['paper']} {row['table']:<14} {numbers}  {row['verdict']:<14} {what}: {row['reason']}{where}"


def _opened() -> tuple["Store", "Tracker"]:
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    settings = Settings()
    return open_store(settings), Tracker(settings.tracking_uri)
