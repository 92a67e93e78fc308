"""Proofs that a user can run: `phrasemodels selftest resume`."""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Proofs on this machine that promises hold.")

EXPERIMENT = "000/table1/sample/phrase-k2"
STEPS = 60
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
    seed: Annotated[int | None, typer.Option(help="Which step it is killed at; random by default.")] = None,
) -> None:
    """Train, and train again with a SIGKILL at a random step: the same weights, bit for bit, or exit status 1.

    Example: phrasemodels selftest resume --workers 0 --workers 2
    """
    chosen = random.Random(seed)
    same = [_resumed(count, chosen.randrange(5, STEPS - 5)) for count in workers or [0, 1]]
    raise typer.Exit(0 if all(same) else 1)


def _resumed(workers: int, step: int) -> bool:
    """Whether a training that is killed at a step ends with the weights of one that is not; says so."""
    with tempfile.TemporaryDirectory(prefix="pm-selftest-") as name:
        undisturbed, killed = Path(name, "undisturbed"), Path(name, "killed")
        _finish(_start(undisturbed, workers))
        process = _start(killed, workers)
        at = _kill(process, killed, step)
        time.sleep(5 if workers else 0)  # until Ray has seen it
        _finish(_start(killed, workers))
        (one,), (other,) = _weights(undisturbed), _weights(killed)
    said = "the same bits" if one == other else f"other bits than {one[:16]}"
    print(f"{workers} workers: killed at step {at} of {STEPS}, went on: {said} (sha256 {other[:16]})", flush=True)
    return one == other


def _start(store: Path, workers: int) -> subprocess.Popen[str]:
    """The training as a user starts it, with a store of its own."""
    settings = [word for setting in (*SETTINGS, f"train.workers={workers}") for word in ("--set", setting)]
    command = [sys.executable, "-m", "flows.cli", "train", EXPERIMENT, *settings, *(() if workers else ("--local",))]
    environment = os.environ | {"PHRASEMODELS_STORE": str(store)}
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


def _weights(store: Path) -> list[str]:
    """The digests of the weights of all trainings in a store."""
    found = []
    for path in store.glob("objects/train/*/manifest.json"):
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(path.read_text(encoding="utf-8"))["files"]["model.safetensors"]["sha256"])
    return found
