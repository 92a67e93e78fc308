"""The commands about this machine: doctor, init, and `phrasemodels store`, its garbage collection, verification, and runs."""

import importlib.metadata
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.flows.cli.terminal import Json, clean, opened, print_json, writable_store

if TYPE_CHECKING:
    from phrasemodels.infra.settings import Settings


app = typer.Typer()

PROXIES = ("all_proxy", "http_proxy", "https_proxy")
INSTALL = "make install (or: pip install -e . -c constraints.txt)"


@app.command()
def doctor(
    kernels: Annotated[
        bool,
        typer.Option("--compile", help="Only compile all kernels, so that no first call has to: about a minute, once."),
    ] = False,
) -> None:
    """Start every part once, and say what is missing."""
    if kernels:
        from phrasemodels.structs import warm

        seconds = warm(lambda name, spent: print(f"{spent:7.2f} s  {name}", file=sys.stderr))
        print(f"all kernels are compiled; this took {seconds:.1f} s")
        return
    raise typer.Exit(0 if examine() else 1)


def examine() -> bool:
    """Print a line for each part; return whether all of them work."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.infra.settings import Settings

    with tempfile.TemporaryDirectory(prefix="pm-doctor-") as folder:
        settings = Settings(store=folder)
        prefect = ("PHRASEMODELS_PREFECT_API_URL", settings.prefect_api_url)
        if not settings.prefect_api_url and (url := os.environ.get("PREFECT_API_URL")):
            prefect = ("PREFECT_API_URL", url)
        checks: list[tuple[str, Callable[[], str], str]] = [
            ("Python", _python, "install Python 3.11, 3.12 or 3.13"),
            ("libraries", _libraries, INSTALL),
            ("torch", _torch, INSTALL),
            ("proxies", _proxies, "unset it, or name an HTTP proxy: clients of Prefect and of downloads know no SOCKS"),
            ("store", _store, "free some disk, or choose another folder with PHRASEMODELS_STORE"),
            ("Arrow and DuckDB", _duckdb, INSTALL),
            ("MLflow", lambda: _mlflow(settings), _remedy("server", "PHRASEMODELS_MLFLOW_URI", settings.mlflow_uri)),
            ("Ray", lambda: _ray(settings), _remedy("cluster", "PHRASEMODELS_RAY_ADDRESS", settings.ray_address)),
            ("Prefect", lambda: _prefect(settings), _remedy("server", *prefect)),
            ("corpora", _corpora, "set PHRASEMODELS_MIRROR to a folder that holds the files, or connect to a network"),
        ]
        answers = [_passes(*check) for check in checks]  # all of them, also after one that fails
        return all(answers)


def _remedy(what: str, variable: str, given: str | None) -> str:
    """Return what helps if a service does not answer: one that the settings name, or our own."""
    return (
        f"start this {what}, or unset {variable}: then a run has its own"
        if given
        else f"{INSTALL}; or name a {what} with {variable}"
    )


def _passes(name: str, check: Callable[[], str], remedy: str) -> bool:
    """Print the answer of a check, or its error with the remedy; return whether it passed."""
    try:
        print(f"ok       {name}: {check()}", flush=True)
    except Exception as error:
        print(
            f"MISSING  {name}: {(str(error).splitlines() or [type(error).__name__])[0]}\n         {remedy}", flush=True
        )
        return False
    return True


def _python() -> str:
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        raise OSError(f"this is Python {sys.version.split()[0]}")
    return sys.version.split()[0]


def _libraries() -> str:
    names = "torch pyarrow duckdb prefect ray mlflow sacrebleu safetensors fastapi sqlalchemy".split()
    versions = {name: importlib.metadata.version(name) for name in names}
    if versions["sqlalchemy"] >= "2.1":
        raise ImportError("sqlalchemy 2.1 silently stops Prefect's schedules")
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _torch() -> str:
    import torch

    torch.ones(8, 8) @ torch.ones(8, 8)
    return (
        f"{torch.cuda.device_count()} GPUs" if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    )


def _store() -> str:
    from phrasemodels.flows.results.records import open_store
    from phrasemodels.infra.settings import Settings

    root = Path(open_store(Settings()).root)
    with tempfile.NamedTemporaryFile(dir=root, prefix=".doctor-") as file:
        file.write(b"x")
        file.flush()
        if Path(file.name).read_bytes() != b"x":
            raise OSError(f"{root}: what was written is read otherwise")
    return f"{root} is written, read and deleted from, {shutil.disk_usage(root).free >> 30} GiB free"


def _proxies() -> str:
    found = {name: value for name, value in os.environ.items() if name.lower() in PROXIES and value}
    if socks := [name for name, value in found.items() if value.lower().startswith("socks")]:
        raise OSError(f"{socks[0]} names a SOCKS proxy")
    return ", ".join(sorted(found)) or "none"


def _duckdb() -> str:
    import duckdb
    import pyarrow as pa

    table = pa.table({"x": [1, 2]})
    connection = duckdb.connect(":memory:")
    connection.register("t", table)
    (total,) = connection.execute("select sum(x) from t").fetchall()[0]
    return f"answers {total}"


def _mlflow(settings: "Settings") -> str:
    from phrasemodels.infra.services import start_mlflow
    from phrasemodels.infra.tracking import Tracker

    start_mlflow(settings)
    tracker = Tracker(settings.tracking_uri, settings.artifact_location)
    name = f"doctor {token_hex(4)}"  # a deleted experiment keeps its name
    run = tracker.open_run(name, "doctor", "doctor", {})
    tracker.finish(run, {}, [], {})
    tracker.client().delete_experiment(tracker.experiment(name))
    return f"made run {run[:8]}, and deleted it"


def _ray(settings: "Settings") -> str:
    import ray

    from phrasemodels.infra.cluster import run_on_ray
    from phrasemodels.infra.services import start_ray, stop_ray

    started = start_ray(settings)
    try:
        answer = run_on_ray(sum, [1, 2])
        nodes = [
            f"{node['NodeManagerAddress']} ({node['Resources'].get('CPU', 0):.0f} CPUs)"
            for node in ray.nodes()
            if node["Alive"]
        ]
        return f"a worker answers {answer}; nodes: {', '.join(sorted(nodes))}"
    finally:
        if started:
            stop_ray()


def _prefect(settings: "Settings") -> str:
    from phrasemodels.infra.services import prefect, wait_for

    with prefect(settings) as server:
        wait_for(server)
        return "a server answers"


def _corpora() -> str:
    from phrasemodels.data.download.manifest import corpus_names, find_corpus
    from phrasemodels.infra.settings import Settings

    mirror = (given := Settings().mirror) and given.expanduser()
    known = {name: find_corpus(name) for name in corpus_names()}
    mirrored = [
        n for n, m in known.items() if mirror and m.files and all((mirror / f.mirror).is_file() for f in m.files)
    ]
    by_hand = [n for n, m in known.items() if m.sources]
    rest = len(known) - len({*mirrored, *by_hand})
    return f"sample needs nothing; in the mirror: {', '.join(mirrored) or 'none'}; by hand: {', '.join(by_hand)}; by URL: {rest}"


TEMPLATE = Path(__file__).with_name("template")
NAME = "my-study"  # in the template, for the name of the folder
# The template of each problem, and its corpus: commands and their actions; sentences and whether they say that something is good.
EXAMPLES: dict[str, tuple[Path, dict[str, Any]]] = {
    "translation": (TEMPLATE, {"name": "commands", "languages": ("en", "zxx")}),  # zxx: no language
    "classification": (
        TEMPLATE / "classification",
        {"name": "polarity", "reader": "labelled", "schema": "sentences"},
    ),
}


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder to make; its name is the study's.")],
    problem: Annotated[
        str, typer.Option(help="translation (a layer, a metric and printed numbers of your own), or classification.")
    ] = "translation",
) -> None:
    """Make the folder of your own study, with examples to change.

    Example: phrasemodels init my-study --problem classification && cd my-study && phrasemodels reproduce --paper my-study
    """
    from phrasemodels.data.corpora.added import Added, add
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.data.store.artifacts import write_durably
    from phrasemodels.flows.experiments.published import TAKEN
    from phrasemodels.project import CORPORA

    name = folder.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"{name}: a study is named in small letters, digits and hyphens, like my-study")
    if problem not in EXAMPLES:
        raise ValueError(f"no problem {problem!r}: {closest(problem, EXAMPLES)}")
    if name in TAKEN:
        raise ValueError(f"{name}: this name is taken; choose another one")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    template, corpus = EXAMPLES[problem]
    try:
        for file in (*sorted(template.glob("[!_.]*.*")), TEMPLATE / "prefect.yaml"):
            if file.stem != corpus["name"]:
                write_durably(folder / file.name, file.read_text(encoding="utf-8").replace(NAME, name))
        write_durably(folder / ".gitignore", "/.phrasemodels/\n")  # the store
        add(template / f"{corpus['name']}.txt", Added(**corpus, licence="Apache-2.0"), folder / CORPORA)
    except BaseException:  # the next try needs an empty folder
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    for path in sorted(folder.rglob("*.*")):
        print(path)
    print(
        f"next: cd {shlex.quote(str(folder))} && phrasemodels reproduce --paper {name} --seeds 3; README.md says more",
        file=sys.stderr,
    )


store = typer.Typer(no_args_is_help=True, help="The store: garbage collection, verification, runs.")


@store.command()
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

    Old interrupted work and records of old runs go, too. The record of the newest run of each verdict stays.

    With a store on object storage, also there; and this node's folder shrinks to its limit.
    """
    from phrasemodels.flows.results.records import collect_garbage
    from phrasemodels.infra.settings import Settings

    removed = collect_garbage(writable_store(), Settings(), days, newest, dry)
    rows = [{"path": str(item.path), "label": item.label, "bytes": item.bytes} for item in removed]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print(clean(f"{size(row['bytes']):>9}  {row['label']}  {row['path']}"))
    print(f"{len(rows)} things, {size(sum(item.bytes for item in removed))}" + (" would go" if dry else " removed"))


