"""Proofs that a user can run: `phrasemodels selftest resume`."""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True, help="Proofs on this machine that promises hold.")

EXPERIMENT = "000/table1/sample/phrase-k2"
STEPS = 60
CLOSE, NO_DROPOUT = 1e-6, "model.encoder.dropout=0.0"  # another number of workers sums, and drops, in another order
# In float32 the other order of sums grows under Adam (from step 5 to 60: weights 1e-2 apart); in float64 it stays 1e-11.
DOUBLE = "import torch\n\ntorch.set_default_dtype(torch.float64)\n"
SETTINGS = (f"train.steps={STEPS}", "train.evaluate_every=20", "train.checkpoint_every=5", "train.batch_tokens=600",
            "recipe.corpus.train=200", "recipe.corpus.dev=20", "recipe.corpus.test=20")  # fmt: skip


@app.callback()
def callback() -> None:
    """Proofs on this machine that promises hold."""


@app.command()
def resume(
    workers: Annotated[
        list[int] | None, typer.Option(min=0, help="Of the training: 0 is this process's own; repeatable.")
    ] = None,
    then: Annotated[
        int | None, typer.Option(min=1, help="It goes on with so many workers; then in float64, to 1e-6.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which step it is killed at; random by default.")] = None,
) -> None:
    """Train, and train again with a SIGKILL at a random step: the same weights, bit for bit, or exit status 1.

    Example: phrasemodels selftest resume --workers 0 --workers 2; or --workers 2 --then 1
    """
    chosen = random.Random(seed)
    same = [_resumed(count, then or count, chosen.randrange(5, STEPS - 5)) for count in workers or [0, 1]]
    raise typer.Exit(0 if all(same) else 1)


def _resumed(workers: int, then: int, step: int) -> bool:
    """Whether a training that is killed at a step ends with the weights of one that is not; says so."""
    settings = SETTINGS if workers == then else (*SETTINGS, NO_DROPOUT)
    with tempfile.TemporaryDirectory(prefix="pm-selftest-") as name:
        undisturbed, killed, startup = (Path(name, part) for part in ("undisturbed", "killed", "startup"))
        startup.mkdir()
        if workers != then:
            (startup / "sitecustomize.py").write_text(DOUBLE, encoding="utf-8")  # what every Python reads as it starts
        _finish(_start(undisturbed, startup, settings, workers, workers))
        process = _start(killed, startup, settings, workers, workers)
        at = _kill(process, killed, step)
        time.sleep(5 if workers else 0)  # until Ray has seen it
        _finish(_start(killed, startup, settings, workers, then))
        one, other = _weights(undisturbed), _weights(killed)
    same = one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
    furthest = max(float(abs(one[name] - other[name]).max()) for name in one)
    dtypes = {str(weight.dtype) for weight in (*one.values(), *other.values())}
    if workers != then and dtypes != {"float64"}:
        raise OSError(f"the trainings were of {', '.join(sorted(dtypes))}: another sitecustomize is in the way")
    said = "the same bits" if same else f"weights differ by {furthest:.1e} at most"
    print(
        f"{workers} workers: killed at step {at} of {STEPS}, went on with {then}: {said} ({dtypes.pop()})", flush=True
    )
    return same if workers == then else furthest <= CLOSE


def _start(store: Path, startup: Path, chosen: Sequence[str], workers: int, now: int) -> subprocess.Popen[str]:
    """The training as a user starts it, with a store of its own: one for so many workers, with as many as there are now."""
    settings = [word for setting in (*chosen, f"train.workers={workers}") for word in ("--set", setting)]
    command = [sys.executable, "-m", "flows.cli", "train", EXPERIMENT, *settings, *(() if workers else ("--local",))]
    path = os.pathsep.join(filter(None, [str(startup), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "PHRASEMODELS_STORE": str(store),
                                "PHRASEMODELS_WORKERS": str(max(1, now))}  # fmt: skip
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate()
    if process.returncode:
        raise OSError(f"a training ended with status {process.returncode}: {said.strip()[-500:]}")


def _kill(process: subprocess.Popen[str], store: Path, step: int) -> int:
    """SIGKILL once the training has come to a step, by what it writes beside its checkpoints; returns where it was."""
    while process.poll() is None:
        for path in store.glob("work/*/checkpoints/step-*"):
            if (at := int(path.name.removeprefix("step-"))) >= step - step % 5:
                process.kill()
                process.communicate()
                return at
        time.sleep(0.005)
    _finish(process)
    raise OSError(f"the training ended before step {step}: run it again")


def _weights(store: Path) -> dict[str, Any]:
    """The weights of the one training in a store."""
    from safetensors.numpy import load_file

    (path,) = store.glob("objects/train/*/model.safetensors")
    return load_file(path)
