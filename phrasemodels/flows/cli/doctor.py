"""The command that starts every part once and says what is missing: doctor."""

import importlib.metadata
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from phrasemodels.infra.settings import Settings

app = typer.Typer()

INSTALL = "make install (or: pip install -e . -c constraints.txt)"


@app.command()
def doctor() -> None:
    """Import and start every part once; say what is missing and how to get it."""
    raise typer.Exit(0 if examine() else 1)


def examine() -> bool:
    """Print a line for each part; return whether all of them work."""
    import phrasemodels.infra.environment  # noqa: F401
    from phrasemodels.infra.settings import Settings

    with tempfile.TemporaryDirectory(prefix="pm-doctor-") as folder:
        settings = Settings(store=folder)
        checks: list[tuple[str, Callable[[], str], str]] = [
            ("Python", _python, "install Python 3.11, 3.12 or 3.13"),
            ("libraries", _libraries, INSTALL),
            ("torch", _torch, INSTALL),
            ("store", _store, "free some disk, or choose another folder with PHRASEMODELS_STORE"),
            ("Arrow and DuckDB", _duckdb, INSTALL),
            ("MLflow", lambda: _mlflow(settings), f"{INSTALL}; or name a server with PHRASEMODELS_MLFLOW_URI"),
            ("Ray", lambda: _ray(settings), f"{INSTALL}; or name a cluster with PHRASEMODELS_RAY_ADDRESS"),
            ("Prefect", lambda: _prefect(settings), f"{INSTALL}; or name a server with PHRASEMODELS_PREFECT_API_URL"),
            ("corpora", _corpora, "set PHRASEMODELS_MIRROR to a folder that holds the files, or connect to a network"),
        ]
        answers = [_say(*check) for check in checks]  # all of them, also after one that fails
        return all(answers)


def _say(name: str, check: Callable[[], str], remedy: str) -> bool:
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
    names = (
        "torch",
        "pyarrow",
        "duckdb",
        "prefect",
        "ray",
        "mlflow",
        "sacrebleu",
        "safetensors",
        "fastapi",
        "sqlalchemy",
    )
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
    from phrasemodels.flows.results.stores import open_store
    from phrasemodels.infra.settings import Settings

    store = open_store(Settings())
    return f"{store.root}, {shutil.disk_usage(store.root).free >> 30} GiB free"


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
    run = tracker.open_run("doctor", "doctor", "doctor", {})
    tracker.finish(run, {}, [], {})
    return f"made run {run[:8]}"


def _ray(settings: "Settings") -> str:
    from phrasemodels.infra.runner import run_on_ray
    from phrasemodels.infra.services import start_ray, stop_ray

    started = start_ray(settings)
    try:
        return f"a worker answers {run_on_ray(sum, [1, 2])}"
    finally:
        if started:
            stop_ray()


def _prefect(settings: "Settings") -> str:
    from phrasemodels.infra.services import prefect, wait_for

    with prefect(settings) as server:
        wait_for(server)
        return "a server answers"


def _corpora() -> str:
    from phrasemodels.data.download.corpora import find, names
    from phrasemodels.infra.settings import Settings

    mirror = (given := Settings().mirror) and given.expanduser()
    known = {name: find(name) for name in names()}
    mirrored = [
        n for n, m in known.items() if mirror and m.files and all((mirror / f.mirror).is_file() for f in m.files)
    ]
    by_hand = [n for n, m in known.items() if m.sources]
    rest = len(known) - len({*mirrored, *by_hand})
    return f"sample needs nothing; in the mirror: {', '.join(mirrored) or 'none'}; by hand: {', '.join(by_hand)}; by URL: {rest}"
