"""The commands about this machine: doctor, compile-kernels, bench, init and selftest."""

import importlib.metadata
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phrasemodels.data.store.artifacts import MANIFEST
from phrasemodels.flows.cli.terminal import Json, print_json, print_rows

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
        answers = [_passes(*check) for check in checks]  # all of them, also after one that fails
        return all(answers)


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
    from phrasemodels.flows.results.records import open_store
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
    run = tracker.open_run("Default", "doctor", "doctor", {})  # an experiment that every MLflow has
    tracker.finish(run, {}, [], {})
    tracker.client().delete_run(run)
    return f"made run {run[:8]}, and deleted it"


def _ray(settings: "Settings") -> str:
    from phrasemodels.infra.cluster import run_on_ray
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


@app.command("compile-kernels")
def warm() -> None:
    """Compile the kernels of structured inference, so that no first call has to. Takes about a minute, once.

    Example: phrasemodels compile-kernels
    """
    from phrasemodels.structs import warm as compile_all

    seconds = compile_all(lambda name, spent: print(f"{spent:7.2f} s  {name}", file=sys.stderr))
    print(f"all kernels are compiled; this took {seconds:.1f} s")


@app.command()
def bench(
    rounds: Annotated[
        int, typer.Option(min=1, help="Times that each command is run; layers run five times as often.")
    ] = 5,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the ratios under --history, by date and commit.")] = False,
    history: Annotated[Path, typer.Option(help="Folder of kept ratios.")] = Path("benchmarks/history"),
    over_commits: Annotated[
        bool, typer.Option("--over-commits", help="Measure nothing; show the kept ratios.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the speed of commands, layers and inference on this machine, as ratios to known work in the same run.

    CPU time, so other work hardly matters. The last column is the change since the newest kept ratios.

    Example: phrasemodels bench --rounds 3
    """
    from dataclasses import asdict

    from phrasemodels.flows.results.records import commit
    from phrasemodels.flows.run.bench import history as kept_in
    from phrasemodels.flows.run.bench import keep as write
    from phrasemodels.flows.run.bench import measures

    kept = kept_in(history)
    if over_commits:
        names = list(dict.fromkeys(what for _, ratios in kept for what in ratios))
        rows = [{"commit": when, **{name: _short(ratios.get(name)) for name in names}} for when, ratios in kept]
        if as_json:
            print_json(rows, None)
        else:
            print_rows("Ratios by commit", ["commit", *names], rows)
        return
    found = list(measures(rounds))
    if as_json:
        print_json([asdict(one) for one in found], None)
    else:
        when, before = kept[-1] if kept else ("the first", {})
        rows = [
            {
                "what": one.what,
                "compared with": one.against,
                "ratio": _short(one.ratio),
                "ms": _short(1e3 * one.seconds),
                f"since {when}": _change(one.ratio, before.get(one.what)),
            }
            for one in found
        ]
        print_rows("Speed of this machine, CPU time", list(rows[0]), rows)
    if keep:
        print(write(found, history, commit()))


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _change(now: float, before: float | None) -> str:
    return "" if not before else f"{100 * (now / before - 1):+.0f} %"


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
        str, typer.Option(help="translation (a layer, a metric and printed numbers of one's own), or classification.")
    ] = "translation",
) -> None:
    """Make the folder of a study of your own: a corpus, a table and a test, as examples to change.

    Example: phrasemodels init my-study --problem classification && cd my-study && phrasemodels reproduce --paper my-study
    """
    from phrasemodels.data.corpora.added import Added, add
    from phrasemodels.data.download.manifest import closest
    from phrasemodels.data.store.artifacts import write_durably
    from phrasemodels.flows.experiments.names import TAKEN
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
    for file in sorted(template.glob("[!_.]*.*")):
        if file.stem != corpus["name"]:
            write_durably(folder / file.name, file.read_text(encoding="utf-8").replace(NAME, name))
    add(template / f"{corpus['name']}.txt", Added(**corpus, licence="Apache-2.0"), folder / CORPORA)
    for path in sorted(folder.rglob("*.*")):
        print(path)
    print(
        f"next: cd {shlex.quote(str(folder))} && phrasemodels reproduce --paper {name} --seeds 3; README.md says more",
        file=sys.stderr,
    )


selftest_app = typer.Typer(
    no_args_is_help=True, help="Check on this machine that a killed training resumes with the same weights."
)

EXPERIMENT = "000/table1/sample/phrase-k2"
STEPS = 60
# Another number of workers sums in another order and draws other dropout masks. The order of sums alone makes weights differ
# by 1e-2 in float32, by 1e-11 in float64.
CLOSE, NO_DROPOUT = 1e-6, "model.encoder.dropout=0.0"
DOUBLE = "import torch\n\ntorch.set_default_dtype(torch.float64)\n"
SETTINGS = (f"train.steps={STEPS}", "train.evaluate_every=20", "train.checkpoint_every=5", "train.batch_tokens=600",
            "recipe.corpus.train=200", "recipe.corpus.dev=20", "recipe.corpus.test=20")  # fmt: skip


@selftest_app.callback()
def callback() -> None:
    """Check on this machine that a killed training resumes with the same weights."""


@selftest_app.command()
def resume(
    workers: Annotated[
        list[int] | None,
        typer.Option(
            min=0, help="Workers of the training; 0: no Ray, in one process; repeatable. By default 0, then 1."
        ),
    ] = None,
    then: Annotated[
        int | None,
        typer.Option(
            min=1, help="Workers after the kill, by default as many; another number is compared in float64, to 1e-6."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the step at which it is killed; random by default.")] = None,
) -> None:
    """Train a model, and train it again with a SIGKILL at a random step. Exit status 1 unless the killed training resumes
    from its last checkpoint and ends with the same weights, bit for bit.

    Example: phrasemodels selftest resume --workers 0 --workers 2; or --workers 2 --then 1
    """
    chosen = random.Random(seed)
    same = [_resumed(count, then or count, chosen.randrange(10, STEPS - 20)) for count in workers or [0, 1]]
    raise typer.Exit(0 if all(same) else 1)


def _resumed(workers: int, then: int, step: int) -> bool:
    """Return whether a training that is killed at a step resumes and ends with the weights of an undisturbed one; print it."""
    settings = SETTINGS if workers == then else (*SETTINGS, NO_DROPOUT)
    with tempfile.TemporaryDirectory(prefix="pm-selftest-") as name:
        undisturbed, killed, startup = (Path(name, part) for part in ("undisturbed", "killed", "startup"))
        startup.mkdir()
        if workers != then:
            # every Python process reads it at its start
            (startup / "sitecustomize.py").write_text(DOUBLE, encoding="utf-8")
        _finish(_start(undisturbed, startup, settings, workers, workers))
        process = _start(killed, startup, settings, workers, workers)
        _kill(process, killed, step)
        time.sleep(5 if workers else 0)  # until Ray has seen it
        at = _checkpoint(killed)
        _finish(_start(killed, startup, settings, workers, then))
        one, other, starts = _weights(undisturbed), _weights(killed), _starts(killed)
    same = one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
    furthest = max(float(abs(one[name] - other[name]).max()) for name in one)
    dtypes = {str(weight.dtype) for weight in (*one.values(), *other.values())}
    if workers != then and dtypes != {"float64"}:
        raise OSError(f"the trainings were of {', '.join(sorted(dtypes))}: another sitecustomize is in the way")
    weights = "the same bits" if same else f"weights differ by {furthest:.1e} at most"
    resumed = starts == [0, at]
    began = "went on" if resumed else f"did not go on, but began at steps {', '.join(map(str, starts))},"
    killed_at = f"{workers} workers: killed at step {at} of {STEPS}"
    print(f"{killed_at}, {began} with {then}: {weights} ({dtypes.pop()})", flush=True)
    return resumed and (same if workers == then else furthest <= CLOSE)


def _start(store: Path, startup: Path, chosen: Sequence[str], workers: int, now: int) -> subprocess.Popen[str]:
    """Start the training as a user would, in a store of its own. workers: of its settings. now: workers that it gets."""
    settings = [word for setting in (*chosen, f"train.workers={workers}") for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "phrasemodels.flows.cli",
        "train",
        EXPERIMENT,
        *settings,
        *(() if workers else ("--local",)),
    ]
    path = os.pathsep.join(filter(None, [str(startup), os.environ.get("PYTHONPATH")]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHRASEMODELS_")}
    environment |= {"PYTHONPATH": path, "PHRASEMODELS_STORE": str(store), "PHRASEMODELS_WORKERS": str(max(1, now))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> None:
    """Wait for a training. OSError: it failed."""
    _, errors = process.communicate()
    if process.returncode:
        raise OSError(f"a training ended with status {process.returncode}: {errors.strip()[-500:]}")


def _kill(process: subprocess.Popen[str], store: Path, step: int) -> None:
    """Kill a training with SIGKILL once its progress file says that it has reached a step. OSError: it ended before."""
    from phrasemodels.tasks.train.trainer import PROGRESS

    while process.poll() is None:
        for path in store.glob(f"work/*/checkpoints/{PROGRESS}"):
            if (state := json.loads(path.read_bytes()))["step"] >= step - step % 10:
                process.kill()
                process.communicate()
                # Ray's worker would train on until Ray notices that the driver is gone
                with suppress(ProcessLookupError):
                    os.kill(state["pid"], signal.SIGKILL)
                return
        time.sleep(0.005)
    _finish(process)
    raise OSError(f"the training ended before step {step}: run it again")


def _checkpoint(store: Path) -> int:
    """Return the step of the newest whole checkpoint of the only training in a store."""
    from phrasemodels.tasks.train.checkpoints import newest

    (folder,) = store.glob("work/*/checkpoints")
    found = newest(folder, folder.parent.name)
    if found is None or found[1]["progress"]["step"] == STEPS:
        raise OSError("the training was not killed between a checkpoint and its end: run it again")
    return found[1]["progress"]["step"]


def _starts(store: Path) -> list[int]:
    """Return the steps at which the only training in a store started, and resumed."""
    (path,) = store.glob(f"objects/train/*/{MANIFEST}")
    return json.loads(path.read_bytes())["meta"]["starts"]


def _weights(store: Path) -> dict[str, Any]:
    """Return the weights of the only training in a store."""
    from safetensors.numpy import load_file

    (path,) = store.glob("objects/train/*/model.safetensors")
    return load_file(path)
