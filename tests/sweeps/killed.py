"""A training with a SIGKILL at a step beside an undisturbed one: it resumes from its checkpoint and ends with the same weights."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from phrasemodels.data.store.artifacts import MANIFEST
from phrasemodels.tasks.train.checkpoints import newest
from phrasemodels.tasks.train.trainer import PROGRESS

EXPERIMENT = "000/table1/sample/phrase-k2"
STEPS = 60
# Another number of workers sums in another order and draws other dropout masks. The order of sums alone makes weights differ
# by 1e-2 in float32, by 1e-11 in float64.
CLOSE, NO_DROPOUT = 1e-6, "model.encoder.dropout=0.0"
DOUBLE = "import torch\n\ntorch.set_default_dtype(torch.float64)\n"
SETTINGS = (f"train.steps={STEPS}", "train.evaluate_every=20", "train.checkpoint_every=5", "train.batch_tokens=600",
            "recipe.corpus.train=200", "recipe.corpus.dev=20", "recipe.corpus.test=20")  # fmt: skip


def resumed(workers: int, then: int, step: int) -> tuple[bool, str]:
    """Return whether a training that is killed at a step resumes and ends with the weights of an undisturbed one, and what happened."""
    settings = SETTINGS if workers == then else (*SETTINGS, NO_DROPOUT)
    with tempfile.TemporaryDirectory(prefix="pm-killed-") as name:
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
    went_on = starts == [0, at]
    began = "went on" if went_on else f"did not go on, but began at steps {', '.join(map(str, starts))},"
    killed_at = f"{workers} workers: killed at step {at} of {STEPS}"
    right = went_on and (same if workers == then else furthest <= CLOSE)
    return right, f"{killed_at}, {began} with {then}: {weights} ({dtypes.pop()})"


def _start(store: Path, startup: Path, chosen: Sequence[str], workers: int, now: int) -> subprocess.Popen[str]:
    """Start the training as a user would, in a store of its own. workers: of its settings. now: workers that it gets."""
    settings = [word for setting in (*chosen, f"train.workers={workers or 'none'}") for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "phrasemodels",
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
    (path,) = store.glob("objects/train/*/model.safetensors")
    return load_file(path)
