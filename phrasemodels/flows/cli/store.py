"""`phrasemodels store`: its size, garbage collection, verification, and the runs that it knows."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from phrasemodels.flows.cli.terminal import Json, clean, opened, print_json

if TYPE_CHECKING:
    from phrasemodels.data.store.store import Store

app = typer.Typer(no_args_is_help=True, help="The store: its size, garbage collection, verification, runs.")


@app.command()
def du(as_json: Json = False) -> None:
    """Show the sizes of artifacts, checkpoints, MLflow and reports."""
    from phrasemodels.data.store.gc import usage
    from phrasemodels.flows.cli.terminal import print_rows

    store, _ = opened()
    if not store.root.exists():
        print(f"nothing has been run in {store.root}", file=sys.stderr)
    rows = usage(store)
    if as_json:
        print_json(rows)
        return
    print_rows("", ["what", "artifacts", "kept", "size"], [row | {"size": size(row["bytes"])} for row in rows])


@app.command()
def gc(
    days: Annotated[
        float,
        typer.Option(
            min=0,
            help="Keep what was made or used within this many days; on object storage, where use leaves no trace, what was made.",
        ),
    ] = 7.0,
    newest: Annotated[
        int, typer.Option("--verdicts", min=0, help="Keep this many verdicts of each table, the newest; 0: all.")
    ] = 0,
    dry: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Remove artifacts that no verdict and no run needs.

    Old interrupted work and pages of old runs go, too. The page of the newest run of each verdict stays.

    With a store on object storage, also there; and this node's folder shrinks to its limit.
    """
    from phrasemodels.flows.results.records import collect_garbage
    from phrasemodels.infra.settings import Settings

    removed = collect_garbage(_store(), Settings(), days, newest, dry)
    rows = [{"path": str(item.path), "label": item.label, "bytes": item.bytes} for item in removed]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print(clean(f"{size(row['bytes']):>9}  {row['label']}  {row['path']}"))
    print(f"{len(rows)} things, {size(sum(item.bytes for item in removed))}" + (" would go" if dry else " removed"))


@app.command()
def forget(
    row: Annotated[str, typer.Argument(help="Its name, like my-study/table1/sample/mine.")],
    dry: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
) -> None:
    """Remove a row: its artifacts, MLflow runs and registered model.

    Its comparisons go, too. `reproduce` makes the comparisons of other rows again from their scores. Nothing goes that
    another row of today has made or shares, whatever its name was then.
    """
    from phrasemodels.flows.results.records import remove_row, sources_of
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    settings = Settings()
    removed = remove_row(_store(), Tracker(settings.tracking_uri), row, sources_of(settings), dry)
    for text in removed:
        print(clean(text))
    print(f"{len(removed)} things" + (" would go" if dry else " removed"))


@app.command()
def verify(as_json: Json = False) -> None:
    """Compare every file with its digest.

    The exit status is 1 if an artifact is damaged. `reproduce` makes it again.

    With a store on object storage, also everything that is there. Also tells which artifacts were made on another kind of
    processor.
    """
    from collections import Counter

    from phrasemodels.data.store.artifacts import made_elsewhere
    from phrasemodels.data.store.gc import damage
    from phrasemodels.flows.results.keep import damaged_results

    store, tracker = opened()
    rows = [
        {"key": artifact.key, "label": artifact.manifest["label"], "what": problem, "verdicts": verdicts}
        for artifact, problem, verdicts in damage(store)
    ]
    rows += [{"key": "", "label": name, "what": problem, "verdicts": []} for name, problem in damaged_results()]
    if problem := tracker.damage():
        rows.append({"key": "", "label": "MLflow", "what": problem, "verdicts": []})
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            resting = f"; verdicts depend on it: {', '.join(row['verdicts'])}" if row["verdicts"] else ""
            print(clean(f"DAMAGED  {row['label']}  [{row['key']}]: {row['what']}{resting}"))
        there = "" if store.shared is None else f" and {len(store.shared.artifacts())} in the shared storage"
        known = list(store.artifacts())
        print(f"{len(known)} artifacts{there}, {len(rows)} damaged")
        for machine, count in Counter(filter(None, (made_elsewhere(a.manifest) for a in known))).items():
            print(
                f"{count} were made on {clean(machine)}: made again on this machine, they may differ in their last bits"
            )
    raise typer.Exit(1 if rows else 0)


@app.command()
def runs(as_json: Json = False) -> None:
    """List all runs, how they ended, and their pages.

    A dead run continues when you start it again.
    """
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.records import records

    known = records(opened()[0])
    if as_json:
        print_json(known)
        return
    columns = ["id", "title", "started", "ended", "state", "reason", "report"]
    print_rows("", columns, [{name: record.get(name) for name in columns} for record in known])


def size(count: object) -> str:
    """Return a number of bytes as text with a unit."""
    number = float(str(count))
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _store() -> "Store":
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.infra.settings import Settings

    return open_store(Settings())