@store.command()
def forget(
    row: Annotated[str, typer.Argument(help="Its name, like my-study/table1/sample/mine.")],
    dry: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
) -> None:
    """Remove a row: its artifacts and MLflow runs.

    Its comparisons go, too. `reproduce` makes the comparisons of other rows again from their scores. Nothing goes that
    another row of today has made or shares, whatever its name was then.
    """
    from phrasemodels.flows.results.records import remove_row, sources_of
    from phrasemodels.infra.settings import Settings
    from phrasemodels.infra.tracking import Tracker

    settings = Settings()
    removed = remove_row(writable_store(), Tracker(settings.tracking_uri), row, sources_of(settings), dry)
    for text in removed:
        print(clean(text))
    print(f"{len(removed)} things" + (" would go" if dry else " removed"))


@store.command()
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

    place, tracker = opened()
    rows = [
        {"key": artifact.key, "label": artifact.manifest["label"], "what": problem, "verdicts": verdicts}
        for artifact, problem, verdicts in damage(place)
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
        there = "" if place.shared is None else f" and {len(place.shared.artifacts())} in the shared storage"
        known = list(place.artifacts())
        print(f"{len(known)} artifacts{there}, {len(rows)} damaged")
        for machine, count in Counter(filter(None, (made_elsewhere(a.manifest) for a in known))).items():
            print(
                f"{count} were made on {clean(machine)}: made again on this machine, they may differ in their last bits"
            )
    raise typer.Exit(1 if rows else 0)


@store.command()
def runs(as_json: Json = False) -> None:
    """List all runs, how they ended, and their reports.

    A dead run continues when you start it again.
    """
    from phrasemodels.flows.cli.terminal import print_rows
    from phrasemodels.flows.results.records import records
    from phrasemodels.infra.services import named_server
    from phrasemodels.infra.settings import Settings

    settings, (store, _) = Settings(), opened()
    known = records(store)
    if store.shared is not None or named_server(settings):
        where = f"these are runs whose driver was on this machine ({store.root / 'runs'})"
        print(f"{where}; `prefect flow-run ls` lists all runs of the server", file=sys.stderr)
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
